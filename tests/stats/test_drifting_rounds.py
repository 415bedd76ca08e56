"""The rate at which equally fast kernels are called faster, in simulated judgements."""

import numpy as np
import pytest
from numpy.typing import NDArray

from gpubench.stats.pairs import drifting_low, ratio_of_rounds

ROUNDS, JUDGEMENTS = 15, 200
"""Number of rounds of `judge`, and number of simulated judgements of each case."""


def simulated(
    rng: np.random.Generator, kernels: int, correlation: float, noise: float
) -> NDArray[np.float64]:
    """Return times of rounds of equally fast kernels. Neighbouring rounds are correlated."""
    steps = rng.standard_normal((kernels, ROUNDS))
    for index in range(1, ROUNDS):
        new = (1 - correlation**2) ** 0.5 * steps[:, index]
        steps[:, index] = correlation * steps[:, index - 1] + new
    return np.exp(noise * steps)


def called_faster(
    tiles: int, noise: float, correlation: float = 0.0, gain: float = 0.0, seed: int = 0
) -> float:
    """Return the share of judgements in which the fastest of some tiles is called faster."""
    rng, faster = np.random.default_rng(seed), 0
    for _ in range(JUDGEMENTS):
        base, *own = simulated(rng, 1 + tiles, correlation, noise)
        best = min(own, key=np.median) / (1 + gain)
        low = drifting_low(base, best, 1 - 0.05 / tiles)
        ratio = ratio_of_rounds(base, best)
        assert low
        assert ratio
        is_same = ratio.low >= 1 / 1.02 and ratio.high <= 1.02
        faster += low > 1 and not is_same
    return faster / JUDGEMENTS


@pytest.mark.parametrize("tiles", [1, 5, 20])
@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_at_equal_speed_few_kernels_are_called_faster(tiles: int, noise: float) -> None:
    assert called_faster(tiles, noise) <= 0.025
    # 5 % plus four standard deviations of 200 judgements.
    assert called_faster(tiles, noise, correlation=0.8) <= 0.05 + 0.062


@pytest.mark.parametrize("tiles", [1, 5, 20])
def test_a_kernel_that_is_5_percent_faster_is_called_so(tiles: int) -> None:
    assert called_faster(tiles, 0.01, gain=0.05) >= 0.95 - 0.062


def test_rounds_that_drift_have_a_lower_bound_below_that_of_their_interval() -> None:
    drifting = np.exp(np.linspace(-0.02, 0.02, ROUNDS))
    ratio, low = (
        ratio_of_rounds(drifting, np.ones(ROUNDS)),
        drifting_low(drifting, np.ones(ROUNDS), 0.95),
    )
    assert ratio
    assert low
    assert low < ratio.low
    assert drifting_low([1.0], [1.0], 0.95) is None
