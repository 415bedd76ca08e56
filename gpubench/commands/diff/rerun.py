"""`--rerun`: measure the ambiguous points of a comparison again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gpubench.commands.diff.compare import Comparison, DiffVerdict, Key
from gpubench.commands.diff.report import covering_options
from gpubench.commands.diff.sides import Side
from gpubench.engine.pool import Watcher, local_pool
from gpubench.engine.prepare import prepare
from gpubench.engine.run import run
from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.model import Timer, Timing
from gpubench.options import read_sweep
from gpubench.plan.registry import variants
from gpubench.results.provenance import source_hash
from gpubench.results.row import Row
from gpubench.text import counted
from gpubench.view.progress import progress

ROUNDS = 10
"""Number of new rounds for each side whose kernels are installed."""

Hashes = Mapping[tuple[str, str], str]


def installed_hashes() -> Hashes:
    """Return the source hash of each installed variant, by operation and name."""
    return {(variant.op, variant.name): source_hash(variant) for variant in variants()}


def measure_again(rows: Sequence[Row], rounds: int, watcher: Watcher) -> list[Row]:
    """Measure only these points, with the installed kernels, in this number of rounds.

    Raises UsageError if this machine is not the machine of the rows.
    """
    # A sweep has one operation, one timer, and here one layout.
    sweeps = grouped(rows, lambda row: (row.op, row.layout, row.timer == Timer.CUPTI))
    return [
        row for sweep_rows in sweeps.values() for row in _measure_sweep(sweep_rows, rounds, watcher)
    ]


def rerun(
    comparison: Comparison,
    base: Side,
    new: Side,
    measure: Callable[[Sequence[Row], int, Watcher], list[Row]] = measure_again,
    hashes: Callable[[], Hashes] = installed_hashes,
) -> tuple[Side, Side, list[str]]:
    """Return both sides with new rounds for the ambiguous points, and notes on the measurements.

    A point is measured with the installed kernels, for the sides whose source hash they have:

    - both sides: in turns, and only the new rounds count;
    - the new side only: the new rounds are added to its rounds;
    - the base only, or neither: the point is not measured.
    """
    installed = hashes()

    def has_installed(side: Side, key: Key) -> bool:
        return all(
            row.source_hash == installed.get((row.op, row.variant)) for row in side.rows_of(key)
        )

    def fresh_rows(keys: Sequence[Key], rounds: int) -> list[Row]:
        with progress() as watcher:
            return measure([new.rows_of(key)[0] for key in keys], rounds, watcher)

    ambiguous = list(comparison.of(DiffVerdict.AMBIGUOUS))
    new_keys = [key for key in ambiguous if has_installed(new, key)]
    both_keys = [key for key in new_keys if has_installed(base, key)]
    new_keys = [key for key in new_keys if key not in both_keys]
    notes = []
    if left := len(ambiguous) - len(both_keys) - len(new_keys):
        notes.append(
            f"--rerun skips {counted(left, 'ambiguous point')}: the new side was measured with "
            "kernels that differ from those installed (source_hash)"
        )
    if both_keys:
        rows = fresh_rows(both_keys, 2 * ROUNDS)
        base = base.with_rerun(_every_other(rows, 0), replacing=True)
        new = new.with_rerun(_every_other(rows, 1), replacing=True)
        notes.append(
            f"--rerun measured {counted(len(both_keys), 'point')} with the same kernels for both "
            f"sides, in turns, {ROUNDS} rounds or more each; only these rounds are judged"
        )
    if new_keys:
        rows = fresh_rows(new_keys, ROUNDS)
        new = new.with_rerun([rows], replacing=False)
        notes.append(
            f"--rerun added {ROUNDS} rounds or more to the new side of "
            f"{counted(len(new_keys), 'point')}; the base's kernels are not installed"
        )
    return base, new, notes


def _every_other(rows: Sequence[Row], first: int) -> list[list[Row]]:
    """Return every other round as a sweep, to compare with a sweep of the other side."""
    medians = [(row.round_medians_us or str(row.median_us)).split(";") for row in rows]
    return [
        [
            replace(row, round_medians_us=times[turn])
            for row, times in zip(rows, medians, strict=True)
            if turn < len(times)
        ]
        for turn in range(first, max(map(len, medians)), 2)
    ]


def _measure_sweep(rows: Sequence[Row], rounds: int, watcher: Watcher) -> list[Row]:
    sweep = replace(read_sweep(covering_options(rows)), timing=Timing(rounds=rounds))
    keys = {row.key for row in rows}
    with local_pool(sweep.device, sweep.timer) as pool:
        for row in rows:
            if row.device not in {None, pool.device.name}:
                raise UsageError(
                    f"--rerun: {row.label} was measured on {row.device}, and this machine has "
                    f"{pool.device.name}"
                )
        job = prepare(sweep, pool.device, keep=lambda point: point.key in keys)
        outcome = run(job, pool, watcher)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.rows
