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
from gpubench.errors import DeviceUnavailableError
from gpubench.measure.runner import Runner
from gpubench.model import CudaVariant, Measurement, Point, Status, Variant
from gpubench.plan.config import Sweep
from gpubench.plan.sweep import plan
from gpubench.table import ResultFile, Row, merge_rounds, row, with_blas


class Watcher(Protocol):
    """Whoever shows how far a sweep is."""

    def planned(self, backend: Backend, points: int, rounds: int) -> None:
        """Before compiling; there are points × rounds measurements to come."""

    def compiled(self, built: int) -> None:
        """So many kernels are built."""

    def measuring(self, point: Point, round_number: int) -> None:
        """A point is about to be measured."""

    def measured(self, one: Row) -> None:
        """A point was measured in a round."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a sweep left."""

    rows: list[Row]
    path: Path | None
    interrupted: bool
    wall_s: float

    @property
    def device_s(self) -> float:
        """Device time of all samples; the rest of the wall time prepared, verified and waited."""
        return sum(one.device_s or 0.0 for one in self.rows)

    @property
    def failed(self) -> bool:
        """Whether a point was wrong or ended in an error."""
        return any(one.status in {Status.WRONG, Status.ERROR} for one in self.rows)


def open_backend(device: str) -> Backend:
    """The backend that `--device` names; `auto` is the first GPU, or else the CPU.

    Raises DeviceUnavailableError where the device asked for is missing.
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

            return CudaBackend(int(index or 0))
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
    try:
        watcher.planned(backend, len(points), sweep.timing.rounds)
        for point, reason in planned.items():
            if reason is not None:
                keep(Measurement(point=point, status=Status.SKIPPED, reason=reason))
        backend.compile(points, watcher.compiled)
        for measurement in _rounds(points, sweep, backend, watcher):
            watcher.measured(keep(measurement))
    except KeyboardInterrupt:
        interrupted = True
    finally:
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
    )


def _rounds(
    points: list[Point], sweep: Sweep, backend: Backend, watcher: Watcher
) -> Iterator[Measurement]:
    """Every point once a round, each round in a new random order.

    Interleaving spreads the machine's drift over all points alike. A point that was not `ok` is not
    tried again.
    """
    runner = Runner(backend, sweep.timing, sweep.seed)
    order = random.Random(sweep.seed)  # noqa: S311 # a shuffle, not a secret
    remaining = list(points)
    for round_number in range(1, sweep.timing.rounds + 1):
        order.shuffle(remaining)
        for point in tuple(remaining):
            watcher.measuring(point, round_number)
            measurement = runner.measure(point)
            if measurement.status != Status.OK:
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
