"""Finds at which of several results of a device the times of points changed.

A result is a whole sweep, so a move must exceed the usual difference between sweeps. Each run of
consecutive results is compared with the point's other results, and the difference is tested against
a margin (`treat`). If the run ends with the newest result, the move lasts. A few results show a
point's variance only roughly, so the variance is shrunk towards a common value. The p-values are
corrected for the number of runs (Bonferroni) and for the number of points (Benjamini and Hochberg).
If a point has moved, the first run's effect is subtracted from its times, and further runs are
sought (Olshen and others, Biostatistics 5, 2004: circular binary segmentation).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubench.stats.moderated import (
    LEAST_SD,
    Floats,
    Variance,
    adjusted,
    half_widths,
    p_values,
    shrunk,
)
from gpubench.stats.modes import ALIKE
from gpubench.stats.polish import STEPS, row_medians

MARGIN = float(np.log1p(0.01))  # a move exceeds 1 %
Q = 0.002
"""The false discovery rate. A move is found in 3 % of the histories without a move, because some
kernels scatter in steps (results/operating/history.md)."""

MIN_RESULTS = 3
"""Moves of a point are sought only if the point has at least this number of results. Two results do
not show how much results scatter."""

MIN_REFERENCES = 2
"""Minimum number of reference points that show the machine's shift. A single reference point may
itself have moved."""

MAX_RUNS = 3  # maximum number of runs that are sought in one point


LEAST_ALIKE = 0.5
"""Two speeds may explain a step if the step is at least this fraction of the distance between the
speeds."""


class Move(NamedTuple):
    """A lasting change of the time of one point."""

    point: int
    at: int  # index of the first result after the change
    step: float  # logarithm of the ratio of the time after the change to the time before


def machine_levels(levels: Floats, references: NDArray[np.bool_]) -> Floats:
    """Return the effect of the machine on the times in each result, as a logarithm.

    The deviation of each reference point from its own median is computed. The effect is the median
    of these deviations, or 0 if there are too few references. `levels` has logarithms of times, of
    shape (points, results). NaN stands for a missing time.
    """
    effects, chosen = np.zeros(levels.shape[1]), levels[references]
    if len(chosen) >= MIN_REFERENCES:
        for _ in range(STEPS):
            rest = chosen - effects
            effects = effects + row_medians((rest - row_medians(rest)[:, None]).T)
    return effects


def find_moves(levels: Floats, speeds: Floats, margin: float = MARGIN, q: float = Q) -> list[Move]:
    """Return the moves that exceed a margin, ordered by point and time.

    `speeds` has the largest distance between two groups of a point's rounds in one result. A
    distance of 0 means that the rounds form one group. A step of about this distance is not a move.
    """
    there = np.isfinite(levels)
    rows = np.flatnonzero(there.sum(axis=1) >= MIN_RESULTS)
    moves: list[Move] = []
    if not len(rows):
        return moves
    first = _runs(levels[rows], np.empty(0), np.empty(0), margin)
    moved = adjusted(first.p) <= q
    if not moved.any():
        return moves
    level = float(first.p[moved].max())
    still = levels[rows[~moved]]
    usual_df = np.isfinite(still).sum(axis=1) - 1.0
    usual = np.nanvar(still, axis=1, ddof=1) if len(still) else np.empty(0)
    usual = np.maximum(usual, LEAST_SD**2)
    for place in np.flatnonzero(moved):
        row, edges = levels[rows[place]], {int(each) for each in first.edges[place]}
        rest = row - first.fitted[place]
        for _ in range(MAX_RUNS - 1):
            more = _runs(rest[None], usual, usual_df, margin)
            if more.p[0] > level:
                break
            edges |= {int(each) for each in more.edges[0]}
            rest = rest - more.fitted[0]
        moves += _steps(int(rows[place]), row, edges, margin)

    def like_speeds(move: Move) -> bool:
        speed = speeds[move.point]
        return bool(LEAST_ALIKE * speed <= abs(move.step) <= speed / ALIKE)

    return [move for move in moves if not like_speeds(move)]


class Differences(NamedTuple):
    """Differences between newest results and an anchor, as logarithms.

    Each field is an array with an element for each point.
    """

    step: Floats
    low: Floats
    high: Floats
    p: Floats  # adjusted for the false discovery rate; NaN: too few results


def since_anchor(
    anchor: Floats, levels: Floats, edges: Sequence[Sequence[int]], margin: float, q: float
) -> Differences:
    """Compare the newest results of each point with the results of an anchor.

    `anchor` and `levels` have the shape (points, results). `edges` has, for each point, the indices
    of the results at which the point's code changed or its time moved. Only the results after the
    last edge are compared. The variance is estimated from the results between edges.
    """
    squares, df = np.zeros((2, len(levels)))
    steps, errors = np.full((2, len(levels)), np.nan)
    for place, (first, row, cuts) in enumerate(zip(anchor, levels, edges, strict=True)):
        runs = [run[np.isfinite(run)] for run in (first, *np.split(row, cuts))]
        runs = [runs[0], *filter(len, runs[1:])]
        squares[place] = sum(len(run) * run.var() for run in runs if len(run))
        df[place] = sum(len(run) - 1 for run in runs if len(run))
        if len(runs[0]) and len(runs) > 1:
            steps[place] = runs[-1].mean() - runs[0].mean()
            errors[place] = 1 / len(runs[0]) + 1 / len(runs[-1])
    is_known = (df > 0) & np.isfinite(steps)
    p, half = np.full((2, len(levels)), np.nan)
    if is_known.any():
        variance = np.maximum(squares[is_known] / df[is_known], LEAST_SD**2)
        variance, total_df = shrunk(variance, df[is_known])
        error = Variance(np.sqrt(variance * errors[is_known]), total_df)
        p[is_known] = adjusted(p_values(steps[is_known], np.full(is_known.sum(), margin), error))
        half[is_known] = half_widths(error, q)
    return Differences(steps, steps - half, steps + half, p)


def _steps(point: int, row: Floats, edges: set[int], margin: float) -> list[Move]:
    """Return the moves of a point at the edges. Steps that are within the margin are no moves."""
    columns = np.flatnonzero(np.isfinite(row))
    cuts = sorted({int(np.searchsorted(columns, edge)) for edge in edges} - {0, len(columns)})
    means = [float(run.mean()) for run in np.split(row[columns], cuts)]
    return [
        Move(point, int(columns[cut]), float(step))
        for cut, step in zip(cuts, np.diff(means), strict=True)
        if abs(step) > margin
    ]


class _Runs(NamedTuple):
    """The run of results of each point that differs most from the point's other results."""

    p: Floats
    edges: NDArray[np.int64]  # the start and the end of each run, of shape (points, 2)
    fitted: Floats  # each result's fitted value: the mean of the run, or of the other results


def _runs(levels: Floats, usual: Floats, usual_df: Floats, margin: float) -> _Runs:
    """Return the run of results of each point that differs most from the point's other results.

    `usual` has the variances of further points, which did not move, and `usual_df` has the degrees
    of freedom of these variances.
    """
    results, there = levels.shape[1], np.isfinite(levels)
    runs = [(start, stop) for start in range(1, results) for stop in range(start + 1, results + 1)]
    best = np.full(len(levels), np.inf)
    edges, fitted = np.zeros((len(levels), 2), int), np.zeros_like(levels)
    for start, stop in runs:  # a run of the first n results has the same edge as the rest
        inside = (np.arange(results) >= start) & (np.arange(results) < stop)
        counts = np.array([(there & part).sum(axis=1) for part in (inside, ~inside)])
        means = [np.where(there & part, levels, 0.0).sum(axis=1) for part in (inside, ~inside)]
        run, others = means / np.maximum(counts, 1)
        fit = np.where(inside, run[:, None], others[:, None])
        df = counts.sum(axis=0) - 2.0
        tested = (counts.min(axis=0) > 0) & (df > 0)
        squares = np.nansum((levels - fit) ** 2, axis=1)
        variance = np.maximum(squares / np.maximum(df, 1), LEAST_SD**2)
        shared, total_df = shrunk(
            np.append(variance[tested], usual), np.append(df[tested], usual_df)
        )
        number = int(tested.sum())
        error = np.sqrt(shared[:number] * (1 / counts[:, tested]).sum(axis=0))
        p = np.full(len(levels), np.inf)
        effect, limits = (run - others)[tested], np.full(number, margin)
        p[tested] = p_values(effect, limits, Variance(error, total_df[:number]))
        better = p < best
        best = np.where(better, p, best)
        edges[better], fitted[better] = (start, stop), fit[better]
    return _Runs(np.minimum(1.0, len(runs) * best), edges, fitted)
