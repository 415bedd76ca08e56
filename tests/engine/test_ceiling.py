"""If a result exceeds the measured peak, the peak is measured again, and then decides."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fakes import CPU, FakeBackend, measurement, point

from gpubench.engine.measure.runner import Runner
from gpubench.engine.pool import CEILING_REPEATS, LocalPool
from gpubench.model import Measurement, Status

PEAK = "measured_float32_fma_gflops"
AT = point(size=(100, 100, 50))  # a million operations: 1 µs is 1000 GFLOP/s


class Gauged(FakeBackend):
    """A backend whose measured peak is the next value of `rates`."""

    def __init__(self, rates: Sequence[float]) -> None:
        super().__init__(device=replace(CPU, facts={PEAK: 100.0}))
        self.rates: Iterator[float] = iter(rates)
        self.asked = 0

    def ceilings(self, dtypes: Sequence[str] = (), _kept: bool = False) -> dict[str, float]:
        assert list(dtypes) == ["float32"]
        self.asked += 1
        return {PEAK: next(self.rates)}


def judged(gflops: float, *rates: float) -> tuple[Measurement, int, LocalPool]:
    backend = Gauged(rates)
    pool = LocalPool(Runner(backend))
    return pool._below_ceiling(measurement(1000 / gflops, AT)), backend.asked, pool


def test_a_result_below_the_peak_costs_no_measurement() -> None:
    result, asked, _ = judged(99.0)
    assert (result.status, asked) == (Status.OK, 0)


def test_a_result_above_a_peak_that_was_measured_too_low_raises_the_peak() -> None:
    result, asked, pool = judged(150.0, 90.0, 160.0)
    assert (result.status, asked) == (Status.OK, 2)
    assert pool.device.facts[PEAK] == 160.0


def test_a_result_a_few_percent_above_the_peak_is_kept_and_the_peak_measured_once() -> None:
    result, asked, pool = judged(104.0, 95.0)
    assert (result.status, asked) == (Status.OK, 1)
    assert pool._below_ceiling(result).status == Status.OK  # the peak is not measured again


def test_a_result_above_the_peak_measured_again_is_wrong() -> None:
    result, asked, _ = judged(5000.0, *[101.0] * CEILING_REPEATS)
    assert (result.status, result.series, asked) == (Status.WRONG, None, CEILING_REPEATS)
    assert result.reason.startswith("5000 GFLOP/s, but the device's multiply-adds reach 101: ")
