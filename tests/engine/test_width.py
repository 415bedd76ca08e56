"""The probe of the width of sums finds emulated narrow sums, over all of K or over parts."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from gpubench.engine.judge.probe import require_exact
from gpubench.engine.judge.sum_width import WidthProbe, make_width_probes
from gpubench.engine.judge.verdict import WrongError
from gpubench.engine.judge.verify import relative_error
from gpubench.engine.operands.make import make_inputs, make_reference, widened
from gpubench.model import Problem

ROWS, COLUMNS = 120, 3
DEPTHS = (61, 4097)
"""Values of K: that of probes, and that of large problems."""

HALF, BRAIN = np.float16, ml_dtypes.bfloat16

Sum = Callable[[np.ndarray], np.ndarray]
"""A function that adds products along their first axis, K."""


def probe_of(dtype: str, depth: int, seed: int = 1) -> WidthProbe:
    (probe,) = make_width_probes(Problem(op="gemm", m=ROWS, n=COLUMNS, k=depth, dtype=dtype), seed)
    return probe


def parts(products: np.ndarray, size: int) -> Iterator[np.ndarray]:
    return (products[start : start + size] for start in range(0, len(products), size))


def in_turn(products: np.ndarray, kind: type) -> np.ndarray:
    """Return the sum, which is rounded after each product."""
    total = np.zeros(products.shape[1:], kind)
    for product in products:
        total = (total.astype(np.float32) + product.astype(np.float32)).astype(kind)
    return total


def in_chunks(products: np.ndarray, kind: type, size: int) -> np.ndarray:
    """Return the float32 sum of narrow sums of `size` products."""
    return sum(in_turn(part, kind).astype(np.float32) for part in parts(products, size))


def pairwise(products: np.ndarray, kind: type) -> np.ndarray:
    terms = products.astype(kind)
    while len(terms) > 1:
        odd = terms[len(terms) // 2 * 2 :]
        terms = np.concatenate(((terms[0:-1:2] + terms[1::2]).astype(kind), odd))
    return terms[0]


def rounded_at_times(products: np.ndarray, kind: type, size: int) -> np.ndarray:
    """Return a float32 sum that is rounded after each `size` products."""
    total = np.zeros(products.shape[1:], np.float32)
    for part in parts(products, size):
        total = (total + in_turn(part, np.float32)).astype(kind).astype(np.float32)
    return total


def in_groups(products: np.ndarray, bits: int, size: int) -> np.ndarray:
    """Return sums as of tensor cores, which cut terms of a group below the largest term's bits."""
    total = np.zeros(products.shape[1:])
    for part in parts(products.astype(np.float64), size):
        terms = np.concatenate((total[None], part))
        _, exponent = np.frexp(np.abs(terms).max(axis=0))
        unit = np.ldexp(1.0, exponent - bits)
        total = (np.trunc(terms / unit) * unit).sum(axis=0)
    return total


def split(products: np.ndarray, count: int) -> np.ndarray:
    """Return the float32 sum of sums of parts of K."""
    return pairwise(
        np.stack([in_turn(part, np.float32) for part in np.array_split(products, count)]),
        np.float32,
    )


RIGHT: dict[str, Sum] = {
    "float64": lambda products: products.astype(np.float64).sum(axis=0),
    "float32 in turn": partial(in_turn, kind=np.float32),
    "float32 backwards": lambda products: in_turn(products[::-1], np.float32),
    "float32 pairwise": partial(pairwise, kind=np.float32),
    "float32 in 4 parts": partial(split, count=4),
    "float32 in 32 parts": partial(split, count=32),
    "24 bits of 8 terms": partial(in_groups, bits=24, size=8),
    "25 bits of 16 terms": partial(in_groups, bits=25, size=16),
}

NARROW: dict[str, tuple[Sum, int]] = {
    "float16 in turn": (partial(in_turn, kind=HALF), 11),
    "float16 pairwise": (partial(pairwise, kind=HALF), 11),
    "bfloat16 in turn": (partial(in_turn, kind=BRAIN), 8),
    "bfloat16 pairwise": (partial(pairwise, kind=BRAIN), 8),
    "14 bits of 32 terms": (partial(in_groups, bits=14, size=32), 14),
    **{
        f"float16 in chunks of {n}": (partial(in_chunks, kind=HALF, size=n), 11)
        for n in (4, 32, 128, 512)
    },
    **{
        f"bfloat16 in chunks of {n}": (partial(in_chunks, kind=BRAIN, size=n), 8)
        for n in (4, 32, 128, 512)
    },
    "float16 after 16 products": (partial(rounded_at_times, kind=HALF, size=16), 11),
    "bfloat16 after 16 products": (partial(rounded_at_times, kind=BRAIN, size=16), 8),
}


def result(probe: WidthProbe, add: Sum, kind: str) -> np.ndarray:
    a, b = (x.astype(np.float32) for x in probe.inputs())
    return add(a.T[:, :, None] * b[:, None, :]).astype(kind)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_sum_as_wide_as_stated_is_right_in_any_order(name: str, dtype: str, depth: int) -> None:
    probe = probe_of(dtype, depth)
    require_exact(probe, np, result(probe, RIGHT[name], probe.problem.precision.result))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NARROW)
def test_a_narrower_sum_is_wrong_by_its_stated_width(name: str, dtype: str, depth: int) -> None:
    add, bits = NARROW[name]
    probe = probe_of(dtype, depth)
    with pytest.raises(
        WrongError, match=rf"its sums at 120x3x{depth} keep {bits} bits, as sums in"
    ):
        require_exact(probe, np, result(probe, add, dtype))


@pytest.mark.parametrize("depth", DEPTHS)
def test_float8_may_keep_14_bits_and_no_fewer(depth: int) -> None:
    probe = probe_of("float8_e4m3", depth)
    require_exact(probe, np, result(probe, NARROW["14 bits of 32 terms"][0], "bfloat16"))
    with pytest.raises(WrongError, match="keep 11 bits, as sums in float16 do"):
        require_exact(probe, np, result(probe, NARROW["float16 in chunks of 128"][0], "bfloat16"))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", [*RIGHT, *NARROW])
def test_sums_stated_as_float16_keep_11_bits_and_no_fewer(name: str, depth: int) -> None:
    add, bits = NARROW[name] if name in NARROW else (RIGHT[name], 24)
    probe = probe_of("float16_sum16", depth)
    with pytest.raises(WrongError, match="keep 8 bits") if bits < 11 else nullcontext():
        require_exact(probe, np, result(probe, add, "float16"))


@pytest.mark.parametrize("k", [32, 257, 4096])
def test_sums_of_float16_are_within_their_tolerance_and_those_of_bfloat16_are_not(k: int) -> None:
    problem = Problem(op="gemm", m=24, n=24, k=k, dtype="float16_sum16")
    a, b = map(widened, make_inputs(problem, seed=1))
    reference, products = make_reference(np, "gemm", a, b), a.T[:, :, None] * b[:, None, :]

    def error(kind: type) -> float:
        summed = in_turn(products, kind).astype("float16")
        return relative_error(np, summed, reference, problem.precision.result_roundoff)

    assert error(HALF) < problem.precision.tolerance / 2
    assert error(BRAIN) > problem.precision.tolerance / 2


@pytest.mark.parametrize("k", [32, 257, 4096])
def test_float8_sums_of_14_bits_are_within_the_tolerance_and_those_of_7_are_not(k: int) -> None:
    problem = Problem(op="gemm", m=24, n=24, k=k, dtype="float8_e4m3")
    a, b = map(widened, make_inputs(problem, seed=1))
    reference, products = make_reference(np, "gemm", a, b), a.T[:, :, None] * b[:, None, :]

    def error(bits: int) -> float:
        summed = in_groups(products, bits, 32).astype("bfloat16")
        return relative_error(np, summed, reference, problem.precision.result_roundoff)

    assert error(14) < problem.precision.tolerance / 8
    assert error(7) > problem.precision.tolerance


@pytest.mark.parametrize("rows", [1, 4, 20])
@pytest.mark.parametrize("name", ["float16 in turn", "bfloat16 pairwise", "14 bits of 32 terms"])
def test_narrower_sums_of_few_rows_are_wrong(name: str, rows: int) -> None:
    at = Problem(op="gemm", m=rows, n=COLUMNS, k=4097, dtype="float16")
    add, bits = NARROW[name]
    (probe,) = make_width_probes(at, 1)
    kept = probe.bits_kept(np, result(probe, add, "float16"))
    assert kept is not None
    assert kept == bits or rows < 20
    assert probe.bits_kept(np, result(probe, RIGHT["float32 pairwise"], "float16")) is None


def test_float32_sums_of_float64_are_wrong() -> None:
    probe = probe_of("float64", 333)
    a, b = probe.inputs()
    require_exact(probe, np, a @ b)
    with pytest.raises(WrongError, match="keep 24 bits, as sums in float32 do"):
        require_exact(probe, np, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float64))


@pytest.mark.parametrize("op", ["gemv", "gemv_t"])
def test_products_with_a_vector_have_a_probe_of_the_width(op: str) -> None:
    (probe,) = make_width_probes(Problem(op=op, m=130, n=150, k=1, dtype="float32"), 1)
    a, x = probe.inputs()
    a = a.T if op == "gemv_t" else a
    require_exact(probe, np, a @ x)
    with pytest.raises(WrongError, match="keep 11 bits"):
        require_exact(probe, np, in_turn((a * x).T, HALF).astype(np.float32))


@pytest.mark.parametrize(
    "at",
    [
        Problem(op="gemm", m=64, n=64, k=15, dtype="float32"),
        Problem(op="gemm", m=64, n=64, k=64, dtype="int8"),
        Problem(op="atax", m=64, n=64, k=1, dtype="float32"),
    ],
)
def test_short_sums_exact_sums_and_chains_have_no_probe_of_the_width(at: Problem) -> None:
    assert make_width_probes(at, 1) == ()


def test_no_operand_is_zero_and_places_differ_between_seeds() -> None:
    probes = [probe_of("float16", 1100, seed) for seed in (1, 2)]
    assert all(array.all() for probe in probes for array in probe.inputs())
    assert (np.abs(probes[0].terms) != np.abs(probes[1].terms)).any()
