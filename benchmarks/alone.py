"""Compare times of launches alone with Nsight Compute, for every kernel that the README names.

    python benchmarks/alone.py measure alone.csv       # the kernels and sizes of selfcheck, hot
    python benchmarks/alone.py measure alone.csv 208,496,848
    python benchmarks/alone.py measure small_alone.csv small.csv
    python benchmarks/alone.py table alone.csv

A process under Nsight Compute times each kernel by gpubench and has it profiled
(`gpu__time_duration.sum`), on the same operands: between two processes, where operands lie
elsewhere, times differ by about 1 %. Another process does the same with CUPTI's activity records,
from the first start to the last end of a call, for the libraries and for calls of several kernels.
A time agrees if it is within 0.15 µs or 1 %, whichever is larger:

- of Nsight Compute's duration, where a call is one kernel;
- of CUPTI's span, where a call is several kernels or clears memory. The span leaves out the launch
  gap (the median difference for calls of one kernel), so the time may also be longer by that gap.

With a file of `shapes.py`, the cases are the faster library and our fastest kernel at each shape.

Causes of a difference are measured beside the times (`judged`). The table names the causes without
which a time would agree. A time without a cause is measured in seven more visits, whose medians
take its place.

The control is a kernel whose launches overlap. Its time must disagree, whatever the causes. For
kernels below 10 µs, the ratio to the faster library must also agree with the tools' ratio, within
1 %; otherwise the ratio is `not decided`. Exits with 1 if a time disagrees without a cause.
"""

import csv
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, pairwise, repeat
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import shapes
from profilers import (
    MARKER,
    NCU_METRIC,
    WARM_UP_CALLS,
    Records,
    between_markers,
    describe,
    ncu_command,
    parse_ncu,
    per_call,
)
from shared import SEED, child, markdown, point

from gpubench.model import Launches, Problem
from gpubench.plan.ranges import parse_sizes

NCU_CALLS, RAW_CALLS = 7, 60
BLOCKED_US = 10_000.0
"""Time for which the device waits, while calls are enqueued."""

CYCLES = "sm__cycles_elapsed.max"
SAMPLES, SAMPLE_US, MAX_LAUNCHES = 15, 100.0, 256
ALLOWED_US, ALLOWED = 0.15, 0.01
SHORT_US = 10.0
TIMEOUT_S = 400

VISITS = 7
"""Further visits of a case whose time has no cause. Launches of a kernel can differ by 5 %."""

LIBRARIES = {"cublas", "cublaslt"}


class Case(NamedTuple):
    """A kernel at a size, such as "496" or "216x32x96"."""

    dtype: str
    variant: str
    tile: str
    size: str
    launches: str = "alone"
    """`EMPTY`: an empty kernel is launched in the place of the kernel."""


EMPTY = "empty"


class Line(NamedTuple):
    """A case with its time by each tool, in microseconds. Missing figures are None."""

    case: Case
    kernels: int | None
    """Number of kernels in a call, by Nsight Compute."""

    gpubench_us: float | None
    """By gpubench's timer, in the process and on the operands of Nsight Compute."""

    gpubench_mhz: float | None
    """Clock of the multiprocessors in those samples."""

    ncu_us: float | None
    """Sum over the kernels of a call."""

    ncu_mhz: float | None
    beside_cupti_us: float | None
    """By gpubench's timer, in the process and on the operands of CUPTI."""

    cupti_us: float | None
    """From the first start to the last end of a call."""

    recorded_us: float | None
    """From the last end of a call to the last end of the next call, by CUPTI."""

    spans_several: bool
    """Whether a call is several kernels or clears memory."""

    @property
    def clears(self) -> bool:
        """Whether a call clears memory before its only kernel."""
        return self.spans_several and self.kernels == 1

    @property
    def judged_us(self) -> float | None:
        """The time by gpubench in the process of the tool that judges it."""
        return self.beside_cupti_us if self.spans_several else self.gpubench_us


class Sample(NamedTuple):
    """A time by gpubench's timer, and the clock of the multiprocessors meanwhile."""

    us: float
    mhz: float | None


def all_cases(sizes: Sequence[str]) -> list[Case]:
    """Return the kernels of `selfcheck`, its control, and empty kernels at two of the sizes."""
    from gpubench.commands.selfcheck.check import CONTROL, FITTED, KERNELS

    cases = [
        Case(dtype, variant, tile, size)
        for dtype, tiles in KERNELS.items()
        for size in sizes
        for variant, tile in tiles.items()
    ]
    control = Case(CONTROL["dtypes"], CONTROL["variants"], FITTED, CONTROL["sizes"])
    empty = [case._replace(launches=EMPTY) for case in cases if case.size in sizes[1:3]]
    return [*cases, *empty, control._replace(launches="overlapped")]


def fastest_cases(path: Path) -> list[Case]:
    """Return the faster library and our fastest kernel at each shape of a file of `shapes.py`.

    An empty kernel with the launch of ours follows them.
    """
    return [
        Case(one.dtype, one.variant, one.tile, f"{one.m}x{one.n}x{one.k}", launches)
        for each in shapes.outcomes(path)
        for one, launches in ((each.library, "alone"), (each.own, "alone"), (each.own, EMPTY))
    ]


def calls(cases: Sequence[Case]) -> Iterator[tuple[Case, Callable[[], None], Any]]:
    """Yield the calls of the cases on hot operands, after they ran, and the timers of the device.

    Kernels of one precision and size share their operands, which take longest to make.
    """
    from gpubench.backends.cuda.backend import CudaBackend
    from gpubench.engine.operands import make_inputs

    backend = CudaBackend(0)
    backend.warm_up()
    shared: dict[Problem, Any] = {}
    for case in sorted(cases, key=lambda case: (case.dtype, case.size)):
        try:
            ((m, n, k),) = parse_sizes(case.size)
            problem = Problem(op="gemm", m=m, n=n, k=k, dtype=case.dtype)
            what = point(case.variant, case.tile, problem)
            problem = replace(problem, column_major=what.variant.own_layout(case.dtype))
            if problem not in shared:
                inputs = make_inputs(problem, SEED)
                shared = {problem: backend.load(problem, inputs, cold=False)}
                backend.warm_up()  # making operands let the clocks fall
            launches = Launches.ALONE if case.launches == EMPTY else Launches(case.launches)
            what = replace(what, problem=problem, launches=launches)
            call = next(backend.bind(what, shared[problem]).rotation)
            if case.launches == EMPTY:
                call = empty_like(call, backend.timers.stream.pointer)
            for _ in range(WARM_UP_CALLS):
                call()
            backend.timers.stream.synchronize()
        except Exception as error:  # loses one case
            print(f"{case}: {describe(error)}", file=sys.stderr)
        else:
            yield case, call, backend.timers


def empty_like(call: Callable[[], None], stream: int) -> Callable[[], None]:
    """Return a launch of an empty kernel with the grid, block, memory and cluster of a call.

    Raises ValueError if the call is several kernels or clears memory.
    """
    import cupy
    from cuda.bindings import driver

    from gpubench.backends.cuda.graph import captured
    from gpubench.backends.cuda.launching import allow, bind_launch
    from gpubench.model import Launch

    attribute = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    call()
    with captured(stream, (call,), overlap=True) as graph:
        _, _, count = driver.cuGraphGetNodes(graph)
        if count != 1:
            raise ValueError(f"the call is {count} kernels")
        _, (node, *_), _ = driver.cuGraphGetNodes(graph, count)
        _, taken = driver.cuGraphKernelNodeGetParams(node)
        _, value = driver.cuGraphKernelNodeGetAttribute(node, attribute)
        cluster = value.clusterDim
        launch = Launch(
            grid=(taken.gridDimX, taken.gridDimY, taken.gridDimZ),
            block=(taken.blockDimX, taken.blockDimY, taken.blockDimZ),
            shared_bytes=taken.sharedMemBytes,
            cluster=(max(cluster.x, 1), max(cluster.y, 1), max(cluster.z, 1)),
        )
    code = f'extern "C" __global__ void {EMPTY}() {{}}'
    kernel = cupy.RawModule(code=code).get_function(EMPTY).kernel
    allow(kernel, launch)
    return bind_launch(kernel, launch, ())


def sample(timers: Any, call: Callable[[], None]) -> Sample:
    """Time a call as a sweep does: launches behind a blocking kernel, for at least 100 µs."""
    timer = timers.events
    shortest_us = min(timer.sample(repeat(call), 1, 3))
    launches = min(MAX_LAUNCHES, math.ceil(SAMPLE_US / max(shortest_us, 1.0)))
    timer.take_clock_mhz()
    times = timer.sample(repeat(call), launches, SAMPLES)
    return Sample(statistics.median(times), timer.take_clock_mhz())


def launch(cases: Sequence[Case], launched: Path) -> None:
    """Time each case, and launch it between two markers, for Nsight Compute to profile."""
    import cupy

    marker = cupy.RawKernel(f'extern "C" __global__ void {MARKER}() {{}}', MARKER)
    done = []
    for case, call, timers in calls(cases):
        taken = sample(timers, call)
        cupy.cuda.runtime.profilerStart()
        marker((1,), (1,), ())
        for _ in range(NCU_CALLS):
            call()
        marker((1,), (1,), ())
        cupy.cuda.get_current_stream().synchronize()
        cupy.cuda.runtime.profilerStop()
        done.append((case, taken))
    launched.write_text(json.dumps(done))


def spans(cases: Sequence[Case], spanned: Path) -> None:
    """Time each case; write that, the median span of its calls by CUPTI, and their records."""
    sampled = [(case, call, sample(timers, call), timers) for case, call, timers in calls(cases)]
    records = Records()  # from here on, CUPTI makes launches longer
    found = []
    for case, call, taken, timers in sampled:
        records.clear()
        timers.stream.block(BLOCKED_US)  # or the device would wait for the host inside a call
        for _ in range(RAW_CALLS):
            call()
        times = records.spans()
        each, rest = divmod(len(times), RAW_CALLS)
        if each and not rest:
            groups = [times[first : first + each] for first in range(0, len(times), each)]
            us, recorded_us = (
                statistics.median(every) / 1e3
                for every in (
                    [group[-1][1] - group[0][0] for group in groups],
                    [after[-1][1] - before[-1][1] for before, after in pairwise(groups)],
                )
            )
            found.append((case, taken, us, each, None, recorded_us))
    spanned.write_text(json.dumps(found))


class Profiled(NamedTuple):
    """The times of a case in the process of a tool."""

    by_gpubench: Sample
    us: float
    """By the tool."""

    kernels: int
    """Number of the tool's records in a call."""

    mhz: float | None = None
    recorded_us: float | None = None
    """From one call to the next by CUPTI."""


def by_ncu(cases: Sequence[Case]) -> dict[Case, Profiled]:
    """Return Nsight Compute's median duration of a call, summed over its kernels.

    A case that stands several times among the cases has the median of these visits.
    """
    with tempfile.TemporaryDirectory() as folder:
        log, launched = Path(folder) / "ncu.csv", Path(folder) / "launched.json"
        run_child(ncu_command(log, f"{NCU_METRIC},{CYCLES}"), "launch", cases, launched)
        text = log.read_text(errors="replace")
        done = json.loads(launched.read_text())
    durations, cycles = (
        between_markers(parse_ncu(text, *metric), len(done)) for metric in ((), (CYCLES,))
    )
    visits: dict[Case, list[tuple[float, ...]]] = {}
    for (case, taken), times, counts in zip(done, durations, cycles, strict=True):
        with suppress(ValueError):  # kernels that do not divide into calls lose one case
            us, kernels = per_call(times, NCU_CALLS)
            figures = (*taken, us, kernels, 1e3 * sum(counts) / sum(times))
            visits.setdefault(Case(*case), []).append(figures)
    found = {}
    for case, every in visits.items():
        by_gpubench_us, by_gpubench_mhz, us, kernels, mhz = map(
            statistics.median, zip(*every, strict=True)
        )
        found[case] = Profiled(Sample(by_gpubench_us, by_gpubench_mhz), us, int(kernels), mhz)
    return found


def by_cupti(cases: Sequence[Case]) -> dict[Case, Profiled]:
    """Return CUPTI's median span of a call."""
    with tempfile.TemporaryDirectory() as folder:
        spanned = Path(folder) / "spans.json"
        run_child((), "spans", cases, spanned)
        found = json.loads(spanned.read_text())
    return {Case(*case): Profiled(Sample(*taken), *figures) for case, taken, *figures in found}


def run_child(wrapper: Sequence[str], name: str, cases: Sequence[Case], answer: Path) -> None:
    """Run this script for one tool, in a process of its own."""
    asked = answer.with_suffix(".cases")
    asked.write_text(json.dumps(cases))
    command = (*wrapper, sys.executable, __file__, name, asked, answer)
    ended = child(command, timeout_s=TIMEOUT_S, out=subprocess.DEVNULL, err=subprocess.PIPE)
    print(ended.err[-2000:], file=sys.stderr)


class Judged(NamedTuple):
    """A line, and the time that it should have by the tools."""

    line: Line
    expected_us: float | None
    gap_us: float
    """By how much the time may be longer: the launch gap, which CUPTI's span leaves out."""

    causes: dict[str, tuple[float, float]]
    """By how much each cause makes the tool's time longer, at least and at most."""

    @property
    def allowed_us(self) -> float:
        """How far the time may be from the tool's time without a cause."""
        return max(ALLOWED_US, ALLOWED * (self.expected_us or 0.0))

    @property
    def cause(self) -> str | None:
        """The fewest causes without which the time agrees: an empty text for none.

        None if the time disagrees even so.
        """
        us, expected_us = self.line.judged_us, self.expected_us
        if us is None or expected_us is None:
            return None
        numbers = range(len(self.causes) + 1)
        for names in chain.from_iterable(combinations(self.causes, n) for n in numbers):
            low_us, high_us = (sum(self.causes[name][end] for name in names) for end in (0, 1))
            longest_us = expected_us - low_us + self.gap_us + self.allowed_us
            if expected_us - high_us - self.allowed_us <= us <= longest_us:
                return " and ".join(names)
        return None


def judged(lines: Sequence[Line]) -> list[Judged]:
    """Judge each line but those of empty kernels, by the causes below.

    - `tool`: Nsight Compute reports an empty kernel longer than gpubench does. The interval is from
      the first to the ninth decile of the empty kernels.
    - `clock`: the multiprocessors had another clock under Nsight Compute. It changes a part of the
      time, or all of it: what waits for memory does not follow it.
    - `recording`: CUPTI lets a call take longer that clears memory before its kernel. The interval
      is from the first to the third quartile of these calls.
    """
    gap_us = statistics.median(differences(lines, "beside_cupti_us", "cupti_us") or [0.0])
    empty = [line for line in lines if line.case.launches == EMPTY]
    tool_us = between(differences(empty, "ncu_us", "gpubench_us"), 10)
    clearing = [line for line in lines if line.clears]
    recording_us = between(differences(clearing, "recorded_us", "beside_cupti_us"), 4)

    def of_line(line: Line) -> Judged:
        if line.spans_several:
            own_gap_us = differences([line], "recorded_us", "cupti_us")
            causes = {"recording": recording_us} if line.clears else {}
            return Judged(line, line.cupti_us, next(iter(own_gap_us), gap_us), causes)
        by_clock_us = 0.0
        if line.gpubench_us and line.gpubench_mhz and line.ncu_mhz:
            by_clock_us = line.gpubench_us * (line.gpubench_mhz / line.ncu_mhz - 1)
        clock_us = min(by_clock_us, 0.0), max(by_clock_us, 0.0)
        return Judged(line, line.ncu_us, 0.0, {"tool": tool_us, "clock": clock_us})

    return [of_line(line) for line in lines if line.case.launches != EMPTY]


def differences(lines: Sequence[Line], longer: str, shorter: str) -> list[float]:
    """Return how much longer one figure is than another, where both are known."""
    pairs = [(getattr(line, longer), getattr(line, shorter)) for line in lines]
    return [high - low for high, low in pairs if high and low]


def between(values: Sequence[float], parts: int) -> tuple[float, float]:
    """Return the first and the last quantile of values; of no values, zeros."""
    first, *_, last = statistics.quantiles(values or [0.0, 0.0], n=parts)
    return first, last


def ratios(lines: Sequence[Judged]) -> list[tuple[float, float]]:
    """Return the ratios of short kernels to the faster library: by gpubench, and by the tools."""
    of_problem: dict[tuple[str, str], list[tuple[bool, float, float]]] = {}
    for each in lines:
        case, us = each.line.case, each.line.judged_us
        if us and each.expected_us:
            times = case.variant in LIBRARIES, us, each.expected_us
            of_problem.setdefault((case.dtype, case.size), []).append(times)
    found = []
    for group in of_problem.values():
        libraries = [(us, expected_us) for is_library, us, expected_us in group if is_library]
        for is_library, us, expected_us in group if libraries else []:
            if not is_library and us < SHORT_US:
                library_us, library_expected_us = min(libraries)
                found.append((library_us / us, library_expected_us / expected_us))
    return found


def agree(ratio: float, by_tools: float) -> bool:
    """Return whether the tools give the same ratio within 1 %."""
    return abs(ratio / by_tools - 1) <= ALLOWED


FIELDS = (
    *("dtype", "variant", "tile", "n", "launches", "several", "kernels"),
    *("gpubench_us", "gpubench_mhz", "ncu_us", "ncu_mhz"),
    *("beside_cupti_us", "cupti_span_us", "recorded_us"),
)


def write(lines: Sequence[Line], path: Path) -> None:
    """Write the lines as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(FIELDS)
        for case, kernels, *figures, several in lines:
            shown = ["" if figure is None else f"{figure:.4f}" for figure in figures]
            out.writerow([*case, int(several), kernels or "", *shown])


def read(path: Path) -> list[Line]:
    """Read the lines of a CSV, whose columns are `FIELDS`."""
    with path.open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    return [
        Line._make(
            (
                *(Case(*row[:5]), int(row[6]) if row[6] else None),
                *(float(figure) if figure else None for figure in row[7:]),
                row[5] == "1",
            )
        )
        for row in rows
    ]


def measure(path: Path, sizes: str = "") -> int:
    """Measure all cases by all tools, write them, and print the table."""
    from gpubench.commands.selfcheck.check import SIZES

    started_s = perf_counter()
    if sizes.endswith(".csv"):
        cases = fastest_cases(Path(sizes))
    else:
        cases = all_cases(sizes.split(",") if sizes else [str(size) for size in SIZES])
    found: dict[str, dict[Case, Profiled]] = {"Nsight Compute": {}, "CUPTI": {}}
    for tool, by_tool in (("Nsight Compute", by_ncu), ("CUPTI", by_cupti)):
        print(f"{perf_counter() - started_s:.0f} s, then {tool}", flush=True)
        several = {case for case, one in found["Nsight Compute"].items() if one.kernels > 1}
        asked = [
            case
            for case in cases
            if tool != "CUPTI"
            or (case.launches != EMPTY and case.variant in LIBRARIES)
            or case in several
        ]
        found[tool] = by_tool(asked)
        write([line_of(case, *found.values()) for case in cases], path)
    unknown = [each.line for each in judged(read(path)) if each.cause is None]
    profiled = [line for line in unknown if not line.spans_several]
    if again := [line.case for line in profiled if line.case.launches == "alone"]:
        print(f"{perf_counter() - started_s:.0f} s, then {len(again)} without a cause again")
        found["Nsight Compute"] |= by_ncu(again * VISITS)
        write([line_of(case, *found.values()) for case in cases], path)
    print(f"{perf_counter() - started_s:.0f} s", flush=True)
    return table(path)


def line_of(case: Case, by_ncu: dict[Case, Profiled], by_cupti: dict[Case, Profiled]) -> Line:
    """Return a case with what each tool gave."""
    ncu, cupti = by_ncu.get(case), by_cupti.get(case)
    return Line(
        case=case,
        kernels=ncu and ncu.kernels,
        gpubench_us=ncu and ncu.by_gpubench.us,
        gpubench_mhz=ncu and ncu.by_gpubench.mhz,
        ncu_us=ncu and ncu.us,
        ncu_mhz=ncu and ncu.mhz,
        beside_cupti_us=cupti and cupti.by_gpubench.us,
        cupti_us=cupti and cupti.us,
        recorded_us=cupti and cupti.recorded_us,
        spans_several=max(tool.kernels if tool else 1 for tool in (ncu, cupti)) > 1,
    )


def table(path: Path) -> int:
    """Print how many times agree, and which do not. Return 1 if a time or the control is wrong."""
    every = judged(read(path))
    alone = [each for each in every if each.line.case.launches == "alone"]
    controls = [each for each in every if each.line.case.launches != "alone"]
    missed = [each for each in alone if each.cause != ""]
    print(f"{len(alone) - len(missed)} of {len(alone)} times agree; the others by their cause:")
    for cause, count in Counter(each.cause for each in missed).most_common():
        print(f"  {cause or 'unknown'}: {count}")
    rejected = [each for each in controls if each.cause is None]
    print(f"{len(rejected)} of {len(controls)} controls are rejected")
    cells = [
        [
            *(*each.line.case[:4], each.line.kernels or "", each.cause or "unknown"),
            *map(shown, (each.line.judged_us, each.expected_us)),
            *map(partial(shown, digits=0), (each.line.gpubench_mhz, each.line.ncu_mhz)),
        ]
        for each in (*missed, *controls)
    ]
    heading = ["precision", "kernel", "tile", "N", "kernels", "cause", "gpubench, µs"]
    print(markdown([*heading, "tool, µs", "gpubench, MHz", "Nsight Compute, MHz"], cells))
    near = Counter(agree(*ratio) for ratio in ratios(alone))
    print(f"ratios below {SHORT_US:g} µs: within 1 % {near[True]}, not decided {near[False]}")
    unknown = any(each.cause is None for each in missed)
    return int(unknown or len(rejected) < len(controls) or not controls)


def shown(figure: float | None, digits: int = 2) -> str:
    """Return a figure of the table; an empty text for none."""
    return "" if figure is None else f"{figure:.{digits}f}"


def main(words: Sequence[str]) -> int:
    if words[0] == "measure":
        return measure(Path(words[1]), *words[2:])
    if words[0] == "table":
        return table(Path(words[1]))
    cases = [Case(*case) for case in json.loads(Path(words[1]).read_text())]
    {"launch": launch, "spans": spans}[words[0]](cases, Path(words[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
