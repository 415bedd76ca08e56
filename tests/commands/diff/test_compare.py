"""Verdicts of `diff`: on examples, and on random sides."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpubench.commands.diff.compare import compare
from gpubench.commands.diff.findings import (
    Comparison,
    DiffVerdict,
    Finding,
    Limits,
    PooledPoint,
)
from gpubench.commands.diff.shifts import in_turns
from gpubench.model import PointKey as Key

Side = dict[Key, PooledPoint]

QUIET = tuple(100 + 0.1 * number for number in range(10))
"""Times of ten rounds, which differ by at most 0.9 %."""


def pooled(rounds: Sequence[float] = QUIET, factor: float = 1.0, clock: float = 0.0) -> PooledPoint:
    """Return a point with the rounds of one sweep."""
    times = tuple(factor * time for time in rounds)
    return PooledPoint(sweeps_us=(times,), clock_mhz=clock or None)


def is_blas(key: Key) -> bool:
    return key.variant == "blas"


def point(variant: str, m: int = 1, timer: str = "events") -> Key:
    facts = ("float32", "float32", "row-major", m, 1, 1)
    facts += ("uniform", "cold", "alone", "burst", "kernel")
    return Key("gemm", variant, "cuda", "", *facts, timer)


def judged(base: Side, new: Side, limits: Limits | None = None) -> Comparison:
    """Return the comparison of two sides. Points named blas are points of the BLAS."""
    marked = [
        {
            key: replace(point, is_blas=is_blas(key), on_cpu=key.timer == "host")
            for key, point in side.items()
        }
        for side in (base, new)
    ]
    return compare(*marked, limits)


def finding(before: PooledPoint, after: PooledPoint, limits: Limits | None = None) -> Finding:
    """Return the finding on a point, beside unchanged points and an unchanged BLAS."""
    still = {point("blas", 1): pooled(), point("other", 1): pooled(), point("other", 2): pooled()}
    comparison = judged(still | {point("own", 1): before}, still | {point("own", 1): after}, limits)
    assert comparison.counts[DiffVerdict.SAME] >= 3
    return comparison.findings[point("own", 1)]


def test_a_shift_beyond_the_threshold_is_found_and_a_smaller_one_is_shown_to_be_small() -> None:
    for factor, verdict in (
        (1.0, DiffVerdict.SAME),
        (1.01, DiffVerdict.SAME),
        (1.05, DiffVerdict.SLOWER),
        (1 / 1.05, DiffVerdict.FASTER),
        (3.0, DiffVerdict.SLOWER),
    ):
        judgement = finding(pooled(), pooled(factor=factor))
        assert judgement.verdict == verdict
        assert judgement.ratio == pytest.approx(factor)
        assert judgement.p is not None
        of_four_points = min(1.0, 4 * judgement.p)
        assert judgement.p_adjusted == pytest.approx(of_four_points, rel=1e-6, abs=0)
        assert judgement.ratio_low is not None
        assert judgement.ratio_high is not None
        assert judgement.ratio_low <= factor * (1 + 1e-9)
        assert judgement.ratio_high >= factor * (1 - 1e-9)


def test_few_rounds_with_two_speeds_do_not_judge_a_shift_from_one_to_the_other() -> None:
    fast, slow = (tuple(level + 0.1 * n for n in range(8)) for level in (100.0, 108.0))
    judgement = finding(pooled((*fast, slow[0])), pooled((*slow, slow[1])))
    assert (judgement.verdict, judgement.reason.partition(":")[0]) == (
        DiffVerdict.AMBIGUOUS,
        "two speeds",
    )
    assert finding(pooled(fast), pooled(slow)).verdict == DiffVerdict.SLOWER


def test_a_ratio_beyond_the_threshold_is_ambiguous_unless_its_interval_is_beyond_it_too() -> None:
    judgement = finding(pooled(), pooled(factor=1.021))
    assert judgement.verdict == DiffVerdict.AMBIGUOUS
    assert judgement.ratio == pytest.approx(1.021)


def test_the_p_value_that_is_adjusted_for_all_points_decides() -> None:
    judgements = [finding(pooled(), pooled(factor=1.02 + step / 2000)) for step in range(20)]
    raw, adjusted = (
        [getattr(judgement, at) <= 0.01 for judgement in judgements] for at in ("p", "p_adjusted")
    )
    assert [judgement.verdict == DiffVerdict.SLOWER for judgement in judgements] == adjusted != raw


def test_a_time_that_may_have_moved_too_far_with_the_machine_is_not_the_same() -> None:
    draw = random.Random(1)  # noqa: S311 # not a secret
    keys = [point(name, m) for name in ("blas", "own") for m in (1, 2, 3)]
    side = {key: pooled(draw.sample(QUIET, len(QUIET))) for key in keys}
    judgements = judged(side, scaled(side, 1.019)).findings.values()
    assert {judgement.verdict for judgement in judgements} == {DiffVerdict.AMBIGUOUS}


def test_without_a_clock_on_both_sides_the_clock_explains_nothing() -> None:
    assert finding(pooled(clock=1980.0), pooled(factor=1.05)).verdict == DiffVerdict.SLOWER


def test_one_sided_points_are_reported_and_what_was_right_and_is_wrong_is_broken() -> None:
    wrong, skipped = PooledPoint(lost="wrong: relative error 1"), PooledPoint(lost="too large")
    ok = pooled()
    partly = replace(ok, lost="too large")
    base = {"a": ok, "b": ok, "c": ok, "d": ok, "e": wrong, "f": wrong, "h": partly, "i": partly}
    new = {"a": wrong, "b": skipped, "c": partly, "e": ok, "f": skipped, "g": ok}
    new |= {"h": partly, "i": skipped}
    comparison = judged(
        {point(name): data for name, data in base.items()},
        {point(name): data for name, data in new.items()},
    )
    assert {key.variant: judgement.verdict for key, judgement in comparison.findings.items()} == {
        "a": DiffVerdict.BROKEN,
        "b": DiffVerdict.BROKEN,
        "c": DiffVerdict.BROKEN,
        "d": DiffVerdict.MISSING,
        "e": DiffVerdict.NEW,
        "g": DiffVerdict.NEW,
        "h": DiffVerdict.SAME,
        "i": DiffVerdict.BROKEN,
    }
    assert comparison.findings[point("a")].reason == "wrong: relative error 1"
    assert comparison.findings[point("d")].reason == "not in the file"
    assert comparison.findings[point("e")].reason == "wrong: relative error 1"
    assert comparison.untimed == {point("f"): "too large"}


# ---- for any sides

times = st.floats(1.0, 1e6)
rounds = st.integers(1, 12).flatmap(lambda count: st.lists(times, min_size=count, max_size=count))
scattered = st.builds(
    lambda typical, factors: [typical * factor for factor in factors],
    times,
    st.lists(st.floats(0.97, 1.03), min_size=1, max_size=12),
)
points = st.builds(
    lambda sweeps: PooledPoint(sweeps_us=tuple(map(tuple, sweeps))),
    st.lists(rounds | scattered, min_size=1, max_size=2),
)
keys = st.builds(
    point,
    st.sampled_from(["blas", "own", "other"]),
    st.integers(1, 3),
    st.sampled_from(["events", "host"]),
)
sides = st.dictionaries(keys, points, min_size=1, max_size=6)

MIRROR = {
    DiffVerdict.SLOWER: DiffVerdict.FASTER,
    DiffVerdict.FASTER: DiffVerdict.SLOWER,
    DiffVerdict.NEW: DiffVerdict.MISSING,
    DiffVerdict.MISSING: DiffVerdict.NEW,
}


@pytest.mark.slow
@settings(max_examples=25)
@given(sides, sides)
def test_swapping_base_and_new_mirrors_every_verdict(base: Side, new: Side) -> None:
    forth, back = judged(base, new), judged(new, base)
    assert {
        key: MIRROR.get(judgement.verdict, judgement.verdict)
        for key, judgement in forth.findings.items()
    } == {key: judgement.verdict for key, judgement in back.findings.items()}
    assert forth.drift == pytest.approx(1 / back.drift)


@settings(max_examples=25)
@given(sides)
def test_a_table_against_itself_is_all_same(side: Side) -> None:
    comparison = judged(side, side)
    assert comparison.counts == {DiffVerdict.SAME: len(side)}
    assert not comparison.drifted


def scaled(side: Side, factor: float) -> Side:
    return {
        key: PooledPoint(
            sweeps_us=tuple(tuple(factor * time for time in sweep) for sweep in point.sweeps_us)
        )
        for key, point in side.items()
    }


@settings(max_examples=25)
@given(sides, st.floats(0.25, 4.0))
def test_scaling_all_times_is_drift_and_never_a_regression(side: Side, factor: float) -> None:
    assume(len({is_blas(key) for key in side}) == 2)
    assume(factor != pytest.approx(1.02) and 1 / factor != pytest.approx(1.02))
    comparison = judged(side, scaled(side, factor))
    assert comparison.drift == pytest.approx(factor)
    assert comparison.drifted == (not 1 / 1.02 <= factor <= 1.02)
    assert set(comparison.counts) <= {DiffVerdict.SAME, DiffVerdict.AMBIGUOUS}


@settings(max_examples=25)
@given(sides, sides)
def test_the_order_of_rows_and_files_does_not_matter(base: Side, new: Side) -> None:
    def turned(side: Side) -> Side:
        return {
            key: replace(
                point,
                sweeps_us=point.sweeps_us[::-1],
                files=tuple(range(len(point.sweeps_us)))[::-1],
            )
            for key, point in reversed(side.items())
        }

    findings, again = judged(base, new).findings, judged(turned(base), turned(new)).findings
    assert {key: finding.verdict for key, finding in findings.items()} == {
        key: finding.verdict for key, finding in again.items()
    }
    assert all(again[key].p == pytest.approx(finding.p) for key, finding in findings.items())


def test_sweeps_whose_start_is_unknown_are_not_in_turns() -> None:
    assert in_turns(("1", "4"), ("2", "3"))
    assert not in_turns(("1", "2"), ("3", "4"))
    assert not in_turns(("1",), ())


def test_the_blas_shows_what_the_machine_did_unless_sweeps_on_a_cpu_were_in_turns() -> None:
    def side(factor: float, place: int) -> Side:
        sweeps = tuple((factor * time,) for time in QUIET)
        own = {point("own", size, "host"): PooledPoint(sweeps_us=sweeps) for size in (1, 2)}
        slowed = tuple((1 + 0.4 * (factor - 1)) * time for time in QUIET)
        blas = PooledPoint(sweeps_us=tuple((time,) for time in slowed))
        started = tuple(f"{2 * number + place}" for number in range(10, 20))
        points = own | {point("blas", size, "host"): blas for size in (1, 2)}
        return {key: replace(value, started=started) for key, value in points.items()}

    alternating = judged(side(1.0, 0), side(1.1, 1)).findings[point("own", 1, "host")]
    assert alternating.judged_ratio == pytest.approx(1.1)
    after = {key: replace(value, started=("9",) * 10) for key, value in side(1.1, 1).items()}
    one_after_the_other = judged(side(1.0, 0), after).findings[point("own", 1, "host")]
    assert one_after_the_other.judged_ratio == pytest.approx(1.1 / 1.04)
    assert (alternating.verdict, one_after_the_other.verdict) == (DiffVerdict.SLOWER,) * 2
