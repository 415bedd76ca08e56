"""`--cover`: the fewest configurations that keep every problem within a percentage of its best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import msgspec
from rich.console import RenderableType
from rich.text import Text

from gpubench.model import PointKey, Status
from gpubench.plan.tuned import Winner
from gpubench.results.row import Row
from gpubench.stats.intervals import median_interval
from gpubench.text import counted
from gpubench.view.numbers import time_text
from gpubench.view.tables import table

MIN_PAIRS = 6
"""Minimum number of rounds for an interval of the ratio of two configurations. With fewer rounds,
no interval covers 95 % of medians."""

SHOWN = 12
"""Maximum number of uncertain problems that are listed."""

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
        return _slower_by(row, best)


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
    groups: dict[PointKey, list[Sequence[Row]]] = {}
    for race in races:
        kind = race[0].key._replace(tile="", m=0, n=0, k=0)
        groups.setdefault(kind, []).append(race)
    all_covers = (_cover(group, too_early, limit) for group in groups.values())
    return [cover for cover in all_covers if cover.problems]


def _is_timed(race: Sequence[Row]) -> bool:
    return any(row.status == Status.OK and row.median_us for row in race)


def _cover(group: Sequence[Sequence[Row]], too_early: set[PointKey], limit: float) -> Cover:
    races = list(filter(_is_timed, group))
    bests = []
    slower: dict[str, dict[int, float]] = {}
    rows: dict[tuple[str, int], Row] = {}
    for index, race in enumerate(races):
        left = [row for row in race if row.status == Status.OK and row.median_us]
        best = min(left, key=lambda row: row.median_us or 0.0)
        bests.append(best)
        for row in left:
            by = (row.median_us or 0.0) / (best.median_us or 1.0) - 1
            if by <= limit:
                slower.setdefault(row.tile, {})[index] = by
                rows[row.tile, index] = row
    tiles = chosen_tiles(slower)
    problems = []
    for index, best in enumerate(bests):
        tile = min(
            (tile for tile in tiles if index in slower[tile]), key=lambda tile: slower[tile][index]
        )
        decided = best.key._replace(tile="") not in too_early
        problems.append(CoveredProblem(row=rows[tile, index], best=best, decided=decided))
    counts = Counter(problem.row.tile for problem in problems)
    return Cover(
        limit=limit,
        tiles=tuple(tile for tile, _ in counts.most_common()),
        raced=max(map(len, group)),
        problems=tuple(problems),
        unmeasured=tuple(race[0] for race in group if not _is_timed(race)),
    )


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
    problems: dict[tuple[object, ...], tuple[Cover, Row]] = {}
    for cover in covers:
        for problem in cover.problems:
            row = by_key.get(problem.row.key, problem.row)
            problems.setdefault(_winner_key(row), (cover, row))
    covered = []
    for winner in winners:
        cover, row = problems[winner.key]
        covered.append(
            msgspec.structs.replace(
                winner,
                tile=row.tile,
                simplest=row.tile,
                within=cover.limit,
                median_us=row.median_us or winner.median_us,
                percent_of_blas=row.percent_of_blas,
            )
        )
    return covered


def _winner_key(row: Row) -> tuple[object, ...]:
    """Return the `Winner.key` of the row's race."""
    problem = row.compute_mode, row.layout, row.m, row.n, row.k
    return row.device or "", row.op, row.variant, *problem


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
    parts: list[RenderableType] = [
        Text(heading, style="bold"),
        grid,
        Text(_total(cover, confirmed)),
    ]
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
        parts += [Text(f"  {doubt}", style="dim") for doubt in doubts[:SHOWN]]
        if len(doubts) > SHOWN:
            parts.append(Text(f"  and {len(doubts) - SHOWN} more", style="dim"))
    return parts


def _total(cover: Cover, confirmed: Rows) -> str:
    """Return `all problems together take 12.30 ms with these configurations, …`."""
    total_us = best_us = 0.0
    for problem in cover.problems:
        weight = problem.row.weight or 1.0
        row, best = (confirmed.get(row.key, row) for row in (problem.row, problem.best))
        total_us += weight * (row.median_us or 0.0)
        best_us += weight * (best.median_us or 0.0)
    return (
        f"all problems together take {time_text(total_us)} with these configurations, "
        f"{time_text(best_us)} with the fastest of the race for each"
    )


def _slower_by(row: Row, best: Row) -> tuple[float, float]:
    if row.key == best.key:
        return 0.0, 0.0
    ours, theirs = row.medians_us, best.medians_us
    if len(ours) == len(theirs) >= MIN_PAIRS:  # rounds are interleaved, so drift cancels
        _, by, high = median_interval([a / b for a, b in zip(ours, theirs, strict=True)])
        return by - 1, high - 1
    by = (row.median_us or 0.0) / (best.median_us or 1.0) - 1
    high = (row.ci_high_us or row.median_us or 0.0) / (best.ci_low_us or best.median_us or 1.0) - 1
    return by, high
