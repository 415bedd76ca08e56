"""The nouns of a comparison: sides, limits, findings, verdicts. docs/diff.md is for users."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Generic, TypeVar

from gpubench.model import Status

Key = TypeVar("Key", bound=Hashable)


class Verdict(StrEnum):
    """What became of a point, gravest first."""

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
    """From where on a difference counts."""

    threshold: float = 0.02
    """Relative difference of the medians that does not matter yet."""

    floor_us: float = 0.5
    """Difference in microseconds that does not matter, however large it is relatively."""

    q: float = 0.01
    """False discovery rate over all points; 1 - q is the confidence of the intervals."""

    between_gpus: float = 0.10
    """Relative difference that two GPUs of one kind may have at a point; docs/diff.md has the
    measurement. 0: none is allowed for."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """What one side knows of a point."""

    status: Status = Status.OK
    reason: str = ""
    sweeps_us: tuple[tuple[float, ...], ...] = ()
    """Round medians of each sweep, that is, of each process that measured it."""

    cycles: tuple[float, ...] = ()
    """All rounds in cycles of the multiprocessors (time × clock); empty: no clock is known."""

    gpus: frozenset[str] = frozenset()
    """UUIDs of the GPUs that measured it; empty: not known."""

    on_cpu: bool = False
    """Whether a CPU's clock timed it: its times shift from process to process."""

    @property
    def rounds_us(self) -> tuple[float, ...]:
        """The round medians of all sweeps."""
        return tuple(chain.from_iterable(self.sweeps_us))

    @property
    def sweep_medians_us(self) -> tuple[float, ...]:
        """The median of each sweep's rounds."""
        return tuple(map(statistics.median, self.sweeps_us))

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


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A point's verdict and what it rests on; None where a side has no time."""

    verdict: Verdict
    reason: str = ""
    """Why, where the figures do not say it."""

    base_us: float | None = None
    new_us: float | None = None
    ratio: float | None = None
    """new / base, of the medians."""

    ratio_low: float | None = None
    ratio_high: float | None = None
    """Its interval: 1 - q where a test was possible, or else the range of all pairs of rounds."""

    cycles_ratio: float | None = None
    p: float | None = None
    """None: too few rounds to test."""

    p_adjusted: float | None = None
    base_rounds: int = 0
    new_rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class Comparison(Generic[Key]):
    """The verdicts on all points, and what they have in common."""

    findings: dict[Key, Finding]
    """Points that at least one side has a time of."""

    untimed: dict[Key, str]
    """Points without a time on either side, and why."""

    limits: Limits
    drift: float
    """Factor by which the machine was slower: what most points share with the BLAS."""

    untested: int
    """Points of both sides with too few rounds for the test to speak."""

    @property
    def drifted(self) -> bool:
        """Whether the machine's own shift is one that would matter."""
        return abs(math.log(self.drift)) > math.log1p(self.limits.threshold)

    @property
    def counts(self) -> Counter[Verdict]:
        """How many points of each verdict."""
        return Counter(one.verdict for one in self.findings.values())

    def of(self, verdict: Verdict) -> dict[Key, Finding]:
        """The points of a verdict, the largest change first."""
        chosen = [pair for pair in self.findings.items() if pair[1].verdict == verdict]
        chosen.sort(key=lambda pair: -abs(math.log(pair[1].ratio or 1.0)))
        return dict(chosen)
