"""Finds when and why the times of saved results changed.

An anchor is a saved result, such as a release, with which the newest results are compared.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from gpubench.grouping import grouped
from gpubench.model import PointKey
from gpubench.plan.registry import libraries
from gpubench.results.row import Row
from gpubench.stats.moderated import Floats, summarize
from gpubench.stats.modes import MODE_GAP
from gpubench.stats.moves import MARGIN, Move, find_moves, machine_levels, since_anchor

THRESHOLD = math.log1p(0.02)  # smallest reported change since the anchor, as in `diff`
Q = 0.01  # the false discovery rate of these changes, as in `diff`

Saved = tuple[str, Row]
"""The name of a saved file, and a row of the file. The name states when the file was saved."""

Point = tuple[str | None, PointKey]
"""The name of a device, and the key of a point."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The changes in each point's series of results. The texts are lines for a terminal."""

    moves: Mapping[Point, Sequence[str]]
    """Lines on the moves of each point, such as `moved +3.1 % at 2026-11-22 04:25:49: kernel, its
    source changed`."""

    since: Mapping[Point, str] = field(default_factory=dict)
    """Line on the change of each point since the anchor, such as `since v1 +4.6 % (+3.9 to +5.3 %):
    slower`."""

    machine: Sequence[str] = ()
    """Lines on moves of the machine, which all points share."""

    slower: frozenset[Point] = frozenset()
    """The points that are confirmed to be slower than in the anchor's results."""


def point_of(row: Row) -> Point:
    """Return the device and the point that identify a row's series of results."""
    return row.device, row.key


def changes(saved: Sequence[Saved], anchor: str = "", before: Sequence[Saved] = ()) -> Changes:
    """Find the moves of all series, and compare each series with the rows of an anchor."""
    moves: dict[Point, list[str]] = {}
    since: dict[Point, str] = {}
    machine: list[str] = []
    slower: set[Point] = set()
    earlier = grouped(before, lambda each: each[1].device)
    for device, of_device in grouped(saved, lambda each: each[1].device).items():
        own = _Device(of_device, earlier.get(device, []))
        own_moves, by_machine = own.moves()
        for move in own_moves:
            moves.setdefault(own.points[move.point], []).append(own.reason(move))
        machine += [own.machine_line(device, move) for move in by_machine]
        if before:
            lines, of_device_slower = own.since(anchor, own_moves)
            since |= lines
            slower |= of_device_slower
    return Changes(moves=moves, since=since, machine=machine, slower=frozenset(slower))


class _Device:
    """The results of one device. In each array, the anchor's results come first."""

    def __init__(self, saved: Sequence[Saved], before: Sequence[Saved]) -> None:
        by_point = grouped(saved, lambda each: point_of(each[1]))
        self.points = list(by_point)
        self.names = sorted({name for name, _ in saved})
        anchors = sorted({name for name, _ in before})
        self._rows = [dict(by_point[point]) for point in self.points]
        anchored = grouped(before, lambda each: point_of(each[1]))
        self._before = [dict(anchored.get(point, [])) for point in self.points]
        self._anchors = len(anchors)
        levels, references = [], []
        for first, rows in zip(self._before, self._rows, strict=True):
            results = [first.get(name) for name in anchors]
            results += [rows.get(name) for name in self.names]
            levels.append([(row and row.median_us) or math.nan for row in results])
            references.append(_is_reference([row for row in results if row]))
        logs = np.log(levels)
        self._machine = machine_levels(logs, np.array(references))
        self._shows_machine = np.isfinite(logs[np.array(references)]).any(axis=0)
        """Whether a reference has a time in each result."""

        self._levels = logs - self._machine

    def moves(self) -> tuple[list[Move], list[Move]]:
        """Return the moves of points relative to the machine, and the moves of the machine."""
        machine = self._machine[self._anchors :]
        levels, speeds = self._levels[:, self._anchors :], _speeds(self._rows)
        if machine.any():
            machine = np.where(self._shows_machine[self._anchors :], machine, np.nan)
            levels, speeds = np.vstack([levels, machine]), np.append(speeds, 0.0)
        all_moves = find_moves(levels, speeds)
        last = len(self.points)
        return [x for x in all_moves if x.point < last], [x for x in all_moves if x.point == last]

    def reason(self, move: Move) -> str:
        """Return a line on a move, such as `moved +3.1 % at …: kernel, its source changed`."""
        rows = self._rows[move.point]
        names = [name for name in self.names if name in rows]
        at = self.names[move.at]
        after = next(name for name in names if name >= at)
        previous = [name for name in names if name < at]
        return _line(move, after, _why(rows[previous[-1]], rows[after]))

    def machine_line(self, device: str | None, move: Move) -> str:
        """Return a line on a move that all references share, which shows that the machine moved."""
        at = self.names[move.at]
        shows_machine = self._shows_machine[self._anchors :]
        previous = self.names[np.flatnonzero(shows_machine[: move.at])[-1]]
        drivers = [
            next((rows[name].driver for rows in self._rows if name in rows), None)
            for name in (previous, at)
        ]
        new = f", driver {drivers[0]} → {drivers[1]}" if drivers[0] != drivers[1] else ""
        return f"{device}: {_line(move, at, f'machine, unchanged code moved{new}')}"

    def since(self, anchor: str, moves: Sequence[Move]) -> tuple[dict[Point, str], set[Point]]:
        """Return a line for each point that the anchor has, and the points that are slower."""
        split = self._levels[:, : self._anchors], self._levels[:, self._anchors :]
        edges = [self._edges(place, moves) for place in range(len(self.points))]
        steps = since_anchor(*split, edges, THRESHOLD, Q)
        lines: dict[Point, str] = {}
        slower: set[Point] = set()
        for point, step, low, high, p in zip(self.points, *steps, strict=True):
            if math.isnan(step):
                continue
            interval = f" ({_percent(low)} to {_percent(high)})"
            verdict = "too few results to judge"
            if not math.isnan(p):
                verdict = "within 2 %" if max(-low, high) <= THRESHOLD else "not settled"
                if p <= Q:
                    verdict = "slower" if step > 0 else "faster"
            if verdict == "slower":
                slower.add(point)
            lines[point] = (
                f"since {anchor} {_percent(step)}{'' if math.isnan(p) else interval}: {verdict}"
            )
        return lines, slower

    def _edges(self, point: int, moves: Sequence[Move]) -> list[int]:
        """Return the indices of the results at which a point's code changed, or its time moved."""
        edges = {move.at for move in moves if move.point == point}
        rows = [(self.names.index(name), row) for name, row in sorted(self._rows[point].items())]
        edges |= {at for (_, old), (at, new) in pairwise(rows) if _code(old) != _code(new)}
        return sorted(edges)


def _code(row: Row) -> tuple[str | None, ...]:
    library = row.library if row.variant in libraries() else None
    return row.source_hash, row.code_hash, library


def saved_time(name: str) -> str:
    """Return the UTC time at which a file was saved, such as `2026-11-22 04:25:49`."""
    day, _, time = name.partition("T")
    return f"{day[:4]}-{day[4:6]}-{day[6:]} {time[:2]}:{time[2:4]}:{time[4:6]}"


def _line(move: Move, name: str, why: str) -> str:
    return f"moved {_percent(move.step)} at {saved_time(name)}: {why}"


def _percent(step: float) -> str:
    return f"{100 * math.expm1(step):+.1f} %"


def _why(before: Row, after: Row) -> str:
    """Return a text on what changed between the results before and after a move."""
    if after.variant in libraries():
        return (
            f"library, {before.library} → {after.library}"
            if before.library != after.library
            else "unknown, the library is the same"
        )
    if before.source_hash != after.source_hash:
        return "kernel, whose source changed"
    if before.code_hash != after.code_hash:
        return "kernel, whose machine code changed, but not its source"
    return "unknown, the code is the same"


def _is_reference(rows: Sequence[Row]) -> bool:
    """Return whether all results of a point ran the same compiled code, or the same library."""
    if rows[0].variant in libraries():
        return len({row.library for row in rows}) == 1
    return len({row.code_hash for row in rows}) == 1 and rows[0].code_hash is not None


def _speeds(rows: Iterable[Mapping[str, Row]]) -> Floats:
    """Return for each point the largest gap between two groups of rounds, or 0 without groups."""
    speeds = []
    for results in rows:
        gaps = [0.0]
        for row in results.values():
            if len(row.round_medians_us) > 1:
                rounds = summarize(np.log([row.round_medians_us]))
                gap = float(rounds.gap[0])
                gaps.append(gap if gap > max(MARGIN, MODE_GAP * rounds.group[0]) else 0.0)
        speeds.append(max(gaps))
    return np.array(speeds)
