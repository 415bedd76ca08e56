"""Defines the points, findings and verdicts of a comparison. docs/diff.md explains them."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain

from gpubench.model import PointKey
from gpubench.stats.detectable import Detectable

Key = PointKey
"""Type of `Row.key`, which identifies a point."""

ABSENT = "not in the file"
"""Reason that is stated if one side does not have the point."""


class Cause(StrEnum):
    """Why a point is ambiguous. If several causes hold, the first cause listed here is reported."""

    TOO_FEW_SWEEPS = "a single sweep a side on a CPU"
    TOO_FEW_ROUNDS = "a single round a side"
    LIKE_MODES = "as far as the two speeds of other points"
    LIBRARY_MOVED = "only the library moved"
    MACHINE_MOVED = "moved with the machine"
    OTHER_GPU = "the other side's GPU is another one"


TOO_FEW = {Cause.TOO_FEW_ROUNDS, Cause.TOO_FEW_SWEEPS}


class DiffVerdict(StrEnum):
    """The verdicts on a point, starting with the worst. docs/diff.md explains each verdict."""

    BROKEN = "broken"
    SLOWER = "slower"
    MISSING = "missing"
    AMBIGUOUS = "ambiguous"
    CLOCK = "clock"
    FASTER = "faster"
    NEW = "new"
    SAME = "same"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits that a difference must exceed to count as a change."""

    threshold: float = 0.02
    """Smallest relative difference that matters."""

    q: float = 0.01
    """False discovery rate over all points. The intervals have the confidence 1 - q."""

    between_gpus: float = 0.10
    """Relative difference of a point's times that two GPUs of the same model may have. docs/diff.md
    has the measurement. 0 allows no difference."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PooledPoint:
    """The data of a point on one side, pooled from the rows of all files of the side."""

    sweeps_us: tuple[tuple[float, ...], ...] = ()
    """Round medians of each sweep that has a time of the point, in the order of the rounds."""

    files: tuple[int, ...] = ()
    """Index of each sweep's file among the files of the side. An empty tuple stands for the indices
    0, 1, …"""

    lost: str = ""
    """Why a sweep has no time of the point, such as `wrong: relative error 1`."""

    clock_mhz: float | None = None
    """Clock of the multiprocessors while the point was sampled, or None if the clock is not
    known."""

    percent_of_peak: float | None = None
    """Percentage of the arithmetic peak at `clock_mhz`, or None if the percentage is not known."""

    percent_of_copy: float | None = None
    """Bandwidth of the point, as a percentage of the bandwidth of a copy, or None if it is not
    known."""

    gbytes_per_s: float | None = None

    gpus: frozenset[str] = frozenset()
    """UUIDs of the GPUs that measured the point, or an empty set if the UUIDs are not known."""

    on_cpu: bool = False
    """Whether a CPU's clock timed the point. Two rounds of a sweep then differ less from each other
    than two sweeps do."""

    is_blas: bool = False
    """Whether the point runs the vendor's library, which is the same code in every build."""

    library: str = ""
    """Name and version of the vendor's library, or an empty text if they are not known."""

    code: str = ""
    """Hashes of the sources and of the compiled code, or an empty text if a hash is not known."""

    shortest_us: tuple[float, ...] = ()
    """Time of the shortest sample of each sweep on a CPU."""

    started: tuple[str, ...] = ()
    """Time at which each sweep began to measure the point, or an empty tuple if a time is not
    known."""

    @property
    def rounds_us(self) -> tuple[float, ...]:
        """The round medians of all sweeps."""
        return tuple(chain.from_iterable(self.sweeps_us))

    @property
    def repeats_us(self) -> Sequence[Sequence[float]]:
        """The times of each sweep that the test treats as independent.

        On a GPU, these times are the medians of the rounds. On a CPU, these times are the medians
        of the sweeps.
        """
        if self.on_cpu:
            return [(statistics.median(times),) for times in self.sweeps_us]
        return self.sweeps_us


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The verdict on a point, and its figures. A figure is None if a side has no time of the point.

    The JSON format has the same fields, which docs/diff.md explains.
    """

    verdict: DiffVerdict
    reason: str = ""
    cause: Cause | None = None
    base_median_us: float | None = None
    new_median_us: float | None = None
    base_us: float | None = None
    new_us: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    cycles_ratio: float | None = None
    judged_ratio: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    base_rounds: int = 0
    new_rounds: int = 0
    modes: int = 1


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """A round in which all points were slower or faster than in the other rounds of the side."""

    side: str
    """`base` or `new`."""

    file: int
    """Index of the file among the files of its side."""

    round: int
    """Number of the round in its file, counted from 1. On a CPU, 0 stands for the whole sweep."""

    ratio: float
    """Time relative to the side's median round. A ratio of 1.3 means 30 % slower."""

    left_out: bool
    """Whether the round slowed points unequally, so that it was left out."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The verdicts on all points, and the figures that belong to all points together."""

    findings: dict[Key, Finding]
    """The findings on points that have a time on at least one side."""

    limits: Limits
    untimed: dict[Key, str] = field(default_factory=dict)
    """Points that have no time on either side, each with the reason."""

    drift: float = 1.0
    """Factor by which the machine was slower on the new side. Most points share this shift with the
    BLAS."""

    disturbances: tuple[Disturbance, ...] = ()
    """Rounds whose effect on all points exceeds the threshold. The effects were removed."""

    detectable: Detectable = field(default_factory=Detectable)
    """Smallest slow-downs that this comparison would have found."""

    @property
    def drifted(self) -> bool:
        """Whether the machine's own shift exceeds the threshold."""
        return abs(math.log(self.drift)) > math.log1p(self.limits.threshold)

    @property
    def counts(self) -> Counter[DiffVerdict]:
        """The number of points with each verdict."""
        return Counter(finding.verdict for finding in self.findings.values())

    @property
    def two_sided(self) -> dict[Key, Finding]:
        """The findings on points that have a time on both sides."""
        return {key: item for key, item in self.findings.items() if item.ratio is not None}

    @property
    def untested(self) -> dict[Key, Finding]:
        """The findings on points with too few rounds, or sweeps, to be judged."""
        return {key: item for key, item in self.findings.items() if item.cause in TOO_FEW}

    def of(self, verdict: DiffVerdict) -> dict[Key, Finding]:
        """Return the findings that have this verdict, starting with the largest change."""
        chosen = {key: item for key, item in self.findings.items() if item.verdict == verdict}
        ordered = sorted(chosen.items(), key=lambda item: -abs(math.log(item[1].judged_ratio or 1)))
        return dict(ordered)
