"""Fake devices: NumPy computes the results, and a script provides the times."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubench.backends import Routine
from gpubench.backends.rotation import OperandSets, Rotation, SetPolicy, operand_factors
from gpubench.engine.judge.verdict import why_inaccurate
from gpubench.engine.pool import Executor, LocalPool, Pool, Watcher
from gpubench.engine.prepare import Job, prepare
from gpubench.engine.run import Outcome, run
from gpubench.model import (
    OPERATIONS,
    Cache,
    CallVariant,
    Device,
    Health,
    Measurement,
    Point,
    Problem,
    Scope,
    Series,
    Status,
    Timer,
    Variant,
)
from gpubench.plan.registry import KERNELS
from gpubench.plan.schedule import Visit
from gpubench.plan.sweep import Sweep
from gpubench.results.provenance import source_hash
from gpubench.results.result_file import ResultFile
from gpubench.results.row import Row
from gpubench.results.rows import build_rows

if TYPE_CHECKING:
    import pytest

Product = Callable[[np.ndarray, np.ndarray, np.ndarray], None]

CPU = Device(backend="cpu", name="Fake CPU", multiprocessors=4, l2_bytes=2**20)


COPY_GBYTES_PER_S = 50.0


def why_wrong(error: float, tolerance: float) -> str | None:
    """Return why a result with this relative error is wrong, or None."""
    return why_inaccurate(error, tolerance) or None


def matmul(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    np.matmul(a, b, out=c)


def product(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the result of an operation, in the arithmetic of its operands."""
    match op:
        case "gemv_t":
            return a.T @ b
        case "atax":
            return a.T @ (a @ b)
        case _:
            return a @ b


def exact(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the result of an operation as fractions, which nothing rounds."""
    fractions = np.frompyfunc(Fraction, 1, 1)
    return product(op, *(fractions(operand.astype(object)) for operand in (a, b)))


def wrapped(values: np.ndarray) -> list[Any]:
    """Return whole numbers as lists of their values in int32, which wrap."""
    return ((values + 2**31) % 2**32 - 2**31).tolist()


def cut(values: np.ndarray, bits: int) -> np.ndarray:
    """Round floating-point numbers to a number of significant bits."""
    significands, exponents = np.frexp(values)
    return np.ldexp(np.round(np.ldexp(significands, bits)), exponents - bits).astype(values.dtype)


def variant(call: Product = matmul, name: str = "fake", **facts: Any) -> CallVariant:
    """Return a variant that computes by `call`. Its path is that of one of our descriptors."""
    usual = {"idea": "a fake", "runs_on": "cpu", "baseline": "", "op": "gemm"}
    usual |= {"path": KERNELS / "gemm" / "naive.py", "build": lambda _tile, _dtype: call}
    return CallVariant(**{"name": name, **usual, **facts})


FAKE = variant()


def gemm(m: int, n: int, k: int, dtype: str = "float32", **facts: Any) -> Problem:
    """Return a matrix product."""
    return Problem(op="gemm", m=m, n=n, k=k, dtype=dtype, **facts)


def point(
    run_variant: Variant | None = None,
    *,
    size: tuple[int, int, int] = (64, 48, 32),
    dtype: str = "float32",
    **facts: Any,
) -> Point:
    """Return a point of the variant's operation and layout. `facts` are further fields."""
    (m, n, k), at = size, run_variant or FAKE
    problem = Problem(
        op=at.op,
        m=m,
        n=n,
        k=k if OPERATIONS[at.op].has_k else 1,
        dtype=dtype,
        column_major=at.column_major,
    )
    usual = {"tile": None, "cache": Cache.COLD, "scope": Scope.KERNEL, "timer": Timer.HOST}
    return Point(variant=at, problem=problem, **usual | facts)


@dataclass(frozen=True, kw_only=True)
class FakeOperands(OperandSets):
    """Operands in the memory of the fake backend. It binds no others, like a GPU's backend."""


@dataclass(frozen=True)
class FakeKernel:
    """A kernel that calls its backend for everything; tests replace the backend's methods."""

    backend: FakeBackend
    point: Point
    call: Product
    operands: OperandSets
    rows: int
    max_launches: int
    min_launches: int = 1
    routine: Routine = field(default_factory=Routine)
    thread_counts: tuple[int, ...] = ()

    def on_threads(self, count: int) -> FakeKernel:
        return replace(self, thread_counts=(count,))

    def run(self, launches: int = 1) -> float | None:
        return self.backend.run(self, launches)

    def watch(self) -> str:
        return self.backend.watch(self)

    def kernels_run(self) -> str:
        return ""

    def sample(self, launches: int, count: int) -> list[float]:
        return self.backend.sample(self, launches, count)

    @property
    def is_probe(self) -> bool:
        own = any(self.operands is loaded for loaded in self.backend.loaded)
        return not own or _are_of_a_probe(self.operands.host_inputs)

    def sustain(self, heat_s: float, timed_s: float) -> Series:
        return self.backend.sustain(self, heat_s, timed_s)


def _are_of_a_probe(inputs: Sequence[np.ndarray]) -> bool:
    """Return whether an operand has mostly zeros, or only signs, as in each probe."""
    return any(
        np.count_nonzero(array) <= array.size / 2
        or bool((abs(array) == 1).all() and (array < 0).any())
        for array in inputs
    )


@dataclass(frozen=True)
class Event:
    """A call of the backend."""

    what: str
    """Name of the call: `load`, `run` or `sample`."""

    point: Point | None = None
    rows: int = 0
    launches: int = 0
    count: int = 0
    probe: bool = False
    """Whether the call used the operands of a probe, or copies of the point's operands."""

    @property
    def whole(self) -> bool:
        """Whether the call used all rows, and was no probe."""
        return self.point is not None and self.rows == self.point.problem.m and not self.probe


class FakeBackend:
    """A backend whose launches take the next time of `script`, in microseconds.

    A launch on part of the rows takes a proportional part of the time.
    """

    xp: Any = np
    notices: tuple[str, ...] = ()
    ipc: Any = None

    def __init__(
        self,
        script: float | Iterable[float] = 10.0,
        *,
        max_launches: int = 256,
        bytes_free: int = 2**40,
        healths: Iterable[Health] = (),
        device: Device = CPU,
    ) -> None:
        self.device = device
        self.gauge = self
        self.events: list[Event] = []
        self.loaded: list[OperandSets] = []
        self.fail: dict[str, BaseException] = {}
        """Errors that `bind`, `run` or `sample` raises, by the name of the method."""

        self.at_sampling: Callable[[], None] | None = None
        """Called once, before the next sample of all rows."""

        self.free = bytes_free
        self._max_launches = max_launches
        self._script: Iterator[float] = (
            itertools.repeat(script) if isinstance(script, int | float) else iter(script)
        )
        self._healths = iter(healths)

    def events_of(self, what: str, *, whole: bool = True) -> list[Event]:
        """Return the calls of a kind on all rows, or those on part of the rows."""
        return [event for event in self.events if event.what == what and event.whole == whole]

    def warm_up(self) -> None:
        self.events.append(Event("warm up"))

    def reset_caches(self) -> None:
        self.events.append(Event("reset caches"))

    def usable(self) -> bool:
        return True

    def ceilings(self, _dtypes: Sequence[str] = (), _kept: bool = False) -> dict[str, float]:
        self.events.append(Event("copy"))
        return {"measured_copy_gbytes_per_s": COPY_GBYTES_PER_S}

    def parts(self) -> dict[str, float]:
        return {"copy": next(self._script)}

    def empty_launch_us(self) -> dict[str, float]:
        return {"device": 1.5, "events": 1.5, "cupti": 0.9}

    def configuration(self) -> dict[str, Any]:
        return {"vbios": "1.0"}

    def health(self) -> Health:
        return next(self._healths, Health())

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        self.events.append(Event("compile"))
        on_built(len(points))

    def bytes_needed(self, problem: Problem, *, cold: bool, one_set: bool = False) -> int:
        return problem.bytes * (2 if one_set else 3 if cold else 1)

    def bytes_free(self) -> int:
        return self.free

    def load(
        self, problem: Problem, inputs: Sequence[np.ndarray], *, cold: bool, one_set: bool = False
    ) -> OperandSets:
        count = 3 if cold and not one_set else 1
        if not _are_of_a_probe(inputs):
            self.events.append(Event("load", rows=problem.m, count=count))
        sets = []
        for index in range(count):
            factors = operand_factors(problem, index)
            arrays = [array * factor for array, factor in zip(inputs, factors, strict=True)]
            sets.append((*arrays, np.zeros(problem.output_shape, problem.precision.result)))
        self.loaded.append(
            FakeOperands(
                problem=problem,
                host_inputs=tuple(inputs),
                sets=tuple(sets),
                policy=SetPolicy(count=count, flush=False),
                rotation=Rotation(count),
            )
        )
        return self.loaded[-1]

    def bind(
        self, asked_point: Point, operands: OperandSets, rows: int | None = None
    ) -> FakeKernel:
        self._maybe_fail("bind")
        assert isinstance(asked_point.variant, CallVariant)
        assert isinstance(operands, FakeOperands)
        return FakeKernel(
            backend=self,
            point=asked_point,
            call=asked_point.variant.build(asked_point.tile, asked_point.problem.dtype),
            operands=operands,
            rows=asked_point.problem.m if rows is None else rows,
            max_launches=self._max_launches,
        )

    def watch(self, kernel: FakeKernel) -> str:
        return getattr(kernel.call, "notes", "")

    def run(self, kernel: FakeKernel, launches: int = 1) -> None:
        self.events.append(Event("run", kernel.point, kernel.rows, launches, 1, kernel.is_probe))
        self._maybe_fail("run")
        self._launch(kernel, launches)

    def sample(self, kernel: FakeKernel, launches: int, count: int) -> list[float]:
        facts = kernel.point, kernel.rows, launches, count, kernel.is_probe
        self.events.append(Event("sample", *facts))
        self._maybe_fail("sample")
        if self.at_sampling and self.events[-1].whole:
            self.at_sampling()
            self.at_sampling = None
        # One launch per set leaves the same results as many launches.
        if kernel.rows == kernel.point.problem.m:
            self._launch(kernel, min(launches * count, len(kernel.operands.sets)))
        share = kernel.rows / kernel.point.problem.m
        return [next(self._script) * share for _ in range(count)]

    def sustain(self, kernel: FakeKernel, heat_s: float, timed_s: float) -> Series:
        self.events.append(Event("sustain", kernel.point, kernel.rows, round(heat_s + timed_s)))
        self._launch(kernel, len(kernel.operands.sets))
        return replace(series(next(self._script)), joules=0.5)

    def _launch(self, kernel: FakeKernel, launches: int) -> None:
        for index in kernel.operands.rotation.take(launches):
            kernel.call(*kernel.operands.sets[index])

    def _maybe_fail(self, what: str) -> None:
        if what in self.fail:
            raise self.fail[what]


def series(median_us: float = 10.0) -> Series:
    """Return a series of ten equal samples."""
    return Series(times_us=(median_us,) * 10, launches_per_sample=4, stop_reason="precise")


def measurement(median_us: float = 10.0, at: Point | None = None) -> Measurement:
    """Return a measurement of a right point, with one round."""
    return Measurement(
        point=at or point(),
        status=Status.OK,
        max_relative_error=1e-8,
        series=series(median_us),
        started_utc="2025-01-01T00:00:00.000+00:00",
    )


def row(taken: Measurement, device: Device, source_hash: str) -> Row:
    """Return the row of a point that was measured once, without a baseline."""
    (built,) = build_rows({taken.point: [taken]}, device, {taken.point.variant: source_hash})
    return built


def measured(median_us: float = 10.0, at: Point | None = None, **facts: Any) -> Row:
    """Return the row of a right point with one round; `facts` replace columns."""
    taken = measurement(median_us, at)
    return replace(row(taken, CPU, source_hash(taken.point.variant)), **facts)


def failed(status: Status, reason: str, at: Point | None = None) -> Row:
    """Return the row of a point without times."""
    taken = Measurement(point=at or point(), status=status, reason=reason)
    return row(taken, CPU, source_hash(taken.point.variant))


class Diary(Watcher):
    """Records visits and measurements, and raises Ctrl-C after a number of measurements."""

    def __init__(self, stop_after: int = 10**9) -> None:
        self.totals = (0, 0)
        self.visits: list[Visit] = []
        self.seen: list[Measurement] = []
        self._stop_after = stop_after

    def planned(self, job: Job, _pool: Pool, visits: int, _foreseen: object) -> None:
        self.totals = (len(job.points), visits)

    def measuring(self, visit: Visit) -> None:
        self.visits.append(visit)

    def measured(self, measurement: Measurement) -> None:
        self.seen.append(measurement)
        if len(self.seen) == self._stop_after:
            raise KeyboardInterrupt


def run_sweep(
    sweep: Sweep,
    executor: Executor,
    watcher: Watcher | None = None,
    file: ResultFile | None = None,
    **job: Any,
) -> Outcome:
    """Prepare and run a sweep on an executor. `job` has further arguments of `prepare`."""
    return run(prepare(sweep, executor.device, **job), LocalPool(executor), watcher, file)


def install_modules(
    monkeypatch: pytest.MonkeyPatch, parts: Mapping[str, Mapping[str, Any]]
) -> None:
    """Install stand-ins of modules with these attributes. Packages come before their modules."""
    for name, facts in parts.items():
        module = ModuleType(name)
        module.__dict__.update(facts)
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
