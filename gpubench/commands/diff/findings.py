"""The nouns of a comparison: verdicts, limits, pooled points, findings."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from gpubench.model import PointKey, Status

Key = PointKey
"""The key of a point: `Row.key`."""


class Verdict(StrEnum):
    """What became of a point, worst first."""

    BROKEN = "broken"
    """It was right; now it is wrong or fails."""

    SLOWER = "slower"
    MISSING = "missing"
    """Only the base has a time."""

    AMBIGUOUS = "ambiguous"
    """Neither shown to have moved nor shown to be the same."""

    CLOCK = "clock"
    """The time moved and the cycles did not."""

    FASTER = "faster"
    NEW = "new"
    """Only the new side has a time."""

    SAME = "same"
    """Shown to differ by less than matters."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How large a difference must be to count."""

    threshold: float = 0.02
    """Relative difference of the medians up to which a change does not matter."""

    floor_us: float = 0.5
    """Difference in microseconds up to which a change does not matter, however large the ratio."""

    q: float = 0.01
    """False discovery rate over all points; 1 - q is the confidence of the intervals."""

    between_gpus: float = 0.10
    """Relative difference that two GPUs of one kind may have at a point; docs/diff.md has the
    measurement. 0: none is allowed for."""


@dataclass(frozen=True, kw_only=True)
class PooledPoint:
    """What one side knows about a point: the rows of all its files."""

    status: Status = Status.OK
    reason: str = ""
    sweeps_us: tuple[tuple[float, ...], ...] = ()
    """Round medians of each sweep, that is, of each process that measured the point."""

    cycles: tuple[float, ...] = ()
    """All rounds in cycles of the multiprocessors (time × clock); empty: no clock is known."""

    gpus: frozenset[str] = frozenset()
    """UUIDs of the GPUs that measured it; empty: not known."""

    on_cpu: bool = False
    """Whether a CPU's clock timed it: its times shift from process to process."""

    is_blas: bool = False
    """Whether it runs the vendor's library, the same code in every build."""

    @property
    def rounds_us(self) -> tuple[float, ...]:
        """The round medians of all sweeps."""
        return tuple(chain.from_iterable(self.sweeps_us))

    @property
    def timed(self) -> bool:
        """Whether it has a time."""
        return self.status == Status.OK and bool(self.sweeps_us)

    @property
    def failed(self) -> bool:
        """Whether it was wrong or ended in an error."""
        return self.status in {Status.WRONG, Status.ERROR}

    @property
    def median_us(self) -> float | None:
        """Median of the round medians."""
        return statistics.median(self.rounds_us) if self.timed else None

    @property
    def why_untimed(self) -> str:
        """Why it has no time."""
        return self.reason if self.status == Status.SKIPPED else f"{self.status}: {self.reason}"


Pair = tuple[PooledPoint, PooledPoint]
"""A point of the base and of the new side."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A point's verdict and what it rests on; None where a side has no time.

    The fields are those of the JSON format.
    """

    verdict: Verdict
    reason: str = ""
    """Why, where the figures do not show it."""

    base_median_us: float | None = None
    new_median_us: float | None = None
    ratio: float | None = None
    """new / base, of the medians."""

    ratio_low: float | None = None
    ratio_high: float | None = None
    """Its interval: 1 - q where a test was possible, otherwise the range of all pairs of rounds."""

    cycles_ratio: float | None = None
    """Like `ratio`, in cycles; None: no clock is known."""

    p: float | None = None
    """Of the Mann-Whitney test; None: too few rounds to test."""

    p_adjusted: float | None = None
    base_rounds: int = 0
    new_rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The verdicts on all points, and what they have in common."""

    findings: dict[Key, Finding]
    """Points that at least one side has a time of."""

    untimed: dict[Key, str]
    """Points without a time on either side, and why."""

    limits: Limits
    drift: float
    """Factor by which the machine was slower: what most points share with the BLAS."""

    untested: int
    """Points of both sides with too few rounds for the test."""

    @property
    def drifted(self) -> bool:
        """Whether the machine's own shift is one that would matter."""
        return abs(math.log(self.drift)) > math.log1p(self.limits.threshold)

    @property
    def counts(self) -> Counter[Verdict]:
        """How many points of each verdict."""
        return Counter(finding.verdict for finding in self.findings.values())

    @property
    def two_sided(self) -> dict[Key, Finding]:
        """The findings on points that both sides have a time of."""
        return {key: found for key, found in self.findings.items() if found.ratio is not None}

    def of(self, verdict: Verdict) -> dict[Key, Finding]:
        """The points of a verdict, the largest change first."""
        chosen = [item for item in self.findings.items() if item[1].verdict == verdict]
        chosen.sort(key=lambda item: -abs(math.log(item[1].ratio or 1.0)))
        return dict(chosen)
