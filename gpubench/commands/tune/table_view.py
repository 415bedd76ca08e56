"""Prints the configurations and each problem's choice for `gpubench tune --table`."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from gpubench.commands.tune.table import Tabled
from gpubench.errors import INTERRUPTED
from gpubench.model import Status
from gpubench.plan.sweep import Sweep
from gpubench.results.tile_table import TileRow
from gpubench.text import counted
from gpubench.view.job import BEYOND
from gpubench.view.numbers import number, time_text
from gpubench.view.tables import say, table

SHOWN = 60  # maximum number of problems that are listed; the CSV lists all problems


def table_summary(rows: Sequence[TileRow]) -> list[RenderableType]:
    """Return the numbered configurations, and a table with a line for each problem."""
    counts = Counter((row.variant, row.tile) for row in rows)
    numbers = {choice: str(place) for place, (choice, _) in enumerate(counts.most_common(), 1)}
    parts: list[RenderableType] = [
        Text(f"{numbers[choice]}: {' '.join(choice).strip()} ({counted(count, 'problem')})")
        for choice, count in counts.most_common()
    ]
    shows_dtype = len({row.dtype for row in rows}) > 1
    names = ("size", *(["dtype"] if shows_dtype else []), "choice")
    figures = ("time", "ratio", "95 %", "ties", "of")
    grid = table(*names, *figures, left={"size", "dtype"})
    for row in rows[:SHOWN]:
        interval = "" if row.ratio is None else f"{row.ratio_low:.3f} .. {row.ratio_high:.3f}"
        grid.add_row(
            row.size,
            *([row.dtype] if shows_dtype else []),
            numbers[row.variant, row.tile],
            time_text(row.median_us),
            number(row.ratio, 3),
            interval,
            row.ties,
            row.configurations,
        )
    parts += [Text(), grid, Text("ratio: time of the library over the time of the kernel")]
    if len(rows) > SHOWN:
        parts.append(Text(f"and {len(rows) - SHOWN} more in the CSV"))
    parts += [Text(f"{row.size} {row.dtype}: {row.hint}") for row in rows if row.hint]
    return parts


def conclude_table(tabled: Tabled, path: Path, sweep: Sweep) -> int:
    """Print the last lines of `gpubench tune --table`, and return the exit code."""
    rows, again = tabled.rows, tabled.again
    measured = [row for outcome in (tabled.first, again) if outcome for row in outcome.rows]
    failed = [row for row in measured if row.status in {Status.WRONG, Status.ERROR}]
    for row in failed:
        say(f"{row.status}: {row.label}: {row.reason}", err=True)
    if again is None or again.interrupted:
        say("interrupted: there is no table", err=True)
        return INTERRUPTED
    for size in tabled.missing:
        say(f"{size}: nothing was timed", err=True)
    tiles = {(row.variant, row.tile) for row in rows if row.ties}
    kernels = dict.fromkeys(variant for variant, _ in sorted(tiles))
    beside = sum(not row.ties for row in rows)
    say(
        f"\n{counted(len(rows), 'problem')} in {tabled.wall_s:.1f} s: "
        f"{counted(len(tiles), 'configuration')} of {counted(len(kernels), 'kernel')}"
        f"{f'; a library is chosen for {beside}' if beside else ''}"
    )
    paired = [row for row in rows if row.median_us and row.library_us]
    if len(paired) > 1:
        ours_us = sum((row.weight or 1) * (row.median_us or 0) for row in paired)
        library_us = sum((row.weight or 1) * (row.library_us or 0) for row in paired)
        say(
            f"all problems together, by weight: {library_us / ours_us:.3f} × as fast as the "
            "fastest library"
        )
    say(
        f"round 1: {counted(len(tabled.first.rows), 'point')} in {tabled.first.wall_s:.1f} s; "
        f"then {len(again.rows)} points in {again.wall_s:.1f} s: {again.path}",
        err=True,
    )
    if sweep.timing.budget_s and tabled.wall_s > BEYOND * sweep.timing.budget_s:
        say(
            f"--budget {sweep.timing.budget_s:g}s was exceeded, because it limits only sampling",
            err=True,
        )
    if kernels:
        names = ("sizes", "op", "dtypes", "device", "kernels", "layouts", "cache", "launches")
        flags = [(name, sweep.options[name]) for name in names if name in sweep.options]
        beside_it = dict.fromkeys(row.library for row in rows if row.library)
        own = [("variants", ",".join([*kernels, *beside_it])), ("tiles", str(path))]
        texts = (text for name, value in (*flags, *own) for text in (f"--{name}", value))
        say(f"{path}; next: {shlex.join(['gpubench', 'sweep', *texts])}")
    return 1 if failed or tabled.missing else 0
