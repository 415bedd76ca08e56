"""The times of points over the results saved under a name, as tables."""

from collections.abc import Sequence
from dataclasses import replace

from rich.text import Text

from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.model import Status
from gpubench.plan.selection import selection
from gpubench.results import store
from gpubench.results.row import Row, read
from gpubench.view.row_tables import best_of, marked, remarks, title, uncertainty
from gpubench.view.tables import Table, console, say, table

MAX_RESULTS = 10
"""Maximum number of results of a point that are shown, the newest."""

DIGITS = 8
"""Number of shown digits of a commit or a hash."""

Saved = tuple[str, Row]
"""The name of the saved file, which is its time, and the row."""

Histories = dict[str, dict[str, list[Saved]]]
"""The rows of each point, the oldest first: by a problem's title, and by variant and tile."""


def print_names() -> None:
    """List the saved names: device, name, number of results, and time of the newest."""
    grid = table("device", "name", "saved", "newest", left={"device", "name", "newest"})
    for directory in sorted(store.directory().glob("*/*")):
        if files := sorted(directory.glob("*.csv")):
            newest = saved_time(files[-1].stem)
            grid.add_row(directory.parent.name, directory.name, len(files), newest)
    if not grid.lines:
        raise UsageError("history: nothing is saved yet; 'gpubench sweep --save NAME' saves")
    console().print(grid)


def print_history(name: str, only: str | None, exclude: str | None) -> None:
    """Print a table per point. A saved result that cannot be read is passed over.

    Raises UsageError for an unknown name, if no result has a time, and if no row is left.
    """
    timed: list[Saved] = []
    for path in store.require(name, None, "history"):
        try:
            rows = read(path)
        except UsageError as error:
            say(f"history passes over {error}", err=True)
        else:
            timed += [(path.stem, row) for row in rows if row.status == Status.OK]
    if not timed:
        raise UsageError(f"history: no result saved as '{name}' has a time")
    keep = selection([row for _, row in timed], only, exclude)
    points = histories([(time, row) for time, row in timed if keep(row)])
    screen = console()
    for heading, histories_by_name in points.items():
        screen.print(Text(f"\n{heading}", style="bold"))
        for point, history in histories_by_name.items():
            screen.print(Text(f"\n{point}"), _grid(history), sep="\n")
    rows = [row for group in points.values() for history in group.values() for _, row in history]
    screen.print(*remarks(rows), sep="\n")


def histories(timed: Sequence[Saved]) -> Histories:
    """Return, for each problem and variant, the tile that is fastest in the newest result."""
    # A list gives the same problem a name.
    groups = grouped(
        timed, lambda saved: (title(replace(saved[1], problem=None)), saved[1].variant)
    )
    points: Histories = {}
    for (heading, _), saves in sorted(groups.items(), key=lambda item: item[1][-1][1].problem_key):
        best = best_of(row for time, row in saves if time == saves[-1][0])
        history = [saved for saved in saves if saved[1].tile == best.tile][-MAX_RESULTS:]
        points.setdefault(heading, {})[best.kernel] = history
    return points


def saved_time(name: str) -> str:
    """Return when a file was saved, `2026-11-22 04:25:49`, UTC."""
    day, _, time = name.partition("T")
    return f"{day[:4]}-{day[4:6]}-{day[6:]} {time[:2]}:{time[2:4]}:{time[4:6]}"


def _grid(history: Sequence[Saved]) -> Table:
    """Return a table with a line per saved result; the change is relative to the line above."""
    texts = ("saved, UTC", "commit", "kernel")
    grid = table(*texts, "time", "±", "change", left=texts)
    before: Row | None = None
    for time, row in history:
        commit, dirty, _ = (row.commit or "").partition("+")
        names = commit[:DIGITS] + dirty, (row.source_hash or "")[:DIGITS]
        grid.add_row(saved_time(time), *names, marked(row), uncertainty(row), _change(before, row))
        before = row
    return grid


def _change(before: Row | None, row: Row) -> str:
    """Return `+3.1 %`; empty if the rounds of either row disagree."""
    if before is None or before.unstable or row.unstable or not before.median_us:
        return ""
    return f"{100 * ((row.median_us or 0.0) / before.median_us - 1):+.1f} %"
