"""The times of points over the results saved under a name: as tables, and as a picture."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.text import Text

from gpubench.commands.history.points import (
    DIGITS,
    TO_SECONDS,
    Saved,
    distinct,
    histories,
    saved_time,
)
from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.plan.selection import selection
from gpubench.results import store
from gpubench.results.row import Row, read
from gpubench.text import counted
from gpubench.view.row_tables import UNSTABLE, marked, remarks, uncertainty
from gpubench.view.tables import Table, console, say, table


def print_names() -> None:
    """List the saved names: device, name, number of results, and time of the newest."""
    grid = table("device", "name", "saved", "newest", left={"device", "name", "newest"})
    for directory in sorted(store.directory().glob("*/*")):
        if files := sorted(directory.glob("*.csv")):
            newest = saved_time(files[-1])[:TO_SECONDS]
            grid.add_row(directory.parent.name, directory.name, len(files), newest)
    if not grid.lines:
        raise UsageError("history: nothing is saved yet; 'gpubench sweep --save NAME' saves")
    console().print(grid)


def print_history(
    name: str,
    *,
    only: str | None = None,
    exclude: str | None = None,
    last: int = 10,
    output: Path | None = None,
    force: bool = False,
) -> None:
    """Print a table per point. A saved result that cannot be read is passed over.

    Raises UsageError for an unknown name, if no result can be read, and if no row is left.
    """
    timed = _timed(store.require(name, None, "history"))
    if not timed:
        raise UsageError(f"history: no result saved as '{name}' has a time")
    keep = selection([row for _, row in timed], only, exclude)
    points = histories([(time, row) for time, row in timed if keep(row)], last)
    save = None
    if output:
        from gpubench.commands.history.picture import draw
        from gpubench.view.pictures.style import claim

        save = partial(draw, f"{name}, newest {last}", points, claim(output, force=force))
    screen = console()
    for heading, histories_by_name in points.items():
        screen.print(Text(f"\n{heading}", style="bold"))
        for point, history in histories_by_name.items():
            screen.print(Text(f"\n{point}"), _grid(history), sep="\n")
    rows = [row for group in points.values() for history in group.values() for _, row in history]
    screen.print(*remarks(rows), sep="\n")
    if save:
        save()
        if flagged := sum(row.unstable for row in rows):
            screen.print(f"{counted(flagged, 'time')} marked {UNSTABLE} left out of the picture")
        say(str(output))


def _timed(paths: Sequence[Path]) -> list[Saved]:
    """Return the measured rows of the files. Raises UsageError if no file can be read."""
    timed: list[Saved] = []
    errors: list[UsageError] = []
    for path in paths:
        try:
            rows = read(path)
        except UsageError as error:
            errors.append(error)
        else:
            timed += [(saved_time(path), row) for row in rows if row.status == Status.OK]
    if len(errors) == len(paths):
        raise errors[-1]
    for unreadable in errors:
        say(f"history passes over {unreadable}", err=True)
    return timed


def _grid(history: Sequence[Saved]) -> Table:
    """Return a table with a line per saved result; the change is relative to the line above."""
    texts = ("saved, UTC", "commit", "kernel")
    grid = table(*texts, "time", "±", "change", left=texts)
    before: Row | None = None
    dates = distinct([time for time, _ in history], TO_SECONDS)
    for date, (_, row) in zip(dates, history, strict=True):
        grid.add_row(
            date,
            (row.commit or "")[:DIGITS] + ("+" if (row.commit or "").endswith("+") else ""),
            (row.source_hash or "")[:DIGITS],
            marked(row),
            uncertainty(row),
            _change(before, row),
        )
        before = row
    return grid


def _change(before: Row | None, row: Row) -> str:
    """Return `+3.1 %`; empty if the rounds of either row disagree, as no ratio may rest on them."""
    if before is None or before.unstable or row.unstable or not before.median_us:
        return ""
    return f"{100 * ((row.median_us or 0.0) / before.median_us - 1):+.1f} %"
