"""`gpubench diff`: read two sides, judge and print them, and return the exit code."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpubench.commands.diff.compare import compare
from gpubench.commands.diff.findings import Limits
from gpubench.commands.diff.formats import FORMATS, Report, print_text
from gpubench.commands.diff.options import Format, Options
from gpubench.commands.diff.report import make_report
from gpubench.commands.diff.sides import (
    Side,
    read_side,
    require_own_measurements,
    require_same_machine,
)
from gpubench.commands.diff.static_report import build_files, compared_builds
from gpubench.errors import UsageError
from gpubench.files import Output
from gpubench.plan.ranges import parse_fraction
from gpubench.plan.selection import selection
from gpubench.results import store
from gpubench.results.columns import packed
from gpubench.results.row import read
from gpubench.text import clean_lines
from gpubench.view.tables import console, say

Files = Sequence[Path]


def run_diff(
    base: Files,
    new: Files,
    options: Options,
    builds: tuple[str, str] | None = None,
    q: float = Limits.q,
) -> int:
    """Compare two sides, print the report, and return the exit code.

    Raises UsageError for sides that cannot be compared.

    `builds` names the two sides of `gpubench ab`, which measured the files. `q` is the false
    discovery rate.
    """
    path = options.output
    if path and os.path.realpath(path) in map(os.path.realpath, (*base, *new)):
        raise UsageError(f"--output: {path} is one of the files compared")
    output = Output(path, overwrite=options.force) if path else None
    form = options.chosen_format
    if build_files(base, new):
        report = compared_builds(base, new, options)
    elif base and new:
        sides = read_side(base), read_side(new)
        if not builds:  # `ab` has measured each of its files in a separate sweep
            require_own_measurements(*sides)
        report = compared_sides(*sides, options, builds, q)
    else:
        raise UsageError("name two sides to compare: gpubench diff BASE.csv NEW.csv")
    if output:
        output.write(packed(output.path, clean_lines(FORMATS[form](report)).encode()))
    if output or form == Format.TEXT:
        print_text(report, console())
    else:
        print(clean_lines(FORMATS[form](report)), end="")
    return report.exit_code


def read_limits(options: Options) -> Limits:
    """Return the limits that the options set. Raises UsageError for invalid options."""
    if options.allow is not None:
        raise UsageError("--allow is only for build files; for times, use --threshold")
    threshold = Limits.threshold
    if options.threshold is not None:
        threshold = parse_fraction(options.threshold, "--threshold", low=1e-6)
    return Limits(
        threshold=threshold, between_gpus=0.0 if options.ignore_device else Limits.between_gpus
    )


def saved_base(name: str, base: Files, new: Files, options: Options) -> list[Path]:
    """Return the files that were saved under `name` for the device of the new side.

    Raises UsageError if `base` is not empty, or if no saved file can be used.
    """
    if base:
        raise UsageError("--against: BASE or --base already names the base side")
    rows = read(new[0], ("device",)) if new else []
    device = rows[0].device if rows and not options.ignore_device else None
    sides: list[Side] = []

    def check(path: Path) -> None:
        side = read_side([path])
        for newer in sides:
            require_own_measurements(side, newer)
        sides.append(side)

    files, skipped = store.newest_build(store.require(name, device, "--against"), check)
    for message in skipped:
        say(f"--against skips {message}", err=True)
    return list(files)


def compared_sides(
    base: Side,
    new: Side,
    options: Options,
    builds: tuple[str, str] | None = None,
    q: float = Limits.q,
) -> Report:
    """Return the report on two measured sides. Raises UsageError if they cannot be compared."""
    limits = replace(read_limits(options), q=q)
    keep = selection((*base.rows, *new.rows), options.only, options.exclude)
    base, new = base.filtered(keep), new.filtered(keep)
    if not options.ignore_device:
        require_same_machine(base, new)
    common = base.pooled.keys() & new.pooled.keys()
    if not any(side.pooled[key].sweeps_us for key in common for side in (base, new)):
        left = " after --only and --exclude" if options.only or options.exclude else ""
        raise UsageError(
            f"{base.name} and {new.name} have no point in common that has a time{left}"
        )
    comparison = compare(base.pooled, new.pooled, limits)
    return make_report(comparison, base, new, options, builds)
