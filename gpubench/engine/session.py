"""A sweep from plan to file: plan, compile, measure what the schedule says, keep everything."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import gpubench
from gpubench.engine.executor import Described, Executor
from gpubench.model import CORE_DTYPES, OPERATIONS, Device, Measurement, Point, Status, Variant
from gpubench.plan.schedule import Estimate, Rounds, Schedule, Visit, estimate, is_done
from gpubench.plan.sweep import Sweep, plan
from gpubench.results.provenance import package_version, source_hash
from gpubench.results.result_file import Context, ResultFile
from gpubench.results.row import Row
from gpubench.results.rows import build_rows
from gpubench.results.store import slug


class Watcher:
    """Shows how far a sweep is; this one shows nothing."""

    def planned(self, executor: Described, points: int, visits: int, foreseen: Estimate) -> None:
        """Before compiling: points that can run, visits at most, and what is left to do."""

    def compiled(self, built: int) -> None:
        """So many kernels are built."""

    def measuring(self, visit: Visit) -> None:
        """A point is about to be measured."""

    def measured(self, measurement: Measurement) -> None:
        """A point was measured once."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a sweep."""

    rows: list[Row]
    path: Path | None
    interrupted: bool
    wall_s: float
    spent_s: dict[str, float]
    """Wall time by phase."""

    ceilings: dict[str, float] = field(default_factory=dict)
    """What was measured of the device, as `Backend.ceilings` names it."""

    @property
    def timed(self) -> bool:
        """Whether any point has a time."""
        return any(row.status == Status.OK for row in self.rows)

    @property
    def failed(self) -> bool:
        """Whether a point was wrong or ended in an error."""
        return any(row.status in {Status.WRONG, Status.ERROR} for row in self.rows)


def run(
    sweep: Sweep,
    executor: Executor,
    watcher: Watcher,
    file: ResultFile | None = None,
    *,
    wanted: Callable[[Point], bool] = lambda _point: True,
    schedule: Callable[[list[Point]], Schedule] | None = None,
) -> Outcome:
    """Plan, compile and measure a sweep; every measurement is on disk before the next one starts.

    `wanted` leaves out points that the sweep's lists cannot. `schedule` gets the points that can
    run and decides what is measured next, each compiled when it is measured; None: rounds, as the
    sweep's timing says, after all is compiled.

    Ctrl-C ends it early and keeps what was measured. Raises UsageError if nothing can be measured
    or the file cannot be written, before anything is measured.
    """
    started = perf_counter()
    device = executor.device
    planned = {
        point: reason
        for point, reason in plan(sweep, device.backend, device.compute_capability).items()
        if wanted(point)
    }
    points = [point for point, reason in planned.items() if reason is None]
    visits = schedule(points) if schedule else Rounds(points, sweep.timing, sweep.seed)
    hashes = {variant: source_hash(variant) for variant in {point.variant for point in planned}}
    known: dict[Point, list[Measurement]] = {point: [] for point in planned}
    if file:
        for measurement in file.open(context(sweep, device, hashes), planned):
            known[measurement.point].append(measurement)

    def keep(measurement: Measurement) -> None:
        if file:
            file.add(measurement)  # first: the CSV has nothing that the partial file lacks
        known.setdefault(measurement.point, []).append(measurement)

    ceilings: dict[str, float] = {}
    interrupted = complete = False
    try:
        executor.begin(sweep.timing, sweep.seed)
        for point, reason in planned.items():
            if reason is not None and not known[point]:
                keep(Measurement(point=point, status=Status.SKIPPED, reason=reason))
        unfinished = [point for point in points if not is_done(known[point], sweep.timing)]
        foreseen = estimate(unfinished, device, sweep.timing)
        watcher.planned(executor, len(points), visits.visits, foreseen)
        if schedule is None:
            executor.compile(unfinished, watcher.compiled)
        executor.warm_up()
        of_memory = OPERATIONS[sweep.op].bandwidth_bound  # then the copy is part of the result
        if of_memory or device.compute_capability is None:
            ceilings = executor.ceilings(_without_peaks(device, points), not of_memory)
        while visit := visits.next(known):
            if visit.outcome:
                keep(visit.outcome)
                continue
            watcher.measuring(visit)
            if visit.fresh:
                executor.next_round()
            measurement = placed(executor.measure(visit.point, visit.wall_limit_s), device)
            keep(measurement)
            watcher.measured(measurement)
        complete = True
    except KeyboardInterrupt:
        interrupted = True
    finally:  # whatever ended it: what was measured is kept
        reached = replace(device, facts=device.facts | ceilings)
        built = build_rows(known, reached, hashes, ceilings.get("measured_copy_gbytes_per_s"))
        settings = recorded(sweep)
        rows = [replace(row, **settings) for row in built]
        if file:
            file.finish(rows, complete=complete)
    return Outcome(
        rows=rows,
        path=file.path if file else None,
        interrupted=interrupted,
        wall_s=perf_counter() - started,
        spent_s=dict(executor.spent_s),
        ceilings=ceilings,
    )


def _without_peaks(device: Device, points: Iterable[Point]) -> list[str]:
    """The dtypes whose rate of multiply-adds is measured: those of a CPU, for want of a peak."""
    dtypes = {point.problem.dtype for point in points if device.compute_capability is None}
    return [dtype for dtype in CORE_DTYPES if dtype in dtypes]


def context(sweep: Sweep, device: Device, hashes: Mapping[Variant, str]) -> Context:
    """What must be the same for a sweep to be continued in the same file."""
    return {
        "gpubench": gpubench.__version__,
        "options": {
            name: text for name, text in sweep.options.items() if name not in {"output", "samples"}
        },
        "device": device.name,
        "versions": device.versions,
        "sources": {variant.name: digest for variant, digest in hashes.items()},
    }


def recorded(sweep: Sweep) -> dict[str, Any]:
    """The columns that say how the rows can be measured again."""
    flags = (f"--{name.replace('_', '-')} {text}" for name, text in sweep.options.items())
    digest, commit = package_version()
    return {
        "tree_hash": digest,
        "commit": commit,
        "options": " ".join(flags) or None,
        "seed": sweep.seed,
    }


def placed(measurement: Measurement, device: Device) -> Measurement:
    """The measurement with where it was made: here."""
    return replace(
        measurement,
        device_uuid=device.facts.get("uuid") or "",
        slot=device.facts.get("slot") or "",
        hostname=platform.node(),
    )


def default_output(sweep: Sweep, device: str) -> Path:
    """`results/<utc time>-<device>-<op>.csv`."""
    return default_place(device, f"{sweep.op}.csv")


def default_place(device: str, ending: str) -> Path:
    """`results/<utc time>-<device>-<ending>`."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return Path("results") / f"{now}-{slug(device)}-{ending}"
