"""Readings from every timer, each in a process of its own.

A profiler must not disturb another timer, and a tool that crashes or hangs must cost only its own
column. So agreement_timers.py runs once for each timer. Nsight Compute is the exception: it wraps a
worker that only launches, and its times are read from its log.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import agreement_timers
from agreement_timers import MARKER, NCU_CALLS, Case, Reading, describe, per_call

NCU_METRIC = "gpu__time_duration.sum"

NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
NS |= {"nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9}
"""Nanoseconds per unit, in the spellings of different versions of Nsight Compute."""

NCU_CACHE_CONTROL = {"ncu-hot": "none", "ncu-cold": "all"}
"""All: caches are flushed and invalidated before every kernel."""

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


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the timers run."""

    rounds: int
    """Of gpubench."""

    timeout_s: float
    """After which a worker is killed."""

    ncu: str
    """Nsight Compute's command; empty: look for it."""


def read(timer: str, cases: Sequence[Case], settings: Settings) -> list[Reading]:
    """A reading for every case in each of the timer's columns, whatever happens to the tool."""
    try:
        if timer in NCU_CACHE_CONTROL:
            readings, failed = read_ncu(timer, cases, settings)
        else:
            with tempfile.TemporaryDirectory() as directory:
                readings, failed = run_worker(timer, cases, settings, Path(directory))
    except (OSError, ValueError, KeyError) as error:
        readings, failed = [], describe(error)
    given = {(reading.column, reading.case): reading for reading in readings}
    return [
        given.get((column, case))
        or Reading(column=column, case=case, reason=failed or f"{timer} gave no reading")
        for column in COLUMNS[timer]
        for case in cases
    ]


def run_worker(
    name: str,
    cases: Sequence[Case],
    settings: Settings,
    directory: Path,
    wrapper: Sequence[str] = (),
) -> tuple[list[Reading], str]:
    """A worker's readings, and why it failed; empty if it did not."""
    request, answers = directory / "request.json", directory / "answers.jsonl"
    wanted = {"cases": [asdict(case) for case in cases], "rounds": settings.rounds}
    request.write_text(json.dumps(wanted), encoding="utf-8")
    command = [
        *wrapper,
        sys.executable,
        agreement_timers.__file__,
        name,
        str(request),
        str(answers),
    ]
    failed = run_command(command, settings.timeout_s)
    text = answers.read_text(encoding="utf-8") if answers.exists() else ""
    readings = []
    for line in text.rpartition("\n")[0].splitlines():  # a killed worker may leave part of a line
        values = json.loads(line)
        readings.append(Reading(**values | {"case": Case(**values["case"])}))
    return readings, failed


def run_command(command: Sequence[str], timeout_s: float) -> str:
    """Run a command and all it starts; empty, or why it failed: its last line on stderr."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(timeout=timeout_s)
    except BaseException as error:  # Ctrl-C too: nothing is left running on the GPU
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return f"killed after {timeout_s:g} s"
        raise
    if process.returncode == 0:
        return ""
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "no message")
    return f"exit status {process.returncode}: {last.strip()}"


def read_ncu(timer: str, cases: Sequence[Case], settings: Settings) -> tuple[list[Reading], str]:
    """Nsight Compute's durations of the kernels that a launching worker runs."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "ncu.csv"
        wrapper = (
            *(find_ncu(settings.ncu), "--log-file", str(log)),
            *("--metrics", NCU_METRIC, "--csv", "--page", "raw", "--print-units", "base"),
            *("--clock-control", "none", "--cache-control", NCU_CACHE_CONTROL[timer]),
            *("--profile-from-start", "off", "--target-processes", "all"),
        )
        launched, failed = run_worker("launch", cases, settings, Path(directory), wrapper)
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    (column,) = COLUMNS[timer]
    try:
        return attribute(column, launched, parse_ncu(text)), failed
    except ValueError as error:
        errors = [line for line in text.splitlines() if line.startswith("==ERROR==")]
        reasons = [reading.reason for reading in launched if reading.reason]
        return [], "; ".join(filter(None, (failed, str(error), *errors[:2], *reasons[:1])))


def find_ncu(given: str = "") -> str:
    """Nsight Compute's command. Raises FileNotFoundError."""
    places = [*Path("/usr/local/cuda/bin").glob("ncu")]
    places += sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    found = shutil.which(given or "ncu") or (str(places[0]) if places and not given else None)
    if found is None:
        raise FileNotFoundError(f"{given or 'ncu'} (Nsight Compute) is not found: give --ncu PATH")
    return found


def parse_ncu(text: str) -> list[tuple[str, float]]:
    """The kernels in a log of `ncu --csv`: name and nanoseconds, in the order they ran.

    Reads both layouts: a column per metric with a row of units (`--page raw`), and a row per metric
    (details).
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    kernels, unit = [], ""
    for row in csv.DictReader(lines):
        if row.get("Metric Name", NCU_METRIC) != NCU_METRIC:
            continue
        value = row.get(NCU_METRIC) or row.get("Metric Value") or ""
        if not row.get("ID"):
            unit = value
            continue
        unit = row.get("Metric Unit") or unit
        if unit not in NS:
            raise ValueError(f"Nsight Compute's times have the unit '{unit}'")
        kernels.append((row.get("Kernel Name") or "", float(value.replace(",", "")) * NS[unit]))
    if not kernels:
        raise ValueError("Nsight Compute listed no kernels")
    return kernels


def attribute(
    column: str, launched: Sequence[Reading], kernels: Sequence[tuple[str, float]]
) -> list[Reading]:
    """Give each case the kernels between its two markers. Raises ValueError if they do not fit."""
    inside: list[list[float]] = [[]]
    for name, nanoseconds in kernels:
        if MARKER in name:
            inside.append([])
        else:
            inside[-1].append(nanoseconds)
    profiled = [reading.case for reading in launched if not reading.reason]
    if len(inside) != 2 * len(profiled) + 1:
        raise ValueError(f"Nsight Compute saw {len(inside) - 1} markers for {len(profiled)} points")
    readings = [
        Reading(column=column, case=reading.case, reason=reading.reason)
        for reading in launched
        if reading.reason
    ]
    for case, durations in zip(profiled, inside[1::2], strict=True):
        try:
            taken = per_call(durations, NCU_CALLS)
        except ValueError as error:
            readings.append(Reading(column=column, case=case, reason=str(error)))
        else:
            readings.append(Reading(column=column, case=case, us=taken.us, kernels=taken.kernels))
    return readings
