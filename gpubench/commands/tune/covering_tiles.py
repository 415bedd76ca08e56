"""`--cover`: the fewest configurations that keep every problem within a percentage of its best."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import msgspec
from rich.console import RenderableType
from rich.text import Text

from gpubench.grouping import grouped
from gpubench.model import PointKey, Status
from gpubench.plan.tuned import Winner
from gpubench.results.row import Row
from gpubench.stats.intervals import median_interval
from gpubench.text import counted
from gpubench.view.tables import table

MIN_PAIRS = 6
"""Minimum number of rounds for an interval of the ratio of two configurations. With fewer rounds,
no interval covers 95 % of medians."""

Rows = Mapping[PointKey, Row]


@dataclass(frozen=True, kw_only=True)
class CoveredProblem:
    """A problem, and the configuration of a cover that it gets."""

    row: Row
    """The configuration's row of the race."""

    best: Row
    """The fastest row of the race."""

    decided: bool
    """Whether the race could judge its configurations."""

    def slower_by(self, confirmed: Rows) -> tuple[float, float]:
        """Return the fraction by which it is slower than the best, and its upper 95 % bound.

        The confirmation in fresh processes counts, if it measured both configurations.
        """
        row, best = (confirmed.get(row.key, row) for row in (self.row, self.best))
        if row.median_us is None or best.median_us is None:
            row, best = self.row, self.best
        if row.key == best.key:
            return 0.0, 0.0
        ours, theirs = row.medians_us, best.medians_us
        if len(ours) == len(theirs) >= MIN_PAIRS:  # rounds are interleaved, so drift cancels
            _, by, high = median_interval([a / b for a, b in zip(ours, theirs, strict=True)])
            return by - 1, high - 1
        low_us, high_us = best.ci_low_us or _time_us(best), row.ci_high_us or _time_us(row)
        return _time_us(row) / _time_us(best) - 1, high_us / low_us - 1


@dataclass(frozen=True, kw_only=True)
class Cover:
    """The configurations of a variant that cover the problems of one dtype and layout."""

    limit: float
    """The largest fraction by which a problem may be slower than its best configuration."""

    tiles: tuple[str, ...]
    """The chosen configurations, by falling number of problems."""

    raced: int
    """Number of configurations in the largest race."""

    problems: tuple[CoveredProblem, ...]
    unmeasured: tuple[Row, ...]
    """A row of each problem without a time."""


def covers(
    races: Iterable[Sequence[Row]], undecided: Iterable[Sequence[Row]], limit: float
) -> list[Cover]:
    """Return a cover for each variant, dtype and layout, by greedy set cover.

    `races` has the rows of each race, and `undecided` the races among them that ended too early. A
    configuration covers a problem if the race did not eliminate it and its time is within `limit`
    of the best. So the best configuration of each problem covers it.
    """
    too_early = {race[0].key._replace(tile="") for race in undecided}
    groups = grouped(races, lambda race: race[0].key._replace(tile="", m=0, n=0, k=0))
    all_covers = (_cover(group, too_early, limit) for group in groups.values())
    return [cover for cover in all_covers if cover.problems]


def _cover(group: Sequence[Sequence[Row]], too_early: set[PointKey], limit: float) -> Cover:
    bests: list[Row] = []
    near: dict[str, dict[int, Row]] = {}
    """The rows within the limit, by tile and index of their race."""
    unmeasured = []
    for race in group:
        timed = [row for row in race if row.status == Status.OK and row.median_us]
        if not timed:
            unmeasured.append(race[0])
            continue
        best = min(timed, key=_time_us)
        for row in timed:
            if _time_us(row) <= (1 + limit) * _time_us(best):
                near.setdefault(row.tile, {})[len(bests)] = row
        bests.append(best)
    tiles = chosen_tiles(
        {
            tile: {at: _time_us(row) / _time_us(bests[at]) - 1 for at, row in rows.items()}
            for tile, rows in near.items()
        }
    )
    problems = [
        CoveredProblem(
            row=min((near[tile][at] for tile in tiles if at in near[tile]), key=_time_us),
            best=best,
            decided=best.key._replace(tile="") not in too_early,
        )
        for at, best in enumerate(bests)
    ]
    counts = Counter(problem.row.tile for problem in problems)
    return Cover(
        limit=limit,
        tiles=tuple(tile for tile, _ in counts.most_common()),
        raced=max(map(len, group)),
        problems=tuple(problems),
        unmeasured=tuple(unmeasured),
    )


def _time_us(row: Row) -> float:
    return row.median_us or math.nan


def chosen_tiles(slower: Mapping[str, Mapping[int, float]]) -> list[str]:
    """Return tiles that together cover all problems, chosen greedily.

    `slower` has the problems that each tile covers, and the fraction by which it is slower there.
    The next tile covers most of the remaining problems; of equal tiles, the sum of its fractions is
    smallest. At the end, a tile is dropped if the other tiles cover its problems too.
    """
    left = {problem for problems in slower.values() for problem in problems}
    chosen: list[str] = []
    while left:
        tile = min(
            slower,
            key=lambda tile: (-len(left & slower[tile].keys()), sum(slower[tile].values()), tile),
        )
        chosen.append(tile)
        left -= slower[tile].keys()
    for tile in sorted(chosen, key=lambda tile: len(slower[tile])):
        others = {problem for other in chosen if other != tile for problem in slower[other]}
        if slower[tile].keys() <= others:
            chosen.remove(tile)
    return chosen


def cover_rows(covers: Iterable[Cover]) -> list[Row]:
    """Return the rows of the race that a confirmation must measure for the covers."""
    return [
        row for cover in covers for problem in cover.problems for row in (problem.row, problem.best)
    ]


def cover_winners(
    covers: Iterable[Cover], winners: Iterable[Winner], confirmed: Sequence[Row]
) -> list[Winner]:
    """Return the winners with the covers' configurations instead of the fastest."""
    by_key = {row.key: row for row in confirmed}
    covered: dict[tuple[object, ...], Winner] = {winner.key: winner for winner in winners}
    for cover in covers:
        for problem in cover.problems:
            row = by_key.get(problem.row.key, problem.row)
            problem_key = row.compute_mode, row.layout, row.m, row.n, row.k
            key = (row.device or "", row.op, row.variant, *problem_key)
            if winner := covered.get(key):
                covered[key] = msgspec.structs.replace(
                    winner,
                    tile=row.tile,
                    simplest=row.tile,
                    within=cover.limit,
                    median_us=row.median_us or winner.median_us,
                    percent_of_blas=row.percent_of_blas,
                )
    return list(covered.values())


def cover_tables(covers: Iterable[Cover], confirmed: Sequence[Row]) -> list[RenderableType]:
    """Return each cover as a table, and what is not certain about it."""
    by_key = {row.key: row for row in confirmed}
    return [part for cover in covers for part in _cover_table(cover, by_key)]


def _cover_table(cover: Cover, confirmed: Rows) -> list[RenderableType]:
    first = cover.problems[0].row
    percent = f"{100 * cover.limit:g} %"
    keep = "keeps" if len(cover.tiles) == 1 else "keep"
    slower = {problem.row.key: problem.slower_by(confirmed) for problem in cover.problems}
    # A configuration that was within the limit in the race may be outside in the confirmation.
    within = sum(by <= cover.limit for by, _ in slower.values())
    some = f"{within} of " if within < len(slower) else ""
    heading = (
        f"\n{first.variant} {first.compute_mode}{first.special}: "
        f"{len(cover.tiles)} of {counted(cover.raced, 'configuration')} {keep} "
        f"{some}{counted(len(cover.problems), 'problem')} within {percent} of the best of each"
    )
    grid = table("tile", "problems", "slower by at most", "95 % below", left={"tile"})
    for tile in cover.tiles:
        pairs = [slower[p.row.key] for p in cover.problems if p.row.tile == tile]
        by, high = max(pairs)[0], max(pairs, key=itemgetter(1))[1]
        grid.add_row(tile, str(len(pairs)), f"{100 * by:.2f} %", f"{100 * high:.2f} %")
    parts: list[RenderableType] = [Text(heading, style="bold"), grid]
    doubts = [f"{row.problem or row.size}: not measured" for row in cover.unmeasured]
    for problem in cover.problems:
        row, (by, high) = problem.row, slower[problem.row.key]
        name = f"{row.problem or row.size} with {row.tile}"
        if not problem.decided:
            doubts.append(f"{name}: its race was undecided")
        elif high > cover.limit:
            doubts.append(f"{name}: {100 * by:+.2f} %, with 95 % below {100 * high:+.2f} %")
    if doubts:
        parts.append(
            Text(
                f"not certain to be within {percent}: {len(doubts)} of "
                f"{counted(len(cover.problems) + len(cover.unmeasured), 'problem')}; a longer "
                "--budget, or more --rounds, decides"
            )
        )
        parts += [Text(f"  {doubt}", style="dim") for doubt in doubts]
    return parts
