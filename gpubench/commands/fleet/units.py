"""The units in which every device is measured. If a unit fails, the other units are measured.

A unit is a product that one kind of arithmetic unit bounds, a copy in memory, a chain of dependent
loads, or a copy between host and device. The unit in which a device is slow hints at the cause.
"""

import platform
from collections.abc import Sequence
from typing import Any, NamedTuple

import gpubench
from gpubench.commands.fleet.times import UnitTime
from gpubench.engine.cluster import Member
from gpubench.engine.measurements import Place
from gpubench.engine.pool import LocalPool, Watcher, local_pool
from gpubench.engine.prepare import Job, prepare
from gpubench.engine.run import run
from gpubench.errors import GpubenchError, UsageError
from gpubench.model import Cache, Device, Health, Measurement, Point, Status, Timing
from gpubench.plan.schedule import InRounds
from gpubench.plan.sweep import Sweep
from gpubench.results.provenance import package_version


class Products(NamedTuple):
    """The matrix products of a backend: one library routine at one size, in several dtypes."""

    variant: str
    extent: int  # M, N and K, so large that a product takes much longer than launching it
    dtypes: tuple[str, ...]


PRODUCTS = {
    "cuda": Products("cublas", 4096, ("float32", "float64", "tf32", "bfloat16")),
    "cpu": Products("cpu_blas", 512, ("float32", "float64")),
}

UNIT = "{} product"  # the unit of a product in a dtype
ROUND = Timing(rounds=1, max_wall_s=0.25)  # the timing of a product in one round
ALONE = "alone"  # the other devices of the host do nothing
TOGETHER = "together"  # all devices of the host measure
PHASES = (ALONE, TOGETHER)

EDGE_ROUNDS = 1
"""Number of rounds at the beginning and at the end of `together` that do not count, because not all
devices measure then."""


class Asked(NamedTuple):
    """The work of one turn of a worker."""

    device: str
    phase: str
    rounds: int  # number of rounds that count
    seed: int
    verified: Sequence[Measurement] = ()  # right results of the last turn, not verified again
    units: frozenset[str] = frozenset()  # units to measure; an empty set means all units


class Report(NamedTuple):
    """The result of one turn of a worker."""

    member: Member
    times: list[UnitTime]  # one for each unit and round
    bits: dict[str, dict[int, set[int]]]
    """Fingerprints of each product's outputs in all rounds, by set of operands."""

    configuration: dict[str, Any]
    verified: Sequence[Measurement] = ()
    error: str = ""  # why times are missing; empty if none is missing

    @property
    def identity(self) -> str:
        """Text that identifies the device in all runs. `UnitTime.identity` has the same text."""
        return str(self.member.device.facts.get("uuid") or self.member.label)


def measure_units(asked: Asked) -> Report:
    """Measure rounds of all units in this Dask worker. The report may state an error."""
    from distributed import get_worker

    name = str(get_worker().name)
    try:
        with local_pool(asked.device, slot=name) as pool:
            return _measure(asked, pool, name)
    except GpubenchError as error:
        nobody = Member(name, platform.node(), Device(backend="", name=""), "")
        return Report(nobody, [], {}, {}, error=str(error))


def _measure(asked: Asked, pool: LocalPool, name: str) -> Report:
    turn = _Turn(asked, pool, name)
    try:
        run(turn.job, pool, turn)
    except GpubenchError as error:
        return turn.report()._replace(error=str(error))
    return turn.report()


class _Turn(Watcher):
    """Collects the times of a worker's turn.

    After each round of products, the turn measures the parts of the device, such as its memory.
    """

    def __init__(self, asked: Asked, pool: LocalPool, name: str) -> None:
        edges = EDGE_ROUNDS if asked.phase == TOGETHER else 0
        self._counted = range(edges, edges + asked.rounds)
        self.job = products(pool.device, self._counted.stop + edges, asked)
        self._asked, self._pool = asked, pool
        self._measured: dict[Point, list[Measurement]] = {point: [] for point in self.job.points}
        self._finished = 0  # number of rounds in which all units were measured
        self._times: list[UnitTime] = []  # times of the round that is not finished
        member = Member(name, platform.node(), pool.device, package_version()[0])
        self._report = Report(member, [], {}, {})

    def report(self) -> Report:
        """Return the result of the turn."""
        failed = [time for time in self._times if time.status != Status.OK]
        rounds = self._measured.values()
        return self._report._replace(
            times=[*self._report.times, *failed],
            verified=[of_point[-1] for of_point in rounds if of_point and not _failed(of_point)],
        )

    def measured(self, measurement: Measurement) -> None:
        """Keep the time of a product. After a round's last product, measure the device's parts."""
        asked, report = self._asked, self._report
        self._measured[measurement.point].append(measurement)
        unit = UNIT.format(measurement.point.problem.dtype)
        if not asked.units or unit in asked.units or measurement.status != Status.OK:
            self._add_time(
                unit,
                measurement.after,
                time_us=measurement.series and measurement.series.median_us,
                started_utc=measurement.started_utc,
                status=str(measurement.status),
                reason=measurement.reason or None,
            )
        by_set = report.bits.setdefault(unit, {})
        for factor, fingerprint in measurement.fingerprints.items():
            by_set.setdefault(factor, set()).add(fingerprint)
        if all(
            len(rounds) > self._finished or _failed(rounds) for rounds in self._measured.values()
        ):
            parts = self._pool.executor.parts()
            report.configuration.update(parts.configuration)
            for part, time_us in parts.times_us.items():
                if not asked.units or part in asked.units:
                    started_utc = measurement.started_utc
                    self._add_time(part, parts.health, time_us=time_us, started_utc=started_utc)
            counts = self._finished in self._counted
            report.times.extend(time for time in self._times if counts or time.status != Status.OK)
            self._times, self._finished = [], self._finished + 1

    def _add_time(self, unit: str, health: Health, **result: Any) -> None:
        where = self._pool.place, self._pool.device
        self._times.append(unit_time(unit, self._asked.phase, *where, health, **result))


def _failed(rounds: Sequence[Measurement]) -> bool:
    return any(measurement.status != Status.OK for measurement in rounds)


def products(device: Device, rounds: int, asked: Asked) -> Job:
    """Return the job that measures the products of a device. Every round has the same limits.

    The job measures the products in `asked.units`, or all products if this set is empty. If the set
    names no product, the job measures the first product, because each round needs a product.

    Raises UsageError for a backend that has no products.
    """
    if device.backend not in PRODUCTS:
        raise UsageError(f"fleet: no units are known for the backend {device.backend}")
    variant, extent, every = PRODUCTS[device.backend]
    dtypes = tuple(dtype for dtype in every if UNIT.format(dtype) in asked.units)
    dtypes = dtypes or (every[:1] if asked.units else every)
    sweep = Sweep(
        variants=(variant,),
        sizes=((extent,) * 3,),
        dtypes=dtypes,
        caches=(Cache.HOT,),
        seed=asked.seed,
        timing=Timing(
            rounds=rounds,
            max_wall_s=rounds * ROUND.max_wall_s,
            min_samples=rounds * ROUND.min_samples,
            min_device_s=rounds * ROUND.min_device_s,
            few_samples=rounds * ROUND.few_samples,
        ),
    )
    return prepare(sweep, device, strategy=InRounds(fresh=False), verified=asked.verified)


def unit_time(
    unit: str, phase: str, place: Place, device: Device, health: Health, **result: Any
) -> UnitTime:
    """Return the row of a unit. `result` has the unit's time, start, status and reason."""
    sensors = ("sm_mhz", "nvml_sm_mhz", "memory_mhz", "temperature_c", "power_w")
    return UnitTime(
        host=place.hostname,
        slot=place.slot,
        device_uuid=place.device_uuid or None,
        device=device.name,
        unit=unit,
        phase=phase,
        **{name: getattr(health, name) for name in sensors},
        throttle=";".join(health.throttle) or None,
        driver=device.versions.get("driver"),
        cuda=device.versions.get("cuda"),
        gpubench=gpubench.__version__,
        **result,
    )
