"""The times of points over the results saved under a name, as tables."""

from collections.abc import Iterator, Sequence
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
    screen, before = console(), ""
    shown = list(histories([(time, row) for time, row in timed if keep(row)]))
    for heading, history in shown:
        if heading != before:
            screen.print(Text(f"\n{heading}", style="bold"))
        before = heading
        screen.print(Text(f"\n{history[-1][1].kernel}"), _grid(history), sep="\n")
    screen.print(*remarks([row for _, history in shown for _, row in history]), sep="\n")


def histories(timed: Sequence[Saved]) -> Iterator[tuple[str, list[Saved]]]:
    """Yield the problem of each variant, and its tile that is fastest in the newest result."""

    def kernel(saved: Saved) -> tuple[str, str]:
        row = replace(saved[1], problem=None)  # a list gives the same problem a name
        return title(row), row.variant

    def order(item: tuple[tuple[str, str], list[Saved]]) -> tuple[object, ...]:
        (heading, _), saves = item
        return saves[-1][1].problem_key, heading

    for (heading, _), saves in sorted(grouped(timed, kernel).items(), key=order):
        best = best_of(row for time, row in saves if time == saves[-1][0])
        yield heading, [saved for saved in saves if saved[1].tile == best.tile][-MAX_RESULTS:]


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
