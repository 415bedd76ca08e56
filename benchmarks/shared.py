"""What several of these scripts share: child processes, points on a GPU, statistics, tables."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # this tree's package

from gpubench.model import Cache, Point, Problem, Scope, Timer
from gpubench.plan.registry import choose
from gpubench.results.row import Row
from gpubench.view.tables import pipe_table

ROOT = Path(__file__).resolve().parent.parent
GPUBENCH = (sys.executable, "-m", "gpubench")
SEED = 2006
"""gpubench's default seed of operands."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A child process that ended."""

    code: int | None
    """None: it was killed, as its time was over."""

    wall_s: float
    out: str
    """What it printed, unless that went to a file."""

    err: str

    @property
    def last_line(self) -> str:
        """Of its stderr."""
        return next((x.strip() for x in reversed(self.err.splitlines()) if x.strip()), "no message")


def child(
    command: Sequence[str | Path],
    *,
    timeout_s: float | None = None,
    out: IO[str] | int = subprocess.PIPE,
    err: IO[str] | int | None = None,
    cwd: Path | None = None,
    **variables: str,
) -> Ended:
    """Run a command; when its time is over, or at Ctrl-C, kill it with all that it started.

    It finds this repository's package. stderr goes where this process's does, unless `err` says.
    """
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    started = perf_counter()
    with subprocess.Popen(
        [str(word) for word in command],
        stdout=out,
        stderr=err,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, **variables},
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        code: int | None
        try:
            said = process.communicate(timeout=timeout_s)
            code = process.returncode
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            said = process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            code = None
    return Ended(code=code, wall_s=perf_counter() - started, out=said[0] or "", err=said[1] or "")


def point(variant: str, tile: str, problem: Problem, cache: Cache = Cache.HOT) -> Point:
    """A point of a CUDA variant, timed by events."""
    (chosen,) = choose(problem.op, "cuda", (variant,))
    return Point(
        variant=chosen,
        tile=chosen.tiles.read(tile) if chosen.tiles and tile else None,
        problem=problem,
        cache=cache,
        scope=Scope.KERNEL,
        timer=Timer.EVENTS,
    )


def bound(backend: Any, what: Point) -> Any:
    """The point's kernel on random operands, by the backend."""
    from gpubench.engine.operands import make_inputs

    cold = what.cache == Cache.COLD
    operands = backend.load(what.problem, make_inputs(what.problem, SEED), cold=cold)
    return backend.bind(what, operands)


def rounds(row: Row) -> list[float]:
    """Medians of the rounds, in microseconds."""
    return [float(text) for text in (row.round_medians_us or "").split(";") if text]


def ratio_interval(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of a ratio, from the logarithms of the ratios of paired rounds."""
    from scipy import stats

    logs = [math.log(over / under) for over, under in zip(above, below, strict=True)]
    middle, half = statistics.mean(logs), math.inf
    if len(logs) > 1:
        error = statistics.stdev(logs) / math.sqrt(len(logs))
        half = error * float(stats.t.ppf(0.975, len(logs) - 1))
    return math.exp(middle - half), math.exp(middle + half)


def markdown(heading: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A Markdown table; the first column is text, the others are figures."""
    cells = [list(heading), *([str(cell) for cell in line] for line in lines)]
    return "\n".join(pipe_table(cells, [True] + [False] * (len(heading) - 1)))


def verdict(holds: bool, what: str) -> bool:
    """Print whether a bound holds."""
    print(f"{'holds' if holds else 'FAILS'}: {what}", flush=True)
    return holds
