"""A verdict on each kernel at each problem: whether it is right, and as fast as claimed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from gpubench.engine.outside.parent_clock import LEAST_US
from gpubench.grouping import grouped
from gpubench.model import CLOCKS_AGREE, Status
from gpubench.results.row import Row
from gpubench.stats.intervals import MIN_ROUNDS
from gpubench.stats.pairs import Ratio, ratio_of_rounds

LEVEL = 0.95
"""Probability that the intervals of all verdicts hold together."""


class JudgeVerdict(StrEnum):
    """What is known about a kernel at a problem."""

    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    NOT_DECIDED = "not decided"
    WRONG = "wrong"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A kernel at a problem."""

    row: Row
    """The fastest tile; or the first tile that is not right."""

    baseline: Row | None = None
    """The fastest baseline of the same problem and conditions; None if no baseline has a time."""

    verdict: JudgeVerdict
    reason: str = ""
    ratio: Ratio | None = None
    """Speed relative to the baseline, with the interval that decides the verdict."""

    pairs: int = 0
    """Number of rounds in which both were measured."""


def exit_code(judged: Iterable[Judged]) -> int:
    """Return 1 if a kernel is slower or wrong, else 3 if a verdict is open, else 0."""
    verdicts = {each.verdict for each in judged}
    if verdicts & {JudgeVerdict.SLOWER, JudgeVerdict.WRONG}:
        return 1
    return 0 if verdicts and verdicts <= {JudgeVerdict.SAME, JudgeVerdict.FASTER} else 3


def judge_rows(
    rows: Sequence[Row],
    baselines: Mapping[str, Sequence[str]],
    *,
    claim: float = 1.0,
    threshold: float = 0.02,
) -> list[Judged]:
    """Return a verdict for each kernel and problem, in the order of the rows.

    `baselines` has the names of the baselines of each kernel. `claim` is the claimed speed relative
    to the baseline, and `threshold` the largest relative difference that counts as the same.
    """
    kernels = (row for row in rows if row.variant in baselines)
    groups = grouped(kernels, attrgetter("variant", "problem_key"))
    level = 1 - (1 - LEVEL) / max(1, len(groups))
    found = []
    for (name, problem), tiles in groups.items():
        compared = [row for row in rows if row.variant in baselines[name]]
        others = [row for row in compared if row.problem_key == problem]
        found.append(_judged(tiles, others, claim, threshold, level))
    return found


def _judged(
    rows: Sequence[Row], baselines: Sequence[Row], claim: float, threshold: float, level: float
) -> Judged:
    """Judge the tiles of a kernel at a problem by the fastest of them; all must be right."""
    for status, missing in ((Status.WRONG, ""), (Status.ERROR, "no result: ")):
        if row := next((row for row in rows if row.status == status), None):
            reason = f"{missing}{row.reason or ''}"
            return Judged(row=row, verdict=JudgeVerdict.WRONG, reason=reason)
    timed = [row for row in rows if row.status == Status.OK and row.median_us]
    if not timed:
        return Judged(row=rows[0], verdict=JudgeVerdict.REFUSED, reason=rows[0].reason or "")
    best = min(timed, key=lambda row: row.median_us or 0.0)
    failed = [row for row in baselines if row.status in {Status.WRONG, Status.ERROR}]
    measured = [row for row in baselines if row.status == Status.OK and row.median_us]
    if failed or not measured:
        other = failed[0] if failed else baselines[0] if baselines else None
        reason = f"{other.variant}: {other.reason}" if other else "no row has its problem"
        text = f"the baseline has no time: {reason}"
        return Judged(row=best, verdict=JudgeVerdict.NOT_DECIDED, reason=text)
    baseline = min(measured, key=lambda row: row.median_us or 0.0)
    times_us, baseline_us = best.medians_us, baseline.medians_us
    pairs = min(len(times_us), len(baseline_us))
    ratio = ratio_of_rounds(baseline_us, times_us, level)
    if ratio is None:
        verdict = JudgeVerdict.NOT_DECIDED
        reason = f"measured in {pairs} rounds, {MIN_ROUNDS} are needed"
    else:
        verdict, reason = _decided(ratio, claim, threshold)
        factor = _by_other_clock(best)
        if _decided(Ratio(*(speed / factor for speed in ratio)), claim, threshold)[0] != verdict:
            verdict = JudgeVerdict.NOT_DECIDED
            reason = f"by another process's clock, a launch takes {factor:.2f} times as long"
    return Judged(
        row=best, baseline=baseline, verdict=verdict, reason=reason, ratio=ratio, pairs=pairs
    )


def _by_other_clock(row: Row) -> float:
    """Return how much longer launches take by the clock of another process; 1 if it agrees.

    A time that is too short may be a cheat. A time that is too long includes waiting for a core,
    but for shorter launches than `LEAST_US`, whose ratio includes the time of a request.
    """
    ratio = row.clock_ratio or 1.0
    is_long = (row.median_us or 0.0) >= LEAST_US
    return ratio if ratio > CLOCKS_AGREE or (is_long and ratio < 1 / CLOCKS_AGREE) else 1.0


def _decided(ratio: Ratio, claim: float, threshold: float) -> tuple[JudgeVerdict, str]:
    """Return the verdict on a ratio, and why none is possible."""
    low, high = ratio.low / claim, ratio.high / claim
    if max(-math.log(low), math.log(high)) <= math.log1p(threshold):
        return JudgeVerdict.SAME, ""
    if low > 1:
        return JudgeVerdict.FASTER, ""
    if high < 1:
        return JudgeVerdict.SLOWER, ""
    return JudgeVerdict.NOT_DECIDED, "the interval includes the claim: measure more --rounds"
