"""Removes, from the times of one side of a comparison, what each round did to all points."""

import math
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from gpubench.commands.diff.findings import Disturbance, PooledPoint
from gpubench.stats.moderated import Floats, RoundStatistics, summarize
from gpubench.stats.polish import polish

DISTURBED = 3.0
"""A round is disturbed if its effect on all points exceeds the threshold, and also exceeds the
scatter of the effects of all rounds by this factor."""


class Rounds(NamedTuple):
    """The rounds of one side, without the effect that each round had on all points."""

    rounds: RoundStatistics
    logs: Floats
    """Logarithms of the times, of shape (points, rounds). NaN stands for a missing time."""

    set_aside: Floats
    """Logarithms of the times in the rounds that were left out, of shape (points, rounds)."""

    level_variance: Floats
    """Variance of the level that all points share. The array has one element for each point."""

    level_df: Floats
    """Degrees of freedom of `level_variance`. 0 means that they are unknown, because there is a
    single round."""

    level_rounds: Floats
    """Number of rounds that were not left out."""

    disturbances: list[Disturbance]


def without_disturbances(points: Sequence[PooledPoint], side: str, threshold: float) -> Rounds:
    """Return the rounds of a side without the effect that each round had on all points.

    The effects on points of a GPU and on points of a CPU are computed separately.
    """
    on_cpu = np.array([point.on_cpu for point in points])
    parts, aside = list[Floats](), list[Floats]()
    variance, df, number = np.zeros((3, len(points)))
    disturbances: list[Disturbance] = []
    for kind in (False, True):
        members = np.flatnonzero(on_cpu == kind)
        if not len(members):
            continue
        logs, columns = _table([points[i] for i in members.tolist()])
        result = polish(logs)
        variance[members], df[members] = result.level.standard_error**2, result.level.df
        number[members] = (~result.left_out).sum()
        far = np.abs(result.effects) > max(threshold, DISTURBED * result.scatter)
        disturbances += [
            Disturbance(
                side=side,
                file=file,
                round=0 if kind else number + 1,
                ratio=math.exp(result.effects[place]),
                left_out=bool(result.left_out[place]),
            )
            for place, (file, number) in enumerate(columns)
            if far[place] or result.left_out[place]
        ]
        for kept, logs in ((parts, result.logs), (aside, result.set_aside)):
            kept.append(np.full((len(points), len(columns)), np.nan))
            kept[-1][members] = logs
    logs = np.hstack(parts)
    return Rounds(summarize(logs), logs, np.hstack(aside), variance, df, number, disturbances)


def _table(points: Sequence[PooledPoint]) -> tuple[Floats, list[tuple[int, int]]]:
    """Return logarithms of times, of shape (points, rounds), and the file and round of each column.

    A missing time is NaN. Rounds are counted from 0.
    """
    times_us = [
        {
            (file, number): time_us
            for file, times in zip(point.files or count(), point.repeats_us, strict=False)
            for number, time_us in enumerate(times)
        }
        for point in points
    ]
    columns = sorted(set().union(*times_us))
    return np.log([[times.get(each, np.nan) for each in columns] for times in times_us]), columns
