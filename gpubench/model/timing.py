"""The policy of measuring: when there are enough samples, and when a point is too slow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The policy of measuring: when there are enough samples, and when a point is too slow."""

    rounds: int = 5
    precision: float = 0.005
    """Stop when the 95 % interval of the median lies within this fraction of it."""

    min_samples: int = 10
    min_device_s: float = 0.05
    """A point gets at least so many samples and so much device time, all its rounds together,
    however precise they seem."""

    few_samples: int = 3
    """The least of launches longer than `slow_launch_s`, all rounds together. More are taken while
    `max_wall_s` lasts."""

    slow_launch_s: float = 0.1
    sample_us: float = 100.0
    """A sample lasts at least this long: shorter launches are batched."""

    max_wall_s: float = 1.5
    """A point's sampling stops after this time, all rounds together, whatever its interval, once it
    has the fewest samples allowed."""

    heat_s: float = 1.0
    """A round of a sustained point launches so long before its samples."""

    sustained_s: float = 0.5
    """And takes samples for so long: under 0.2 s they err by 5 % where a power cap holds the clock,
    as the regulator lags."""

    launch_limit_s: float = 10.0
    """A point whose launch is estimated to take longer is skipped."""

    point_limit_s: float | None = None
    """A point that takes longer in a round is taken for hung; None: as long as honest ones may."""

    budget_s: float | None = None
    """Wall time for all points together, shared out among them; None: each takes what it needs."""

    @property
    def hang_s(self) -> float:
        """When a point is taken for hung: long after operands, reference and slow launches."""
        return self.point_limit_s or 60 + 6 * self.launch_limit_s

    @property
    def round_wall_s(self) -> float:
        """A round's part of `max_wall_s`."""
        return self.max_wall_s / self.rounds

    @property
    def round_samples(self) -> int:
        """The least samples of a round: its part of `min_samples`, and two to compare."""
        return max(2, -(-self.min_samples // self.rounds))

    @property
    def round_few_samples(self) -> int:
        """The samples of a round for slow launches."""
        return -(-self.few_samples // self.rounds)

    @property
    def round_device_s(self) -> float:
        """The least device time of a round."""
        return self.min_device_s / self.rounds
