"""Rows of a fake GPU that `gpubench diff` compares."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fakes import failed, measured, point, variant

from gpubench.model import Status, Timer
from gpubench.results.row import Row

Write = Callable[[str, list[Row]], str]
"""Type of the fixture `file`, which writes rows under a name and returns the path."""

Run = Callable[..., tuple[int, str, str]]
"""Type of the fixture `run`, which returns the exit code, stdout and stderr of a command line."""

ROUNDS = (100.0, 100.3, 100.1, 100.4, 100.2)
SIZES = (64, 128, 256)


def row(
    name: str,
    size: int,
    factor: float = 1.0,
    rounds: Sequence[float] = ROUNDS,
    mhz: float | None = None,
) -> Row:
    """Return the row of a point on a fake GPU."""
    measured_point = point(variant(name=name), size=(size, size, size), timer=Timer.EVENTS)
    times = [factor * time for time in rounds]
    return replace(
        measured(sorted(times)[len(times) // 2], measured_point),
        round_medians_us=tuple(times),
        rounds=len(times),
        sm_mhz=mhz,
        device="NVIDIA H200",
        driver="580.1",
        cuda="13.0",
    )


def failure(status: Status, reason: str, name: str = "other", size: int = 64) -> Row:
    """Return the row of a point on the fake GPU that has no times."""
    failed_point = point(variant(name=name), size=(size, size, size), timer=Timer.EVENTS)
    return replace(
        failed(status, reason, failed_point), device="NVIDIA H200", driver="580.1", cuda="13.0"
    )


def rows(mhz: float | None = None, **factors: float) -> list[Row]:
    """Return rows of three variants at three sizes. `own=1.05` makes `own` 5 % slower."""
    return [
        row(name, size, factors.get(name, 1.0), mhz=mhz)
        for name in ("cublas", "own", "other")
        for size in SIZES
    ]


def swapped(rows: Sequence[Row], *others: Row) -> list[Row]:
    """Return the rows, with other rows in place of the rows of the same points."""
    new = {row.key: row for row in others}
    return [new.get(row.key, row) for row in rows]
