"""What `gpubench tune` prints: the group of each race, why the others left, what was confirmed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from gpubench.commands.tune.run import Tuned, groups, races
from gpubench.model import Status
from gpubench.results.row import Row
from gpubench.view.tables import NAMES, Table, figures, remarks, rows_table, table, time_text, title

SHOWN = 12
"""Configurations of a group that are listed; the CSV has all."""


def summary(tuned: Tuned, within: float) -> RenderableType:
    """Each race, and the confirmation of what it found."""
    parts: list[RenderableType] = []
    confirmed = tuned.confirmed.rows if tuned.confirmed else []
    for race in races(tuned.race.rows):
        first = race[0]
        parts.append(Text(f"\n{title(first)}", style="bold"))
        ending = tuned.race.endings.get(first.key._replace(tile=""))
        parts.append(Text(_statement(race, within) + (f" ({ending})" if ending else "")))
        parts += [Text(f"  {line}", style="dim") for line in _why_left(race)]
        for group in groups(race):
            parts += [Text(), _group_table(group)]
            if len(group) > SHOWN:
                parts.append(Text(f"and {len(group) - SHOWN} more, status ok in the CSV"))
        if again := [row for row in confirmed if _of_race(row, first) and row.median_us]:
            again.sort(key=lambda row: row.median_us or 0.0)
            parts += [
                Text("\nconfirmed in fresh processes"),
                rows_table(again, [*NAMES, *figures(again[0], again)]),
            ]
    return Group(*parts, *remarks(confirmed))


def _statement(race: Sequence[Row], within: float) -> str:
    """`cpu_tile: 3 of 256 configurations are not shown to be …`."""
    left = sum(map(len, groups(race)))
    are = "is" if left == 1 else "are"
    return (
        f"{race[0].variant}: {left} of {len(race)} configurations {are} not shown to be more than "
        f"{100 * within:g} % slower than the best, at simultaneous 95 %"
    )


def _why_left(race: Sequence[Row]) -> list[str]:
    """How many left and why, those without a launch first."""
    gone = [row for row in race if row.status != Status.OK]
    reasons = Counter((bool(row.rounds), row.status, row.reason) for row in gone)
    lines = []
    for (launched, status, reason), count in sorted(reasons.items(), key=str):
        lines.append(f"{count} {status}{'' if launched else ' before any launch'}: {reason}")
    return lines


def _group_table(group: Sequence[Row]) -> Table:
    """The fastest of a group, as the race saw them."""
    grid = table("tile", "time in the race", "slower by", "rounds", left={"tile"})
    for row in group[:SHOWN]:
        slower = 100 * ((row.median_us or 0.0) / (group[0].median_us or 1.0) - 1)
        grid.add_row(row.tile, time_text(row.median_us), f"{slower:.2f} %", str(row.rounds))
    return grid


def _of_race(row: Row, of: Row) -> bool:
    """Whether a confirmed row is of a race's variant and problem, or of its library there."""
    return row.problem_key == of.problem_key and (row.variant == of.variant or not row.tile)
