"""Decides for each kernel and problem whether the kernel is right, and as fast as claimed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter

from gpubench.engine.outside.parent_clock import LEAST_US
from gpubench.grouping import grouped
from gpubench.model import CLOCKS_AGREE, Status, Timer
from gpubench.results.row import Row
from gpubench.stats.intervals import MIN_ROUNDS
from gpubench.stats.pairs import Ratio, drifting_low, ratio_of_rounds
from gpubench.text import counted, digits

LEVEL = 0.95  # probability that the intervals of all verdicts contain the true ratios

SHORTEST_US = 40.0
"""Shortest launch that gets a verdict, if a user's function runs on a CPU. A function that cheats,
and computes all launches of a request at once, saves 1 to 2 µs per launch."""

LARGEST_OVERHEAD = 0.05
"""Maximum fraction of a launch's time that handing over the operands may take. Above this fraction,
nothing is decided."""


class JudgeVerdict(StrEnum):
    """The verdict on a kernel at a problem."""

    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    NOT_DECIDED = "not decided"
    WRONG = "wrong"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The verdict on a kernel at a problem, and the figures behind the verdict."""

    row: Row  # the row of the fastest tile, or of the first tile that is not right

    baseline: Row | None = None
    """The fastest baseline of the same problem and conditions, or None if no baseline has a
    time."""

    verdict: JudgeVerdict
    reason: str = ""
    ratio: Ratio | None = None
    """Speed relative to the baseline, with the interval that decides `same` and `slower`."""

    low: float | None = None
    """The bound that decides `faster`. This bound is below the interval of `ratio`, because the
    fastest of several tiles was chosen by the same rounds, and because rounds may drift."""

    pairs: int = 0  # number of rounds in which the kernel and the baseline were measured


def exit_code(judged: Iterable[Judged]) -> int:
    """Return 1 if a kernel is slower or wrong, 0 if all kernels are the same or faster, else 3."""
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
    to the baseline, and `threshold` is the largest relative difference that counts as the same.
    """
    kernels = (row for row in rows if row.variant in baselines)
    groups = grouped(kernels, attrgetter("variant", "problem_key"))
    level = 1 - (1 - LEVEL) / max(1, len(groups))
    verdicts = []
    for (name, problem), tiles in groups.items():
        compared = [row for row in rows if row.variant in baselines[name]]
        others = [row for row in compared if row.problem_key == problem]
        verdicts.append(_judged(tiles, others, claim, threshold, level))
    return verdicts


def _judged(
    rows: Sequence[Row], baselines: Sequence[Row], claim: float, threshold: float, level: float
) -> Judged:
    """Judge a kernel at a problem by the kernel's fastest tile. All tiles must be right."""
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
        reason = f"{other.variant}: {other.reason}" if other else "no row has the same problem"
        text = f"the baseline has no time: {reason}"
        return Judged(row=best, verdict=JudgeVerdict.NOT_DECIDED, reason=text)
    return _compared(best, measured, claim, threshold, level, len(timed))


def _compared(
    row: Row, baselines: Sequence[Row], claim: float, threshold: float, level: float, tiles: int
) -> Judged:
    """Compare the row of the fastest of `tiles` tiles with the fastest of the baselines."""
    baseline = min(baselines, key=lambda each: each.median_us or 0.0)
    times_us = baseline.round_medians_us, row.round_medians_us
    ratio, low = ratio_of_rounds(*times_us, level), _faster_low(baseline, row, level, tiles)
    pairs = min(map(len, times_us))
    undecided = Judged(
        row=row,
        baseline=baseline,
        verdict=JudgeVerdict.NOT_DECIDED,
        ratio=ratio,
        low=low,
        pairs=pairs,
    )
    if ratio is None or low is None:
        rounds = counted(pairs, "round")
        reason = f"a verdict needs {MIN_ROUNDS} rounds, not {rounds}: a longer --budget may help"
        return replace(undecided, reason=reason)
    if short := _why_too_short(row):
        return replace(undecided, reason=short)
    verdict, reason = _decided(ratio, low, claim, threshold)
    factor = _by_other_clock(row, baselines)
    scaled = Ratio(*(speed / factor for speed in ratio))
    if _decided(scaled, low / factor, claim, threshold)[0] != verdict:
        reason = f"by another process's clock, a launch takes {factor:.2f} times as long"
        return replace(undecided, reason=reason)
    if factor > 1:  # use the speed by the other clock
        ratio, low = scaled, low / factor
    why = ""
    if verdict in {JudgeVerdict.FASTER, JudgeVerdict.SAME}:
        why = _why_shared(row)
    elif verdict == JudgeVerdict.SLOWER:
        why = _why_of_threads(row, baselines, claim, level)
        why = why or _why_of_handing(baseline, row, claim, level)
    if why:
        verdict, reason = JudgeVerdict.NOT_DECIDED, why
    return replace(undecided, verdict=verdict, reason=reason, ratio=ratio, low=low)


def _why_of_threads(row: Row, baselines: Sequence[Row], claim: float, level: float) -> str:
    """Return why a kernel may be slower only because it has fewer threads, or an empty text.

    The text is empty if a baseline with the same number of threads is also faster.
    """
    if row.cpu_threads is None:
        return ""
    threads = counted(row.cpu_threads, "thread")
    alike = [each for each in baselines if each.cpu_threads in {row.cpu_threads, None}]
    if not alike:
        advice = "use a quiet machine, or set another number of `threads` in the description"
        return f"no baseline ran on {threads}: {advice}"
    baseline = min(alike, key=lambda each: each.median_us or 0.0)
    ratio = ratio_of_rounds(baseline.round_medians_us, row.round_medians_us, level)
    if ratio and ratio.high < claim:
        return ""
    return f"{baseline.variant} is not faster on {threads}: use a quiet machine, or fewer threads"


def _faster_low(baseline: Row, row: Row, level: float, tiles: int) -> float | None:
    """Return the bound that must exceed the claim, or None if there are too few rounds.

    The row is the fastest of `tiles` tiles. The claim must also hold if the time of handing over
    the operands is not subtracted.
    """
    level = 1 - (1 - level) / tiles
    rows = baseline, row
    times_us = [x.round_medians_us for x in rows], [*map(_with_handing_us, rows)]
    lows = [drifting_low(base_us, own_us, level) for base_us, own_us in times_us]
    return min((low for low in lows if low is not None), default=None)


def _why_too_short(row: Row) -> str:
    """Return why a time is too short or too uncertain for a verdict, or an empty text."""
    time_us, handing_us = row.median_us or 0.0, _handing_us(row)
    if row.clock == "own":
        return "no other process confirms the time: see the notes"
    if row.timer != Timer.OUTSIDE:
        return ""
    if time_us < SHORTEST_US:
        rule = f"launches shorter than {SHORTEST_US:g} µs get no verdict"
        return f"a launch of {digits(time_us)} µs is too short: {rule}"
    if handing_us > LARGEST_OVERHEAD * time_us:
        return (
            f"handing over the operands takes {digits(handing_us)} µs, above "
            f"{100 * LARGEST_OVERHEAD:g} % of a launch: use larger sizes, or a quiet machine"
        )
    return ""


def _why_shared(row: Row) -> str:
    """Return why a launch may take longer than a row states, or an empty text.

    One thread is enough to keep the time of a launch from being too short, because CPU time counts.
    """
    is_shared = row.timer == Timer.OUTSIDE and (row.launches_per_sample or 1) > 1
    if not is_shared or row.cpu_threads in {1, None}:
        return ""
    return (
        f"{row.cpu_threads} threads may work at several launches of {digits(row.median_us or 0.0)} "
        "µs at the same time: use larger sizes, or one thread"
    )


def _why_of_handing(baseline: Row, row: Row, claim: float, level: float) -> str:
    """Return why a kernel may not be slower, or an empty text if it is slower in any case.

    On a busy machine, too much may be subtracted from the baseline's time.
    """
    ratio = ratio_of_rounds(_with_handing_us(baseline), _with_handing_us(row), level)
    if ratio and ratio.high < claim:
        return ""
    return (
        "it is slower only if the time to hand over the operands is subtracted: use larger sizes, "
        "or a quiet machine"
    )


def _with_handing_us(row: Row) -> list[float]:
    """Return the median of each round with the time that was subtracted."""
    return [us + _handing_us(row) for us in row.round_medians_us]


def _handing_us(row: Row) -> float:
    """Return the time per launch that was subtracted for handing over the operands."""
    return (row.overhead_us or 0.0) / (row.launches_per_sample or 1)


def _by_other_clock(row: Row, baselines: Sequence[Row]) -> float:
    """Return how many times as long a launch takes by the clock of another process.

    Return 1 if both clocks agree, if the row already has the time by the other clock, and if the
    other clock did not time the kernel.

    A time that is too short may be a cheat. A time that is too long includes waiting for a core.
    For launches shorter than `LEAST_US`, the ratio includes the time of a request. If the other
    clock also timed baselines, the ratio is relative to the ratio of the baselines.
    """
    if row.timer == Timer.OUTSIDE or not row.clock_ratio:
        return 1.0
    ratio = row.clock_ratio / min((x.clock_ratio for x in baselines if x.clock_ratio), default=1.0)
    is_long = (row.median_us or 0.0) >= LEAST_US
    return ratio if ratio > CLOCKS_AGREE or (is_long and ratio < 1 / CLOCKS_AGREE) else 1.0


def _decided(ratio: Ratio, low: float, claim: float, threshold: float) -> tuple[JudgeVerdict, str]:
    """Return the verdict on a ratio, and the reason if nothing is decided."""
    if max(-math.log(ratio.low / claim), math.log(ratio.high / claim)) <= math.log1p(threshold):
        return JudgeVerdict.SAME, ""
    if low > claim:
        return JudgeVerdict.FASTER, ""
    if ratio.high < claim:
        return JudgeVerdict.SLOWER, ""
    why = "rounds may drift" if ratio.low > claim else "the interval includes the claim"
    return JudgeVerdict.NOT_DECIDED, f"{why}: measure more --rounds"
