"""The CPU backend: right results at any size, cold operands, and threads."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import fakes
import numba
import numpy as np
import pytest
import threadpoolctl
from fakes import why_wrong

from gpubench.backends.cpu import backend as module
from gpubench.backends.cpu import gauge as cpu_gauge
from gpubench.backends.cpu.backend import ALIGNMENT, CpuBackend
from gpubench.backends.cpu.gauge import CpuGauge, describe_cpu, highest_rates
from gpubench.backends.cpu.multiply_add import CHAINS, lanes, multiply_adds, operations
from gpubench.backends.rotation import result_factor
from gpubench.cache import keep_value
from gpubench.engine.judge.verify import poison, relative_error
from gpubench.engine.measure.runner import Runner
from gpubench.engine.operands.make import make_inputs, make_reference
from gpubench.errors import CompileError, LaunchError, UsageError
from gpubench.hardware.host import CACHE_VARIABLE, cpu_threads
from gpubench.model import (
    OPERATIONS,
    Cache,
    CallVariant,
    Config,
    HostVariant,
    Point,
    Scope,
    Status,
    Timing,
)
from gpubench.plan.registry import variants

TILES = ((33, "int32"), (1, "float64"))
"""Some tiles with dtypes. Numba compiles each pair for seconds, and all have the same loops."""

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

PAIRS = [*product((1, 7, 128, 129), repeat=2), *product((12_345,), (1, 7)), (129, 12_345)]
"""Extents of matrices: odd extents, and long rows or columns."""

LOOPS = [each for each in variants() if isinstance(each, CallVariant) and each.runs_on == "cpu"]
ON_CPU = {each.name: each for each in LOOPS if each.op == "gemm"}
ON_VECTORS = [each for each in LOOPS if not OPERATIONS[each.op].has_k]


@pytest.fixture(scope="module")
def backend() -> CpuBackend:
    return CpuBackend()


def small_cache(cache_bytes: int, **facts: Any) -> CpuBackend:
    return CpuBackend(replace(describe_cpu(), l2_bytes=cache_bytes), **facts)


def load(backend: CpuBackend, point: Point) -> Any:
    inputs = make_inputs(point.problem, 5)
    return backend.load(point.problem, inputs, cold=point.cache == Cache.COLD)


def on_cpu(variant: CallVariant, **facts: Any) -> Point:
    return fakes.point(variant, **{"cache": Cache.HOT} | facts)


@pytest.mark.slow  # Numba compiles
@pytest.mark.parametrize("name", ["cpu_naive", "cpu_tile", "cpu_blas", "cpu_blas_parallel"])
def test_every_instance_is_right_at_any_size(backend: CpuBackend, name: str) -> None:
    variant = ON_CPU[name]
    for edge, dtype in TILES if variant.tiles else ((None, dtype) for dtype in variant.dtypes):
        tile = Config.parse(str(edge)) if edge else None
        for size in SHAPES:
            assert_right(backend, on_cpu(variant, size=size, dtype=dtype, tile=tile))


@pytest.mark.slow  # Numba compiles
@pytest.mark.parametrize("variant", ON_VECTORS, ids=lambda each: each.name)
def test_a_product_with_a_vector_is_always_right(backend: CpuBackend, variant: CallVariant) -> None:
    first, *_, last = variant.dtypes
    for dtype, pairs in ((first, PAIRS), (last, PAIRS[:6])):  # all dtypes have the same loops
        for m, n in pairs:
            assert_right(backend, on_cpu(variant, size=(m, n, 1), dtype=dtype))


def assert_right(backend: CpuBackend, point: Point) -> None:
    operands = load(backend, point)
    poison(operands.output)
    backend.bind(point, operands).run()
    reference = make_reference(np, point.problem.op, *operands.inputs)
    error = relative_error(np, operands.output, reference)
    assert why_wrong(error, point.problem.precision.tolerance) is None, point.label


def test_a_kernel_bound_to_some_rows_computes_only_those(backend: CpuBackend) -> None:
    for name, tile in (("cpu_tile", Config.parse("8")), ("cpu_naive", None), ("cpu_blas", None)):
        point = on_cpu(ON_CPU[name], size=(20, 12, 8), tile=tile)
        operands = load(backend, point)
        poison(operands.output)
        kernel = backend.bind(point, operands, rows=5)
        kernel.run()
        a, b = operands.inputs
        assert np.allclose(operands.output[:5], a[:5] @ b)
        assert np.isnan(operands.output[5:]).all()
        assert kernel.watch() == ""  # Python objects do not count as allocated memory


@pytest.mark.slow  # Numba compiles in parallel mode
def test_the_parallel_variant_is_right_and_compiled_on_its_own(backend: CpuBackend) -> None:
    # Numba's cache on disk ignores `parallel=`, so both could get the code of the first one.
    edge, names = 9, ("cpu_tile", "cpu_tile_parallel")
    compiled = [ON_CPU[name].build(Config.parse(str(edge)), "float32") for name in names]
    assert [sum(function.stats.cache_hits.values()) for function in compiled] == [0, 0]
    parallel = ON_CPU["cpu_tile_parallel"]
    assert_right(backend, on_cpu(parallel, size=(31, 37, 41), tile=Config.parse(str(edge))))


def test_every_tile_is_an_instance_of_its_own_and_a_second_build_comes_from_the_disk() -> None:
    # With a wrong label, a tile would get the code of the other tile.
    for edge, hits in ((2, 0), (3, 0), (3, 1)):
        function = ON_CPU["cpu_tile"].build(Config.parse(str(edge)), "float32")
        assert sum(function.stats.cache_hits.values()) == hits


@pytest.mark.slow  # two processes, and Numba compiles in one of them
def test_operations_that_share_a_file_share_its_compiled_code(tmp_path: Path) -> None:
    # Numba keeps the name of a description's module, and imports it in the next process.
    for op, hits in (("gemm_grouped", 0), ("gemm_grouped_skewed", 1)):
        code = (
            "from gpubench.plan.registry import of_op\n"
            f"loop = of_op('{op}')['cpu_naive'].build(None, 'float32')\n"
            "print(sum(loop.stats.cache_hits.values()))"
        )
        ended = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.stdout, ended.returncode) == (f"{hits}\n", 0), ended.stderr


def test_cold_sets_outgrow_the_cache_and_are_apart_in_memory() -> None:
    backend = small_cache(2**20)
    point = on_cpu(ON_CPU["cpu_blas"], size=(64, 64, 64), cache=Cache.COLD)
    operands = load(backend, point)
    assert len(operands.sets) * point.problem.bytes > 2 * 2**20
    assert not operands.policy.flush
    arrays = [array for arrays in operands.sets for array in arrays]
    starts = sorted((array.ctypes.data, array.nbytes) for array in arrays)
    assert all(start + size <= following for (start, size), (following, _) in pairwise(starts))
    odd = load(backend, on_cpu(ON_CPU["cpu_blas"], size=(7, 5, 3), cache=Cache.COLD))
    assert {array.ctypes.data % ALIGNMENT for arrays in odd.sets for array in arrays} == {0}
    assert backend.bytes_needed(point.problem, cold=True) == sum(a.nbytes for a in arrays)
    at_fixed_addresses = backend.bytes_needed(point.problem, cold=True, one_set=True)
    assert at_fixed_addresses == 2 * point.problem.bytes  # the kernel has its own arrays


def test_the_result_of_each_set_is_a_power_of_two_of_the_first_ones() -> None:
    backend, point = small_cache(2**18), on_cpu(ON_CPU["cpu_naive"], cache=Cache.COLD)
    operands = load(backend, point)
    kernel = backend.bind(point, operands)
    kernel.run(len(operands.sets))
    factors = [result_factor(point.problem, index) for index in range(len(operands.sets))]
    assert factors[:5] == [1, -2, 2, -1, 1]
    for (*_, output), factor in zip(operands.sets, factors, strict=True):
        assert np.array_equal(output, factor * operands.output)
    fingerprints = operands.fingerprints()
    assert fingerprints.keys() == operands.rotation.used == set(range(len(operands.sets)))
    assert len({fingerprints[index] for index in range(4)}) == 4
    assert all(fingerprints[index] == fingerprints[index % 4] for index in fingerprints)


def test_small_problems_are_flushed_before_sets_recur(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = small_cache(2**20, max_sets=16)
    point = on_cpu(ON_CPU["cpu_blas"], size=(8, 8, 8), cache=Cache.COLD)
    operands = load(backend, point)
    kernel = backend.bind(point, operands)
    assert (len(operands.sets), kernel.flush, kernel.max_launches) == (16, True, 16)
    flushes = []
    monkeypatch.setattr(backend.timer, "flush", lambda: flushes.append(1))
    kernel.sample(16, 5)
    assert len(flushes) == 5
    kernel.sample(4, 9)  # one flush serves four samples of four sets each
    assert len(flushes) == 8
    kernel.run(12)  # with the sets that remain after the last flush
    kernel.sample(1, 1)
    assert len(flushes) == 9


def test_a_time_is_of_one_launch() -> None:
    now_ns = 0

    def one_microsecond(_a: np.ndarray, _b: np.ndarray, _c: np.ndarray) -> None:
        nonlocal now_ns
        now_ns += 1000

    backend = CpuBackend(clock_ns=lambda: now_ns)
    point = on_cpu(fakes.variant(one_microsecond))
    kernel = backend.bind(point, load(backend, point))
    assert kernel.sample(7, 3) == [1.0, 1.0, 1.0]


def test_blas_uses_the_threads_of_the_variant() -> None:
    def blas_threads() -> set[int]:
        pools = threadpoolctl.threadpool_info()
        return {info["num_threads"] for info in pools if info["user_api"] == "blas"}

    backend = CpuBackend()
    threads = {"cpu_blas": 1, "cpu_blas_parallel": cpu_threads()}
    for name in (*threads, *threads):
        point = on_cpu(ON_CPU[name])
        backend.bind(point, load(backend, point)).run()
        assert blas_threads() == {numba.get_num_threads()} == {threads[name]}
    backend.bind(point, load(backend, point)).on_threads(1).sample(1, 1)
    assert blas_threads() == {1}


LATE_BLAS = """
import threadpoolctl
from fakes import point, variant
from gpubench.backends.cpu.backend import CpuBackend
from gpubench.engine.operands.make import make_inputs

def multiply(a, b, c):
    import scipy.linalg.blas
    c[:] = a @ b

backend, at = CpuBackend(), point(variant(multiply, threads=1), cache="hot")
assert len(threadpoolctl.threadpool_info()) == 1
operands = backend.load(at.problem, make_inputs(at.problem, 5), cold=False)
kernel = backend.bind(at, operands)
kernel.run()
kernel.run()
print([pool["num_threads"] for pool in threadpoolctl.threadpool_info()])
"""


def test_a_blas_that_a_function_loads_has_the_threads_of_the_variant() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LATE_BLAS], cwd=Path(fakes.__file__).parent, env=os.environ
        | {"OPENBLAS_NUM_THREADS": "2"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ended.stdout == "[1, 1]\n"


@pytest.mark.parametrize("column_major", [(), ("A", "B", "C")])
def test_arrays_at_fixed_addresses_begin_at_cache_lines(column_major: tuple[str, ...]) -> None:
    backend = CpuBackend()
    seen: list[tuple[int, bool]] = []

    def call(*arrays: np.ndarray) -> None:
        seen.extend((each.ctypes.data % ALIGNMENT, each.flags.f_contiguous) for each in arrays)

    fixed = fakes.variant(call, fixed_addresses=True, column_major=column_major)
    for size in ((5, 7, 9), (33, 17, 65)):
        point = on_cpu(fixed, size=size)
        backend.bind(point, load(backend, point)).run()
    assert set(seen) == {(0, bool(column_major))}


def test_a_variant_without_a_number_of_threads_may_use_all_cpus_or_powers_of_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parallel, serial = ON_CPU["cpu_blas_parallel"], ON_CPU["cpu_blas"]
    for cpus, counts in ((1, (1,)), (2, (2, 1)), (12, (12, 8, 4, 2, 1)), (16, (16, 8, 4, 2, 1))):
        monkeypatch.setattr(module, "cpu_threads", lambda cpus=cpus: cpus)
        assert module._thread_counts(parallel) == counts
        assert module._thread_counts(serial) == (1,)


def test_a_function_gets_at_most_one_thread_per_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cpu_threads", lambda: 4)
    stated = replace(ON_CPU["cpu_blas"], threads=10**6)
    assert module._thread_counts(stated) == (4,)


def test_end_to_end_computes_the_same_from_copies(backend: CpuBackend) -> None:
    addresses: list[int] = []

    def remember(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        addresses.extend(array.ctypes.data for array in (a, b, c))
        np.matmul(a, b, out=c)

    point = on_cpu(fakes.variant(remember), scope=Scope.END_TO_END)
    operands = load(backend, point)
    poison(operands.output)
    backend.bind(point, operands).run()
    assert np.allclose(operands.output, operands.inputs[0] @ operands.inputs[1])
    assert not set(addresses) & {array.ctypes.data for array in operands.sets[0]}


def test_a_kernel_that_does_not_build_or_run_is_an_error_of_its_line(backend: CpuBackend) -> None:
    def fails(*_: object) -> Any:
        raise ValueError("first line\nsecond line")

    point = on_cpu(fakes.variant(name="unbuildable", build=fails, path=Path(__file__)))
    built: list[int] = []
    backend.compile([point], built.append)
    assert built == [1]
    why = r"ValueError: first line \(test_cpu\.py:\d+\)"
    with pytest.raises(CompileError, match=f"compile: {why}$"):
        backend.bind(point, load(backend, point))
    point = on_cpu(fakes.variant(fails, "raising", path=Path(__file__)))
    kernel = backend.bind(point, load(backend, point))
    for use in (kernel.run, lambda: kernel.sample(1, 1)):
        with pytest.raises(LaunchError, match=f"running: {why}"):
            use()


def test_compiling_counts_each_instance_once(backend: CpuBackend) -> None:
    points = [on_cpu(ON_CPU["cpu_blas"], size=(n, n, n)) for n in (1, 2, 3)]
    built: list[int] = []
    backend.compile([*points, on_cpu(ON_CPU["cpu_blas_parallel"])], built.append)
    assert built == [1, 2]


def test_the_blas_is_the_one_of_numpy_also_where_scipy_has_loaded_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = [
        {"user_api": "blas", "internal_api": "openblas", "num_threads": 1} | each
        for each in (
            {"version": "1", "filepath": "/lib/scipy.libs/libopenblas.so"},
            {"version": "2", "filepath": "/lib/numpy.libs/libopenblas.so"},
        )
    ]
    monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: loaded)
    assert describe_cpu().versions == {"blas": "openblas 2"}


def test_a_variable_sets_the_size_of_the_last_level_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "3")
    assert describe_cpu().l2_bytes == 3 * 2**20
    for text in ("0", "-1", "1.5", "65537", "x" * 999):
        monkeypatch.setenv(CACHE_VARIABLE, text)
        with pytest.raises(UsageError, match=f"^{CACHE_VARIABLE}: '.{{1,99}}' is not a whole"):
            describe_cpu()


@pytest.mark.parametrize(
    ("cache_mib", "free_bytes", "copy_bytes"),
    [(1, 2**40, 2**23), (32, 2**40, 2**28), (256, 2**40, 2**28), (32, 2**26, 2**24), (1, 1, 2**22)],
)
def test_a_copy_exceeds_the_cache_and_leaves_half_of_the_memory_free(
    cache_mib: int, free_bytes: int, copy_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[int] = []
    monkeypatch.setattr(cpu_gauge, "free_memory_bytes", lambda: free_bytes)
    monkeypatch.setattr(cpu_gauge.np, "ones", np.empty)
    monkeypatch.setattr(
        cpu_gauge.np, "copyto", lambda target, _source: copied.append(target.nbytes)
    )
    gauge = CpuGauge(replace(fakes.CPU, l2_bytes=cache_mib * 2**20))
    assert gauge.copy_gbytes_per_s() > 0
    assert sum(copied) == cpu_gauge.REPEATS * copy_bytes


def test_the_rates_of_a_copy_and_of_multiply_adds_are_measured() -> None:
    ceilings = CpuGauge(describe_cpu()).ceilings(["float32", "int32"])
    assert set(ceilings) == {
        "measured_copy_gbytes_per_s",
        "measured_float32_fma_gflops",
        "measured_int32_fma_gflops",
    }
    assert all(0 < rate < 1e6 for rate in ceilings.values())


def test_the_highest_rate_of_a_day_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    copies, multiply_adds = iter((5.0, 7.0, 6.0, 4.0, 3.0)), iter((50.0, 70.0, 60.0, 40.0, 30.0))
    monkeypatch.setattr(CpuGauge, "copy_gbytes_per_s", lambda *_: next(copies))
    monkeypatch.setattr(CpuGauge, "_fma_gflops", lambda *_: next(multiply_adds))
    gauge = CpuGauge(describe_cpu())

    def rates(*, kept: bool) -> list[float]:
        return list(highest_rates(fakes.CPU, ["float32"], gauge.ceilings, kept=kept).values())

    assert rates(kept=True) == rates(kept=True) == [5, 50]
    assert rates(kept=False) == [7, 70]
    assert rates(kept=False) == rates(kept=True) == [6, 70]
    monkeypatch.setattr(cpu_gauge, "KEPT_FOR", timedelta(0))
    assert rates(kept=True) == [4, 70]
    (file,) = tmp_path.rglob("rates/*")
    file.write_text("damaged")
    assert rates(kept=True) == [3, 30]


def test_a_rate_belongs_to_the_size_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    copies = iter((5.0, 7.0, 6.0))
    monkeypatch.setattr(CpuGauge, "copy_gbytes_per_s", lambda *_: next(copies))
    gauge = CpuGauge(describe_cpu())
    for l2_bytes, rate in ((2**20, 5), (2**25, 7), (2**20, 5)):
        device = replace(fakes.CPU, l2_bytes=l2_bytes)
        assert list(highest_rates(device, [], gauge.ceilings).values()) == [rate]


def test_a_rate_of_invalid_time_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    copies = iter((5.0, 7.0, 6.0))
    monkeypatch.setattr(CpuGauge, "copy_gbytes_per_s", lambda *_: next(copies))
    gauge = CpuGauge(describe_cpu())
    assert list(highest_rates(fakes.CPU, [], gauge.ceilings).values()) == [5]
    (file,) = tmp_path.rglob("rates/*")
    for measured, rate in (("2020-01-01T00:00:00", 7), ("2999-01-01T00:00:00Z", 6)):
        name = "measured_copy_gbytes_per_s"
        keep_value(file, {name: {"rate": 1.0, "measured": measured}})
        assert list(highest_rates(fakes.CPU, [], gauge.ceilings).values()) == [rate]
    written_ns = file.stat().st_mtime_ns
    assert list(highest_rates(fakes.CPU, [], gauge.ceilings).values()) == [6]
    assert file.stat().st_mtime_ns == written_ns  # a sweep that measures no rate writes no file


def test_multiply_adds_are_computed_and_counted() -> None:
    for dtype in ("float32", "float64", "int32"):
        first = CHAINS * (CHAINS - 1) / 2 * lanes(dtype)  # chain n starts at n in all lanes
        assert multiply_adds(dtype)(3, 1, 2) == first + 3 * 2 * CHAINS * lanes(dtype)
        assert operations(dtype, 3) == 2 * 3 * CHAINS * lanes(dtype)


@pytest.mark.parametrize("when", ["built", "called"])
def test_a_function_whose_module_is_missing_is_skipped_and_not_wrong(when: str) -> None:
    def imports(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'absent'", name="absent")

    def build(_tile: object, _dtype: str) -> Callable[..., None]:
        if when == "built":
            imports()
        return imports

    runner = Runner(CpuBackend())
    result = runner.measure(fakes.point(fakes.variant(build=build)))
    assert (result.status, result.reason) == (
        Status.SKIPPED,
        "needs the Python module 'absent', which is missing",
    )


C_SOURCE = """
#include <stdint.h>
void product(int64_t M, int N, int K, const float *alpha, const float *A, const float *B,
             const float *bias, float beta, float *C) {
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      float sum = bias || beta != 2 ? 1e9 : 0;
      for (int k = 0; k < K; ++k) sum += A[i * K + k] * B[k * N + j];
      C[i * N + j] = *alpha * sum;
    }
}
"""
SIGNATURE = (
    "int64_t M, int N, int K, const float* alpha=1, const float* A, const float* B, "
    "const float* bias=null, float beta=2, float* C"
)


@pytest.mark.parametrize(
    ("entry", "signature", "reason"),
    [
        ("product", SIGNATURE, ""),
        ("products", SIGNATURE, "libmine.so has no C function 'products'"),
        ("product", f"{SIGNATURE}, cudaStream_t stream", "cannot take a cudaStream_t"),
        ("product", SIGNATURE.replace("float beta", "half beta"), "cannot take a half by value"),
    ],
)
def test_a_function_of_a_library_is_called_by_its_signature(
    entry: str, signature: str, reason: str, tmp_path: Path
) -> None:
    library = tmp_path / "libmine.so"
    command = ["g++", "-x", "c++", "-shared", "-fPIC", "-o", str(library), "-"]
    subprocess.run(command, input=f'extern "C" {{{C_SOURCE}}}', text=True, check=True)
    mine = HostVariant(
        idea="a test", file=library.name, entry=entry, signature=signature, runs_on="cpu",
        dtypes=("float32",), baseline="", name="mine", op="gemm", path=tmp_path / "mine.py",
    )  # fmt: skip
    quick = Timing(min_samples=2, min_device_s=0.0, max_wall_s=0.2)
    runner = Runner(CpuBackend(), quick, seed=1, sleep=lambda _seconds: None)
    for scope in Scope:
        result = runner.measure(on_cpu(mine, size=(33, 20, 17), scope=scope))
        assert (result.status == Status.OK) == (not reason)
        assert reason in result.reason
