"""Kernels whose errors a tolerance, or a single launch, does not show. All of them are rejected.

Each kernel is right within a tolerance of norms, or at its first launch. test_runner.py has kernels
with larger errors.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fakes import FakeBackend, cut, matmul, point, variant

from gpubench.backends.cpu.backend import CpuBackend
from gpubench.backends.cpu.gauge import describe_cpu
from gpubench.engine.measure import visits
from gpubench.engine.measure.runner import Runner
from gpubench.model import Cache, Measurement, Status, Timing

Product = Callable[[np.ndarray, np.ndarray, np.ndarray], None]

QUICK = Timing(rounds=1, min_samples=6, min_device_s=0.0, sample_us=1.0)


def measured(call: Product, timing: Timing = QUICK, **facts: Any) -> Measurement:
    """Measure a kernel on the CPU, with a few sets of operands."""
    backend = CpuBackend(replace(describe_cpu(), l2_bytes=2**14))
    at = point(variant(call), **{"size": (20, 24, 32)} | facts)
    return Runner(backend, timing, seed=1).measure(at)


def two_bfloat16_parts(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """Computes three products of 8-bit parts, so it uses 16 of the operands' 24 bits."""

    def parts(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        high = values.astype(ml_dtypes.bfloat16).astype(np.float32)
        return high, (values - high).astype(ml_dtypes.bfloat16).astype(np.float32)

    (a_high, a_low), (b_high, b_low) = parts(a), parts(b)
    c[:] = a_high @ b_high + a_high @ b_low + a_low @ b_high


def operands_of_16_bits(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    np.matmul(cut(a, 16), cut(b, 16), out=c)


def operands_of_45_bits(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    np.matmul(cut(a, 45), cut(b, 45), out=c)


def one_operand_of_16_bits(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    np.matmul(a, cut(b, 16), out=c)


def low_halves(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """Multiplies only the low 16 bits of each element."""
    np.matmul(a.astype(np.int16).astype(np.int32), b.astype(np.int16).astype(np.int32), out=c)


def saturating(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    exact = a.astype(np.float64) @ b.astype(np.float64)
    c[:] = np.clip(exact, -(2**31), 2**31 - 1).astype(np.int64)


ROUNDED = [
    (two_bfloat16_parts, "float32", (64, 64, 1024)),
    (operands_of_16_bits, "float32", (48, 48, 4096)),
    (one_operand_of_16_bits, "float32", (48, 48, 4096)),
    (operands_of_45_bits, "float64", (48, 48, 4096)),
    (low_halves, "int32", (20, 24, 32)),
    (saturating, "int32", (20, 24, 32)),
]


@pytest.mark.parametrize(("wrong", "dtype", "size"), ROUNDED)
def test_a_kernel_that_loses_bits_of_operands_fails_an_exact_probe(
    wrong: Product, dtype: str, size: tuple[int, int, int]
) -> None:
    result = measured(wrong, size=size, dtype=dtype)
    assert (result.status, result.series) == (Status.WRONG, None)
    assert result.reason.startswith("exact probe at ")


def right_on_probes(wrong: Product) -> Product:
    """Return a kernel that is wrong unless an operand has a zero, as in an exact probe."""

    def call(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        (wrong if a.all() and b.all() else matmul)(a, b, c)

    return call


@pytest.mark.parametrize("wrong", [low_halves, saturating])
def test_integers_that_do_not_wrap_are_rejected_by_the_points_own_operands(wrong: Product) -> None:
    result = measured(right_on_probes(wrong), dtype="int32")
    assert result.status == Status.WRONG
    assert "exact integer product" in result.reason


def accumulator_cleared_once() -> Product:
    """Return a split-K kernel with sums in a workspace that only the first launch clears."""
    workspace: dict[tuple[int, ...], np.ndarray] = {}

    def call(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        total = workspace.setdefault(c.shape, np.zeros_like(c))
        half = a.shape[1] // 2
        total += a[:, :half] @ b[:half]
        total += a[:, half:] @ b[half:]
        c[:] = total

    return call


def packed_once() -> Product:
    """Return a kernel that packs A into a workspace in the first launch, and not again."""
    workspace: dict[tuple[int, ...], np.ndarray] = {}

    def call(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        np.matmul(workspace.setdefault(a.shape, a.copy()), b, out=c)

    return call


def result_kept() -> Product:
    """Return a kernel that computes in the first launch, and copies that result in later ones."""
    workspace: dict[tuple[int, ...], np.ndarray] = {}

    def call(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        c[:] = workspace.setdefault(c.shape, a @ b)

    return call


def spoils_one_launch_in(launches: int) -> Product:
    """Return a kernel in which an element is wrong in one of this number of launches."""
    count = 0

    def call(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        nonlocal count
        np.matmul(a, b, out=c)
        count += 1
        if count % launches == 0:
            c[3, 4] += np.abs(c).max() / 2

    return call


LEFT = [
    *(
        (make, dtype, extent, Cache.COLD)
        for make in (accumulator_cleared_once, packed_once, result_kept)
        # Small problems have many sets, and large problems few.
        for dtype, extent in (("float32", 20), ("int32", 20), ("float64", 150))
    ),
    (accumulator_cleared_once, "float32", 20, Cache.HOT),
]


@pytest.mark.parametrize(("make", "dtype", "extent", "cache"), LEFT)
def test_a_result_with_data_of_the_previous_launch_is_rejected_even_with_few_sets(
    make: Callable[[], Product], dtype: str, extent: int, cache: Cache
) -> None:
    call = right_on_probes(make())
    result = measured(call, size=(extent, extent, extent), dtype=dtype, cache=cache)
    assert (result.status, result.series) == (Status.WRONG, None)


@pytest.mark.parametrize("cache", Cache)
@pytest.mark.parametrize("launches", [2, 7, 20])
def test_a_kernel_that_spoils_some_launches_is_rejected(launches: int, cache: Cache) -> None:
    call = right_on_probes(spoils_one_launch_in(launches))
    result = measured(call, cache=cache)
    assert (result.status, result.series) == (Status.WRONG, None)


@pytest.mark.parametrize("cache", Cache)
def test_long_launches_are_checked_early(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    # Launches count as too long to check more than one before the first sample.
    call = right_on_probes(spoils_one_launch_in(20))
    monkeypatch.setattr(visits, "WATCHING_S", 0.0)
    timing = replace(QUICK, min_samples=30, max_wall_s=20.0, slow_launch_s=20.0)
    assert measured(call, timing, size=(200, 200, 200), cache=cache).status == Status.WRONG


def test_a_kernel_that_was_right_when_verified_is_checked_again_after_timing() -> None:
    timed = False

    def spoils_what_is_timed(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        np.matmul(a, b, out=c)
        c[0, 0] += timed

    def now() -> None:
        nonlocal timed
        timed = True

    backend = FakeBackend()
    backend.at_sampling = now
    result = Runner(backend, QUICK, seed=1).measure(point(variant(spoils_what_is_timed)))
    assert (result.status, result.series) == (Status.WRONG, None)
    assert "relative error" in result.reason
    assert result.max_relative_error > 1e-4


def test_timed_results_are_checked_in_every_process() -> None:
    first = measured(matmul)
    spoils = point(variant(accumulator_cleared_once()))
    result = Runner(FakeBackend(), QUICK, seed=1).measure(spoils, earlier=first)
    assert result.status == Status.WRONG


def test_a_point_verified_in_another_process_is_not_probed_again() -> None:
    def probes(backend: FakeBackend) -> int:
        return sum(event.what == "run" and event.probe for event in backend.events)

    first_backend, second_backend = FakeBackend(), FakeBackend()
    first = Runner(first_backend, QUICK, seed=1).measure(point())
    second = Runner(second_backend, QUICK, seed=1).measure(point(), earlier=first)
    assert probes(first_backend) > 0
    assert (probes(second_backend), second.status) == (0, Status.OK)
