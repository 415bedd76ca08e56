"""Inputs are arranged so that they show sums of which a solution leaves out a part."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from gpubench.foreign.arrange import arrange, is_arrangeable, is_independent

LAUNCHES = 20

Guess = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def _arranged(values: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Return the values in the order in which an input of a launch has them."""
    made = values.copy()
    if is_arrangeable(values.shape, values.dtype.name) and is_independent(values.astype(float)):
        arrange(made, np.random.default_rng(seed))
    return made


def _largest(values: NDArray[np.float32]) -> float:
    return float(np.abs(values).max())


def _uniform(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).random((32, 8192), np.float32)


@pytest.mark.parametrize(
    "guess",
    [
        lambda x: x[:, ::8].mean(1),
        lambda x: x[:, :4096].mean(1),
        lambda x: x[:, : 8192 * 3 // 4].mean(1),
        lambda x: x[:, 0] * 0 + 0.5,
        lambda x: np.repeat(x[::2].mean(1), 2),
    ],
    ids=[
        "every eighth",
        "the first half",
        "three quarters",
        "what is expected",
        "every second row",
    ],
)
def test_a_mean_without_a_part_of_the_values_is_far_off_in_some_launches(guess: Guess) -> None:
    errors = [
        _largest(guess(x) - x.mean(1))
        for x in (_arranged(_uniform(seed), seed) for seed in range(LAUNCHES))
    ]
    assert _largest(guess(_uniform(0)) - _uniform(0).mean(1)) < 0.04
    assert sum(error > 0.05 for error in errors) >= 3


def test_an_arranged_input_has_the_same_values_and_depends_on_its_seed_alone() -> None:
    values = _uniform(0)
    inputs = [_arranged(values, seed) for seed in range(8)]
    assert all(np.array_equal(np.sort(x, None), np.sort(values, None)) for x in inputs)
    assert any(not np.array_equal(x, values) for x in inputs)
    assert np.array_equal(_arranged(values, 3), inputs[3])


def test_values_that_depend_on_each_other_stay_where_they_are() -> None:
    generator = np.random.default_rng(1)
    plain = generator.standard_normal((64, 64)).astype(np.float32)
    of_rows = [
        np.triu(plain),
        plain + plain.T,
        plain @ plain.T,
        plain / np.linalg.norm(plain, axis=1, keepdims=True),
        np.abs(plain) / np.abs(plain).sum(1, keepdims=True),
        np.sort(plain, 1),
        np.cumsum(plain, 0),
        np.broadcast_to(plain[:1], plain.shape).copy(),
        np.where(plain > 1, -np.inf, plain).astype(np.float32),
        np.ones_like(plain),
    ]
    for values in of_rows:
        for seed in range(8):
            assert np.array_equal(_arranged(values, seed), values)


@pytest.mark.parametrize("shape", [(), (1,), (64,), (129,), (3, 1, 33), (5, 7, 11)])
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "float8_e4m3fn"])
def test_inputs_of_all_shapes_and_types_keep_their_values(
    shape: tuple[int, ...], dtype: str
) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    values = np.random.default_rng(2).standard_normal(shape).astype(kind)
    for seed in range(6):
        found = _arranged(values, seed).astype(np.float64)
        assert np.array_equal(np.sort(found, None), np.sort(values.astype(np.float64), None))
