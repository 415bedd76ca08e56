"""Compare times of launches alone with Nsight Compute, for every kernel that the README names.

    python benchmarks/alone.py measure alone.csv       # the kernels and sizes of selfcheck, hot
    python benchmarks/alone.py table alone.csv

Each kernel is timed by gpubench (`--launches alone`), by Nsight Compute (`gpu__time_duration.sum`)
and by CUPTI's activity records, from the first start to the last end of a call. Each tool runs in a
process of its own. A time agrees if it is within 0.15 µs or 1 %, whichever is larger:

- of Nsight Compute's duration, where a call is one kernel;
- of CUPTI's span plus what Nsight Compute adds to it (the median of all calls of one kernel), where
  a call is several kernels or clears memory.

The control is a kernel whose launches overlap. Its time must disagree. For kernels below 10 µs, the
ratio to the faster library must also agree with Nsight Compute's ratio, within 1 %; where the
rounds or the tools cannot show that, the ratio is `not decided`. Exits with 1 if a time disagrees.
"""

from __future__ import annotations

import csv
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from agreement import between_markers, ncu_command, parse_ncu
from agreement_timers import MARKER, WARM_UP_CALLS, Records, Time, describe, per_call
from shared import SEED, child, markdown, point

from gpubench.model import Launches, Problem, Timer

NCU_CALLS, RAW_CALLS = 7, 100
ALLOWED_US, ALLOWED = 0.15, 0.01
SHORT_US = 10.0
TIMEOUT_S = 400
LIBRARIES = {"cublas", "cublaslt"}


class Case(NamedTuple):
    """A kernel at a square size."""

    dtype: str
    variant: str
    tile: str
    size: int
    launches: str = "alone"


class Line(NamedTuple):
    """A case with its time by each tool, in microseconds. Missing times are None."""

    case: Case
    gpubench_us: float
    kernels: int | None
    """Number of kernels in a call, by Nsight Compute."""

    ncu_us: float | None
    """Sum over the kernels of a call."""

    cupti_us: float | None
    """From the first start to the last end of a call."""

    spans_several: bool
    """Whether a call is several kernels or clears memory."""


def by_gpubench() -> list[tuple[Case, float]]:
    """Return what `gpubench sweep` reports for the kernels of selfcheck and its control."""
    from gpubench.commands.selfcheck.check import job_of
    from gpubench.engine.pool import local_pool
    from gpubench.engine.run import run

    with local_pool("cuda", Timer.EVENTS) as pool:
        rows = run(job_of(pool.device, (Timer.EVENTS,)), pool).rows
    for row in rows:
        if row.status != "ok":
            print(f"{row.label}: {row.status}: {row.reason}", file=sys.stderr)
    return [
        (Case(row.compute_mode, row.variant, row.tile, row.m, row.launches), row.median_us)
        for row in rows
        if row.median_us
    ]


def calls(cases: Sequence[Case]) -> Iterator[tuple[Case, Any]]:
    """Yield the calls of the cases on hot operands, after they ran.

    Kernels of one precision and size share their operands, which take longest to make.
    """
    from gpubench.backends.cuda.backend import CudaBackend
    from gpubench.engine.operands import make_inputs

    backend = CudaBackend(0)
    shared: dict[Problem, Any] = {}
    for case in sorted(cases, key=lambda case: (case.dtype, case.size)):
        try:
            problem = Problem(op="gemm", m=case.size, n=case.size, k=case.size, dtype=case.dtype)
            what = point(case.variant, case.tile, problem)
            problem = replace(problem, column_major=what.variant.own_layout(case.dtype))
            if problem not in shared:
                inputs = make_inputs(problem, SEED)
                shared = {problem: backend.load(problem, inputs, cold=False)}
                backend.warm_up()
            what = replace(what, problem=problem, launches=Launches(case.launches))
            call = next(backend.bind(what, shared[problem]).rotation)
            for _ in range(WARM_UP_CALLS):
                call()
            backend.timers.stream.synchronize()
        except Exception as error:  # loses one case
            print(f"{case}: {describe(error)}", file=sys.stderr)
        else:
            yield case, call


def launch(cases: Sequence[Case], launched: Path) -> None:
    """Launch each case between two markers, for Nsight Compute to time."""
    import cupy

    marker = cupy.RawKernel(f'extern "C" __global__ void {MARKER}() {{}}', MARKER)
    done = []
    for case, call in calls(cases):
        cupy.cuda.runtime.profilerStart()
        marker((1,), (1,), ())
        for _ in range(NCU_CALLS):
            call()
        marker((1,), (1,), ())
        cupy.cuda.get_current_stream().synchronize()
        cupy.cuda.runtime.profilerStop()
        done.append(case)
    launched.write_text(json.dumps(done))


def spans(cases: Sequence[Case], spanned: Path) -> None:
    """Write the median span of each case's calls by CUPTI, and whether it has several records."""
    records = Records(clearing=True)
    found = []
    for case, call in calls(cases):
        records.clear()
        for _ in range(RAW_CALLS):
            call()
        times = records.spans()
        each, rest = divmod(len(times), RAW_CALLS)
        if each and not rest:
            groups = [times[first : first + each] for first in range(0, len(times), each)]
            us = statistics.median(group[-1][1] - group[0][0] for group in groups) / 1e3
            found.append((case, us, each))
    spanned.write_text(json.dumps(found))


def by_ncu(cases: Sequence[Case]) -> dict[Case, Time]:
    """Return Nsight Compute's median duration of a call, summed over kernels, and their number."""
    with tempfile.TemporaryDirectory() as folder:
        log, launched = Path(folder) / "ncu.csv", Path(folder) / "launched.json"
        run_child(ncu_command(log, "none"), "launch", cases, launched)
        kernels = parse_ncu(log.read_text(errors="replace"))
        done = [Case(*case) for case in json.loads(launched.read_text())]
    found = {}
    for case, durations in zip(done, between_markers(kernels, len(done)), strict=True):
        with suppress(ValueError):  # kernels that do not divide into calls lose one case
            found[case] = per_call(durations, NCU_CALLS)
    return found


def by_cupti(cases: Sequence[Case]) -> dict[Case, Time]:
    """Return CUPTI's median span of a call, and the number of its records."""
    with tempfile.TemporaryDirectory() as folder:
        spanned = Path(folder) / "spans.json"
        run_child((), "spans", cases, spanned)
        return {Case(*case): Time(us, each) for case, us, each in json.loads(spanned.read_text())}


def run_child(wrapper: Sequence[str], name: str, cases: Sequence[Case], answer: Path) -> None:
    """Run this script for one tool, in a process of its own."""
    asked = answer.with_suffix(".cases")
    asked.write_text(json.dumps(cases))
    command = (*wrapper, sys.executable, __file__, name, asked, answer)
    ended = child(command, timeout_s=TIMEOUT_S, out=subprocess.DEVNULL, err=subprocess.PIPE)
    print(ended.err[-2000:], file=sys.stderr)


def may_overlap(case: Case) -> bool:
    """Whether launches of the kernel can start early where they are not alone; not of a library."""
    problem = Problem(op="gemm", m=case.size, n=case.size, k=case.size, dtype=case.dtype)
    what = point(case.variant, case.tile, problem)
    return case.variant not in LIBRARIES and what.variant.may_overlap(what.tile, problem)


def allowed_us(us: float) -> float:
    """Return the largest difference at which two times agree."""
    return max(ALLOWED_US, ALLOWED * us)


class Judged(NamedTuple):
    """A line, the time that it should have, and whether it has it."""

    line: Line
    expected_us: float | None
    agrees: bool


def judged(lines: Sequence[Line]) -> list[Judged]:
    """Judge each time. What Nsight Compute adds to CUPTI's span is the median over the lines."""
    added = [
        line.ncu_us - line.cupti_us
        for line in lines
        if line.ncu_us and line.cupti_us and not line.spans_several
    ]
    added_us = statistics.median(added) if added else 0.0
    result = []
    for line in lines:
        expected = line.ncu_us
        if line.spans_several:
            expected = None if line.cupti_us is None else line.cupti_us + added_us
        near = expected is not None and abs(line.gpubench_us - expected) <= allowed_us(expected)
        result.append(Judged(line, expected, near))
    return result


def ratios(lines: Sequence[Judged]) -> Iterator[tuple[Case, float, float | None]]:
    """Yield the ratio of each short kernel to the faster library, by gpubench and by the tools."""
    of_problem: dict[tuple[str, int], list[Judged]] = {}
    for each in lines:
        if each.line.case.launches == "alone":
            key = each.line.case.dtype, each.line.case.size
            of_problem.setdefault(key, []).append(each)
    for group in of_problem.values():
        libraries = [each for each in group if each.line.case.variant in LIBRARIES]
        if not libraries:
            continue
        library = min(libraries, key=lambda each: each.line.gpubench_us)
        for own in group:
            if own not in libraries and own.line.gpubench_us < SHORT_US:
                shown = library.line.gpubench_us / own.line.gpubench_us
                by_tools = None
                if library.expected_us and own.expected_us:
                    by_tools = library.expected_us / own.expected_us
                yield own.line.case, shown, by_tools


FIELDS = (
    *("dtype", "variant", "tile", "n", "launches", "kernels", "gpubench_us", "ncu_us"),
    *("cupti_span_us", "several", "expected_us", "agrees"),
)


def write(lines: Sequence[Judged], path: Path) -> None:
    """Write the lines as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(FIELDS)
        for line, expected, agrees in lines:
            times = line.gpubench_us, line.ncu_us, line.cupti_us
            shown = ["" if us is None else f"{us:.4f}" for us in (*times, expected)]
            out.writerow(
                [*line.case, line.kernels or "", *shown[:3], int(line.spans_several), shown[3],
                 int(agrees)]
            )  # fmt: skip


def read(path: Path) -> list[Line]:
    """Read the lines of a CSV."""

    def time(text: str) -> float | None:
        return float(text) if text else None

    with path.open(encoding="utf-8", newline="") as file:
        return [
            Line(
                case=Case(
                    row["dtype"], row["variant"], row["tile"], int(row["n"]), row["launches"]
                ),
                gpubench_us=float(row["gpubench_us"]),
                kernels=int(row["kernels"]) if row["kernels"] else None,
                ncu_us=time(row["ncu_us"]),
                cupti_us=time(row["cupti_span_us"]),
                spans_several=row["several"] == "1",
            )
            for row in csv.DictReader(file)
        ]


def measure(path: Path) -> int:
    """Measure all cases by all tools, write them, and print the table."""
    started_s = perf_counter()
    times = by_gpubench()
    cases = [case for case, _ in times]
    found: dict[str, dict[Case, Time]] = {"CUPTI": {}, "Nsight Compute": {}}
    for tool, by_tool in (("CUPTI", by_cupti), ("Nsight Compute", by_ncu)):
        print(
            f"{len(cases)} cases after {perf_counter() - started_s:.0f} s, then {tool}", flush=True
        )
        found[tool] = by_tool(cases)
        lines = []
        for case, us in times:
            ncu_us, kernels = found["Nsight Compute"].get(case, Time(None))
            cupti_us, records = found["CUPTI"].get(case, Time(None))
            several = max(kernels or 1, records or 1) > 1
            lines.append(Line(case, us, kernels, ncu_us, cupti_us, several))
        write(judged(lines), path)
    print(f"{perf_counter() - started_s:.0f} s", flush=True)
    return table(path)


def table(path: Path) -> int:
    """Print how many times agree, and which do not. Return 1 if a time or the control is wrong."""
    every = judged(read(path))
    alone = [each for each in every if each.line.case.launches == "alone"]
    controls = [each for each in every if each.line.case.launches != "alone"]
    missed = [each for each in alone if not each.agrees]
    print(f"{len(alone) - len(missed)} of {len(alone)} times agree")
    print(f"{sum(not each.agrees for each in controls)} of {len(controls)} controls are rejected")
    cells = [
        [
            *(*each.line.case[:4], each.line.kernels or ""),
            *(
                "" if us is None else f"{us:.2f}"
                for us in (
                    *(each.line.gpubench_us, each.line.ncu_us, each.line.cupti_us),
                    each.expected_us,
                )
            ),
        ]
        for each in (*missed, *controls)
    ]
    heading = ["precision", "kernel", "tile", "N", "kernels", "gpubench, µs", "Nsight Compute, µs"]
    print(markdown([*heading, "CUPTI's span, µs", "expected, µs"], cells))
    found = list(ratios(alone))
    near = [one for one in found if one[2] and abs(one[1] / one[2] - 1) <= ALLOWED]
    print(
        f"ratios below {SHORT_US:g} µs: {len(near)} of {len(found)} within 1 %, others not decided"
    )
    return int(bool(missed) or any(each.agrees for each in controls) or not controls)


def main(words: Sequence[str]) -> int:
    if words[0] == "measure":
        return measure(Path(words[1]))
    if words[0] == "table":
        return table(Path(words[1]))
    cases = [Case(*case) for case in json.loads(Path(words[1]).read_text())]
    {"launch": launch, "spans": spans}[words[0]](cases, Path(words[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
