"""What every device is measured by: a few units that fail separately.

Products whose time the arithmetic units set, one a kind; a copy in memory; a chain of dependent
loads; copies between host and device. A device that is slow in one is slow for a reason.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

import gpubench
from gpubench.engine.cluster import Member
from gpubench.engine.session import placed
from gpubench.engine.worker import Worker
from gpubench.errors import GpubenchError, UsageError
from gpubench.model import Cache, Device, Health, Point, Scope, Status, Timer, Timing
from gpubench.plan.sweep import Sweep, plan
from gpubench.results.provenance import package_version, source_hash
from gpubench.results.row import Row
from gpubench.results.rows import row


class Products(NamedTuple):
    """The products of a backend: a library routine at a size, in each dtype."""

    variant: str
    extent: int
    """M, N and K: so large that a launch costs nothing beside it."""

    dtypes: tuple[str, ...]


PRODUCTS = {
    "cuda": Products("cublas", 4096, ("float32", "float64", "tf32", "bfloat16")),
    "cpu": Products("cpu_blas", 512, ("float32", "float64")),
}

TIMING = Timing(rounds=1, max_wall_s=0.25)
"""A product's share of a round."""

KEPT_S = 30.0
"""So long what was verified, and the hold of the device, wait for the device's next turn."""

_kept: dict[tuple[str, str], tuple[ExitStack, Worker, threading.Timer]] = {}
"""By the names of the Dask worker and of the device; the timer ends it."""

ALONE, TOGETHER = PHASES = ("alone", "together")
"""What the other devices of the host do meanwhile: nothing, or the same."""

EDGES = 2
"""Rounds together that do not count: the first and the last, while others start or have ended."""

PARTS_OP = "fleet"
"""The `op` of rows that are no operation: the variant says which part of the device."""


class Asked(NamedTuple):
    """What a worker is to measure."""

    device: str
    phase: str
    rounds: int
    """That count."""

    seed: int
    more: bool
    """Whether another turn alone follows."""


class Report(NamedTuple):
    """What a worker found."""

    member: Member
    rows: list[Row]
    """One for each unit and round."""

    bits: dict[str, dict[int, int]]
    """Of each product's right outputs, a number for each set of operands."""

    configuration: dict[str, Any]
    error: str = ""
    """Why there is nothing, or no more."""


def unit_of(of: Row) -> str:
    """What a unit is called: `float32 product`, `copy`."""
    return of.variant if of.op == PARTS_OP else f"{of.compute_mode} product"


def measure_units(asked: Asked) -> Report:
    """Measure rounds of all units in this Dask worker."""
    from distributed import get_worker

    name = str(get_worker().name)
    try:
        with ExitStack() as stack:
            worker = _take((name, asked.device), stack)
            report = _measure(asked, worker, name)
            if asked.more:
                worker.next_round()
                _keep((name, asked.device), stack.pop_all(), worker)
            return report
    except GpubenchError as error:
        nobody = Member(name, platform.node(), Device(backend="", name=""), "")
        return Report(nobody, [], {}, {}, error=str(error))


def _take(of: tuple[str, str], stack: ExitStack) -> Worker:
    """What was kept of the device's turn before, or a new one; it ends with the stack."""
    if of not in _kept:
        return stack.enter_context(Worker(of[1], Timer.EVENTS))
    before, worker, timer = _kept.pop(of)
    timer.cancel()
    stack.push(before)
    return worker


def _keep(of: tuple[str, str], stack: ExitStack, worker: Worker) -> None:
    """Until the next turn. Each turn has a process of its own: its luck is not the device's."""

    def end() -> None:
        if _kept.pop(of, None):
            stack.close()

    timer = threading.Timer(KEPT_S, end)
    timer.daemon = True
    _kept[of] = stack, worker, timer
    timer.start()


def _measure(asked: Asked, worker: Any, name: str) -> Report:
    device: Device = worker.device
    member = Member(name, platform.node(), device, package_version()[0])
    points = products(device)
    hashes = {point.variant: source_hash(point.variant) for point in points}
    rows: list[Row] = []
    bits: dict[str, dict[int, int]] = {}
    configuration: dict[str, Any] = {}
    worker.begin(TIMING, asked.seed)
    worker.compile(points, lambda _count: None)
    worker.warm_up()
    edge = EDGES // 2 if asked.phase == TOGETHER else 0
    for number in range(asked.rounds + 2 * edge):
        of_round = []
        for point in points:
            measured = placed(worker.measure(point), device)
            of_round.append(row(measured, device, hashes[point.variant]))
            bits.setdefault(f"{point.problem.dtype} product", {}).update(measured.fingerprints)
        started = of_round[-1].started_utc
        found = worker.parts()
        configuration = found.configuration
        for part, time_us in found.times_us.items():
            of_round.append(_part_row(part, time_us, found.health, device, started))
        if edge <= number < asked.rounds + edge:
            rows += [replace(one, state=asked.phase, slot=member.slot) for one in of_round]
    return Report(member, rows, bits, configuration)


def products(device: Device) -> list[Point]:
    """The points of a device. Raises UsageError for a backend that has none."""
    if device.backend not in PRODUCTS:
        raise UsageError(f"fleet: no units are known for the backend {device.backend}")
    variant, extent, dtypes = PRODUCTS[device.backend]
    sweep = Sweep(variants=(variant,), sizes=((extent,) * 3,), dtypes=dtypes, caches=(Cache.HOT,))
    planned = plan(sweep, device.backend, device.compute_capability)
    return [point for point, reason in planned.items() if reason is None]


def _part_row(
    part: str, time_us: float, health: Health, device: Device, started: str | None
) -> Row:
    """A part of a device as a row of the one table; what no part has is empty."""
    facts: Mapping[str, Any] = device.facts
    return Row(
        op=PARTS_OP,
        variant=part,
        backend=device.backend,
        tile="",
        dtype="",
        compute_mode="",
        layout="",
        m=1,
        n=1,
        k=1,
        operands="",
        cache="",
        state="",
        scope=str(Scope.KERNEL),
        timer=str(Timer.EVENTS if device.backend == "cuda" else Timer.HOST),
        status=Status.OK,
        median_us=time_us,
        rounds=1,
        round_medians_us=repr(time_us),
        sm_mhz=health.sm_mhz,
        nvml_sm_mhz=health.nvml_sm_mhz,
        memory_mhz=health.memory_mhz,
        temperature_c=health.temperature_c,
        power_w=health.power_w,
        throttle=";".join(health.throttle) or None,
        device=device.name,
        device_uuid=facts.get("uuid"),
        driver=device.versions.get("driver"),
        cuda=device.versions.get("cuda"),
        gpubench=gpubench.__version__,
        host=platform.node(),
        started_utc=started,
    )
