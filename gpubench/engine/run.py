"""Runs a job, keeps each measurement in a file, and builds the rows from the measurements.

Every command that measures runs its job here. Each measurement is on disk before gpubench uses it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

from gpubench.engine.cluster import connected
from gpubench.engine.cluster_pool import ClusterPool
from gpubench.engine.measurements import Measurements, Place
from gpubench.engine.pool import Pool, Watcher, local_pool
from gpubench.engine.prepare import Job, prepare
from gpubench.errors import UsageError
from gpubench.model import Measurement, PointKey, Status
from gpubench.plan.schedule import Strategy
from gpubench.plan.sweep import Sweep
from gpubench.results import store
from gpubench.results.result_file import ResultFile, default_path
from gpubench.results.row import Row
from gpubench.results.rows import build_rows


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a job."""

    job: Job
    rows: list[Row]
    path: Path | None
    """The CSV. The value is None if no file was requested, or if an existing file stays, because
    nothing was measured."""

    interrupted: bool
    wall_s: float
    spent_s: Mapping[str, float]  # wall time by phase
    endings: Mapping[PointKey, str] = field(default_factory=dict)
    """Maps the key of each race to the reason why the race ended. The points of a race have this
    key, apart from their tiles."""

    saved: Path | None = None  # path of the rows in the store, if they were saved there

    @property
    def timed(self) -> bool:
        """Whether any point has a time."""
        return any(row.status == Status.OK for row in self.rows)

    @property
    def failed(self) -> bool:
        """Whether a point was wrong or ended in an error."""
        return any(row.status in {Status.WRONG, Status.ERROR} for row in self.rows)


AddMore = Callable[[Job, Pool, list[Row]], list[Row]]
"""Function that makes additional measurements on the pool of a finished job. The function gets the
rows of the job, and returns rows that include these measurements."""


def run(
    job: Job,
    pool: Pool,
    watcher: Watcher | None = None,
    file: ResultFile | None = None,
    add_more: AddMore | None = None,
) -> Outcome:
    """Measure a job on a pool, and write the measurements into `file`, if there is a file.

    `add_more` receives the rows of a finished job before the rows are written. Ctrl-C ends the job
    early and keeps the measurements. If the file cannot be written, raises UsageError before
    anything is measured. If the pool cannot measure, raises the error of the pool.
    """
    started = perf_counter()
    watcher = watcher or Watcher()
    measurements = Measurements(job)
    if file:
        for measurement in file.open({**job.context, **pool.context}, job.point_of):
            measurements.add(measurement)

    def keep(measurement: Measurement) -> None:
        if file:
            file.add(measurement)

    interrupted = complete = writes = False
    rows: list[Row] = []
    try:
        for point, reason in job.planned.items():
            if reason is not None and not measurements.is_finished(point):
                skipped = Measurement(point=point, status=Status.SKIPPED, reason=reason)
                keep(skipped)  # the partial file must have every point of the CSV
                measurements.add(skipped)
        pool.measure(job, measurements, keep, watcher)
        rows = _rows(job, pool, measurements)
        complete = True
        if add_more:
            rows = add_more(job, pool, rows)
    except KeyboardInterrupt:
        interrupted = True
    finally:  # keep all measurements, also after an exception
        rows = rows or _rows(job, pool, measurements)
        if file:
            writes = file.finish(rows, complete=complete)
    return Outcome(
        job=job,
        rows=rows,
        path=file.path if file and writes else None,
        interrupted=interrupted,
        wall_s=perf_counter() - started,
        spent_s=dict(pool.spent_s),
        endings=dict(pool.endings),
    )


def all_rows(job: Job, pool: Pool, watcher: Watcher | None = None) -> list[Row]:
    """Measure a job, and return its rows. Raises KeyboardInterrupt if points are missing."""
    outcome = run(job, pool, watcher)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return list(outcome.rows)


def measure(
    sweep: Sweep,
    watcher: Watcher,
    *,
    on: str | None = None,
    resume: bool = False,
    force: bool = False,
    save: str | None = None,
    add_more: AddMore | None = None,
    add_more_s: Callable[[Job], float] | None = None,
    strategy: Strategy | None = None,
) -> Outcome:
    """Measure a sweep, and write the results into the sweep's own file or the default file.

    `on` names the devices that share the sweep (`open_pool`). `save` is the name under which the
    store keeps the rows of a complete sweep. `add_more` is passed to `run`, and `add_more_s`
    returns the expected time of `add_more` in seconds. `strategy` is passed to `prepare`.
    """
    with open_pool(sweep, on) as pool:
        path = sweep.output or default_path(pool.name, f"{sweep.op}.csv")
        file = ResultFile(path, resume=resume, overwrite=force, samples=sweep.samples)
        job = prepare(sweep, pool.device, strategy=strategy)
        job = replace(job, afterwards_s=add_more_s(job) if add_more_s else 0.0)
        outcome = run(job, pool, watcher, file, add_more)
    return save_rows(outcome, save)


def save_rows(outcome: Outcome, name: str | None) -> Outcome:
    """Keep the rows of a complete outcome in the store. Return the outcome with the saved path.

    If the store cannot be written, raises UsageError, which names the file that has the rows.
    """
    if name is None or outcome.interrupted or not outcome.timed:
        return outcome
    try:
        return replace(outcome, saved=store.save(outcome.rows, name))
    except UsageError as error:
        there = f"; the rows are in {outcome.path}" if outcome.path else ""
        raise UsageError(f"{error}{there}") from error


@contextmanager
def open_pool(sweep: Sweep, on: str | None = None) -> Iterator[Pool]:
    """Open a pool that measures a sweep on this machine, or on the devices that `--on` names.

    Raises UsageError if no cluster answers, DeviceUnavailableError if a device is missing, and
    DeviceBusyError if another sweep uses the GPU.
    """
    if on is None:
        with local_pool(sweep.device, sweep.timer, kernels=sweep.kernels) as pool:
            yield pool
    else:
        with connected(on, sweep.device) as client:
            yield ClusterPool(client, sweep.device)


def _rows(job: Job, pool: Pool, measurements: Measurements) -> list[Row]:
    """Build one row for each point. A row has only the measurements that one place made."""
    by_place, place_of = measurements.by_place, _places(job, measurements)
    provenance = job.provenance
    speeds = measurements.device_speeds()
    rows: dict[PointKey, Row] = {}
    for place, by_point in by_place.items():
        # Workers on one CPU disturb each other; GPUs do not.
        others = sum(other.hostname == place.hostname != "" for other in by_place) - 1
        is_disturbed = others > 0 and pool.device.compute_capability is None
        text = f"other workers on the same CPU, which disturb this worker: {others}"
        note = text if is_disturbed else ""
        for row in build_rows(by_point, pool.device_at(place), job.hashes):
            if place_of[row.key] == place:
                rows[row.key] = replace(
                    row,
                    **provenance,
                    **job.listed(row.key),
                    percent_of_devices=speeds.get(place),
                    reason="; ".join(filter(None, (row.reason, note))) or None,
                )
    planned = [point.key for point in job.planned]
    return [rows[key] for key in dict.fromkeys((*planned, *rows)) if key in rows]


def _places(job: Job, measurements: Measurements) -> dict[PointKey, Place]:
    """Return, for each point, the place where most of its rounds were measured.

    All points of a race that were launched have the same place.
    """
    strategy = job.strategy
    rounds_at: defaultdict[Hashable, Counter[Place]] = defaultdict(Counter)
    units: dict[PointKey, Hashable] = {}
    for place, by_point in measurements.by_place.items():
        for point, rounds in by_point.items():
            is_raced = strategy.is_race and place != Place()
            units[point.key] = unit = strategy.unit(point) if is_raced else point
            rounds_at[unit][place] += len(rounds)
    return {key: rounds_at[unit].most_common(1)[0][0] for key, unit in units.items()}
