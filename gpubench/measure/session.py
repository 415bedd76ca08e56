"""A sweep from plan to file: choose the device, plan, compile, measure, keep every row."""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from gpubench.backends import Backend
from gpubench.errors import DeviceUnavailableError, UsageError
from gpubench.measure.forecast import Forecast
from gpubench.measure.rows import merge_rounds, row, with_blas
from gpubench.measure.runner import Runner
from gpubench.measured import Measurement
from gpubench.model import CudaVariant, Point, Status, Timer, Variant
from gpubench.plan.config import Sweep
from gpubench.plan.sweep import plan
from gpubench.table import ResultFile, Row


class Watcher(Protocol):
    """Whoever shows how far a sweep is."""

    def planned(self, backend: Backend, points: int, rounds: int) -> None:
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


def open_backend(device: str, timer: Timer = Timer.EVENTS) -> Backend:
    """The backend that `--device` names; `auto` is the first GPU, or else the CPU.

    Raises DeviceUnavailableError where the device or the timer asked for is missing.
    """
    from gpubench.backends.cuda.devices import cuda_device

    name, _, index = device.partition(":")
    if name != "cpu":
        try:
            cuda_device(int(index or 0))
        except DeviceUnavailableError:
            if name != "auto":
                raise
        else:
            from gpubench.backends.cuda.backend import CudaBackend
            from gpubench.backends.cuda.cupti import load_cupti

            if timer == Timer.CUPTI:
                load_cupti()
            return CudaBackend(int(index or 0))
    if timer == Timer.CUPTI:
        raise UsageError("--timer cupti needs a GPU; the CPU is timed by the host's clock")
    from gpubench.backends.cpu import CpuBackend

    return CpuBackend()


def run(sweep: Sweep, backend: Backend, watcher: Watcher, file: ResultFile | None) -> Outcome:
    """Plan, compile and measure a sweep; every row is in the file before the next point starts.

    Ctrl-C ends it early and keeps what was measured. Raises UsageError if nothing can be measured
    or the file cannot be written, before anything is.
    """
    began = time.perf_counter()
    planned = plan(sweep, backend.device.backend)
    points = [point for point, reason in planned.items() if reason is None]
    rows: dict[Point, list[Row]] = {point: [] for point in planned}
    hashes = {variant: source_hash(variant) for variant in {point.variant for point in planned}}

    def keep(measurement: Measurement) -> Row:
        point = measurement.point
        one = row(measurement, backend.device, hashes[point.variant])
        rows[point].append(one)
        if file:
            file.add(one)
        return one

    if file:
        file.open()
    interrupted = False
    runner = Runner(backend, sweep.timing, sweep.seed)
    try:
        watcher.planned(backend, len(points), sweep.timing.rounds)
        for point, reason in planned.items():
            if reason is not None:
                keep(Measurement(point=point, status=Status.SKIPPED, reason=reason))
        with runner.phase("compiling"):
            backend.compile(points, watcher.compiled)
        with runner.phase("warming up"):
            backend.warm_up()
        for measurement in _rounds(points, sweep, runner, watcher):
            watcher.measured(keep(measurement))
    except KeyboardInterrupt:
        interrupted = True
    finally:  # whatever ended it: what was measured is kept
        merged = with_blas(
            [merge_rounds(some) for some in rows.values() if some],
            {variant.name: variant.baseline for variant in hashes},
        )
        if file:
            file.finish(merged)
    return Outcome(
        rows=merged,
        path=file.path if file else None,
        interrupted=interrupted,
        wall_s=time.perf_counter() - began,
        spent_s=dict(runner.spent_s),
    )


def _rounds(
    points: list[Point], sweep: Sweep, runner: Runner, watcher: Watcher
) -> Iterator[Measurement]:
    """Every point once a round, each round in a new random order.

    Interleaving spreads the machine's drift over all points alike. A point that was not `ok` is not
    tried again.
    """
    forecast = Forecast(points, sweep.timing.rounds, sweep.timing.budget_s)
    order = random.Random(sweep.seed)  # noqa: S311 # a shuffle, not a secret
    remaining = list(points)
    for round_number in range(1, sweep.timing.rounds + 1):
        order.shuffle(remaining)
        for point in tuple(remaining):
            watcher.measuring(point, round_number, forecast.left_s)
            began = time.perf_counter()
            measurement = runner.measure(point, forecast.share_s)
            again = measurement.status == Status.OK
            forecast.visited(point, time.perf_counter() - began, again=again)
            if not again:
                remaining.remove(point)
            yield measurement


def default_output(sweep: Sweep, device: str) -> Path:
    """`results/<utc time>-<device>-<op>.csv`."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return Path("results") / f"{now}-{name[:40]}-{sweep.op}.csv"


def source_hash(variant: Variant) -> str:
    """Of the variant's files: 12 digits that change whenever its code does."""
    digest = hashlib.sha256(variant.path.read_bytes())
    if isinstance(variant, CudaVariant):
        digest.update(variant.source.read_bytes())
    return digest.hexdigest()[:12]
