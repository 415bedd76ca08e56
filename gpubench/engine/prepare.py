"""Makes a job from a sweep and a device. A job is the plan of what is measured.

Every command that measures prepares its job here.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import gpubench
from gpubench.backends import first_device
from gpubench.hardware.host import all_memory_bytes
from gpubench.model import Device, Measurement, Point, PointKey, Variant, size_of
from gpubench.plan.problems import ListedProblem
from gpubench.plan.schedule import Estimate, InRounds, Strategy, estimate
from gpubench.plan.sweep import Sweep, plan
from gpubench.plan.tuned import tuned_tiles
from gpubench.results.provenance import package_version, source_hash


@dataclass(frozen=True, kw_only=True)
class Job:
    """Plan for measuring a sweep on devices of one kind."""

    sweep: Sweep  # names each tile, even if the user requested tuned tiles
    device: Device
    planned: Mapping[Point, str | None]  # each point with the reason why it cannot run, or None
    hashes: Mapping[Variant, str]  # the source hash of each variant
    notes: tuple[str, ...] = ()  # lines that a user should read before the results
    strategy: Strategy = field(default_factory=InRounds)
    verified: Sequence[Measurement] = ()
    """Measurements in which another process found right results. The points of these measurements
    need not be verified again."""

    afterwards_s: float = 0.0  # expected time of what a command measures after the points

    @cached_property
    def points(self) -> list[Point]:
        """The points that can run."""
        return [point for point, reason in self.planned.items() if reason is None]

    @cached_property
    def _by_key(self) -> dict[PointKey, Point]:
        return {point.key: point for point in self.planned}

    @property
    def absent(self) -> dict[str, list[str]]:
        """Maps a dtype to the variants that lack it, but that have another dtype of the sweep."""
        dtypes = self.sweep.dtypes
        fitting = [variant for variant in self.hashes if set(variant.dtypes) & set(dtypes)]
        lacking = {d: [v.name for v in fitting if d not in v.dtypes] for d in dtypes}
        return {dtype: names for dtype, names in lacking.items() if names}

    def point_of(self, key: PointKey) -> Point | None:
        """Return the point that a key identifies, or None if this job cannot have such a point.

        A race of configurations may continue with legal tiles that were not planned.
        """
        if point := self._by_key.get(key):
            return point
        if not self.strategy.is_race:
            return None
        for planned in self.planned:
            space = planned.variant.tiles
            if space and planned.key._replace(tile=key.tile) == key:
                try:
                    tile = space.read(key.tile)
                except ValueError:
                    return None
                legal = str(tile) == key.tile and not space.why_not(tile)
                return replace(planned, tile=tile) if legal else None
        return None

    def forecast(self, points: Collection[Point] | None = None) -> Estimate:
        """Estimate how long points take on one device. The default is all points that can run.

        The number of rounds of a race is unknown, so the estimate is for its first round.
        """
        points = self.points if points is None else points
        alone = estimate(points, self.device, self.sweep.timing)
        return replace(
            alone,
            least_s=alone.least_s + self.afterwards_s,
            expected_s=alone.expected_s + self.afterwards_s,
            is_first_round=self.strategy.is_race,
        )

    def too_large(self) -> dict[Point, str]:
        """Return the points that need more memory than this machine has, each with a reason."""
        memory = all_memory_bytes()
        return {
            point: f"needs {point.problem.bytes / 1e9:,.0f} GB of memory, "
            f"and this machine has {memory / 1e9:,.0f} GB"
            for point in self.points
            if point.problem.bytes > memory
        }

    @property
    def context(self) -> dict[str, Any]:
        """Facts that must not have changed when a sweep is continued in its file."""
        options, problems = self.sweep.options.items(), self.sweep.problems
        return {
            "gpubench": gpubench.__version__,
            # `--resume` itself names the output file.
            "options": {name: text for name, text in options if name != "output"},
            "device": self.device.name,
            "versions": self.device.versions,
            "sources": {variant.name: digest for variant, digest in self.hashes.items()},
            **({"problems": [asdict(problem) for problem in problems]} if problems else {}),
        }

    def listed(self, key: PointKey) -> dict[str, Any]:
        """Return the columns `problem` and `weight` of a row, if its problem is in a list."""
        problem = self._listed.get((*size_of(key), key.compute_mode))
        return {"problem": problem.name, "weight": problem.weight} if problem else {}

    @cached_property
    def _listed(self) -> dict[tuple[Any, ...], ListedProblem]:
        return {(*problem.size, problem.dtype): problem for problem in self.sweep.problems}

    @property
    def provenance(self) -> dict[str, Any]:
        """Columns of a row that describe how to repeat the measurement."""
        options = self.sweep.options.items()
        flags = (f"--{name.replace('_', '-')} {text}" for name, text in options)
        digest, commit = package_version()
        return {
            "tree_hash": digest,
            "commit": commit,
            "options": " ".join(flags) or None,
            "seed": self.sweep.seed,
            "precision_goal": self.sweep.timing.precision,
        }


def prepare(
    sweep: Sweep,
    device: Device,
    *,
    keep: Callable[[Point], bool] = lambda _point: True,
    strategy: Strategy | None = None,
    verified: Sequence[Measurement] = (),
) -> Job:
    """Plan a sweep for a device. Nothing is compiled, measured or written.

    `keep` returns whether to measure a point, for choices that the lists of a sweep cannot express.
    `strategy` decides which point is measured next. If `strategy` is None, all points are measured
    in rounds, by the sweep's timing. Raises UsageError if nothing can be measured.
    """
    picked, notes = tuned_tiles(sweep, device)
    of_device = device.backend, device.compute_capability, device.multiprocessors
    every = plan(sweep, *of_device, picked)
    if picked:  # another process may not have the file of tiles
        sweep = replace(sweep, tiles=tuple(dict.fromkeys(str(x.tile) for x in every if x.tile)))
    planned = {point: reason for point, reason in every.items() if keep(point)}
    variants = dict.fromkeys(point.variant for point in planned)
    return Job(
        sweep=sweep,
        device=device,
        planned=planned,
        hashes={variant: source_hash(variant) for variant in variants},
        notes=tuple(notes),
        strategy=strategy or InRounds(),
        verified=verified,
    )


def prepare_dry(sweep: Sweep) -> Job:
    """Plan a sweep for the first device that `--device` names, without opening the device.

    Raises UsageError if nothing can be measured or the device lacks the timer, and
    DeviceUnavailableError for a missing device.
    """
    return prepare(sweep, first_device(sweep.device, sweep.timer))
