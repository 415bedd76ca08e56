"""The exact probe: right kernels give it to the last bit, in any order of summation."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import point, variant

from gpubench.engine.probe import SIZES, kernels_of, make_probes, probe_problems, require_exact
from gpubench.engine.verify import WrongError
from gpubench.model import CORE_DTYPES, PRECISIONS, CudaVariant, Point, Problem
from gpubench.plan.registry import variants

INSTANCES = [
    (op, dtype, size)
    for op in SIZES
    for dtype in (PRECISIONS if op == "gemm" else CORE_DTYPES)
    for size in SIZES[op]
]


def problem(op: str, dtype: str, size: tuple[int, int, int]) -> Problem:
    m, n, k = size
    return Problem(op=op, m=m, n=n, k=k, dtype=dtype)


def test_every_element_is_one_product_that_needs_all_bits() -> None:
    for op, dtype, size in INSTANCES:
        at = problem(op, dtype, size)
        for (a, b), expected in make_probes(at, 1):
            assert (a.shape, b.shape) == at.input_shapes
            assert (expected.shape, str(expected.dtype)) == (at.output_shape, at.precision.result)
            wide = expected.astype(np.float64)
            assert np.isfinite(wide).all()
            assert np.count_nonzero(wide) > 0.99 * wide.size  # a byte is 0 now and then
            nonzero = (a != 0).astype(np.float64), (b != 0).astype(np.float64)
            if op == "gemm":
                assert (nonzero[0] @ nonzero[1]).max() == 1
            elif op == "gemv":
                assert nonzero[0].sum(axis=1).max() == 1
            else:
                assert nonzero[0].sum(axis=0).max() == 1


@pytest.mark.parametrize("dtype", CORE_DTYPES)
def test_sums_in_another_order_are_exact_and_a_k_lost_or_doubled_is_not(dtype: str) -> None:
    at = problem("gemm", dtype, SIZES["gemm"][0])
    for (a, b), expected in make_probes(at, 1):
        backwards = sum(a[:, k, None] * b[None, k] for k in reversed(range(at.k)))
        require_exact(at, np, backwards, expected)
        for lost in (a[:, :-1] @ b[:-1], expected + a[:, :1] * b[:1]):
            with pytest.raises(WrongError, match="exact probe at 149x157x139: "):
                require_exact(at, np, lost, expected)


def test_nan_is_not_exact() -> None:
    at = problem("gemm", "float32", SIZES["gemm"][0])
    _, expected = make_probes(at, 1)[0]
    with pytest.raises(WrongError, match="1 of 23,393 results"):
        require_exact(at, np, np.where(expected == expected[0, 0], np.nan, expected), expected)


def test_operands_that_may_be_rounded_are_drawn_so_that_they_need_not_be() -> None:
    (a, _), _ = make_probes(problem("gemm", "tf32", SIZES["gemm"][0]), 1)[0]
    assert not (a.view(np.uint32) & 0x1FFF).any()
    assert (a.view(np.uint32) & 0x2000).all()


def points() -> list[Point]:
    """Each variant at its defaults, at a size that tiles divide and at one that none does."""
    return [
        Point(
            variant=one,
            tile=tile,
            problem=Problem(
                op=one.op, m=n, n=n, k=n if one.op == "gemm" else 1, dtype=one.dtypes[0]
            ),
            cache="hot",
            scope="kernel",
            timer="events",
        )
        for one in variants()
        for tile in (one.tiles.defaults if one.tiles else (None,))
        for n in (509, 512)
    ]


def test_a_probe_needs_no_kernel_that_its_point_does_not() -> None:
    for of in points():
        if of.variant.why_not(of.tile, of.problem) is None:
            found = probe_problems(of, None)
            assert found
            for at in found:
                assert of.variant.why_not(of.tile, at) is None
                assert kernels_of(of, at) <= kernels_of(of, of.problem)
                assert at.precision == of.problem.precision
                assert at == of.problem or at.bytes < 64 * 2**20


def test_every_kernel_of_a_variant_is_probed_at_one_size_or_the_other() -> None:
    for of in points():
        if isinstance(of.variant, CudaVariant) and not of.variant.why_not(of.tile, of.problem):
            launched = [kernels_of(of, at) for at in probe_problems(of, None)]
            assert kernels_of(of, of.problem) == frozenset.union(*launched), of.label


def test_a_size_that_a_variant_refuses_is_rounded_or_the_points_own_is_taken() -> None:
    def refuse(_tile: object, at: Problem) -> str | None:
        return "takes multiples of 128" if at.m % 128 or at.n % 128 or at.k % 128 else None

    of = point(variant(refuse=refuse), size=(256, 256, 256))
    assert {(at.m, at.n, at.k) for at in probe_problems(of, None)} == {(256, 256, 256)}
    only = point(variant(refuse=lambda _tile, at: None if at.m == 77 else "no"), size=(77, 5, 3))
    assert probe_problems(only, None) == [only.problem]
