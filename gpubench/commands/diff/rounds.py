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

    statistics: RoundStatistics
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
    logs, set_aside = list[Floats](), list[Floats]()
    level_variance, level_df, level_rounds = np.zeros((3, len(points)))
    disturbances: list[Disturbance] = []
    for on_cpu in (False, True):
        members = [i for i, point in enumerate(points) if point.on_cpu == on_cpu]
        if not members:
            continue
        times, columns = _table([points[i] for i in members])
        polished = polish(times)
        logs.append(_in_rows(polished.logs, members, len(points)))
        set_aside.append(_in_rows(polished.set_aside, members, len(points)))
        level_variance[members] = polished.level.standard_error**2
        level_df[members] = polished.level.df
        level_rounds[members] = (~polished.left_out).sum()
        is_far = np.abs(polished.effects) > max(threshold, DISTURBED * polished.scatter)
        disturbances += [
            Disturbance(
                side=side,
                file=file,
                round=0 if on_cpu else number + 1,
                ratio=math.exp(polished.effects[column]),
                left_out=bool(polished.left_out[column]),
            )
            for column, (file, number) in enumerate(columns)
            if is_far[column] or polished.left_out[column]
        ]
    all_logs = np.hstack(logs)
    return Rounds(
        summarize(all_logs),
        all_logs,
        np.hstack(set_aside),
        level_variance,
        level_df,
        level_rounds,
        disturbances,
    )


def _in_rows(part: Floats, rows: Sequence[int], count: int) -> Floats:
    """Return an array of `count` rows, which has `part` in some rows and NaN in the other rows."""
    whole = np.full((count, part.shape[1]), np.nan)
    whole[rows] = part
    return whole


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
