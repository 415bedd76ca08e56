"""A kernel and a library are timed in turns; their ratio is that of neighbouring times."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpubench.engine.measure.pairs import PAIRS, SETTLE_S, VISIT_S, paired
from gpubench.model import Series
from gpubench.stats.pairs import ratio_of_pairs


class Device:
    """A device that becomes slower within some seconds, and then settles or varies by 10 %."""

    def __init__(self, settles: bool = True) -> None:
        self.now_s = 0.0
        self.settles = settles
        self.visits: list[str] = []
        self._rng = np.random.default_rng(1)

    def kernel(self, name: str, cost_us: float) -> Any:
        def sustain(heat_s: float, timed_s: float) -> Series:
            self.now_s += heat_s + timed_s
            self.visits.append(name)
            slow = 2 - math.exp(-2 * self.now_s)
            if not self.settles:
                slow *= 1 + 0.1 * float(self._rng.random())
            times_us = (cost_us * slow,)
            return Series(times_us=times_us, launches_per_sample=1, stop_reason="", joules=cost_us)

        return SimpleNamespace(sustain=sustain)

    def clock(self) -> float:
        return self.now_s

    @property
    def heated_s(self) -> float:
        """Time of the launches before the first pair."""
        return self.now_s - 2 * PAIRS * VISIT_S


def test_neighbours_take_turns_after_the_device_has_settled() -> None:
    device = Device()
    fast, slow = device.kernel("own", 100.0), device.kernel("library", 110.0)
    times = paired(fast, slow, clock=device.clock)
    assert len(times.times_us) == len(times.library_times_us) == PAIRS
    assert 0 < device.heated_s < SETTLE_S
    assert device.visits[-2 * PAIRS :] == ["own", "library", "library", "own"] * (PAIRS // 2)
    ratio, low, high = ratio_of_pairs(times.library_times_us, times.times_us)
    assert low < 1.1 < high
    assert ratio == pytest.approx(1.1, rel=1e-3)
    assert (times.joules, times.library_joules) == (100.0, 110.0)


def test_a_device_that_never_settles_is_heated_no_longer_than_the_limit() -> None:
    device = Device(settles=False)
    both = device.kernel("own", 100.0), device.kernel("library", 100.0)
    paired(*both, clock=device.clock)
    assert SETTLE_S <= device.heated_s < SETTLE_S + 1


def test_the_interval_contains_the_ratio_with_its_stated_probability() -> None:
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(1000):
        shared = rng.normal(0, 0.05, 8)
        first, second = (np.exp(shared + rng.normal(0, 0.01, 8)) for _ in range(2))
        _, low, high = ratio_of_pairs(list(1.2 * first), list(second))
        held += low <= 1.2 <= high
    assert 930 <= held <= 970
    with pytest.raises(ValueError, match="two pairs"):
        ratio_of_pairs([1.0], [1.0])
