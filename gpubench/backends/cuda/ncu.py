"""Runs a program under Nsight Compute (ncu), and reads the counters of the program's kernels.

The program launches a marker kernel before each call. So the calls can be told apart in the list of
kernels, although a call of a library may launch several kernels.
"""

import csv
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from subprocess import DEVNULL, TimeoutExpired
from typing import NamedTuple

from gpubench.backends.cuda.nvcc import without_parameters
from gpubench.process.child import start_program
from gpubench.temporary import temporary_folder

MARKER = "gpubench_marker"

_FORBIDDEN, _UNKNOWN = "ERR_NVGPUCTRPERM", "Failed to find metric"
"""Texts in the errors of ncu about missing rights and about unknown metrics."""


class Counter(NamedTuple):
    """The value of a metric in one kernel. The value is None if ncu has no number."""

    metric: str
    unit: str
    value: float | None


class ProfiledKernel(NamedTuple):
    """A kernel that a call launched: its name with template arguments, and its counters."""

    function: str
    counters: tuple[Counter, ...]


class Profile(NamedTuple):
    """The kernels of each call, in order, and why ncu failed, or an empty text."""

    calls: list[list[ProfiledKernel]]
    error: str


def find_ncu() -> str | None:
    """Return the path of ncu, or None if Nsight Compute is not installed."""
    places = [*Path("/usr/local/cuda/bin").glob("ncu")]
    places += sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    return shutil.which("ncu") or next(map(str, places), None)


NOT_IN_PATH = "ncu is not in PATH: install Nsight Compute, a part of the CUDA toolkit"


def profile(
    program: Sequence[str | Path],
    metrics: Sequence[str],
    *,
    flush: bool,
    limit_s: float,
    environment: Mapping[str, str],
    output: int,
) -> Profile:
    """Run a program that uses `marked_call`, and return the counters of the calls.

    If `flush` is true, ncu empties the caches before each kernel. The program prints into the
    descriptor `output`.
    """
    ncu = find_ncu()
    if ncu is None:
        return Profile([], NOT_IN_PATH)
    with temporary_folder() as folder:
        log = folder / "log"
        command = (
            ncu, "--log-file", log, "--metrics", ",".join(metrics), "--csv",
            "--page", "raw", "--print-units", "base", "--clock-control", "none",
            "--cache-control", "all" if flush else "none",
            "--profile-from-start", "off", "--target-processes", "all", *program,
        )  # fmt: skip
        # In other locales, ncu writes a number with a comma before its decimals.
        with start_program(
            command,
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            env={**environment, "LC_ALL": "C.UTF-8"},
        ) as running:
            try:
                code = running.wait(limit_s)
                ending = f"ncu ended with exit code {code}" if code else ""
            except TimeoutExpired:
                ending = f"ncu took longer than {limit_s:.0f} s"
            finally:
                running.terminate()
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return read_log(text, metrics, ending)


def read_log(text: str, metrics: Sequence[str], ending: str = "") -> Profile:
    """Read the log of ncu. `ending` describes how the program ended, if it failed."""
    errors = [line[9:].strip() for line in text.splitlines() if line.startswith("==ERROR==")]
    error = _explained(errors[0], metrics) if errors else ending
    # The last line may be cut, for example because the disk is full.
    lines = filter(re.compile(r'".*[^,]"').fullmatch, text.splitlines())
    rows = [row for row in csv.DictReader(lines) if None not in row.values()]
    if not rows:
        return Profile([], error or "ncu profiled no kernel")
    units = rows[0]  # the first row has the units
    # A metric without a suffix, such as dram__bytes, has a column for each of several suffixes.
    columns = {x: [name for name in units if f"{name}.".startswith(f"{x}.")] for x in metrics}
    names = dict.fromkeys(chain.from_iterable(columns.values()))
    if not error and (lacking := [metric for metric in metrics if not columns[metric]]):
        error = _unknown(lacking[0])
    calls: list[list[ProfiledKernel]] = []
    for row in rows[1:]:
        if MARKER in row["Kernel Name"]:
            calls.append([])
        elif calls:
            counters = (Counter(name, units[name], _number(row[name])) for name in names)
            function = without_parameters(row["Kernel Name"])
            calls[-1].append(ProfiledKernel(function, tuple(counters)))
    return Profile(calls, error)


def _explained(error: str, metrics: Sequence[str]) -> str:
    """Return an error of ncu with advice."""
    if _FORBIDDEN in error:
        return (
            f"this user may not read the GPU's counters ({_FORBIDDEN}): run as root, or see "
            f"https://developer.nvidia.com/{_FORBIDDEN}"
        )
    named = [metric for metric in metrics if metric.partition(".")[0] in error]
    if _UNKNOWN in error and named:
        return _unknown(max(named, key=len))
    return f"Nsight Compute: {error}"


def _unknown(metric: str) -> str:
    return f"'{metric}' is not a metric of this GPU; 'ncu --query-metrics' lists the metrics"


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:  # `n/a`
        return None


@contextmanager
def marked_call() -> Iterator[None]:
    """Let ncu profile the kernels that the block launches, behind a marker kernel."""
    import cupy

    runtime = cupy.cuda.runtime
    marker = cupy.RawKernel(f'extern "C" __global__ void {MARKER}() {{}}', MARKER)
    runtime.profilerStart()
    marker((1,), (1,), ())
    yield
    runtime.deviceSynchronize()
    runtime.profilerStop()
