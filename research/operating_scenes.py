"""Reads recorded rounds, and disturbs the rounds for the comparisons of operating.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from common import measured_file
from numpy.typing import NDArray

from gpubench.commands.diff.findings import Key, PooledPoint
from gpubench.commands.diff.sides import read_side

Random = np.random.Generator
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
ROUNDS = sorted(measured_file("diff_rounds").glob("*.csv*"))
SWEEPS = [measured_file("sweep.csv"), measured_file("sweep_again.csv")]
"""Paths of two sweeps of one build."""


@dataclass(frozen=True)
class Recorded:
    """Recorded points with the times of all rounds."""

    keys: list[Key]
    points: list[PooledPoint]
    logs: Floats
    """Logarithms of times, of shape (points, rounds)."""

    kernels: NDArray[np.int64]
    """Number of each point's kernel. The number is -1 for a point of the BLAS."""

    @property
    def blas(self) -> Flags:
        """Whether each point is of the BLAS."""
        return self.kernels < 0

    def chosen(self, places: Sequence[int]) -> Recorded:
        """Return only the points with these indices."""
        return Recorded(
            [self.keys[i] for i in places],
            [self.points[i] for i in places],
            self.logs[places],
            self.kernels[places],
        )


def recorded(files: Sequence[Path], least_percent_of_copy: float = 0.0) -> Recorded:
    """Return the points that have a time in every round."""
    pooled = read_side(files).pooled
    max_rounds = max(len(point.rounds_us) for point in pooled.values())
    full = {
        key: point
        for key, point in sorted(pooled.items())
        if len(point.rounds_us) == max_rounds
        and (point.percent_of_copy or 0.0) >= least_percent_of_copy
    }
    names = sorted({key.variant for key, point in full.items() if not point.is_blas})
    kernels = [-1 if point.is_blas else names.index(key.variant) for key, point in full.items()]
    logs = np.log([point.rounds_us for point in full.values()])
    return Recorded(list(full), list(full.values()), logs, np.array(kernels))


@cache
def files_of(fit: bool) -> tuple[Recorded, Recorded]:
    """Return recorded products, and recorded points whose speed memory bandwidth limits."""
    memory = ["gemv.csv"] if fit else ["gemv_t.csv", "atax.csv"]
    return recorded(ROUNDS if fit else SWEEPS), recorded([*map(measured_file, memory)], 85)


@dataclass
class Scene:
    """The two sides of a comparison, as logarithms of times of shape (points, rounds)."""

    rng: Random
    base: Floats
    new: Floats
    kernels: NDArray[np.int64]
    sides: dict[str, Floats] = field(init=False)

    def __post_init__(self) -> None:
        self.base, self.new = self.base.copy(), self.new.copy()
        self.sides = {"base": self.base, "new": self.new}

    def kernel(self) -> Flags:
        """Return which points belong to a random kernel with at least six points."""
        return points_of_a_kernel(self.kernels, self.rng)


def points_of_a_kernel(kernels: NDArray[np.int64], rng: Random) -> Flags:
    """Return which points belong to a random kernel that has at least six points."""
    counts = np.bincount(kernels[kernels >= 0])
    chosen: Flags = kernels == rng.choice(np.flatnonzero(counts >= 6))  # noqa: PLR2004 # six points
    return chosen


Change = Callable[[Scene], object]


def whole(side: str, size: float) -> Change:
    """Return a change that makes all points of one side slower."""

    def apply(scene: Scene) -> None:
        scene.sides[side] += math.log1p(size)

    return apply


def slow_rounds(
    size: float, number: int = 1, *, sides: str = "new", part: float = 1.0, unequal: bool = False
) -> Change:
    """Return a change that makes some rounds slower.

    In such a round, the fraction `part` of the points is slower. If `unequal` is true, each of
    these points is slower by 0 to twice `size`.
    """

    def apply(scene: Scene) -> None:
        for side in sides.split():
            logs = scene.sides[side]
            for place in scene.rng.choice(logs.shape[1], number, replace=False):
                factor = scene.rng.uniform(0, 2, len(logs)) if unequal else 1.0
                logs[:, place] += np.log1p(size * factor * (scene.rng.random(len(logs)) < part))

    return apply


def ramp(size: float) -> Change:
    """Return a change that makes each round of a side slower than the previous round."""

    def apply(scene: Scene) -> None:
        for logs in scene.sides.values():
            logs[:] += np.linspace(0, math.log1p(size), logs.shape[1])

    return apply


def inside_rounds(size: float) -> Change:
    """Return a change that slows the device during each round. The points have a random order."""

    def apply(scene: Scene) -> None:
        for logs in scene.sides.values():
            logs[:] += np.log1p(size * scene.rng.random(logs.shape))

    return apply


def modes(size: float, chosen: Callable[[Scene], Flags], *, alike: bool = True) -> Change:
    """Return a change that gives some points one of two speeds in each round.

    If `alike` is true, all these points have the same speed in a round.
    """

    def apply(scene: Scene) -> None:
        points = chosen(scene)
        for logs in scene.sides.values():
            shape = (1 if alike else int(points.sum()), logs.shape[1])
            logs[points] += math.log1p(size) * (scene.rng.random(shape) < 0.5)  # noqa: PLR2004 # a coin

    return apply


def blas(scene: Scene) -> Flags:
    return scene.kernels < 0


def tenth(scene: Scene) -> Flags:
    return scene.rng.random(len(scene.kernels)) < 0.1  # noqa: PLR2004 # one in ten


def only(chosen: Callable[[Scene], Flags], side: str, size: float) -> Change:
    """Return a change that makes some points of one side slower."""

    def apply(scene: Scene) -> None:
        scene.sides[side][chosen(scene)] += math.log1p(size)

    return apply


def half(scene: Scene) -> Flags:
    """Return which points belong to a random half of the kernels."""
    numbers = np.unique(scene.kernels[scene.kernels >= 0])
    return np.isin(scene.kernels, scene.rng.permutation(numbers)[: len(numbers) // 2])


def both(*changes: Change) -> Change:
    """Return a change that applies all these changes."""

    def apply(scene: Scene) -> None:
        for change in changes:
            change(scene)

    return apply


def quiet(_scene: Scene) -> None:
    """Change nothing."""
