"""Verdicts: by hand, and searched for counterexamples."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpubench.commands.diff.compare import (
    OTHER_GPU,
    Comparison,
    Finding,
    Limits,
    PooledPoint,
    Verdict,
    compare,
)
from gpubench.model import Status

Key = tuple[str, int]
Side = dict[Key, PooledPoint]

QUIET = tuple(100 + 0.1 * number for number in range(10))
"""Ten rounds within 0.9 %."""

ROUGH = (100.0, 130.0, 90.0, 110.0, 105.0, 140.0, 95.0, 101.0, 99.0, 120.0)


def pooled(rounds: Sequence[float] = QUIET, factor: float = 1.0, clock: float = 0.0) -> PooledPoint:
    """A point of one sweep; with a clock, its cycles too."""
    times = tuple(factor * time for time in rounds)
    return PooledPoint(sweeps_us=(times,), cycles=tuple(clock * time for time in times if clock))


def is_blas(key: Key) -> bool:
    return key[0] == "blas"


def judged(base: Side, new: Side, limits: Limits | None = None) -> Comparison:
    """The comparison of two sides; the points named blas are the vendor's."""
    marked = [
        {key: replace(point, is_blas=is_blas(key)) for key, point in side.items()}
        for side in (base, new)
    ]
    return compare(*marked, limits)


def finding(before: PooledPoint, after: PooledPoint, limits: Limits | None = None) -> Finding:
    """The finding on a point among others that stay, the BLAS among them."""
    still = {("blas", 1): pooled(), ("other", 1): pooled(), ("other", 2): pooled()}
    comparison = judged(still | {("own", 1): before}, still | {("own", 1): after}, limits)
    assert comparison.counts[Verdict.SAME] >= 3
    return comparison.findings["own", 1]


def test_a_shift_beyond_the_threshold_is_found_and_a_smaller_one_is_shown_to_be_small() -> None:
    for factor, verdict in (
        (1.0, Verdict.SAME),
        (1.01, Verdict.SAME),
        (1.05, Verdict.SLOWER),
        (1 / 1.05, Verdict.FASTER),
        (3.0, Verdict.SLOWER),
    ):
        found = finding(pooled(), pooled(factor=factor))
        assert found.verdict == verdict
        assert found.ratio == pytest.approx(factor)
        assert found.ratio_low is not None
        assert found.ratio_high is not None
        assert found.ratio_low <= factor * (1 + 1e-9)
        assert found.ratio_high >= factor * (1 - 1e-9)


def test_the_threshold_decides_what_matters() -> None:
    assert finding(pooled(), pooled(factor=1.02), Limits(threshold=0.01)).verdict == Verdict.SLOWER
    assert finding(pooled(), pooled(factor=1.05), Limits(threshold=0.1)).verdict == Verdict.SAME


def test_a_shift_below_the_floor_does_not_matter_however_large_it_is_relatively() -> None:
    short = [time / 50 for time in QUIET]  # 2 µs: ten percent are 0.2 µs
    assert finding(pooled(short), pooled(short, 1.1)).verdict == Verdict.SAME
    assert finding(pooled(short), pooled(short, 1.1), Limits(floor_us=0)).verdict == Verdict.SLOWER


ONE, OTHER = frozenset({"GPU-1"}), frozenset({"GPU-2"})


def test_between_two_gpus_of_one_kind_a_shift_must_exceed_what_such_differ_by() -> None:
    for base_gpus, new_gpus, factor, verdict in (
        (ONE, OTHER, 1.05, Verdict.AMBIGUOUS),
        (ONE, OTHER, 1 / 1.05, Verdict.AMBIGUOUS),
        (ONE, OTHER, 1.0, Verdict.SAME),
        (ONE, OTHER, 1.2, Verdict.SLOWER),
        (ONE, OTHER, 1 / 1.2, Verdict.FASTER),
        (ONE, ONE | OTHER, 1.05, Verdict.AMBIGUOUS),
        (ONE | OTHER, ONE | OTHER, 1.05, Verdict.SLOWER),
        (ONE, ONE, 1.05, Verdict.SLOWER),
        (ONE, frozenset[str](), 1.05, Verdict.SLOWER),
    ):
        before = replace(pooled(), gpus=base_gpus)
        found = finding(before, replace(pooled(factor=factor), gpus=new_gpus))
        assert found.verdict == verdict, (base_gpus, new_gpus, factor)
        assert found.reason == (OTHER_GPU if verdict == Verdict.AMBIGUOUS else "")


def test_what_two_gpus_may_differ_by_is_a_limit() -> None:
    before, after = replace(pooled(), gpus=ONE), replace(pooled(factor=1.05), gpus=OTHER)
    assert finding(before, after, Limits(between_gpus=0.0)).verdict == Verdict.SLOWER
    assert finding(before, after, Limits(between_gpus=0.03)).verdict == Verdict.SLOWER


def test_rounds_that_scatter_show_neither_a_shift_nor_sameness() -> None:
    found = finding(pooled(ROUGH), pooled(ROUGH[::-1], 1.03))
    assert found.verdict == Verdict.AMBIGUOUS
    assert found.p_adjusted is not None
    assert found.p_adjusted > 0.01


def test_a_time_that_the_clock_explains_is_not_a_regression() -> None:
    before, slow_clock = pooled(clock=1980.0), pooled(factor=1.05, clock=1980.0 / 1.05)
    assert finding(before, slow_clock).verdict == Verdict.CLOCK
    assert finding(before, slow_clock).cycles_ratio == pytest.approx(1.0)
    assert finding(slow_clock, before).verdict == Verdict.CLOCK


def test_a_shift_in_cycles_is_a_regression_whatever_the_clock_did() -> None:
    assert finding(pooled(clock=1980), pooled(factor=1.05, clock=1980)).verdict == Verdict.SLOWER
    assert finding(pooled(clock=1980), pooled(factor=1.10, clock=1900)).verdict == Verdict.SLOWER
    # 3 %, of which the clock made 1: the cycles are within the threshold, but not thanks to it.
    partly = pooled(factor=1.03, clock=1980 / 1.01)
    assert finding(pooled(clock=1980), partly).verdict == Verdict.SLOWER


def test_a_median_beyond_the_threshold_is_ambiguous_while_its_interval_is_not() -> None:
    found = finding(pooled(), pooled(factor=1.022))
    assert found.verdict == Verdict.AMBIGUOUS
    assert found.ratio == pytest.approx(1.022)
    assert found.p_adjusted is not None
    assert found.p_adjusted < 0.01


def test_without_a_clock_on_both_sides_the_clock_explains_nothing() -> None:
    assert finding(pooled(clock=1980.0), pooled(factor=1.05)).verdict == Verdict.SLOWER


def test_with_too_few_rounds_every_pair_of_rounds_must_agree() -> None:
    for before, after, verdict in (
        ((100.0, 100.1, 100.2), (105.0, 105.1, 105.2), Verdict.SLOWER),
        ((105.0, 105.1, 105.2), (100.0, 100.1, 100.2), Verdict.FASTER),
        ((100.0, 100.1, 100.2), (100.9, 100.1, 100.4), Verdict.SAME),
        ((100.0, 100.1, 104.0), (105.0, 105.1, 105.2), Verdict.AMBIGUOUS),
        ((100.0,), (105.0,), Verdict.SLOWER),
    ):
        comparison = judged({("own", 1): pooled(before)}, {("own", 1): pooled(after)})
        found = comparison.findings["own", 1]
        assert (found.verdict, found.p, comparison.untested) == (verdict, None, 1)


def test_ten_rounds_are_too_few_for_a_thousand_points() -> None:
    side = {("own", size): pooled() for size in range(1, 1001)}
    comparison = judged(side, side | {("own", 7): pooled(factor=1.05)})
    assert comparison.untested == 1000
    assert list(comparison.of(Verdict.SLOWER)) == [("own", 7)]


def test_one_sided_points_are_reported_and_what_was_right_and_is_wrong_is_broken() -> None:
    wrong = PooledPoint(status=Status.WRONG, reason="relative error 1")
    error = PooledPoint(status=Status.ERROR, reason="lost the device")
    skipped = PooledPoint(status=Status.SKIPPED, reason="too large")
    ok = pooled()
    comparison = judged(
        {("a", 1): ok, ("b", 1): ok, ("c", 1): ok, ("d", 1): ok, ("e", 1): wrong, ("f", 1): wrong},
        {("a", 1): wrong, ("b", 1): error, ("c", 1): skipped, ("e", 1): ok, ("f", 1): skipped}
        | {("g", 1): ok},
    )
    assert {key[0]: found.verdict for key, found in comparison.findings.items()} == {
        "a": Verdict.BROKEN,
        "b": Verdict.BROKEN,
        "c": Verdict.MISSING,
        "d": Verdict.MISSING,
        "e": Verdict.NEW,
        "g": Verdict.NEW,
    }
    assert comparison.findings["a", 1].reason == "wrong: relative error 1"
    assert comparison.findings["d", 1].reason == "not in the file"
    assert comparison.findings["e", 1].reason == "wrong: relative error 1"
    assert comparison.untimed == {("f", 1): "too large"}


def side_of(factor: float = 1.0) -> Side:
    own = {("own", size): pooled(factor=factor * size) for size in (1, 2, 3)}
    return own | {("blas", size): pooled(factor=0.5 * factor * size) for size in (1, 2)}


def test_what_moves_with_the_blas_is_the_machine() -> None:
    comparison = judged(side_of(), side_of(1.05))
    assert comparison.drifted
    assert comparison.drift == pytest.approx(1.05)
    assert set(comparison.counts) == {Verdict.AMBIGUOUS}
    assert {found.reason for found in comparison.findings.values()} == {"moved with the machine"}


def test_what_moves_further_than_the_machine_is_slower() -> None:
    comparison = judged(side_of(), side_of(1.05) | {("own", 3): pooled(factor=3 * 1.2)})
    assert list(comparison.of(Verdict.SLOWER)) == [("own", 3)]


def test_what_stays_on_a_faster_machine_is_not_called_slower() -> None:
    comparison = judged(side_of(), side_of(1 / 1.05) | {("own", 3): pooled(factor=3)})
    assert comparison.findings["own", 3].verdict == Verdict.SAME


def test_a_shift_that_the_blas_does_not_share_is_the_builds() -> None:
    slower = side_of(1.05) | {key: side_of()[key] for key in side_of() if is_blas(key)}
    comparison = judged(side_of(), slower)
    assert comparison.drift == 1
    assert comparison.counts == {Verdict.SLOWER: 3, Verdict.SAME: 2}


def test_without_a_blas_nothing_is_put_down_to_the_machine() -> None:
    own = {key: point for key, point in side_of().items() if not is_blas(key)}
    slower = {key: point for key, point in side_of(1.05).items() if not is_blas(key)}
    assert judged(own, slower).counts == {Verdict.SLOWER: 3}


def test_sweeps_of_a_side_that_disagree_confirm_nothing() -> None:
    low, high = pooled().sweeps_us[0], pooled(factor=1.12).sweeps_us[0]
    agreed = finding(PooledPoint(sweeps_us=(low, low)), PooledPoint(sweeps_us=(high, high)))
    split = finding(
        PooledPoint(sweeps_us=(low, low, low, low, high)), PooledPoint(sweeps_us=(high,) * 5)
    )
    assert agreed.verdict == Verdict.SLOWER
    assert (split.verdict, split.reason) == (Verdict.AMBIGUOUS, "its sweeps disagree")
    assert split.p_adjusted is not None
    assert split.p_adjusted < 0.01  # the rounds alone would have said slower


def on_cpu(rounds: Sequence[float], factor: float = 1.0, sweeps: int = 1) -> PooledPoint:
    return PooledPoint(sweeps_us=(tuple(factor * time for time in rounds),) * sweeps, on_cpu=True)


def test_a_noisy_cpu_counts_only_with_enough_sweeps() -> None:
    for others, sweeps, verdict in (
        (QUIET, 1, Verdict.SLOWER),
        (ROUGH, 1, Verdict.AMBIGUOUS),
        (ROUGH, 5, Verdict.SLOWER),
    ):
        base = {("other", size): on_cpu(others, sweeps=sweeps) for size in (1, 2, 3)}
        new = {key: on_cpu(others[::-1], 1.001, sweeps) for key in base}
        comparison = judged(
            base | {("own", 1): on_cpu(QUIET, sweeps=sweeps)},
            new | {("own", 1): on_cpu(QUIET, 1.3, sweeps)},
        )
        assert comparison.findings["own", 1].verdict == verdict


def test_the_largest_change_comes_first() -> None:
    comparison = judged(
        side_of(), side_of() | {("own", 1): pooled(factor=1.1), ("own", 2): pooled(factor=2.8)}
    )
    assert list(comparison.of(Verdict.SLOWER)) == [("own", 2), ("own", 1)]


# ---- for any sides

times = st.floats(1.0, 1e6)
rounds = st.integers(1, 12).flatmap(lambda count: st.lists(times, min_size=count, max_size=count))
scattered = st.builds(
    lambda typical, factors: [typical * factor for factor in factors],
    times,
    st.lists(st.floats(0.97, 1.03), min_size=1, max_size=12),
)
points = st.builds(
    lambda sweeps, cpu: PooledPoint(sweeps_us=tuple(map(tuple, sweeps)), on_cpu=cpu),
    st.lists(rounds | scattered, min_size=1, max_size=2),
    st.booleans(),
)
keys = st.tuples(st.sampled_from(["blas", "own", "other"]), st.integers(1, 3))
sides = st.dictionaries(keys, points, min_size=1, max_size=6)

MIRROR = {
    Verdict.SLOWER: Verdict.FASTER,
    Verdict.FASTER: Verdict.SLOWER,
    Verdict.NEW: Verdict.MISSING,
    Verdict.MISSING: Verdict.NEW,
}


@pytest.mark.slow
@settings(max_examples=40)
@given(sides, sides)
def test_swapping_base_and_new_mirrors_every_verdict(base: Side, new: Side) -> None:
    forth, back = judged(base, new), judged(new, base)
    assert {
        key: MIRROR.get(found.verdict, found.verdict) for key, found in forth.findings.items()
    } == {key: found.verdict for key, found in back.findings.items()}
    assert forth.drift == pytest.approx(1 / back.drift)


@settings(max_examples=40)
@given(sides)
def test_a_table_against_itself_is_all_same(side: Side) -> None:
    comparison = judged(side, side)
    assert comparison.counts == {Verdict.SAME: len(side)}
    assert not comparison.drifted


def scaled(side: Side, factor: float) -> Side:
    return {
        key: PooledPoint(
            sweeps_us=tuple(tuple(factor * time for time in sweep) for sweep in point.sweeps_us),
            on_cpu=point.on_cpu,
        )
        for key, point in side.items()
    }


@settings(max_examples=40)
@given(sides, st.floats(0.25, 4.0))
def test_scaling_all_times_is_drift_and_never_a_regression(side: Side, factor: float) -> None:
    assume(len({is_blas(key) for key in side}) == 2)
    comparison = judged(side, scaled(side, factor))
    assert comparison.drift == pytest.approx(factor)
    assert comparison.drifted == (not 1 / 1.02 <= factor <= 1.02)
    assert set(comparison.counts) <= {Verdict.SAME, Verdict.AMBIGUOUS}


@settings(max_examples=40)
@given(sides, sides, st.integers(0, 2**32))
def test_the_order_of_rows_and_rounds_does_not_matter(base: Side, new: Side, seed: int) -> None:
    shuffle = random.Random(seed).sample  # noqa: S311 # a shuffle, not a secret

    def shuffled(side: Side) -> Side:
        return {
            key: PooledPoint(
                sweeps_us=tuple(
                    tuple(shuffle(sweep, len(sweep)))
                    for sweep in shuffle(side[key].sweeps_us, len(side[key].sweeps_us))
                ),
                on_cpu=side[key].on_cpu,
            )
            for key in shuffle(sorted(side), len(side))
        }

    assert judged(shuffled(base), shuffled(new)) == judged(base, new)


def drawn(random_time: Callable[[], float], points: int) -> Side:
    return {
        ("own", size): PooledPoint(sweeps_us=(tuple(random_time() for _ in range(10)),))
        for size in range(points)
    }


def test_chance_alone_is_not_called_a_shift() -> None:
    chance = random.Random(7)  # noqa: S311 # noise, not a secret
    for _ in range(5):
        base, new = (drawn(lambda: chance.lognormvariate(5, 0.1), 30) for _ in range(2))
        assert not judged(base, new).of(Verdict.SLOWER)
