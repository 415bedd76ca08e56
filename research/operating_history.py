"""Simulated histories of saved results, for `gpubench history` (`operating.py` runs it).

Each saved result has five of the recorded rounds of one build, drawn at random. All points of a
result share a random factor of the machine (1 %). The references, which show the machine's factor,
are the BLAS and half of the other points.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from gpubench.stats.moderated import summarize
from gpubench.stats.modes import MODE_GAP
from gpubench.stats.moves import MARGIN, Move, find_moves, machine_levels

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Case = tuple[str, int, int]
"""A line of the table: the kind of rounds, the number of results, and the number of points."""

ROUNDS = 5
MACHINE = 0.01
SLOWED = 6

KINDS: Mapping[str, Mapping[str, float]] = {
    "as recorded": {},
    "other in each result by 0.3 %": {"between": 0.003},
    "other in each result by 0.7 %": {"between": 0.007},
    "+30 % in one round of a third of the results": {"disturbed": 1 / 3},
    "one point in ten has two speeds, 8 % apart": {"speeds": 0.08},
}
"""Maps a kind of rounds to the changes that are added to the recorded rounds."""

LINES = [
    (kind, results, points) for kind in KINDS for results, points in ((3, 50), (6, 14), (10, 50))
]

HEADING = ["rounds are", "results", "points", "a move in a history of one build", "found: +3 %",
           "at its result", "found: +5 %", "at its result"]  # fmt: skip


def results_of(
    logs: Floats, count: int, kind: str, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Simulate results.

    Return each point's level in each result, and the distance of its two speeds.
    """
    facts = KINDS[kind]
    levels, gaps = np.empty((2, len(logs), count))
    for number in range(count):
        rounds = logs[:, rng.permutation(logs.shape[1])[:ROUNDS]]
        if "speeds" in facts:
            rounds[9::10] += facts["speeds"] * rng.integers(2, size=rounds[9::10].shape)
        rounds[:, 0] += 0.3 * (rng.random() < facts.get("disturbed", 0))
        levels[:, number] = np.median(rounds, axis=1)
        summary = summarize(rounds)
        grouped = summary.gap > np.maximum(MARGIN, MODE_GAP * summary.group)
        gaps[:, number] = np.where(grouped, summary.gap, 0.0)
    levels += facts.get("between", 0.0) * rng.standard_normal(levels.shape)
    return levels + MACHINE * rng.standard_normal(count), gaps.max(axis=1)


def line(
    draw: Callable[[], tuple[Floats, Flags]], case: Case, number: int, rng: np.random.Generator
) -> list[object]:
    """Simulate histories, and return the line of the table.

    Six points are slower from a random result on.

    `draw` returns the recorded rounds of some points, and which of these points are of the BLAS.
    """
    kind, results, points = case
    false, hits_by_size = 0, {0.03: [0, 0], 0.05: [0, 0]}
    for _ in range(number):
        logs, blas = draw()
        references = blas | (rng.random(len(logs)) < 0.5)  # noqa: PLR2004 # a coin
        levels, speeds = results_of(logs, results, kind, rng)
        false += bool(_moves(levels, speeds, references))
        slowed = rng.permutation(np.flatnonzero(~references))[:SLOWED]
        at = int(rng.integers(1, results))
        for size, hits in hits_by_size.items():
            slower = levels.copy()
            slower[slowed, at:] += np.log1p(size)
            moved_at = [x.at for x in _moves(slower, speeds, references) if x.point in slowed]
            hits[0] += bool(moved_at)
            hits[1] += at in moved_at
    counts = [f"{count} of {number}" for hits in hits_by_size.values() for count in hits]
    return [kind, results, points, f"{false} of {number}", *counts]


def _moves(levels: Floats, speeds: Floats, references: Flags) -> list[Move]:
    machine = machine_levels(levels, references)
    return find_moves(np.vstack([levels - machine, machine]), np.append(speeds, 0.0))
