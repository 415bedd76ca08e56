"""Compare times of launches alone with Nsight Compute, for every kernel that the README names.

    python research/compare_with_profiler.py measure alone.csv  # kernels and sizes of selfcheck
    python research/compare_with_profiler.py measure alone.csv 208,496,848
    python research/compare_with_profiler.py table alone.csv

One process under Nsight Compute times each kernel by gpubench, and then has the kernel profiled on
the same operands (`gpu__time_duration.sum`). Two processes would have operands at different
addresses, and their times would differ by about 1 %. A time agrees if it is within 0.15 µs or 1 %
of the profiler's duration, whichever is larger. Calls of libraries that launch several kernels or
clear memory have no such duration, and are left out. `gpubench selfcheck` compares these calls with
CUPTI's records.

The clock frequency is measured beside the times of both tools. The table has the number of times
that agree directly, and the number that agree after a correction for the frequencies (`judged`). A
time that does not agree is measured in seven more visits, whose median replaces it. The control is
a kernel whose launches overlap. Its time must disagree. Exits with 1 if any other time disagrees,
or if the control agrees.
"""

import csv
import math
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import repeat
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from common import SEED, WIDTH, point, read_lines, table

from gpubench.backends.cuda.ncu import marked_call, profile
from gpubench.commands.selfcheck.check import CONTROL, FITTED, KERNELS, SIZES
from gpubench.grouping import grouped
from gpubench.model import Launches, Problem
from gpubench.plan.ranges import parse_sizes
from gpubench.view.numbers import number

METRICS = ("gpu__time_duration.sum", "sm__cycles_elapsed.max")
"""Metrics of Nsight Compute: how many nanoseconds and how many cycles a kernel takes."""

WARM_UP_CALLS = 10
NCU_CALLS = 7
SAMPLES = 15
SAMPLE_US = 100.0
MAX_LAUNCHES = 256
ALLOWED_US = 0.15
ALLOWED = 0.01
TIMEOUT_S = 400

VISITS = 7
"""Number of further visits of a case whose times disagree. Launches can differ by 5 %."""

EMPTY = "empty"


@dataclass(frozen=True)
class Line:
    """A row of the file, with the times of a kernel at a size.

    A time is None if it was not measured.
    """

    dtype: str
    variant: str
    tile: str = ""
    n: str = ""
    """The extent of the square matrices, such as "496"."""

    launches: str = "alone"
    """`alone` or `overlapped`. Earlier files also have `empty`: an empty kernel ran instead."""

    several: bool = False
    """Whether a call launches several kernels or clears memory. Such a line has no times."""

    gpubench_us: float | None = None
    gpubench_mhz: float | None = None
    """Clock frequency of the multiprocessors during gpubench's samples."""

    ncu_us: float | None = None
    ncu_mhz: float | None = None

    @property
    def case(self) -> tuple[str, ...]:
        """The key of the measured case."""
        return self.dtype, self.variant, self.tile, self.n, self.launches


def all_cases(sizes: Sequence[str]) -> list[Line]:
    """Return the cases: the kernels of `selfcheck`, and the control of `selfcheck`."""
    cases = [
        Line(dtype, variant, tile, size)
        for dtype, tiles in KERNELS.items()
        for size in sizes
        for variant, tile in tiles.items()
    ]
    control = Line(CONTROL["dtypes"], CONTROL["variants"], FITTED, CONTROL["sizes"], "overlapped")
    return [*cases, control]


# ---- in the process under Nsight Compute


def launched(cases: Sequence[Line]) -> Iterator[Line]:
    """Yield each case with its time on hot operands, and launch it for the profiler.

    Kernels of one precision and size share their operands, because making operands takes longest.
    """
    from gpubench.backends.cuda.backend import CudaBackend
    from gpubench.engine.operands.make import make_inputs

    backend = CudaBackend(0)
    backend.warm_up()
    timer, stream = backend.timers.events, backend.timers.stream
    shared: dict[Problem, Any] = {}
    for case in sorted(cases, key=lambda case: (case.dtype, case.n)):
        try:
            ((m, n, k),) = parse_sizes(case.n)
            problem = Problem(op="gemm", m=m, n=n, k=k, dtype=case.dtype)
            own = Path(os.environ["KERNELS"]) if "KERNELS" in os.environ else None
            what = point(case.variant, case.tile, problem, own)
            problem = replace(problem, column_major=what.variant.own_layout(case.dtype))
            if problem not in shared:
                inputs = make_inputs(problem, SEED)
                shared = {problem: backend.load(problem, inputs, cold=False)}
                backend.warm_up()  # while operands were made, the clocks fell
            what = replace(what, problem=problem, launches=Launches(case.launches))
            call = next(backend.bind(what, shared[problem]).rotation)
            if not is_one_kernel(call, stream.pointer):
                yield replace(case, several=True)
                continue
            for _ in range(WARM_UP_CALLS):
                call()
            stream.synchronize()
        except Exception as error:  # the error costs only this case
            print(f"{case}: {error!r}", file=sys.stderr)
            continue
        # As in a sweep, a sample has launches behind a blocking kernel, for at least 100 µs.
        shortest_us = min(timer.sample(repeat(call), 1, 3))
        count = min(MAX_LAUNCHES, math.ceil(SAMPLE_US / max(shortest_us, 1.0)))
        timer.take_clock_mhz()
        median_us = statistics.median(timer.sample(repeat(call), count, SAMPLES))
        mhz = timer.take_clock_mhz()
        with marked_call():
            for _ in range(NCU_CALLS):
                call()
        yield replace(case, gpubench_us=median_us, gpubench_mhz=mhz)


def is_one_kernel(call: Callable[[], None], stream: int) -> bool:
    """Return whether a call launches a single kernel, and clears no memory."""
    from cuda.bindings import driver

    from gpubench.backends.cuda.graph import captured

    call()
    with captured(stream, (call,), overlap=True) as graph:
        _, _, count = driver.cuGraphGetNodes(graph)
    return bool(count == 1)


# ---- in the process of the user


def profiled(cases: Sequence[Line], timeout_s: float = TIMEOUT_S) -> dict[tuple[str, ...], Line]:
    """Run the cases under Nsight Compute, and return a line with times for each case.

    If a case has several visits, the times are medians.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines.csv"
        write(cases, path)
        command = (sys.executable, __file__, "launch", str(path))
        result = profile(
            command,
            METRICS,
            flush=False,
            limit_s=timeout_s,
            environment=os.environ,
            output=sys.stderr.fileno(),
        )
        if result.error:
            print(result.error, file=sys.stderr)
        lines = read(path)
    measured = [line for line in lines if line.several]
    timed = (line for line in lines if not line.several)
    for line, kernels in zip(timed, result.calls, strict=True):
        values = [{x.metric: x.value or math.nan for x in kernel.counters} for kernel in kernels]
        nanoseconds, cycles = np.array([[each[x] for each in values] for x in METRICS])
        by_ncu = float(np.median(nanoseconds)) / 1e3, float(1e3 * cycles.sum() / nanoseconds.sum())
        measured.append(replace(line, ncu_us=by_ncu[0], ncu_mhz=by_ncu[1]))
    names = ("gpubench_us", "gpubench_mhz", "ncu_us", "ncu_mhz")
    return {
        case: visits[0]
        if visits[0].several
        else replace(
            visits[0], **{x: statistics.median(getattr(line, x) for line in visits) for x in names}
        )
        for case, visits in grouped(measured, lambda line: line.case).items()
    }


class Judged(NamedTuple):
    """A line, and whether its times agree."""

    line: Line
    cause: str | None
    """Why the times agree: an empty text if they agree directly, and `clock` if they agree after a
    correction for clock frequencies. None if the times disagree."""


def judged(lines: Sequence[Line]) -> list[Judged]:
    """Judge each line, except lines of empty kernels and of several kernels.

    A different clock frequency under Nsight Compute changes a part of the time, or all of it. The
    time that a kernel waits for memory does not depend on this clock.
    """
    return [Judged(x, _cause(x)) for x in lines if x.launches != EMPTY and not x.several]


def _cause(line: Line) -> str | None:
    if line.gpubench_us is None or line.ncu_us is None:
        return None
    if agrees(line.gpubench_us, line.ncu_us):
        return ""
    by_clock_us = 0.0
    if line.gpubench_mhz and line.ncu_mhz:
        by_clock_us = line.gpubench_us * (line.gpubench_mhz / line.ncu_mhz - 1)
    low_us, high_us = sorted((line.gpubench_us, line.gpubench_us + by_clock_us))
    nearest_us = min(max(line.ncu_us, low_us), high_us)
    return "clock" if agrees(nearest_us, line.ncu_us) else None


def agrees(gpubench_us: float, ncu_us: float) -> bool:
    """Return whether two times agree without a correction for clock frequencies."""
    return abs(gpubench_us - ncu_us) <= max(ALLOWED_US, ALLOWED * ncu_us)


def write(lines: Sequence[Line], path: Path) -> None:
    """Write the lines as CSV. Figures have four decimals."""
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, [field.name for field in fields(Line)], lineterminator="\n")
        out.writeheader()
        for line in lines:
            figures = {x: f"{v:.4f}" for x, v in asdict(line).items() if isinstance(v, float)}
            out.writerow(asdict(line) | figures | {"several": int(line.several)})


def read(path: Path) -> list[Line]:
    """Read the lines of a CSV."""
    return read_lines(path, Line)


def measure(path: Path, sizes: str = "") -> int:
    """Measure all cases, write their lines into a file, and print the table."""
    cases = all_cases(sizes.split(",") if sizes else [str(size) for size in SIZES])
    done: dict[tuple[str, ...], Line] = {}
    again = cases
    for visits in (1, VISITS):
        done |= profiled(again * visits)
        lines = [done.get(case.case, case) for case in cases]
        write(lines, path)
        again = [x.line for x in judged(lines) if x.cause is None and x.line.launches == "alone"]
        print(f"{len(again)} times do not agree", flush=True)
        if not again:
            break
    return report(path)


def report(path: Path) -> int:
    """Print the number of times that agree, and print the times that do not agree.

    Return 1 if a time other than the control disagrees, or if the control agrees.
    """
    lines = read(path)
    missed = [x for x in judged(lines) if x.cause != "" or x.line.launches != "alone"]
    cells = [
        [
            *line.case,
            cause or "unknown",
            number(line.gpubench_us, 2),
            number(line.ncu_us, 2),
            number(line.gpubench_mhz, 0),
            number(line.ncu_mhz, 0),
        ]
        for line, cause in missed
    ]
    heading = ["precision", "kernel", "tile", "N", "launches", "cause", "gpubench, µs"]
    more = ["Nsight Compute, µs", "gpubench, MHz", "Nsight Compute, MHz"]
    print(f"{table([*heading, *more], cells)}\n\n{summary(lines)}")
    return int([x.line.launches for x in missed if x.cause is None] != ["overlapped"])


def summary(lines: Sequence[Line]) -> str:
    """Return a table with the numbers of times that agree, and a sentence about the control."""
    *whole, control = sorted(judged(lines), key=lambda each: each.line.launches != "alone")
    causes = Counter(each.cause for each in whole)
    cells = [
        ["agree directly", causes[""]],
        ["agree after a correction for different clock frequencies", causes["clock"]],
    ]
    for line in (each.line for each in whole if each.cause is None):
        times = f"{number(line.gpubench_us, 2)} µs and {number(line.ncu_us, 2)} µs"
        cells.append([f"disagree: `{line.variant}` at {line.n} in {line.dtype}, {times}", 1])
    shorter_us = (control.line.ncu_us or math.nan) - (control.line.gpubench_us or math.nan)
    text = (
        f"The control is a kernel whose launches overlap. Its time is {shorter_us:.2f} µs shorter "
        "by gpubench than by Nsight Compute, and "
        f"{'does not agree' if control.cause is None else 'agrees'}."
    )
    return f"{table([f'{len(whole)} pairs of times', 'number'], cells)}\n\n{fill(text, WIDTH)}"


def main(words: Sequence[str]) -> int:
    path = Path(words[1])
    if words[0] == "measure":
        return measure(path, *words[2:])
    if words[0] == "table":
        return report(path)
    write([*launched(read(path))], path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if len(sys.argv) > 2 else __doc__)  # noqa: PLR2004 # mode, file
