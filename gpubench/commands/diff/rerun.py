"""`--rerun`: the ambiguous points of a comparison, measured again and judged again."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace

from gpubench.commands.diff.again import measure_again, source_hashes
from gpubench.commands.diff.input import Key, Table
from gpubench.commands.diff.report import counted
from gpubench.commands.diff.verdicts import Comparison, Verdict
from gpubench.row import Row
from gpubench.view.progress import progress

ROUNDS = 10
"""Fresh rounds for each side whose kernels are here."""

SOURCE = "--rerun"
"""What stands for a file's name at fresh rows."""


def rerun(comparison: Comparison[Key], base: Table, new: Table) -> tuple[Table, Table, list[str]]:
    """Both sides with fresh rounds for the ambiguous points, and what is to be said about it.

    A point is measured with the kernels that are here, for the sides whose source hash they have.
    For both: in turns, and the fresh rounds count alone. For the new side alone: they join its own.
    For the base alone or for neither: the point stays as it is.
    """
    here = source_hashes()
    open_keys = list(comparison.of(Verdict.AMBIGUOUS))
    of_both = [key for key in open_keys if _is_here(base, key, here) and _is_here(new, key, here)]
    of_new = [key for key in open_keys if key not in of_both and _is_here(new, key, here)]
    notes = []
    if left := len(open_keys) - len(of_both) - len(of_new):
        notes.append(
            f"--rerun leaves {counted(left, 'ambiguous point')}: the kernels here are not those "
            "that the new side was measured with (source_hash)"
        )
    if of_both:
        rows = _measured(new, of_both, 2 * ROUNDS)
        base = base.with_rows((_every_other(one, 0) for one in rows), SOURCE, instead=True)
        new = new.with_rows((_every_other(one, 1) for one in rows), SOURCE, instead=True)
        notes.append(
            f"--rerun measured {counted(len(of_both), 'point')} with the same kernels for both "
            f"sides, in turns, {ROUNDS} rounds or more each; they are judged by these rounds alone"
        )
    if of_new:
        rows = _measured(new, of_new, ROUNDS)
        new = new.with_rows(rows, SOURCE, instead=False)
        notes.append(
            f"--rerun added {ROUNDS} rounds or more to the new side of "
            f"{counted(len(of_new), 'point')}; the base's kernels are not here"
        )
    return base, new, notes


def _is_here(side: Table, key: Key, here: dict[tuple[str, str], str]) -> bool:
    return all(one.source_hash == here.get((one.op, one.variant)) for one in side.points[key])


def _measured(side: Table, keys: Iterable[Key], rounds: int) -> list[Row]:
    with progress() as watcher:
        return measure_again([side.points[key][0] for key in keys], rounds, watcher)


def _every_other(one: Row, first: int) -> Row:
    """The row with every other of its rounds."""
    if not one.round_medians_us:
        return one
    chosen = one.round_medians_us.split(";")[first::2]
    return replace(
        one,
        round_medians_us=";".join(chosen),
        rounds=len(chosen),
        median_us=statistics.median(map(float, chosen)),
    )
