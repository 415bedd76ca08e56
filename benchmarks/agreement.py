"""Compare gpubench's times with the hardware profilers' and with those of other timers.

    python benchmarks/agreement.py pass results/h200/agreement/1.jsonl      # repeat this thrice
    python benchmarks/agreement.py report results/h200/agreement results/h200/agreement.csv
    python benchmarks/agreement.py pass new/1.jsonl --sizes 80,160 --columns events_hot,ncu_hot

A pass times every kernel at every size by gpubench (`events`: time per launch in a stream; `cupti`:
execution), by the profilers (Nsight Compute's `gpu__time_duration.sum`; CUPTI's activity records
taken without gpubench) and by common timers for Python (`cupyx.profiler.benchmark`,
`triton.testing.do_bench`, a plain pair of events). Each runs in a process of its own, so a tool
that crashes or hangs loses only its own column. With `--columns`, only the timers that fill one of
these columns run. The report takes medians over the passes in a
directory: times side by side, the ratio of gpubench to each profiler, and the launch gap.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from itertools import chain
from pathlib import Path
from statistics import median
from time import perf_counter

import agreement_timers
from agreement_timers import (
    KERNELS,
    MARKER,
    NCU_CALLS,
    SIZES,
    Case,
    Reading,
    cases_of,
    describe,
    per_call,
)
from shared import child

TIMEOUT_S = 120
"""Time limit of one timer. Readings until then are kept."""

NCU_METRIC = "gpu__time_duration.sum"
NCU_CACHE_CONTROL = {"ncu-hot": "none", "ncu-cold": "all"}
"""`all` flushes and invalidates the caches before every kernel."""

NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
NS |= {"nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9}
NS["cycle"] = 1.0
"""Nanoseconds (or cycles) per unit, in the spellings of different versions of Nsight Compute."""

COLUMNS = {
    "events": ("events_hot", "events_cold"),
    "cupti": ("cupti_hot",),
    "paired": ("paired_gap",),
    "ncu-hot": ("ncu_hot",),
    "ncu-cold": ("ncu_cold",),
    "raw-cupti": ("raw_cupti_hot",),
    "cupyx": ("cupyx",),
    "do-bench": ("do_bench",),
    "event-pair": ("event_pair",),
}
"""The columns that each timer fills."""

ALL_COLUMNS = tuple(chain.from_iterable(COLUMNS.values()))
TIMES = tuple(column for column in ALL_COLUMNS if "gap" not in column)
ORDER = ("events_hot", "ncu_hot", "events_cold", "ncu_cold", "cupti_hot", "raw_cupti_hot")
"""The first columns of the report; the columns of the other timers follow."""

Line = dict[str, float]
"""Microseconds per call of one case by column, and `kernels`. Missing times have no key."""


def one_pass(path: Path, sizes: Sequence[int], columns: Sequence[str]) -> int:
    """Run the timers of the columns; after each, write the facts of the machine and the readings.

    Print the seconds that each timer took.
    """
    lines = [json.dumps(environment())]
    for timer, all_of_timer in COLUMNS.items():
        of_timer = [column for column in all_of_timer if column in columns]
        if not of_timer:
            continue
        started_s = perf_counter()
        by = by_ncu if timer in NCU_CACHE_CONTROL else by_worker
        try:
            answered, failed = by(timer, sizes, of_timer)
        except (OSError, ValueError, KeyError) as error:
            answered, failed = [], describe(error)
        by_case = {(reading.column, reading.case): reading for reading in answered}
        readings = [
            by_case.get((column, case))
            or Reading(column, case, reason=failed or f"{timer} gave no reading")
            for column in of_timer
            for case in cases_of(sizes)
        ]
        blank = {reading.reason for reading in readings if reading.us is None}
        said = f"{timer}: {len(answered)} readings in {perf_counter() - started_s:.1f} s"
        print(said, *sorted(blank), sep="\n  blank: ", file=sys.stderr)
        lines += [json.dumps(reading) for reading in readings]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def environment() -> dict[str, str]:
    """Return what the times depend on. `blank` says why facts are missing."""
    from gpubench.backends.cuda.devices import cuda_device

    facts: dict[str, str] = {}
    try:
        device = cuda_device(0)
        facts |= {"GPU": device.name, **device.versions}
        facts["ncu"] = child((find_ncu(), "--version")).out.strip().rpartition("\n")[2]
    except Exception as error:  # the blank columns give the reason too
        facts["blank"] = describe(error)
    for package in ("gpubench", "cupti-python", "nvidia-cuda-cupti", "triton", "torch"):
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def by_worker(
    name: str, sizes: Sequence[int], columns: Sequence[str], wrapper: Sequence[str] = ()
) -> tuple[list[Reading], str]:
    """Return the readings of a worker, and why it failed, or an empty text."""
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "answers.jsonl"
        answers.touch()
        asked = (",".join(map(str, sizes)), ",".join(columns))
        ended = child(
            (*wrapper, sys.executable, agreement_timers.__file__, name, answers, *asked),
            timeout_s=TIMEOUT_S,
            out=subprocess.DEVNULL,
            err=subprocess.PIPE,
        )
        text = answers.read_text(encoding="utf-8").rpartition("\n")[0]  # without part of a line
    failed = "" if ended.code == 0 else f"exit status {ended.code}: {ended.last_line}"
    failed = f"killed after {TIMEOUT_S} s" if ended.code is None else failed
    return [reading(line) for line in text.splitlines()], failed


def reading(line: str) -> Reading:
    """Return the reading that `json.dumps` wrote."""
    column, case, *rest = json.loads(line)
    return Reading(column, Case(*case), *rest)


def by_ncu(timer: str, sizes: Sequence[int], columns: Sequence[str]) -> tuple[list[Reading], str]:
    """Return Nsight Compute's durations of the kernels that a launching worker runs."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        wrapper = ncu_command(log, NCU_CACHE_CONTROL[timer])
        launched, failed = by_worker("launch", sizes, columns, wrapper)
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    try:
        return list(attribute(columns[0], launched, parse_ncu(text))), failed
    except ValueError as error:
        errors = [line for line in text.splitlines() if line.startswith("==ERROR==")]
        reasons = [reading.reason for reading in launched if reading.reason]
        return [], "; ".join(filter(None, (failed, str(error), *errors[:2], *reasons[:1])))


def ncu_command(log: Path, cache_control: str, metrics: str = NCU_METRIC) -> tuple[str, ...]:
    """Return the words before a program's command that let ncu measure its kernels into a log."""
    return (
        *(find_ncu(), "--log-file", str(log), "--metrics", metrics, "--csv"),
        *("--page", "raw", "--print-units", "base", "--clock-control", "none"),
        *("--cache-control", cache_control),
        *("--profile-from-start", "off", "--target-processes", "all"),
    )


def find_ncu() -> str:
    """Return the command of Nsight Compute. Raise FileNotFoundError if it is missing."""
    places = [*Path("/usr/local/cuda/bin").glob("ncu")]
    places += sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    command = shutil.which("ncu") or (str(places[0]) if places else None)
    if command is None:
        raise FileNotFoundError("ncu (Nsight Compute) is not installed")
    return command


def ncu_rows(text: str) -> list[dict[str, str]]:
    """Return the units, then the figures of each kernel in a log of `ncu --csv --page raw`.

    Raise ValueError if there are no kernels.
    """
    rows = list(csv.DictReader(line for line in text.splitlines() if line.startswith('"')))
    if not rows[1:]:
        raise ValueError("Nsight Compute listed no kernels")
    return rows


def parse_ncu(text: str, metric: str = NCU_METRIC) -> list[tuple[str, float]]:
    """Return name and nanoseconds, or cycles, of the kernels in a log.

    Raise ValueError if there are no kernels.
    """
    units, *kernels = ncu_rows(text)
    return [
        (row["Kernel Name"], float(row[metric].replace(",", "")) * NS[units[metric]])
        for row in kernels
    ]


def attribute(
    column: str, launched: Sequence[Reading], kernels: Sequence[tuple[str, float]]
) -> Iterator[Reading]:
    """Yield for each case the kernels between its markers. Raise ValueError if any is missing."""
    profiled = [reading.case for reading in launched if not reading.reason]
    inside = between_markers(kernels, len(profiled))
    yield from (reading._replace(column=column) for reading in launched if reading.reason)
    for case, durations in zip(profiled, inside, strict=True):
        yield Reading(column, case, *per_call(durations, NCU_CALLS))


def between_markers(kernels: Sequence[tuple[str, float]], points: int) -> list[list[float]]:
    """Return the nanoseconds of each point's kernels. Raise ValueError if a marker is missing."""
    inside: list[list[float]] = [[]]
    for name, nanoseconds in kernels:
        if MARKER in name:
            inside.append([])
        else:
            inside[-1].append(nanoseconds)
    if len(inside) != 2 * points + 1:
        raise ValueError(f"Nsight Compute saw {len(inside) - 1} markers for {points} points")
    return inside[1::2]


def ratio(above: str, below: str) -> Callable[[Line], float | None]:
    """Return a function that divides two times of a line; None if either is missing."""
    return lambda line: line[above] / line[below] if {above, below} <= line.keys() else None


def gap_per_kernel(line: Line) -> float | None:
    """Return the launch gap per kernel of the call."""
    return (
        line["paired_gap"] / line["kernels"] if {"paired_gap", "kernels"} <= line.keys() else None
    )


def difference(line: Line) -> float | None:
    """Return the gap from two separate runs, between which the machine may have changed."""
    both = {"events_hot", "cupti_hot"} <= line.keys()
    return line["events_hot"] - line["cupti_hot"] if both else None


DERIVED: dict[str, Callable[[Line], float | None]] = {
    "events_over_ncu_hot": ratio("events_hot", "ncu_hot"),
    "events_over_ncu_cold": ratio("events_cold", "ncu_cold"),
    "cupti_over_raw": ratio("cupti_hot", "raw_cupti_hot"),
    "gap_us": lambda line: line.get("paired_gap"),
    "gap_per_kernel_us": gap_per_kernel,
    "events_minus_cupti_us": difference,
}
"""Columns of the report that follow from the others."""


def report(folder: Path, path: Path) -> int:
    """Write the medians over the passes of a directory as CSV."""
    times: dict[Case, dict[str, list[float]]] = {}
    for file in sorted(folder.glob("*.jsonl*")):
        content = file.read_bytes()
        text = gzip.decompress(content) if file.suffix == ".gz" else content
        for taken in map(reading, text.decode().splitlines()[1:]):
            line = times.setdefault(taken.case, {})
            if taken.us is not None:
                line.setdefault(taken.column, []).append(taken.us)
                if taken.kernels:
                    line["kernels"] = [taken.kernels]
    names = (*ORDER, *(name for name in TIMES if name not in ORDER))
    variants = [variant for variant, _ in KERNELS]
    with path.open("w", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        head = ["variant", "tile", "n", "kernels_per_call", *(f"{name}_us" for name in names)]
        writer.writerow([*head, *DERIVED])
        for case in sorted(times, key=lambda case: variants.index(case.variant)):
            medians = {name: median(values) for name, values in times[case].items()}
            derived = (derive(medians) for derive in DERIVED.values())
            writer.writerow([*case, medians.get("kernels"), *map(medians.get, names), *derived])
    return 0


def read_sizes(text: str) -> list[int]:
    """Return the sizes of an argument such as `80,160`. Raise ValueError if one is below 1."""
    values = [int(size) for size in text.split(",")]
    if min(values) < 1:
        raise ValueError(text)
    return values


def read_columns(text: str) -> list[str]:
    """Return the columns of an argument. Raise ArgumentTypeError if a column is unknown."""
    names = text.split(",")
    if unknown := [name for name in names if name not in ALL_COLUMNS]:
        raise argparse.ArgumentTypeError(
            f"no such column: {', '.join(unknown)}: choose from {', '.join(ALL_COLUMNS)}"
        )
    return names


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    passes = commands.add_parser("pass")
    passes.add_argument("file", type=Path)
    passes.add_argument("--sizes", type=read_sizes, default=SIZES, help="such as 80,160")
    passes.add_argument("--columns", type=read_columns, default=ALL_COLUMNS, help="of the readings")
    reports = commands.add_parser("report")
    reports.add_argument("directory", type=Path, help="of the passes")
    reports.add_argument("csv", type=Path)
    asked = parser.parse_args()
    if asked.what == "pass":
        return one_pass(asked.file, asked.sizes, asked.columns)
    return report(asked.directory, asked.csv)


if __name__ == "__main__":
    sys.exit(main())
