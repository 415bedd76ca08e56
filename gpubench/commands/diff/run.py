"""`gpubench diff`: read two sides, judge, print; the exit code says what was found."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace

from gpubench.commands.diff.compare import Limits, compare
from gpubench.commands.diff.expect import expected_report, read_expected, require_expected_device
from gpubench.commands.diff.options import Format, Options
from gpubench.commands.diff.report import FORMATS, Report, make_report, print_text
from gpubench.commands.diff.sides import read_side, require_same_machine
from gpubench.errors import UsageError
from gpubench.plan.selection import selection
from gpubench.results import store
from gpubench.results.output import Output
from gpubench.results.row import read
from gpubench.text import clean_lines
from gpubench.view.tables import console


def run_diff(options: Options) -> int:
    """Compare, print, and return the exit code. Raises UsageError for what cannot be compared."""
    if options.against:
        options = _with_saved_base(options, options.against)
    _check(options, expects=_expects(options))
    output = Output(options.output, overwrite=True) if options.output else None
    report = compared(options)
    if output:
        output.write(clean_lines(FORMATS[options.format](report)).encode())
    if output or options.format == Format.TEXT:
        print_text(report, console())
    else:
        print(clean_lines(FORMATS[options.format](report)), end="")
    return report.exit_code


def compared(options: Options) -> Report:
    """Judge the two sides. Raises UsageError for what cannot be compared."""
    limits = Limits(
        threshold=options.threshold,
        between_gpus=0.0 if options.ignore_device else Limits.between_gpus,
    )
    report = (_against_expected if _expects(options) else _against_base)(options, limits)
    return replace(report, full=options.full)


def _expects(options: Options) -> bool:
    """Whether the base is a file of expected figures."""
    return any(path.suffix == ".toml" for path in options.base)


def _with_saved_base(options: Options, name: str) -> Options:
    """The options with the files saved under a name, for the device of the new side, as base."""
    if options.base:
        raise UsageError("--against: the base side is given already")
    of_new = read(options.new[0], ("device",)) if options.new else []
    device = of_new[0].device if of_new and not options.ignore_device else None
    kept = store.require(name, device, "--against")
    base, unreadable = store.newest_build(kept)
    for message in unreadable:
        console(stderr=True).print(f"--against passes over {message}", markup=False, soft_wrap=True)
    return replace(options, base=base)


def _check(options: Options, *, expects: bool) -> None:
    """Raise UsageError for options that do not go together, before any file is read."""
    if options.output:
        compared = map(os.path.realpath, (*options.base, *options.new))
        if os.path.realpath(options.output) in compared:
            raise UsageError(f"--output: {options.output} is one of the files compared")
    if not options.base or not options.new:
        raise UsageError("two sides are compared: gpubench diff BASE.csv NEW.csv")
    if expects and len(options.base) > 1:
        raise UsageError("a TOML file of expected figures is the whole base side")
    if expects and options.rerun:
        raise UsageError("--rerun: expected figures cannot be measured again")


def _against_base(options: Options, limits: Limits) -> Report:
    new, base = read_side(options.new), read_side(options.base)
    keep = selection(options.only, options.exclude, (*base.rows, *new.rows))
    base, new = base.filtered(keep), new.filtered(keep)
    if not options.ignore_device:
        require_same_machine(base, new)
    common = base.points.keys() & new.points.keys()
    if not any(side.pooled[key].sweeps_us for key in common for side in (base, new)):
        raise _nothing_in_common(options)
    comparison = compare(base.pooled, new.pooled, limits)
    notes: list[str] = []
    if options.rerun:
        from gpubench.commands.diff.rerun import rerun

        base, new, notes = rerun(comparison, base, new)
        comparison = compare(base.pooled, new.pooled, limits)
    command = "" if options.rerun else f"{_command(options)} --rerun"
    return make_report(
        comparison, base, new, strict=options.strict, rerun_command=command, notes=notes
    )


def _against_expected(options: Options, limits: Limits) -> Report:
    new, expected = read_side(options.new), read_expected(options.base[0])
    if not options.ignore_device:
        require_expected_device(expected, new)
    new = new.filtered(selection(options.only, options.exclude, new.rows))
    if not new.rows:
        raise _nothing_in_common(options)
    return expected_report(expected, new, limits, strict=options.strict)


def _nothing_in_common(options: Options) -> UsageError:
    base, new = (", ".join(map(str, paths)) for paths in (options.base, options.new))
    chosen = " that --only and --exclude leave" if options.only or options.exclude else ""
    return UsageError(f"{base} and {new} have no point in common that has a time{chosen}")


def _command(options: Options) -> str:
    """The command line again, without what concerns its output."""
    base, new = map(str, options.base), map(str, options.new)
    several = max(len(options.base), len(options.new)) > 1
    words = ["gpubench", "diff", *(("--base", *base, "--new", *new) if several else (*base, *new))]
    if options.threshold != Limits.threshold:
        words += ["--threshold", f"{100 * options.threshold:g}%"]
    words += ["--only", options.only] if options.only else []
    words += ["--exclude", options.exclude] if options.exclude else []
    words += ["--strict"] if options.strict else []
    words += ["--ignore-device"] if options.ignore_device else []
    return shlex.join(words)
