"""Compare gpubench's times with the hardware profilers' and with those of other timers.

    python benchmarks/agreement.py pass results/h200/agreement/1.jsonl      # three of them
    python benchmarks/agreement.py report results/h200/agreement results/h200/agreement

A pass times every kernel at every size by gpubench (`events`: time per launch in a stream; `cupti`:
execution), by the profilers (Nsight Compute's `gpu__time_duration.sum`; CUPTI's activity records
taken without gpubench) and by common timers for Python (`cupyx.profiler.benchmark`,
`triton.testing.do_bench`, a plain pair of events), each in a process of its own: a tool that
crashes or hangs costs its own column. The report, a .md and a .csv, takes medians over the passes
in a directory: times side by side, gpubench's ratio to each profiler, the launch gap, and whether
each bound holds. Exit status: 0 all hold, 1 one is broken, 3 one could not be judged.
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
from pathlib import Path
from statistics import median

import agreement_timers
from agreement_timers import CASES, KERNELS, MARKER, NCU_CALLS, Case, Reading, describe, per_call
from shared import child, markdown

TIMEOUT_S = 120
"""Of one timer; its readings so far are kept."""

NCU_METRIC = "gpu__time_duration.sum"
NCU_CACHE_CONTROL = {"ncu-hot": "none", "ncu-cold": "all"}
"""All: caches are flushed and invalidated before every kernel."""

NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
NS |= {"nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9}
"""Nanoseconds per unit, in the spellings of different versions of Nsight Compute."""

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

TITLES = {
    "events_hot": "gpubench events, hot",
    "ncu_hot": "ncu, hot",
    "events_cold": "gpubench events, cold",
    "ncu_cold": "ncu, cold",
    "cupti_hot": "gpubench cupti, hot",
    "raw_cupti_hot": "raw CUPTI, hot",
    "cupyx": "cupyx benchmark",
    "do_bench": "triton do_bench",
    "event_pair": "event pair",
}

Line = dict[str, float]
"""Microseconds per call of one case, by column, and `kernels`; blank ones are missing."""


def one_pass(path: Path) -> int:
    """Run every timer; write the facts of the machine and the readings after each of them."""
    lines = [json.dumps(environment())]
    for timer, columns in COLUMNS.items():
        try:
            given, failed = by_ncu(timer) if timer in NCU_CACHE_CONTROL else by_worker(timer)
        except (OSError, ValueError, KeyError) as error:
            given, failed = [], describe(error)
        known = {(reading.column, reading.case): reading for reading in given}
        readings = [
            known.get((column, case))
            or Reading(column, case, reason=failed or f"{timer} gave no reading")
            for column in columns
            for case in CASES
        ]
        blank = {reading.reason for reading in readings if reading.us is None}
        print(f"{timer}: {len(given)} readings", *sorted(blank), sep="\n  blank: ", file=sys.stderr)
        lines += [json.dumps(reading) for reading in readings]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def environment() -> dict[str, str]:
    """What the times depend on; a fact that is not available says why."""
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


def by_worker(name: str, wrapper: Sequence[str] = ()) -> tuple[list[Reading], str]:
    """A worker's readings, and why it failed; empty if it did not."""
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "answers.jsonl"
        answers.touch()
        ended = child(
            (*wrapper, sys.executable, agreement_timers.__file__, name, answers),
            timeout_s=TIMEOUT_S,
            out=subprocess.DEVNULL,
            err=subprocess.PIPE,
        )
        text = answers.read_text(encoding="utf-8").rpartition("\n")[0]  # without part of a line
    failed = "" if ended.code == 0 else f"exit status {ended.code}: {ended.last_line}"
    failed = f"killed after {TIMEOUT_S} s" if ended.code is None else failed
    return [reading(line) for line in text.splitlines()], failed


def reading(line: str) -> Reading:
    """What `json.dumps` made of a reading."""
    column, case, *rest = json.loads(line)
    return Reading(column, Case(*case), *rest)


def by_ncu(timer: str) -> tuple[list[Reading], str]:
    """Nsight Compute's durations of the kernels that a launching worker runs."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        wrapper = (
            *(find_ncu(), "--log-file", str(log), "--metrics", NCU_METRIC, "--csv"),
            *("--page", "raw", "--print-units", "base", "--clock-control", "none"),
            *("--cache-control", NCU_CACHE_CONTROL[timer]),
            *("--profile-from-start", "off", "--target-processes", "all"),
        )
        launched, failed = by_worker("launch", wrapper)
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    try:
        return list(attribute(COLUMNS[timer][0], launched, parse_ncu(text))), failed
    except ValueError as error:
        errors = [line for line in text.splitlines() if line.startswith("==ERROR==")]
        reasons = [of_case.reason for of_case in launched if of_case.reason]
        return [], "; ".join(filter(None, (failed, str(error), *errors[:2], *reasons[:1])))


def find_ncu() -> str:
    """Nsight Compute's command. Raises FileNotFoundError."""
    places = [*Path("/usr/local/cuda/bin").glob("ncu")]
    places += sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    found = shutil.which("ncu") or (str(places[0]) if places else None)
    if found is None:
        raise FileNotFoundError("ncu (Nsight Compute) is not found")
    return found


def parse_ncu(text: str) -> list[tuple[str, float]]:
    """The kernels in a log of `ncu --csv --page raw`: name and nanoseconds, in the order they ran.

    The first row has the units.
    """
    rows = csv.DictReader(line for line in text.splitlines() if line.startswith('"'))
    kernels, unit = [], ""
    for row in rows:
        value = row[NCU_METRIC]
        if not row["ID"]:
            unit = value
            continue
        kernels.append((row["Kernel Name"], float(value.replace(",", "")) * NS[unit]))
    if not kernels:
        raise ValueError("Nsight Compute listed no kernels")
    return kernels


def attribute(
    column: str, launched: Sequence[Reading], kernels: Sequence[tuple[str, float]]
) -> Iterator[Reading]:
    """Give each case the kernels between its two markers. Raises ValueError if they do not fit."""
    inside: list[list[float]] = [[]]
    for name, nanoseconds in kernels:
        if MARKER in name:
            inside.append([])
        else:
            inside[-1].append(nanoseconds)
    profiled = [of_case.case for of_case in launched if not of_case.reason]
    if len(inside) != 2 * len(profiled) + 1:
        raise ValueError(f"Nsight Compute saw {len(inside) - 1} markers for {len(profiled)} points")
    yield from (of_case._replace(column=column) for of_case in launched if of_case.reason)
    for case, durations in zip(profiled, inside[1::2], strict=True):
        yield Reading(column, case, *per_call(durations, NCU_CALLS))


def ratio(above: str, below: str) -> Callable[[Line], float | None]:
    """One time over another, where both are known."""
    return lambda line: line[above] / line[below] if {above, below} <= line.keys() else None


def gap_per_kernel(line: Line) -> float | None:
    """The launch gap for each kernel of the call."""
    return (
        line["paired_gap"] / line["kernels"] if {"paired_gap", "kernels"} <= line.keys() else None
    )


def difference(line: Line) -> float | None:
    """The gap from two separate runs, between which the machine may have changed."""
    both = {"events_hot", "cupti_hot"} <= line.keys()
    return line["events_hot"] - line["cupti_hot"] if both else None


DERIVED: dict[str, tuple[str, Callable[[Line], float | None]]] = {
    "events_over_ncu_hot": ("events ÷ ncu, hot", ratio("events_hot", "ncu_hot")),
    "events_over_ncu_cold": ("… cold", ratio("events_cold", "ncu_cold")),
    "cupti_over_raw": ("cupti ÷ raw CUPTI", ratio("cupti_hot", "raw_cupti_hot")),
    "gap_us": ("gap, µs per call", lambda line: line.get("paired_gap")),
    "gap_per_kernel_us": ("… per kernel", gap_per_kernel),
    "events_minus_cupti_us": ("events − cupti, µs", difference),
}

BOUNDS: dict[str, tuple[str, float, str, float]] = {
    "hot, within 1 % of Nsight Compute from 14 µs on": ("events_over_ncu_hot", 0.01, "ncu_hot", 14),
    "hot, within 8 % from 3 µs on": ("events_over_ncu_hot", 0.08, "ncu_hot", 3),
    "cold, within 10 % from 14 µs on": ("events_over_ncu_cold", 0.10, "ncu_cold", 14),
    "`--timer cupti` within 1 % of CUPTI's records": ("cupti_over_raw", 0.01, "raw_cupti_hot", 0),
    "launch gap per kernel within 0.3 µs of its median": ("gap_per_kernel_us", 0.3, "", 0),
}
"""The figure, how far it may be from 1 (the gap: from its median), and from which time on."""


def verdicts(lines: dict[Case, Line]) -> Iterator[tuple[str, str, str]]:
    """Of each bound: what it is, `PASS`, `FAIL` or `NOT JUDGED`, and the worst case."""
    for claim, (name, limit, column, least_us) in BOUNDS.items():
        of = DERIVED[name][1]
        found = {case: of(line) for case, line in lines.items() if line.get(column, 0) >= least_us}
        figures = {case: figure for case, figure in found.items() if figure is not None}
        if not figures:
            yield claim, "NOT JUDGED", "no point has both times"
            continue
        middle = 1.0 if column else median(figures.values())
        off = {case: figure - middle for case, figure in figures.items()}
        outside = sum(not abs(deviation) <= limit for deviation in off.values())
        worst = max(off, key=lambda case: abs(off[case]))
        shown = f"{off[worst]:+.2%}" if column else f"{off[worst]:+.2f} µs from {middle:.2f}"
        detail = f"{outside} of {len(off)} points outside, worst {shown} ({worst})"
        yield claim, "FAIL" if outside else "PASS", detail


def report(folder: Path, prefix: Path) -> int:
    """Write the report on the passes in a directory."""
    facts: dict[str, str] = {}
    times: dict[Case, dict[str, list[float]]] = {case: {} for case in CASES}
    blank: dict[str, list[str]] = {}
    passes = sorted(folder.glob("*.jsonl*"))
    for path in passes:
        content = path.read_bytes()
        text = gzip.decompress(content) if path.suffix == ".gz" else content
        first, *rest = text.decode().splitlines()
        facts |= json.loads(first)
        for of_case in map(reading, rest):
            if of_case.us is None:
                blank.setdefault(f"{of_case.column}: {of_case.reason}", []).append(
                    str(of_case.case)
                )
                continue
            of_line = times[of_case.case]
            of_line.setdefault(of_case.column, []).append(of_case.us)
            if of_case.kernels:
                of_line["kernels"] = [of_case.kernels]
    lines = {case: {name: median(of) for name, of in line.items()} for case, line in times.items()}
    judged = list(verdicts(lines))
    names = [variant for variant, _ in KERNELS]
    order = sorted(lines, key=lambda case: names.index(case.variant))

    def table(titles: Sequence[str], figures: Sequence[Callable[[Line], float | None]]) -> str:
        cells = (
            (f"{case.variant} {case.tile}", case.size, *(shown(of(lines[case])) for of in figures))
            for case in order
        )
        return markdown(["kernel", "N", *titles], cells)

    by_column = [lambda line, name=name: line.get(name) for name in TITLES]
    parts = (
        "# Agreement of gpubench's times with the profilers'\n",
        *(f"- {name}: {fact}" for name, fact in {"passes": len(passes), **facts}.items()),
        f"\n## Microseconds per call, float32\n\n{table(list(TITLES.values()), by_column)}",
        "\n## Ratios, and the launch gap (both timers on the same launches, hot)\n",
        table([title for title, _ in DERIVED.values()], [of for _, of in DERIVED.values()]),
        "\n## Verdicts\n",
        *(f"- {outcome}: {claim}: {detail}" for claim, outcome, detail in judged),
        "\n## Blank fields\n",
        *(f"- {why} (at {len(of)}: {', '.join(of[:4])})" for why, of in blank.items()),
        "" if blank else "None.\n",
    )
    prefix.with_suffix(".md").write_text("\n".join(parts), encoding="utf-8")
    with prefix.with_suffix(".csv").open("w", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        head = ["variant", "tile", "n", "kernels_per_call", *(f"{name}_us" for name in TITLES)]
        writer.writerow([*head, *DERIVED])
        for case in order:
            line = lines[case]
            derived = (of(line) for _, of in DERIVED.values())
            writer.writerow([*case, line.get("kernels"), *map(line.get, TITLES), *derived])
    outcomes = {outcome for _, outcome, _ in judged}
    return 1 if "FAIL" in outcomes else 3 if "NOT JUDGED" in outcomes else 0


def shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("pass").add_argument("file", type=Path)
    reports = commands.add_parser("report")
    reports.add_argument("directory", type=Path, help="of the passes")
    reports.add_argument("prefix", type=Path, help="of the .md and the .csv")
    asked = parser.parse_args()
    return one_pass(asked.file) if asked.what == "pass" else report(asked.directory, asked.prefix)


if __name__ == "__main__":
    sys.exit(main())
