"""Compare times of launches alone with Nsight Compute, for every kernel that the README names.

    python benchmarks/alone.py measure alone.csv       # the kernels and sizes of selfcheck, hot
    python benchmarks/alone.py measure alone.csv 208,496,848
    python benchmarks/alone.py table alone.csv

A process under Nsight Compute times each kernel by gpubench and has it profiled
(`gpu__time_duration.sum`), on the same operands: between two processes, where operands lie
elsewhere, times differ by about 1 %. Another process does the same with CUPTI's activity records,
from the first start to the last end of a call, for the libraries and for calls of several kernels.
A time agrees if it is within 0.15 µs or 1 %, whichever is larger:

- of Nsight Compute's duration, where a call is one kernel;
- of CUPTI's span, where a call is several kernels or clears memory. The span leaves out the launch
  gap (the median difference for calls of one kernel), so the time may also be longer by that gap.

Causes of a difference are measured beside the times (`judged`). The table names the causes without
which a time would agree. A time without a cause is measured in seven more visits, whose medians
take its place.

The control is a kernel whose launches overlap. Its time must disagree, whatever the causes. For
kernels below 10 µs, the ratio to the faster library must also agree with the tools' ratio, within
1 %; otherwise the ratio is `not decided`. Exits with 1 if a time disagrees without a cause.
"""

import csv
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from itertools import chain, combinations, repeat
from pathlib import Path
from textwrap import fill
from time import perf_counter
from typing import Any, NamedTuple

import msgspec
import numpy as np
from shared import SEED, WIDTH, child, point, read_lines, table

from gpubench.model import Launches, Problem
from gpubench.plan.ranges import parse_sizes
from gpubench.view.numbers import number

METRICS = ("gpu__time_duration.sum", "sm__cycles_elapsed.max")
"""Nanoseconds and cycles of a kernel, by Nsight Compute."""

MARKER = "gpubench_marker"
"""Kernel that runs before and after the calls of a case, to mark them in Nsight Compute's list."""

OWN_KERNELS = ("blocking_kernel", "timestamp_kernel")
"""Kernels of gpubench's timer, whose records are ignored."""

WARM_UP_CALLS, NCU_CALLS, CUPTI_CALLS = 10, 7, 60
BLOCKED_US = 10_000.0
"""Time for which the device waits, while calls are enqueued."""

SAMPLES, SAMPLE_US, MAX_LAUNCHES = 15, 100.0, 256
ALLOWED_US, ALLOWED = 0.15, 0.01
SHORT_US = 10.0
TIMEOUT_S = 400

VISITS = 7
"""Further visits of a case whose time has no cause. Launches of a kernel can differ by 5 %."""

LIBRARIES = {"cublas", "cublaslt"}
EMPTY = "empty"
Timed = tuple[float, float | None]
"""A time by gpubench's timer in microseconds, and the clock of the multiprocessors meanwhile."""


@dataclass(frozen=True)
class Case:
    """A kernel at a size."""

    dtype: str
    variant: str
    tile: str = ""
    n: str = ""
    """The size, such as "496"."""

    launches: str = "alone"
    """`EMPTY`: an empty kernel is launched in the place of the kernel."""


@dataclass(frozen=True)
class Line(Case):
    """A row of the file: a case with its times in microseconds. Missing figures are None."""

    several: bool = False
    """Whether a call is several kernels or clears memory."""

    kernels: int | None = None
    """Number of kernels in a call, by Nsight Compute."""

    gpubench_us: float | None = None
    """By gpubench's timer, in the process and on the operands of Nsight Compute."""

    gpubench_mhz: float | None = None
    """Clock of the multiprocessors in those samples."""

    ncu_us: float | None = None
    """Sum over the kernels of a call."""

    ncu_mhz: float | None = None
    beside_cupti_us: float | None = None
    """By gpubench's timer, in the process and on the operands of CUPTI."""

    cupti_span_us: float | None = None
    """From the first start to the last end of a call."""

    recorded_us: float | None = None
    """From the last end of a call to the last end of the next call, by CUPTI."""

    @property
    def case(self) -> Case:
        """What was measured."""
        return Case(self.dtype, self.variant, self.tile, self.n, self.launches)

    @property
    def clears(self) -> bool:
        """Whether a call clears memory before its only kernel."""
        return self.several and self.kernels == 1

    @property
    def judged_us(self) -> float | None:
        """The time by gpubench in the process of the tool that judges it."""
        return self.beside_cupti_us if self.several else self.gpubench_us


def all_cases(sizes: Sequence[str]) -> list[Case]:
    """Return the kernels of `selfcheck`, its control, and empty kernels at two of the sizes."""
    from gpubench.commands.selfcheck.check import CONTROL, FITTED, KERNELS

    cases = [
        Case(dtype, variant, tile, size)
        for dtype, tiles in KERNELS.items()
        for size in sizes
        for variant, tile in tiles.items()
    ]
    control = Case(CONTROL["dtypes"], CONTROL["variants"], FITTED, CONTROL["sizes"], "overlapped")
    return [*cases, *(replace(c, launches=EMPTY) for c in cases if c.n in sizes[1:3]), control]


# ---- in the process of a tool


def calls(cases: Sequence[Case]) -> Iterator[tuple[Case, Timed, Callable[[], None], Any]]:
    """Yield each case with its time by gpubench, its call on hot operands, and the stream.

    Kernels of one precision and size share their operands, which take longest to make.
    """
    from gpubench.backends.cuda.backend import CudaBackend
    from gpubench.engine.operands import make_inputs

    backend = CudaBackend(0)
    backend.warm_up()
    shared: dict[Problem, Any] = {}
    for case in sorted(cases, key=lambda case: (case.dtype, case.n)):
        try:
            ((m, n, k),) = parse_sizes(case.n)
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
            print(f"{case}: {error!r}", file=sys.stderr)
        else:
            yield case, timed(call, backend.timers.events), call, backend.timers.stream


def timed(call: Callable[[], None], timer: Any) -> Timed:
    """Time a call as a sweep does: launches behind a blocking kernel, for at least 100 µs."""
    shortest_us = min(timer.sample(repeat(call), 1, 3))
    launches = min(MAX_LAUNCHES, math.ceil(SAMPLE_US / max(shortest_us, 1.0)))
    timer.take_clock_mhz()
    times = timer.sample(repeat(call), launches, SAMPLES)
    return statistics.median(times), timer.take_clock_mhz()


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


def launched(cases: Sequence[Case]) -> Iterator[Line]:
    """Time each case, and launch it between two markers, for Nsight Compute to profile."""
    import cupy

    marker = cupy.RawKernel(f'extern "C" __global__ void {MARKER}() {{}}', MARKER)
    for case, (us, mhz), call, stream in calls(cases):
        cupy.cuda.runtime.profilerStart()
        marker((1,), (1,), ())
        for _ in range(NCU_CALLS):
            call()
        marker((1,), (1,), ())
        stream.synchronize()
        cupy.cuda.get_current_stream().synchronize()
        cupy.cuda.runtime.profilerStop()
        yield Line(**asdict(case), gpubench_us=us, gpubench_mhz=mhz)


def recorded(cases: Sequence[Case]) -> Iterator[Line]:
    """Time each case, and add the median span of its calls by CUPTI, and their records.

    A record is of a kernel, or of memory that is cleared, as libraries do before a kernel.
    """
    from gpubench.backends.cuda.cupti import BUFFER_BYTES, FORCED, load_cupti

    every = [*calls(cases)]
    cupti, times = load_cupti(), list[tuple[int, int]]()
    kinds = (cupti.ActivityKind.CONCURRENT_KERNEL, cupti.ActivityKind.MEMSET)

    def keep(records: Sequence[Any]) -> None:  # which are gone when this returns
        for record in records:
            name = getattr(record, "name", "")
            if record.kind in kinds and not any(own in name for own in OWN_KERNELS):
                times.append((record.start, record.end))

    cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), keep)
    for kind in kinds:  # from here on, CUPTI makes launches longer
        cupti.activity_enable(kind)
    for case, (us, _), call, stream in every:
        cupti.activity_flush_all(FORCED)
        times.clear()
        stream.block(BLOCKED_US)  # or the device would wait for the host inside a call
        for _ in range(CUPTI_CALLS):
            call()
        stream.synchronize()
        seen = -1
        while len(times) != seen:  # records may arrive late
            seen = len(times)
            time.sleep(0.01)
            cupti.activity_flush_all(FORCED)
        if times and len(times) % CUPTI_CALLS == 0:  # otherwise the case is lost
            ends = np.reshape(sorted(times), (CUPTI_CALLS, -1, 2))
            first, last = ends[:, 0, 0], ends[:, -1, 1]
            yield Line(
                **asdict(case),
                several=ends.shape[1] > 1,
                beside_cupti_us=us,
                cupti_span_us=float(np.median(last - first)) / 1e3,
                recorded_us=float(np.median(np.diff(last))) / 1e3,
            )


ROLES = {"launched": launched, "recorded": recorded}
"""What this script does in the process of Nsight Compute, and of CUPTI."""


def run_role(role: str, cases: Sequence[Case], folder: Path, *wrapper: object) -> list[Line]:
    """Run this script for one tool, in a process of its own, and return what it measured."""
    asked, answer = folder / "cases.json", folder / "lines.json"
    asked.write_bytes(msgspec.json.encode(cases))
    command = (*wrapper, sys.executable, __file__, role, asked, answer)
    ended = child(command, timeout_s=TIMEOUT_S, out=subprocess.DEVNULL, err=subprocess.PIPE)
    print(ended.err[-2000:], file=sys.stderr)
    return msgspec.json.decode(answer.read_bytes(), type=list[Line])


# ---- in the process of the user


def by_cupti(cases: Sequence[Case]) -> dict[Case, Line]:
    """Return CUPTI's median span of a call."""
    with tempfile.TemporaryDirectory() as folder:
        return {line.case: line for line in run_role("recorded", cases, Path(folder))}


def by_ncu(cases: Sequence[Case]) -> dict[Case, Line]:
    """Return Nsight Compute's median duration of a call, summed over its kernels.

    A case that stands several times among the cases has the median of these visits.
    """
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "ncu.csv"
        lines = run_role("launched", cases, Path(name), *ncu_command(log))
        figures = between_markers(log.read_text(errors="replace"), len(lines))
    visits: dict[Case, list[Line]] = {}
    for line, kernels in zip(lines, figures, strict=True):
        if kernels and len(kernels) % NCU_CALLS == 0:  # otherwise the case is lost
            nanoseconds, cycles = np.reshape(kernels, (NCU_CALLS, -1, 2)).sum(axis=1).T
            profiled = replace(
                line,
                several=len(kernels) > NCU_CALLS,
                kernels=len(kernels) // NCU_CALLS,
                ncu_us=float(np.median(nanoseconds)) / 1e3,
                ncu_mhz=float(1e3 * cycles.sum() / nanoseconds.sum()),
            )
            visits.setdefault(line.case, []).append(profiled)
    names = ("gpubench_us", "gpubench_mhz", "ncu_us", "ncu_mhz")
    return {
        case: replace(
            every[0],
            **{name: statistics.median(getattr(line, name) for line in every) for name in names},
        )
        for case, every in visits.items()
    }


def ncu_command(log: Path) -> tuple[str, ...]:
    """Return the words before a program's command that let ncu measure its kernels into a log.

    Raises FileNotFoundError if Nsight Compute is missing.
    """
    places = [*Path("/usr/local/cuda/bin").glob("ncu")]
    places += sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    command = shutil.which("ncu") or (str(places[0]) if places else None)
    if command is None:
        raise FileNotFoundError("ncu (Nsight Compute) is not installed")
    return (
        *(command, "--log-file", str(log), "--metrics", ",".join(METRICS), "--csv"),
        *("--page", "raw", "--print-units", "base", "--clock-control", "none"),
        *("--cache-control", "none", "--profile-from-start", "off", "--target-processes", "all"),
    )


def between_markers(log: str, count: int) -> list[list[list[float]]]:
    """Return nanoseconds and cycles of each kernel of each case, from a log of `ncu_command`.

    Raises ValueError if a marker is missing.
    """
    rows = list(csv.DictReader(line for line in log.splitlines() if line.startswith('"')))
    groups: list[list[list[float]]] = [[]]
    for row in rows[1:]:  # the units come first
        if MARKER in row["Kernel Name"]:
            groups.append([])
        else:
            groups[-1].append([float(row[metric].replace(",", "")) for metric in METRICS])
    if len(groups) != 2 * count + 1:
        raise ValueError(f"Nsight Compute saw {len(groups) - 1} markers for {count} cases")
    return groups[1::2]


class Judged(NamedTuple):
    """A line, and the time that it should have by the tools."""

    line: Line
    expected_us: float | None
    gap_us: float
    """By how much the time may be longer: the launch gap, which CUPTI's span leaves out."""

    causes: dict[str, tuple[float, float]]
    """By how much each cause makes the tool's time longer, at least and at most."""

    @property
    def cause(self) -> str | None:
        """The fewest causes without which the time agrees: an empty text for none.

        None if the time disagrees even so.
        """
        us, expected_us = self.line.judged_us, self.expected_us
        if us is None or expected_us is None:
            return None
        allowed_us = max(ALLOWED_US, ALLOWED * expected_us)
        numbers = range(len(self.causes) + 1)
        for names in chain.from_iterable(combinations(self.causes, n) for n in numbers):
            low_us, high_us = (sum(self.causes[name][end] for name in names) for end in (0, 1))
            longest_us = expected_us - low_us + self.gap_us + allowed_us
            if expected_us - high_us - allowed_us <= us <= longest_us:
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
    gap_us = statistics.median(differences(lines, "beside_cupti_us", "cupti_span_us") or [0.0])
    empty = [line for line in lines if line.launches == EMPTY]
    tool_us = between(differences(empty, "ncu_us", "gpubench_us"), 10)
    clearing = [line for line in lines if line.clears]
    recording_us = between(differences(clearing, "recorded_us", "beside_cupti_us"), 4)

    def of_line(line: Line) -> Judged:
        if line.several:
            own_gap_us = differences([line], "recorded_us", "cupti_span_us")
            causes = {"recording": recording_us} if line.clears else {}
            return Judged(line, line.cupti_span_us, next(iter(own_gap_us), gap_us), causes)
        by_clock_us = 0.0
        if line.gpubench_us and line.gpubench_mhz and line.ncu_mhz:
            by_clock_us = line.gpubench_us * (line.gpubench_mhz / line.ncu_mhz - 1)
        clock_us = min(by_clock_us, 0.0), max(by_clock_us, 0.0)
        return Judged(line, line.ncu_us, 0.0, {"tool": tool_us, "clock": clock_us})

    return [of_line(line) for line in lines if line.launches != EMPTY]


def differences(lines: Sequence[Line], longer: str, shorter: str) -> list[float]:
    """Return how much longer one figure is than another, where both are known."""
    pairs = [(getattr(line, longer), getattr(line, shorter)) for line in lines]
    return [high - low for high, low in pairs if high and low]


def between(values: Sequence[float], parts: int) -> tuple[float, float]:
    """Return the first and the last quantile of values; of no values, zeros."""
    enough = values if len(values) > 1 else [*values, *values] or [0.0, 0.0]
    first, *_, last = statistics.quantiles(enough, n=parts)
    return first, last


def ratios(lines: Sequence[Judged]) -> list[tuple[float, float]]:
    """Return the ratios of short kernels to the faster library: by gpubench, and by the tools."""
    times: dict[tuple[str, str], list[tuple[float, float]]] = {}
    short: list[tuple[tuple[str, str], float, float]] = []
    for line, expected_us, *_ in lines:
        us, problem = line.judged_us, (line.dtype, line.n)
        if us and expected_us and line.variant in LIBRARIES:
            times.setdefault(problem, []).append((us, expected_us))
        elif us and expected_us and us < SHORT_US:
            short.append((problem, us, expected_us))
    return [
        (library_us / us, library_expected_us / expected_us)
        for problem, us, expected_us in short
        if problem in times
        for library_us, library_expected_us in [min(times[problem])]
    ]


def agree(ratio: float, by_tools: float) -> bool:
    """Return whether the tools give the same ratio within 1 %."""
    return abs(ratio / by_tools - 1) <= ALLOWED


def write(lines: Sequence[Line], path: Path) -> None:
    """Write the lines as CSV, figures with four decimals."""

    def text(value: object) -> object:
        if isinstance(value, float):
            return f"{value:.4f}"
        return int(value) if isinstance(value, bool) else value

    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(field.name for field in fields(Line))
        out.writerows(map(text, astuple(line)) for line in lines)


def read(path: Path) -> list[Line]:
    """Read the lines of a CSV."""
    return read_lines(path, Line)


def measure(path: Path, sizes: str = "") -> int:
    """Measure all cases by all tools, write them, and print the table."""
    from gpubench.commands.selfcheck.check import SIZES

    started_s = perf_counter()
    cases = all_cases(sizes.split(",") if sizes else [str(size) for size in SIZES])
    profiled = by_ncu(cases)
    print(f"{perf_counter() - started_s:.0f} s, then CUPTI", flush=True)
    spanned = by_cupti(
        [
            case
            for case in cases
            if (case.launches != EMPTY and case.variant in LIBRARIES)
            or (case in profiled and profiled[case].several)
        ]
    )

    def lines() -> list[Line]:
        return [merged(case, profiled.get(case), spanned.get(case)) for case in cases]

    write(lines(), path)
    unknown = [each.line for each in judged(lines()) if each.cause is None]
    if again := [x.case for x in unknown if x.launches == "alone" and not x.several]:
        print(f"{perf_counter() - started_s:.0f} s, then {len(again)} without a cause again")
        profiled |= by_ncu(again * VISITS)
        write(lines(), path)
    print(f"{perf_counter() - started_s:.0f} s", flush=True)
    return report(path)


def merged(case: Case, profiled: Line | None, spanned: Line | None) -> Line:
    """Return a case with what each tool gave."""
    line = profiled or Line(**asdict(case))
    if spanned is None:
        return line
    return replace(
        line,
        several=line.several or spanned.several,
        beside_cupti_us=spanned.beside_cupti_us,
        cupti_span_us=spanned.cupti_span_us,
        recorded_us=spanned.recorded_us,
    )


def report(path: Path) -> int:
    """Print how many times agree, and which do not. Return 1 if a time or the control is wrong."""
    lines = read(path)
    every = judged(lines)
    missed = [each for each in every if each.cause != "" or each.line.launches != "alone"]
    cells = [
        [
            *(line.dtype, line.variant, line.tile, line.n, line.launches, each.cause or "unknown"),
            *(number(line.judged_us, 2), number(each.expected_us, 2)),
            *(number(line.gpubench_mhz, 0), number(line.ncu_mhz, 0)),
        ]
        for each in missed
        for line in [each.line]
    ]
    heading = ["precision", "kernel", "tile", "N", "launches", "cause", "gpubench, µs"]
    print(table([*heading, "tool, µs", "gpubench, MHz", "Nsight Compute, MHz"], cells))
    print(f"\n{summary(lines)}")
    unknown = [each.line.launches for each in missed if each.cause is None]
    return int(unknown != ["overlapped"])


def summary(lines: Sequence[Line]) -> str:
    """Return a table of how many times agree, by what they need, and a sentence of the control."""
    *whole, control = sorted(judged(lines), key=lambda each: each.line.launches != "alone")
    causes = Counter(each.cause for each in whole)
    clearing = differences([x for x in lines if x.clears], "recorded_us", "beside_cupti_us")
    low_us, high_us = control.causes["tool"]
    by_cause = {
        "": "with the tool in whose process they were taken",
        "tool": f"without Nsight Compute's {low_us:.2f} to {high_us:.2f} µs of an empty kernel",
        "clock": "at the clock that each tool saw",
        "tool and clock": "without the time of an empty kernel, at that clock",
        "recording": f"without CUPTI's {statistics.median(clearing or [0.0]):.1f} µs in calls that "
        "clear memory",
    }
    cells = [[said, causes[cause]] for cause, said in by_cause.items()]
    for line, expected_us, *_ in (each for each in whole if each.cause is None):
        times = f"{number(line.judged_us, 1)} µs for {number(expected_us, 1)}"
        cells.append([f"not: `{line.variant}` at {line.n} in {line.dtype}, {times}", 1])
    shorter_us = (control.expected_us or math.nan) - (control.line.judged_us or math.nan)
    outcome = "agrees" if control.cause is not None else "does not agree"
    near = Counter(agree(*ratio) for ratio in ratios(whole))
    text = (
        f"The control, whose launches overlap, is {shorter_us:.2f} µs shorter and {outcome}. Of "
        f"{near.total()} ratios to the faster library below {SHORT_US:g} µs, {near[True]} are "
        "within 1 % of the tools' ratios. The others are not decided."
    )
    return f"{table([f'{len(whole)} times agree', 'number'], cells)}\n\n{fill(text, WIDTH)}"


def main(words: Sequence[str]) -> int:
    if words[0] == "measure":
        return measure(Path(words[1]), *words[2:])
    if words[0] == "table":
        return report(Path(words[1]))
    cases = msgspec.json.decode(Path(words[1]).read_bytes(), type=list[Case])
    Path(words[2]).write_bytes(msgspec.json.encode([*ROLES[words[0]](cases)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
