"""The exact probe: right kernels compute its result to the last bit, in any order of sums."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import point, product, variant
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubench.engine.judge.probe import (
    LARGE_FLOPS,
    AnyProbe,
    inputs_of,
    make_full_probe,
    make_probes,
    require_exact,
    require_exact_outputs,
)
from gpubench.engine.judge.probe import all_probes as judge_probes
from gpubench.engine.judge.probe_size import (
    PERIOD,
    fewer_rows,
    kernels_of,
    probe_problem,
    unusual_problem,
)
from gpubench.engine.judge.verdict import WrongError
from gpubench.model import CORE_DTYPES, OPERATIONS, PRECISIONS, CudaVariant, Point, Problem
from gpubench.plan.registry import of_op, variants

SIZES = [
    (149, 157, 139), (17, 300, 40), (300, 17, 40), (16, 12, 300), (1, 1, 9), (3, 2, 50),
    (64, 64, 1), (1, 40, 7), (40, 1, 7),
]  # fmt: skip
"""M, N and K: square, wide, tall, deep, and a single row, column or product."""


def problem(op: str, dtype: str, size: tuple[int, int, int]) -> Problem:
    m, n, k = size
    return Problem(op=op, m=m, n=n, k=k if OPERATIONS[op].has_k else 1, dtype=dtype)


INSTANCES = [
    problem(op, dtype, size)
    for op in OPERATIONS
    if OPERATIONS[op].is_product
    for dtype in (PRECISIONS if op == "gemm" else CORE_DTYPES)
    for size in SIZES
]


def right_result(at: Problem, *operands: np.ndarray) -> np.ndarray:
    """Return the result, which is rounded only at the end."""
    wide = np.int32 if at.precision.is_integer else np.float64
    return product(at.op, *(x.astype(wide) for x in operands)).astype(at.precision.result)


def all_probes(at: Problem) -> tuple[AnyProbe, ...]:
    return (*make_probes(at, 1), make_full_probe(at, 1))


@pytest.mark.parametrize("at", INSTANCES, ids=lambda at: f"{at.op}-{at.dtype}-{at.size}")
def test_the_right_product_is_exact_and_one_that_differs_in_an_element_is_not(at: Problem) -> None:
    for probe in all_probes(at):
        inputs = probe.inputs()
        assert tuple(array.shape for array in inputs) == at.input_shapes
        result = right_result(at, *inputs)
        assert probe.count_wrong(np, result) == 0
        flat = result.reshape(-1)
        place = int(np.argmax(flat != 0))
        flat[place] += 1 if at.precision.is_integer else flat[place]
        assert probe.count_wrong(np, result) == 1
        with pytest.raises(WrongError, match=f"exact probe at {at.size}: 1 of {flat.size:,} "):
            require_exact(probe, np, result)


@pytest.mark.parametrize("size", SIZES)
def test_every_k_has_a_product_and_none_is_a_sum(size: tuple[int, int, int]) -> None:
    at = problem("gemm", "float32", size)
    for first, places in ((True, set()), (False, set())):
        probes = make_probes(at, 1)
        half = len(probes) // 2
        for probe in probes[:half] if first else probes[half:]:
            a, b = probe.inputs()
            terms = (a != 0).astype(int) @ (b != 0).astype(int)
            assert terms.max() <= 1
            places |= set(np.flatnonzero((a != 0).any(axis=0) & (b != 0).any(axis=1)))
        m, n, k = size
        assert len(places) == min(k, 8 * m * n)


@pytest.mark.parametrize("dtype", CORE_DTYPES)
def test_sums_in_another_order_are_exact_and_a_k_lost_or_doubled_is_not(dtype: str) -> None:
    at = problem("gemm", dtype, (149, 157, 139))
    for probe in all_probes(at):
        a, b = probe.inputs()
        backwards = sum(a[:, k, None] * b[None, k] for k in reversed(range(at.k)))
        require_exact(probe, np, backwards)
        for wrong in (a[:, :-1] @ b[:-1], a @ b + a[:, :1] * b[:1]):
            with pytest.raises(WrongError, match="exact probe at 149x157x139: "):
                require_exact(probe, np, wrong)


def test_a_result_is_compared_with_one_that_was_right(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = make_full_probe(problem("gemm", "float32", (40, 30, 50)), 1)
    right = np.matmul(*probe.inputs())
    require_exact(probe, np, right)
    wrong = right.copy()
    wrong[39, 29] += 1
    with pytest.raises(WrongError):
        require_exact(probe, np, wrong)
    monkeypatch.setattr(type(probe), "count_wrong", None)
    require_exact(probe, np, right.copy())


@pytest.mark.parametrize("operand", [0, 1])
def test_an_operand_of_18_bits_shows_in_a_single_launch(operand: int) -> None:
    probe = make_full_probe(problem("gemm", "float32", (300, 200, 100)), 1)
    inputs = list(probe.inputs())
    bits = inputs[operand].view(np.uint32) & np.uint32(0xFFFFFFC0)
    inputs[operand] = bits.view(np.float32)
    assert probe.count_wrong(np, inputs[0] @ inputs[1]) > 0.4 * 300 * 200


@pytest.mark.parametrize("batch", [2, 40])
def test_products_of_a_batch_have_other_values_each(batch: int) -> None:
    size = (33, 17, 65, batch)
    at = Problem(op="gemm_batched", m=1, n=1, dtype="float32").at(size)
    for probe in judge_probes(at, 1):
        a, b = probe.inputs()
        assert (a.shape, b.shape) == at.input_shapes
        require_exact(probe, np, a @ b)
        exchanged = a @ np.roll(b, 1, axis=0)
        with pytest.raises(WrongError, match=f"at {batch}x33x17x65"):
            require_exact(probe, np, exchanged)


def test_narrow_sums_in_one_product_of_a_batch_are_found() -> None:
    at = Problem(op="gemm_batched", m=1, n=1, dtype="float32").at((70, 17, 650, 3))
    *_, probe = judge_probes(at, 1)
    a, b = probe.inputs()
    result = a @ b
    parts = (a[2][:, i : i + 8].astype(np.float16) @ b[2][i : i + 8] for i in range(0, 650, 8))
    total = np.zeros(result[2].shape, np.float16)
    for part in parts:
        total += part.astype(np.float16)
    result[2] = total
    with pytest.raises(WrongError, match="keep 11 bits, as sums in float16 do"):
        require_exact(probe, np, result)


def test_results_of_another_type_than_the_precisions_are_compared_in_their_own_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gemm = OPERATIONS["gemm"]
    stated = replace(gemm, output=replace(gemm.output, dtype="float32"))
    monkeypatch.setitem(OPERATIONS._by_name, "gemm", stated)
    at = problem("gemm", "float16", (33, 17, 40))
    products = [
        a.astype(np.float32) @ b.astype(np.float32) for a, b in map(inputs_of, judge_probes(at, 1))
    ]
    require_exact_outputs([product.tobytes() for product in products], at, 1)
    products[0][3, 4] += 1
    with pytest.raises(WrongError, match="1 of 561 results"):
        require_exact_outputs([product.tobytes() for product in products], at, 1)


def test_nan_is_not_exact() -> None:
    at = problem("gemm", "float32", (149, 157, 139))
    probe = make_probes(at, 1)[0]
    result = right_result(at, *probe.inputs())
    result[7, 8] = np.nan
    with pytest.raises(WrongError, match="1 of 23,393 results"):
        require_exact(probe, np, result)


def test_operands_that_may_be_rounded_are_drawn_so_that_they_need_not_be() -> None:
    a, _ = make_probes(problem("gemm", "tf32", (149, 157, 139)), 1)[0].inputs()
    assert not (a.view(np.uint32) & 0x1FFF).any()
    assert (a.view(np.uint32) & 0x2000).all()


@settings(deadline=None)
@given(st.tuples(*(st.integers(1, 20000),) * 3))
def test_a_probe_has_a_size_of_the_points_own_kind(size: tuple[int, int, int]) -> None:
    tiled = of_op("gemm")["shared_tile"]
    own = point(tiled, tile=tiled.tiles.read("16"), size=size, dtype="float32")
    near = probe_problem(own, None)
    for probed, extent in zip((near.m, near.n, near.k), size, strict=True):
        assert probed <= extent
        assert probed % PERIOD == extent % PERIOD or probed == extent
        assert probed >= min(extent, 32)
        assert probed <= PERIOD + 32
    row_count = -(-own.problem.m // 64)
    assert fewer_rows(own, row_count) == row_count
    rows = fewer_rows(replace(own, variant=replace(tiled, path=Path("mine.py"))), row_count)
    assert row_count <= rows <= own.problem.m
    assert rows % PERIOD == own.problem.m % PERIOD or rows == own.problem.m
    squares = replace(tiled, path=Path("mine.py"), refuse=lambda _, at: (None, "no")[at.m != at.n])
    alike = replace(own, variant=squares, problem=replace(own.problem, n=own.problem.m))
    assert fewer_rows(alike, row_count) == own.problem.m


def test_tiles_that_do_not_divide_the_period_lengthen_it_for_a_users_kernel() -> None:
    tiled = of_op("gemm")["shared_tile"]
    ours = point(tiled, tile=tiled.tiles.read("24"), size=(2000, 1000, 800), dtype="float32")
    near = probe_problem(ours, None)
    assert (near.m, near.n, near.k) == (2000 % PERIOD, 1000 % PERIOD, 800 % PERIOD + PERIOD)
    near = probe_problem(replace(ours, variant=replace(tiled, path=Path("mine.py"))), None)
    assert math.lcm(PERIOD, 24) == 768
    assert (near.m, near.n, near.k) == (2000 % 768, 1000 % 768, 800)


def test_a_large_product_has_one_probe_with_few_elements() -> None:
    assert 2 * 512**3 < LARGE_FLOPS < 2 * 1024**3
    assert len(make_probes(problem("gemm", "float32", (512, 512, 512)), 1)) == 2
    (probe,) = make_probes(problem("gemm", "float32", (1024, 1024, 1024)), 1)
    assert probe is make_full_probe(problem("gemm", "float32", (1024, 1024, 1024)), 1)


def points() -> list[Point]:
    """Return each variant at its defaults, at a size that tiles divide and at another size."""
    return [
        point(each, tile=tile, size=(n, n, n), dtype=each.dtypes[0], cache="hot", timer="events")
        for each in variants()
        for tile in (each.tiles.defaults if each.tiles else (None,))
        for n in (509, 512, 4096)
    ]


def test_a_probe_needs_the_kernels_that_its_point_needs_and_no_other() -> None:
    for own in points():
        if own.variant.why_not(own.tile, own.problem) is None:
            near = probe_problem(own, None)
            assert own.variant.why_not(own.tile, near) is None
            assert kernels_of(own, near) == kernels_of(own, own.problem)
            assert near.precision == own.problem.precision
            has_product = own.problem.operation.has_product
            if has_product and not isinstance(own.variant, CudaVariant):
                assert near.bytes < 64 * 2**20


def test_a_size_that_a_variant_refuses_is_not_probed() -> None:
    def refuse(_tile: object, at: Problem) -> str | None:
        is_whole = all(extent % 2048 == 0 for extent in (at.m, at.n, at.k))
        return None if is_whole else "takes multiples of 2048"

    own = point(variant(refuse=refuse), size=(2048, 2048, 2048))
    assert probe_problem(own, None) == own.problem
    assert unusual_problem(own, None) is None
    free = point(variant(), size=(2048, 2048, 2048))
    assert unusual_problem(free, None) == replace(free.problem, m=149, n=157, k=139)
    fixed = replace(free, variant=replace(free.variant, fixed_addresses=True))
    assert unusual_problem(fixed, None) is None
