"""Shows the races of `gpubench tune`, and the confirmation of the winners.

The group of a race has the configurations that were not shown to be slower than the best.
"""

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from gpubench.commands.tune.run import Tuned, group_of, is_undecided, races
from gpubench.commands.tune.schedule import SkipReason
from gpubench.model import Status
from gpubench.results.row import Row
from gpubench.stats.race import MIN_VISITS
from gpubench.text import counted
from gpubench.view.numbers import time_text
from gpubench.view.row_tables import NAMES, figures, remarks, rows_table, title, with_common_reasons
from gpubench.view.tables import Table, table

SHOWN = 12  # maximum number of configurations of a group that are listed; the CSV lists all


def summary(tuned: Tuned, within: float) -> RenderableType:
    """Return texts and tables on each race, on its group, and on the confirmed configurations."""
    parts: list[RenderableType] = []
    confirmed = tuned.confirmed.rows if tuned.confirmed else []
    for race in races(tuned.race.rows):
        first = race[0]
        parts.append(Text(f"\n{title(first)}", style="bold"))
        ending = tuned.race.endings.get(first.key._replace(tile=""))
        parts.append(Text(_statement(race, within) + (f" ({ending})" if ending else "")))
        parts += [Text(f"  {line}", style="dim") for line in _why_left(race)]
        if group := group_of(race):
            parts += [Text(), _group_table(group)]
        if len(group) > SHOWN:
            parts.append(Text(f"and {len(group) - SHOWN} more, with status ok in the CSV"))
        again = [
            row
            for row in sorted(confirmed, key=lambda row: row.median_us or 0.0)
            if row.problem_key == first.problem_key and row.median_us
            if row.variant == first.variant or not row.tile  # a library has no tile
        ]
        if again:
            parts.append(Text("\nconfirmed in fresh processes"))
            parts.append(rows_table(again, [*NAMES, *figures(again[0], again)]))
    return Group(*parts, *remarks(confirmed))


def _statement(race: Sequence[Row], within: float) -> str:
    """Return how many configurations are left in a race, or why the race is undecided."""
    left = group_of(race)
    name, count = race[0].variant, len(race)
    if is_undecided(race):
        unmeasured = sum(row.reason == SkipReason.BUDGET_ENDED for row in race)
        rounds = counted(max((row.rounds or 0 for row in left), default=0), "round")
        none = f", and {unmeasured} in no round" if unmeasured else ""
        return (
            f"{name}: undecided. Of {count} configurations, {len(left)} were measured in at most "
            f"{rounds}{none}: a verdict needs {MIN_VISITS} rounds. No winner is kept. "
            "Use a longer --budget, or leave out --budget"
        )
    are = "is" if len(left) == 1 else "are"
    return (
        f"{name}: {len(left)} of {count} configurations {are} not shown to be more than "
        f"{100 * within:g} % slower than the best. The best is among them with a "
        "probability of 95 % or more"
    )


def _why_left(race: Sequence[Row]) -> list[str]:
    """Return a line for each reason, with the number of configurations that left the race."""
    gone = with_common_reasons([row for row in race if row.status != Status.OK])
    reasons = Counter((bool(row.rounds), row.status, row.reason) for row in gone)
    return [
        f"{count} {status}{'' if launched else ' before any launch'}: {reason}"
        for (launched, status, reason), count in sorted(reasons.items(), key=str)
    ]


def _group_table(group: Sequence[Row]) -> Table:
    """Return the fastest configurations of a group with their times in the race."""
    grid = table("tile", "time in the race", "slower by", "rounds", left={"tile"})
    for row in group[:SHOWN]:
        slower = 100 * ((row.median_us or 0.0) / (group[0].median_us or 1.0) - 1)
        grid.add_row(row.tile, time_text(row.median_us), f"{slower:.2f} %", str(row.rounds))
    return grid
