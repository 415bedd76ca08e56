"""A point's time over the results that were saved under a name: as tables, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.table import Table
from rich.text import Text

from gpubench.commands.history.points import Saved, histories, when
from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.plan.selection import selection
from gpubench.results import store
from gpubench.results.row import Row, read
from gpubench.view.tables import console, marked, remarks, table, uncertainty

TO_SECONDS = len("2026-11-22 04:25:49")

DIGITS = 8
"""Of a commit or a hash: enough to find it."""


def print_names() -> None:
    """What is saved: device, name, how many times, and the last time."""
    grid = table("device", "name", "saved", "newest", left={"device", "name", "newest"})
    for of_name in sorted(store.directory().glob("*/*")):
        if files := sorted(of_name.glob("*.csv")):
            grid.add_row(
                of_name.parent.name, of_name.name, str(len(files)), when(files[-1])[:TO_SECONDS]
            )
    if not grid.row_count:
        raise UsageError("history: nothing is saved yet; 'gpubench sweep --save NAME' saves")
    console().print(grid)


def print_history(
    name: str,
    *,
    only: str | None = None,
    exclude: str | None = None,
    tile: str | None = None,
    last: int = 10,
    output: Path | None = None,
    force: bool = False,
) -> None:
    """Print a table a point. Raises UsageError for a name or a selection that has nothing."""
    timed = [
        (when(path), row)
        for path in store.require(name, None, "history")
        for row in read(path)
        if row.status == Status.OK and tile in {None, row.tile}
    ]
    keep = selection(only, exclude, [row for _, row in timed])
    found = histories([saved for saved in timed if keep(saved[1])], last)
    if not found:
        raise UsageError(f"history: '{name}' has no such point that was timed")
    save = None
    if output:
        from gpubench.commands.history.picture import draw
        from gpubench.view.pictures.style import claim

        save = partial(draw, f"{name}, newest {last}", found, claim(output, force=force))
    screen = console()
    for heading, points in found.items():
        screen.print(Text(f"\n{heading}", style="bold"))
        for point, history in points.items():
            screen.print(Text(f"\n{point}"), _grid(history), sep="\n")
    screen.print(
        *remarks([row for of in found.values() for one in of.values() for _, row in one]), sep="\n"
    )
    if save:
        save()
        screen.print(Text(str(output)), soft_wrap=True)


def _grid(history: Sequence[Saved]) -> Table:
    """A line for each time the point was saved; the change is over the line above."""
    grid = table("saved, UTC", "commit", "kernel", "time", "±", "change", left=_TEXT)
    before: Row | None = None
    for saved_when, row in history:
        grid.add_row(
            saved_when[:TO_SECONDS],
            (row.commit or "")[:DIGITS] + ("+" if (row.commit or "").endswith("+") else ""),
            (row.source_hash or "")[:DIGITS],
            marked(row),
            uncertainty(row),
            _change(before, row),
        )
        before = row
    return grid


_TEXT = {"saved, UTC", "commit", "kernel"}


def _change(before: Row | None, row: Row) -> str:
    """`+3.1 %`; nothing where rounds of either disagree, since no ratio may rest on these."""
    if before is None or before.unstable or row.unstable or not before.median_us:
        return ""
    return f"{100 * ((row.median_us or 0.0) / before.median_us - 1):+.1f} %"
