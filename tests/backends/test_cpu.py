"""The CPU backend: right results everywhere, cold operands, threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, pairwise
from typing import Any

import fakes
import numba
import numpy as np
import pytest
import threadpoolctl

from gpubench.backends.cpu import ALIGNMENT, CpuBackend, cpu_threads, describe_cpu, measure_cpu
from gpubench.errors import CompileError, LaunchError
from gpubench.measure.operands import make_inputs, make_reference
from gpubench.measure.verify import poison, relative_error, why_wrong
from gpubench.model import PRECISIONS, Cache, CallVariant, Point, Scope, Tile
from gpubench.plan.registry import variants

TILES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 48, 49, 64)
FEW = ((7, "float32"), (7, "int32"), (49, "float64"))
"""Of the parallel twin, which shares its loops and takes three times as long to compile."""

SHAPES = (
    (1, 1, 1),
    (7, 7, 7),
    (31, 37, 41),
    (64, 64, 64),
    (96, 48, 64),
    (5, 130, 3),
    (130, 5, 67),
    (1, 97, 2),
    (97, 1, 50),
)

ON_CPU = {
    one.name: one
    for one in variants()
    if isinstance(one, CallVariant) and one.runs_on == "cpu" and one.op == "gemm"
}


def instances() -> list[Any]:
    found = []
    for one in ON_CPU.values():
        if one.tiles is None:
            wanted = [(None, dtype) for dtype in one.dtypes]
        elif one.name.endswith("_parallel"):
            wanted = list(FEW)
        else:
            wanted = [(edge, dtype) for edge in TILES for dtype in one.dtypes]
        found += [
            pytest.param(one, edge, dtype, id=f"{one.name}-{edge or ''}-{dtype}")
            for edge, dtype in wanted
        ]
    return found


@pytest.fixture(scope="module")
def backend() -> CpuBackend:
    return CpuBackend()


def small_cache(cache_bytes: int) -> CpuBackend:
    backend = CpuBackend()
    backend.device = replace(backend.device, l2_bytes=cache_bytes)
    return backend


def load(backend: CpuBackend, point: Point) -> Any:
    inputs = make_inputs(point.problem, 5)
    return backend.load(point.problem, inputs, cold=point.cache == Cache.COLD)


def on_cpu(one: CallVariant, **facts: Any) -> Point:
    return fakes.point(one, **{"cache": Cache.HOT} | facts)


def sets_seen_by(
    backend: CpuBackend, point: Point, samples: list[tuple[int, int]]
) -> list[list[int]]:
    """Which set each launch of each `sample` call got, by number; two kernels take turns."""
    seen: list[int] = []
    call = point.variant.build(None, "float32")

    def remember(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        seen.append(a.ctypes.data)
        call(a, b, c)

    remembering = replace(point, variant=fakes.variant(remember, "remembering"))
    operands = load(backend, point)
    numbers = {arrays[0].ctypes.data: number for number, arrays in enumerate(operands.sets)}
    kernels = [backend.bind(remembering, operands) for _ in range(2)]
    taken = []
    for kernel, (launches, count) in zip(cycle(kernels), samples, strict=False):
        seen.clear()
        times = backend.sample(kernel, launches, count)
        assert len(times) == count
        taken.append([numbers[address] for address in seen])
    return taken


def test_every_variant_of_the_cpu_is_tested() -> None:
    assert {"cpu_naive", "cpu_tile", "cpu_tile_parallel", "cpu_blas", "cpu_blas_parallel"} <= set(
        ON_CPU
    )


@pytest.mark.parametrize(("one", "edge", "dtype"), instances())
def test_every_instance_is_right_at_any_size(
    backend: CpuBackend, one: CallVariant, edge: int | None, dtype: str
) -> None:
    for size in SHAPES:
        point = on_cpu(one, size=size, dtype=dtype, tile=Tile((edge,)) if edge else None)
        operands = load(backend, point)
        poison(operands.output)
        backend.run(backend.bind(point, operands))
        error = relative_error(np, operands.output, make_reference(np, "gemm", *operands.inputs))
        assert why_wrong(error, PRECISIONS[dtype].tolerance) is None, size


@pytest.mark.parametrize("name", ["cpu_tile", "cpu_naive", "cpu_blas"])
def test_a_kernel_bound_to_some_rows_computes_those_and_no_others(
    backend: CpuBackend, name: str
) -> None:
    point = on_cpu(ON_CPU[name], size=(20, 12, 8), tile=Tile((8,)) if name == "cpu_tile" else None)
    operands = load(backend, point)
    poison(operands.output)
    backend.run(backend.bind(point, operands, rows=5))
    a, b = operands.inputs
    assert np.allclose(operands.output[:5], a[:5] @ b)
    assert np.isnan(operands.output[5:]).all()


def test_the_parallel_twin_is_compiled_apart_from_the_serial_one() -> None:
    # Numba's cache on disk does not look at `parallel=`: whichever came first would be both.
    edge, names = Tile((6,)), ("cpu_tile", "cpu_tile_parallel")
    compiled = [ON_CPU[name].build(edge, "float32") for name in names]
    assert [sum(one.stats.cache_hits.values()) for one in compiled] == [0, 0]


def test_a_second_build_comes_from_the_cache_on_disk() -> None:
    ON_CPU["cpu_tile"].build(Tile((6,)), "float64")
    again = ON_CPU["cpu_tile"].build(Tile((6,)), "float64")
    assert sum(again.stats.cache_hits.values()) == 1


def test_every_tile_is_an_instance_of_its_own() -> None:
    # A label that lies would find the other tile's code.
    for edge in (10, 11):
        one = ON_CPU["cpu_tile"].build(Tile((edge,)), "float32")
        assert sum(one.stats.cache_hits.values()) == 0


def test_cold_sets_outgrow_the_cache_and_are_apart_in_memory() -> None:
    backend = small_cache(2**20)
    point = on_cpu(ON_CPU["cpu_blas"], size=(64, 64, 64), cache=Cache.COLD)
    operands = load(backend, point)
    assert len(operands.sets) * point.problem.bytes > 2 * 2**20
    assert not operands.policy.flush
    arrays = [array for arrays in operands.sets for array in arrays]
    starts = sorted((array.ctypes.data, array.nbytes) for array in arrays)
    assert all(start + size <= following for (start, size), (following, _) in pairwise(starts))
    assert backend.bytes_needed(point.problem, cold=True) == sum(a.nbytes for a in arrays)


def test_all_sets_hold_the_same_operands() -> None:
    operands = load(small_cache(2**18), on_cpu(ON_CPU["cpu_blas"], cache=Cache.COLD))
    first, *others = operands.sets
    assert others
    for arrays in others:
        assert np.array_equal(arrays[0], first[0])
        assert np.array_equal(arrays[1], first[1])


def test_operands_begin_at_cache_lines() -> None:
    operands = load(
        small_cache(2**16), on_cpu(ON_CPU["cpu_blas"], size=(7, 5, 3), cache=Cache.COLD)
    )
    assert {array.ctypes.data % ALIGNMENT for arrays in operands.sets for array in arrays} == {0}


def test_launches_take_the_sets_in_turn_from_sample_to_sample_and_kernel_to_kernel() -> None:
    backend = small_cache(2**16)
    point = on_cpu(ON_CPU["cpu_blas"], size=(64, 64, 64), cache=Cache.COLD)
    count = len(load(backend, point).sets)
    assert count == 4
    taken = sets_seen_by(backend, point, [(3, 2), (1, 1), (5, 1)])
    assert [len(one) for one in taken] == [6, 1, 5]
    flat = [number for one in taken for number in one]
    assert flat == [number % count for number in range(12)]


def test_hot_launches_take_the_same_set() -> None:
    (taken,) = sets_seen_by(small_cache(2**16), on_cpu(ON_CPU["cpu_blas"]), [(4, 3)])
    assert taken == [0] * 12


def test_the_smallest_problems_are_flushed_before_a_set_is_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpubench.backends.cpu.MAX_SETS", 16)
    backend = small_cache(2**20)
    point = on_cpu(ON_CPU["cpu_blas"], size=(8, 8, 8), cache=Cache.COLD)
    operands = load(backend, point)
    kernel = backend.bind(point, operands)
    assert (len(operands.sets), kernel.flush, kernel.max_launches) == (16, True, 16)
    flushes = []
    monkeypatch.setattr(backend, "_flush", lambda: flushes.append(1))
    backend.sample(kernel, 16, 5)
    assert len(flushes) == 5
    backend.sample(kernel, 4, 9)  # sets that nothing has touched since are left for four samples
    assert len(flushes) == 8
    backend.run(kernel)  # on the first set, whose turn it may not be
    backend.sample(kernel, 1, 1)
    assert len(flushes) == 9


def test_a_time_is_of_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock that goes on by a microsecond a launch, and does not tick between them.
    now = [0]
    monkeypatch.setattr("gpubench.backends.cpu.time.perf_counter_ns", lambda: now[0])

    def one_microsecond(_a: np.ndarray, _b: np.ndarray, _c: np.ndarray) -> None:
        now[0] += 1000

    backend = CpuBackend()
    point = on_cpu(fakes.variant(one_microsecond))
    kernel = backend.bind(point, load(backend, point))
    assert backend.sample(kernel, 7, 3) == [1.0, 1.0, 1.0]


def blas_threads() -> set[int]:
    return {
        info["num_threads"]
        for info in threadpoolctl.threadpool_info()
        if info["user_api"] == "blas"
    }


@pytest.mark.parametrize(("name", "threads"), [("cpu_blas", 1), ("cpu_blas_parallel", None)])
def test_blas_uses_the_threads_of_the_variant(name: str, threads: int | None) -> None:
    backend = CpuBackend()
    other = "cpu_blas" if name != "cpu_blas" else "cpu_blas_parallel"
    for used in (other, name):
        point = on_cpu(ON_CPU[used])
        backend.run(backend.bind(point, load(backend, point)))
    assert blas_threads() == {threads or cpu_threads()}
    assert numba.get_num_threads() == (threads or cpu_threads())


def test_end_to_end_computes_the_same_from_copies(backend: CpuBackend) -> None:
    seen: list[int] = []

    def remember(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        seen.extend(array.ctypes.data for array in (a, b, c))
        np.matmul(a, b, out=c)

    point = on_cpu(fakes.variant(remember), scope=Scope.END_TO_END)
    operands = load(backend, point)
    poison(operands.output)
    backend.run(backend.bind(point, operands))
    assert np.allclose(operands.output, operands.inputs[0] @ operands.inputs[1])
    assert not set(seen) & {array.ctypes.data for array in operands.sets[0]}


def test_a_kernel_that_does_not_build_is_a_compile_error(backend: CpuBackend) -> None:
    def build(_tile: Tile | None, _dtype: str) -> Callable[..., None]:
        raise ValueError("first line\nsecond line")

    point = on_cpu(fakes.variant(name="unbuildable", build=build))
    built: list[int] = []
    backend.compile([point], built.append)
    assert built == [1]
    with pytest.raises(CompileError, match=r"^does not compile: first line$"):
        backend.bind(point, load(backend, point))


def test_a_kernel_that_raises_is_a_launch_error(backend: CpuBackend) -> None:
    def raises(_a: np.ndarray, _b: np.ndarray, _c: np.ndarray) -> None:
        raise ZeroDivisionError("division by zero")

    point = on_cpu(fakes.variant(raises, "raising"))
    kernel = backend.bind(point, load(backend, point))
    for use in (lambda: backend.run(kernel), lambda: backend.sample(kernel, 1, 1)):
        with pytest.raises(LaunchError, match="failed while running: division by zero"):
            use()


def test_compiling_counts_each_instance_once(backend: CpuBackend) -> None:
    points = [on_cpu(ON_CPU["cpu_blas"], size=(n, n, n)) for n in (1, 2, 3)]
    built: list[int] = []
    backend.compile([*points, on_cpu(ON_CPU["cpu_blas_parallel"])], built.append)
    assert built == [1, 2]


def test_the_cpu_is_described() -> None:
    device = describe_cpu()
    assert device.backend == "cpu"
    assert device.name
    assert device.multiprocessors == cpu_threads() >= 1
    assert device.l2_bytes >= 2**15
    assert device.compute_capability is None
    assert device.versions["blas"]


def test_the_last_level_cache_is_the_largest() -> None:
    device = describe_cpu()
    assert device.l2_bytes >= max(device.facts["caches"].values(), default=0)


def test_there_is_memory_free(backend: CpuBackend) -> None:
    assert 2**20 < backend.bytes_free() < 2**50


def test_ceilings_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubench.backends.cpu.COPY_BYTES", 2**20)
    monkeypatch.setattr("gpubench.backends.cpu.BLAS_EXTENT", 64)
    ceilings = measure_cpu()
    assert set(ceilings) == {"measured_copy_gbytes_per_s", "measured_float32_blas_gflops"}
    assert all(0 < rate < 1e6 for rate in ceilings.values())
