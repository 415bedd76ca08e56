"""Shows how the times of points changed over the results that were saved under a name."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.text import Text

from gpubench.commands.history.changes import Saved, changes, point_of, saved_time
from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.model import Status
from gpubench.plan.selection import selection
from gpubench.results import store
from gpubench.results.row import Row, read
from gpubench.view.row_tables import best_of, marked, remarks, title, uncertainty
from gpubench.view.tables import Table, console, say, table

MAX_RESULTS = 10
"""Maximum number of results of a point that are shown. Older results are left out."""

DIGITS = 8
"""Number of leading digits of a commit or a hash that are shown."""


def print_history(name: str, only: str | None, exclude: str | None, against: str | None) -> int:
    """Print a table and the moves of each point. Return 1 if a point is slower than the anchor.

    A saved result that cannot be read is skipped. Raises UsageError for an unknown name, if no
    result has a time, and if no row is left.
    """
    timed = _timed(store.require(name, None, "history"))
    if not timed:
        raise UsageError(f"history: no result saved as '{name}' has a time")
    keep = selection([row for _, row in timed], only, exclude)
    devices = dict.fromkeys(row.device or "" for _, row in timed)
    anchored = _anchor(against, devices) if against else []
    moves = changes(_recent(timed), against or "", anchored)
    screen, before = console(), ""
    kept = [(time, row) for time, row in timed if keep(row)]
    shown = list(histories(kept))
    slower, hidden = False, {point_of(row): row for row in _newest(kept)}
    for heading, history in shown:
        if heading != before:
            screen.print(Text(f"\n{heading}", style="bold"))
        before = heading
        point = point_of(history[-1][1])
        screen.print(Text(f"\n{history[-1][1].kernel}"), _grid(history), sep="\n")
        for line in (*moves.moves.get(point, ()), moves.since.get(point, "")):
            if line:
                screen.print(Text(line))
        slower |= point in moves.slower
        hidden.pop(point, None)
    for point, row in hidden.items():  # tiles that another tile beats
        if point in moves.slower:
            label = Text(f"\n{row.label} on {row.device}")
            screen.print(label, Text(moves.since[point]), sep="\n")
            slower = True
    for line in moves.machine:
        screen.print(Text(f"\n{line}"))
    screen.print(*remarks([row for _, history in shown for _, row in history]), sep="\n")
    return int(slower)


def _timed(paths: Iterable[Path]) -> list[Saved]:
    timed: list[Saved] = []
    for path in paths:
        try:
            rows = read(path)
        except UsageError as error:
            say(f"history skips {error}", err=True)
        else:
            timed += [(path.stem, row) for row in rows if row.status == Status.OK]
    return timed


def _recent(timed: Sequence[Saved]) -> list[Saved]:
    """Return the newest `MAX_RESULTS` results of each device and operation."""
    recent: list[Saved] = []
    for rows in grouped(timed, lambda each: (each[1].device, each[1].op)).values():
        times = sorted({time for time, _ in rows})[-MAX_RESULTS:]
        recent += [each for each in rows if each[0] in times]
    return recent


def _newest(timed: Sequence[Saved]) -> Iterator[Row]:
    """Yield the rows of each variant's newest result at each problem."""
    kernels = grouped(timed, lambda each: (each[1].device, each[1].problem_key, each[1].variant))
    for saves in kernels.values():
        yield from (row for time, row in saves if time == saves[-1][0])


def _anchor(name: str, devices: Iterable[str]) -> list[Saved]:
    """Return the newest results of one build that were saved under a name.

    Raises UsageError if no result has a time.
    """
    store.require(name, None, "--against")
    paths: list[Path] = []
    for device in devices:
        if saved := store.saved(name, device):
            newest, skipped = store.newest_build(saved, partial(read, columns=("status",)))
            paths += newest
            for message in skipped:
                say(f"--against skips {message}", err=True)
    timed = _timed(paths)
    if paths and not timed:
        raise UsageError(f"--against: no result saved as '{name}' has a time")
    if not timed:
        raise UsageError(
            f"--against: no result saved as '{name}' comes from the device of this history"
        )
    return timed


def histories(timed: Sequence[Saved]) -> Iterator[tuple[str, list[Saved]]]:
    """Yield a heading, and the results of one tile, for each problem and variant.

    The tile is the fastest tile of the newest result.
    """

    def kernel(saved: Saved) -> tuple[str, str]:
        row = replace(saved[1], problem=None)  # only some results may name the problem
        return title(row), row.variant

    def order(item: tuple[tuple[str, str], list[Saved]]) -> tuple[object, ...]:
        (heading, _), saves = item
        return saves[-1][1].problem_key, heading

    for (heading, _), saves in sorted(grouped(timed, kernel).items(), key=order):
        best = best_of(row for time, row in saves if time == saves[-1][0])
        yield heading, [saved for saved in saves if saved[1].tile == best.tile][-MAX_RESULTS:]


def _grid(history: Sequence[Saved]) -> Table:
    """Return a table with a line per saved result. A change is relative to the line above."""
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
    """Return a change such as `+3.1 %`, or an empty text if the rounds of either row disagree."""
    if before is None or before.unstable or row.unstable or not before.median_us:
        return ""
    return f"{100 * ((row.median_us or 0.0) / before.median_us - 1):+.1f} %"
