"""A sweep from plan to file: choose the device, plan, compile, measure, keep every row."""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import gpubench
from gpubench.backends.sources import whole_source
from gpubench.errors import UsageError
from gpubench.measure.executor import Executor
from gpubench.measure.forecast import Forecast
from gpubench.measure.result_file import Context, ResultFile
from gpubench.measure.rows import key_of, marks_of, merge_rounds, row, with_blas
from gpubench.model import OPERATIONS, CudaVariant, Device, Measurement, Point, Status, Variant
from gpubench.plan.config import Sweep
from gpubench.plan.sweep import plan
from gpubench.row import Row


class Watcher(Protocol):
    """Whoever shows how far a sweep is."""

    def planned(self, executor: Executor, points: int, rounds: int) -> None:
        """Before compiling; there are points × rounds measurements to come."""

    def compiled(self, built: int) -> None:
        """So many kernels are built."""

    def measuring(self, point: Point, round_number: int, left_s: float) -> None:
        """A point is about to be measured; the sweep is expected to last `left_s` from here."""

    def measured(self, one: Row) -> None:
        """A point was measured in a round."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a sweep left."""

    rows: list[Row]
    path: Path | None
    interrupted: bool
    wall_s: float
    spent_s: dict[str, float]
    """Wall time by phase."""

    @property
    def device_s(self) -> float:
        """Device time of all samples; the rest of the wall time prepared, verified and waited."""
        return sum(one.device_s or 0.0 for one in self.rows)

    @property
    def failed(self) -> bool:
        """Whether a point was wrong or ended in an error."""
        return any(one.status in {Status.WRONG, Status.ERROR} for one in self.rows)


def run(
    sweep: Sweep,
    executor: Executor,
    watcher: Watcher,
    file: ResultFile | None = None,
    wanted: Callable[[Point], bool] = lambda _point: True,
) -> Outcome:
    """Plan, compile and measure a sweep; every row is in the file before the next point starts.

    `wanted` leaves points out that the sweep's lists cannot.

    Ctrl-C ends it early and keeps what was measured. Raises UsageError if nothing can be measured
    or the file cannot be written, before anything is.
    """
    began = time.perf_counter()
    device = executor.device
    planned = {
        p: reason
        for p, reason in plan(sweep, device.backend, device.compute_capability).items()
        if wanted(p)
    }
    hashes = {variant: source_hash(variant) for variant in {point.variant for point in planned}}
    rows: dict[Point, list[Row]] = {point: [] for point in planned}
    if file:
        earlier = file.open(_context(sweep, device, hashes))
        try:
            _sort_in(earlier, rows, device, file.path)
        except UsageError:
            file.close()
            raise

    copy_gbytes_per_s: float | None = None

    def keep(measurement: Measurement) -> Row:
        point = measurement.point
        one = row(measurement, device, hashes[point.variant], copy_gbytes_per_s)
        rows[point].append(one)
        if file:
            file.add(one)
        return one

    interrupted = complete = False
    try:
        executor.begin(sweep.timing, sweep.seed, sweep.operands)
        for point, reason in planned.items():
            if reason is not None and not rows[point]:
                keep(Measurement(point=point, status=Status.SKIPPED, reason=reason))
        points = [point for point, reason in planned.items() if reason is None]
        watcher.planned(executor, len(points), sweep.timing.rounds)
        executor.compile([p for p in points if _lacks_rounds(rows[p], sweep)], watcher.compiled)
        executor.warm_up()
        if OPERATIONS[sweep.op].bandwidth_bound:
            copy_gbytes_per_s = executor.copy_gbytes_per_s()
        for measurement in _rounds(points, rows, sweep, executor, watcher):
            watcher.measured(keep(measurement))
        complete = True
    except KeyboardInterrupt:
        interrupted = True
    finally:  # whatever ended it: what was measured is kept
        merged = with_blas(
            [merge_rounds(some) for some in rows.values() if some],
            marks_of(hashes),
        )
        if file:
            file.finish(merged, complete=complete)
    return Outcome(
        rows=merged,
        path=file.path if file else None,
        interrupted=interrupted,
        wall_s=time.perf_counter() - began,
        spent_s=dict(executor.spent_s),
    )


def _rounds(
    points: list[Point],
    rows: dict[Point, list[Row]],
    sweep: Sweep,
    executor: Executor,
    watcher: Watcher,
) -> Iterator[Measurement]:
    """Every point once a round, each round in a new random order.

    Interleaving spreads the machine's drift over all points alike. A point that was not `ok` is not
    tried again, and what `rows` holds already, of a sweep that is resumed, is not measured again.
    """
    timing = sweep.timing
    forecast = Forecast(points, timing.rounds, timing.budget_s)
    order = random.Random(sweep.seed)  # noqa: S311 # a shuffle, not a secret
    remaining = list(points)
    for round_number in range(1, timing.rounds + 1):
        order.shuffle(remaining)
        if round_number > 1 and any(len(rows[point]) < round_number for point in remaining):
            executor.next_round()
        for point in tuple(remaining):
            cost_s = 0.0
            if len(rows[point]) < round_number:
                watcher.measuring(point, round_number, forecast.left_s)
                began = time.perf_counter()
                yield executor.measure(point, forecast.share_s)
                cost_s = time.perf_counter() - began
            again = rows[point][round_number - 1].status == Status.OK
            forecast.visited(point, cost_s, again=again)
            if not again:
                remaining.remove(point)


def _lacks_rounds(rows: list[Row], sweep: Sweep) -> bool:
    return all(one.status == Status.OK for one in rows) and len(rows) < sweep.timing.rounds


def _context(sweep: Sweep, device: Device, hashes: dict[Variant, str]) -> Context:
    """What must be the same for a sweep to go on in the same file."""
    return {
        "gpubench": gpubench.__version__,
        "options": {name: text for name, text in sweep.options.items() if name != "output"},
        "device": device.name,
        "versions": device.versions,
        "sources": {variant.name: digest for variant, digest in hashes.items()},
    }


def _sort_in(earlier: list[Row], rows: dict[Point, list[Row]], device: Device, path: Path) -> None:
    """Give the rows of a resumed sweep to their points."""
    by_key = {key_of(point, device): some for point, some in rows.items()}
    for one in earlier:
        if one.key not in by_key:
            raise UsageError(f"--resume: {path}: {one.label} is no point of this sweep")
        by_key[one.key].append(one)


def default_output(sweep: Sweep, device: str) -> Path:
    """`results/<utc time>-<device>-<op>.csv`."""
    return default_place(device, f"{sweep.op}.csv")


def default_place(device: str, ending: str) -> Path:
    """`results/<utc time>-<device>-<ending>`."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return Path("results") / f"{now}-{name[:40]}-{ending}"


def source_hash(variant: Variant) -> str:
    """Of the variant's files: 12 digits that change whenever its code does."""
    digest = hashlib.sha256(variant.path.read_bytes())
    if isinstance(variant, CudaVariant):
        for source in whole_source(variant.source):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:12]
