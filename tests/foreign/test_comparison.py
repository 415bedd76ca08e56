"""Results are compared by the tolerance of another project, and more strictly in some cases."""

from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401 # NumPy gets the names of types
import numpy as np
import pytest
from numpy.typing import NDArray

from gpubench.foreign.compare import MIN_PAIRS, Comparison, judged
from gpubench.foreign.statement import Facts, Part, Tolerance
from gpubench.model import Compared

COUNT = 4000

Values = NDArray[np.float64]
Change = Callable[[Values], Values]


def compared(
    change: Change,
    tolerance: Tolerance,
    dtype: str = "float32",
    draw: Callable[[np.random.Generator], Values] = lambda rng: rng.standard_normal(COUNT),
    pairs: int = 0,
) -> Compared:
    """Compare changed results of a launch, after launches with right results."""
    part = Part((len(draw(np.random.default_rng(0))),), (1,), dtype, 0, 0)
    size = np.dtype(dtype).itemsize * part.shape[0]
    comparison = Comparison(Facts((), (part,), 256, size, 1, (tolerance,)))
    for seed in range(pairs + 1):
        right = draw(np.random.default_rng(seed))
        own = right.astype(dtype)
        reference = comparison.with_reference(own.tobytes(), [right.tobytes()])
    result = change(right).astype(dtype)
    return reference(np.frombuffer(result.tobytes(), np.uint8))


def set_at(where: Any, value: float) -> Change:
    def changed(right: Values) -> Values:
        result = right.copy()
        result[where] = value
        return result

    return changed


LOOSE = Tolerance(1e-2, 1e-2, 0.99)


def test_a_result_within_the_tolerance_is_right_and_its_bits_are_measured() -> None:
    found = compared(lambda right: right * (1 + 2**-10), LOOSE)
    assert found.reason == ""
    assert found.judged <= 1
    assert found.rms == pytest.approx(2**-10, rel=1e-3)


def test_rounding_the_right_value_once_is_no_error() -> None:
    strict = Tolerance(0.0, 0.0)
    assert compared(lambda right: right, strict, "bfloat16").reason == ""
    assert "are right by their tolerance" in compared(lambda x: x * 1.02, strict, "bfloat16").reason


def test_the_share_that_must_be_right_is_counted() -> None:
    off = set_at(slice(COUNT // 50), 5.0)
    assert "98 % of the elements" in compared(off, LOOSE).reason
    assert compared(set_at(0, 0.05), Tolerance(1e-2, 1e-2, 1.0)).reason


@pytest.mark.parametrize("seed", [0, 2])
def test_the_result_of_an_earlier_launch_is_named(seed: int) -> None:
    kept = np.random.default_rng(seed).standard_normal(COUNT)
    reason = compared(lambda _: kept, LOOSE, pairs=3).reason
    assert reason == "the result is that of an earlier launch: it was kept, and not computed"


@pytest.mark.parametrize("off", [0, 1, -1, 500])
@pytest.mark.parametrize("right", [3, 2**53, 2**60 + 1, -(2**62), 2**63 - 501])
def test_integers_that_float64_rounds_are_compared_exactly(right: int, off: int) -> None:
    own, result = np.full(4, right), np.full(4, right)
    result[2] += off
    part = Part((4,), (1,), "int64", 0, 0)

    def in_type(tolerance: Tolerance) -> Compared:
        comparison = Comparison(Facts((), (part,), 256, 32, 1, (tolerance,)))
        reference = comparison.with_reference(own.tobytes(), [own.astype(float).tobytes()])
        return reference(result.view(np.uint8))

    assert in_type(Tolerance(0.0, 0.0)).reason == (
        "75 % of the elements are right by their tolerance (they are equal)" if off else ""
    )
    assert bool(in_type(Tolerance(1.0, 0.0)).reason) == (abs(off) > 1)


def test_exactly_the_share_that_must_be_right_is_enough() -> None:
    share = 0.55  # 0.55 * 100 is larger than 55
    ratios = np.repeat([0.5, 2.0], [55, 45])
    assert judged(ratios, Tolerance(share=share)) == 0.5
    assert judged(np.repeat([0.5, 2.0], [54, 46]), Tolerance(share=share)) == 2.0


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_the_largest_error_is_relative_to_the_largest_finite_value(value: float) -> None:
    def draw(rng: np.random.Generator) -> Values:
        right = 1000 * rng.choice([-1.0, 1.0], COUNT)
        right[3] = value
        return right

    found = compared(lambda right: right * (1 + 2**-10), LOOSE, draw=draw)
    assert found.largest == pytest.approx(2**-10)
    assert found.rms == pytest.approx(2**-10, rel=1e-3)


def test_the_text_of_a_tolerance_has_all_its_limits() -> None:
    assert str(Tolerance(0.0, 0.0)) == "they are equal"
    assert str(Tolerance(0.0, 0.0, 0.9, 2.0)) == (
        "they are equal for 90 % of the elements and nowhere above 2"
    )


def test_a_single_wrong_element_is_not_rounded_to_all_right() -> None:
    assert "99.9 % of" in compared(set_at(0, 0.5), Tolerance(1e-2, 1e-2)).reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (np.zeros_like, "all zeros"),
        (set_at(7, np.nan), "holds NaN"),
        (set_at(slice(COUNT - 20, COUNT), 0.0), "more than 10 times the tolerance: elements 3,98"),
        (
            set_at(5, np.inf),
            "at 1 of 4,000 elements is more than 10 times the tolerance: element 5",
        ),
    ],
)
def test_an_error_that_the_allowed_share_would_hide_is_wrong(change: Change, reason: str) -> None:
    assert reason in compared(change, LOOSE).reason


def test_small_results_are_not_right_because_the_absolute_tolerance_is_large() -> None:
    def draw(rng: np.random.Generator) -> Values:
        return 1e-3 * rng.random(COUNT)

    assert compared(lambda x: x, LOOSE, draw=draw, pairs=MIN_PAIRS).reason == ""
    mean = compared(lambda x: np.full_like(x, 5e-4), LOOSE, draw=draw, pairs=MIN_PAIRS)
    assert "as large as the variation of the right values" in mean.reason
    tail = compared(set_at(slice(COUNT - 90, COUNT), 5e-4), LOOSE, draw=draw, pairs=MIN_PAIRS)
    assert "3,999 are as large" in tail.reason


def test_a_mean_of_half_of_the_values_is_wrong_within_the_tolerance() -> None:
    def draw(rng: np.random.Generator) -> Values:
        return np.asarray([rng.random(10**5).mean()])

    def half(right: Values) -> Values:
        rng = np.random.default_rng(MIN_PAIRS)
        return np.asarray([rng.random(10**5)[::2].mean()]) + 0 * right

    assert (
        "variation of the right values" in compared(half, LOOSE, draw=draw, pairs=MIN_PAIRS).reason
    )


def test_integers_are_compared_exactly_where_the_tolerance_is_zero() -> None:
    def draw(rng: np.random.Generator) -> Values:
        return rng.integers(0, 100, COUNT).astype(np.float64)

    exact = Tolerance(0.0, 0.0)
    assert compared(lambda x: x, exact, "int64", draw).reason == ""
    assert compared(lambda x: x + 1, exact, "int64", draw).reason
