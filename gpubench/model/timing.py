"""Defines the policy for how long points are measured. Imports the standard library only."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The limits that decide when a point has enough samples, and when a point is too slow."""

    rounds: int = 5
    precision: float = 0.005
    """Sampling stops when the 95 % interval of the median lies within this fraction of the
    median."""

    min_samples: int = 10
    min_device_s: float = 0.05
    """Minimum device time of a point. Like `min_samples`, this limit is for all rounds together."""

    few_samples: int = 3
    """Minimum number of samples of a point whose launches are longer than `slow_launch_s`, over all
    rounds."""

    slow_launch_s: float = 0.1
    sample_us: float = 100.0
    """Minimum duration of a sample. A sample contains several launches if a launch is shorter."""

    max_wall_s: float = 1.5
    """Maximum wall time for the samples of a point, over all its rounds. Sampling continues until
    the point has enough samples."""

    heat_s: float = 1.0
    """Time for which a round of a sustained point launches the kernel before the samples."""

    sustained_s: float = 0.5
    """Time for which a round of a sustained point takes samples. With less than 0.2 s, the times
    are wrong by 5 % under a power cap, because the power regulator lags."""

    launch_limit_s: float = 10.0
    """Maximum estimated duration of a launch. A point with longer launches is skipped."""

    point_limit_s: float | None = None
    """A point counts as hung if it takes longer than this time in a round. None means the default
    limit, `hang_s`."""

    budget_s: float | None = None
    """Maximum wall time for all points together. None means that there is no limit."""

    examined_in: int = 10
    """The parent's clock examines each measurement of a function. The clock examines the first
    measurement of a user's CUDA source, and each later measurement with a probability of 1 divided
    by this number."""

    @property
    def hang_s(self) -> float:
        """Time after which a point counts as hung.

        The limit leaves time to make operands, and for slow launches.
        """
        return self.point_limit_s or 60 + 6 * self.launch_limit_s

    @property
    def round_wall_s(self) -> float:
        """Maximum wall time of a round, which is an equal part of `max_wall_s`."""
        return self.max_wall_s / self.rounds

    @property
    def round_samples(self) -> int:
        """Minimum number of samples in a round: an equal part of `min_samples`, at least two."""
        return max(2, -(-self.min_samples // self.rounds))

    @property
    def round_few_samples(self) -> int:
        """Minimum number of samples in a round of a point with slow launches."""
        return -(-self.few_samples // self.rounds)

    @property
    def round_device_s(self) -> float:
        """Minimum device time of a round, which is an equal part of `min_device_s`."""
        return self.min_device_s / self.rounds
