"""`gpubench diff`: read two sides, judge, print, and say by the exit code what came of it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpubench.commands.diff.compare import compare
from gpubench.commands.diff.expect_file import Expected, read_expected
from gpubench.commands.diff.expected import check_expected_device, expected_report
from gpubench.commands.diff.formats import as_json, junit, markdown
from gpubench.commands.diff.input import Key, Table, check_machines, read_table, real, selection
from gpubench.commands.diff.report import Report, make_report
from gpubench.commands.diff.rerun import rerun
from gpubench.commands.diff.text import plain_text, text
from gpubench.commands.diff.verdicts import Limits
from gpubench.errors import UsageError
from gpubench.output import require_free, write_whole
from gpubench.plan.ranges import shown
from gpubench.plan.registry import unknown, variants
from gpubench.row import KEY
from gpubench.view.tables import console

FORMATS: dict[str, Callable[[Report], str]] = {
    "text": plain_text,
    "markdown": markdown,
    "json": as_json,
    "junit": junit,
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The command line, as it was given."""

    base: Sequence[Path]
    new: Sequence[Path]
    threshold: str
    floor_us: str
    strict: bool
    ignore_device: bool
    only: str | None
    exclude: str | None
    format: str
    output: Path | None
    rerun: bool


def run_diff(asked: Asked) -> int:
    """Compare, print, and give the exit code. Raises UsageError for what cannot be compared."""
    limits = Limits(threshold=_threshold(asked.threshold), floor_us=_floor(asked.floor_us))
    if asked.ignore_device:
        limits = replace(limits, between_gpus=0.0)
    if asked.format not in FORMATS:
        raise UsageError(f"--format: {unknown('format', asked.format, FORMATS)}")
    _check_output(asked)
    base, new = _sides(asked)
    report = _judge(base, new, limits, asked)
    if asked.rerun and isinstance(base, Table):
        base, new, notes = rerun(report.comparison, base, new)
        report = _judge(base, new, limits, asked, notes)
    if asked.output:
        content = FORMATS[asked.format](report).encode()
        write_whole(asked.output, lambda file: file.write(content))
    if asked.output or asked.format == "text":
        console().print(text(report))
    else:
        print(FORMATS[asked.format](report), end="")
    return report.exit_code


def _judge(
    base: Table | Expected, new: Table, limits: Limits, asked: Asked, notes: Sequence[str] = ()
) -> Report:
    if isinstance(base, Expected):
        return expected_report(base, new, limits, strict=asked.strict)
    blas = {variant.baseline for variant in variants() if variant.baseline}

    def is_blas(key: Key) -> bool:
        return key[KEY.index("variant")] in blas

    comparison = compare(base.sides, new.sides, is_blas=is_blas, limits=limits)
    return make_report(
        comparison,
        base,
        new,
        strict=asked.strict,
        is_blas=is_blas,
        again="" if asked.rerun else _again(asked),
        notes=tuple(notes),
    )


def _sides(asked: Asked) -> tuple[Table | Expected, Table]:
    """Both sides, those of their rows that were asked for."""
    if not asked.base or not asked.new:
        raise UsageError("two sides are compared: gpubench diff BASE.csv NEW.csv")
    new = read_table(asked.new)
    base: Table | Expected
    if any(path.suffix == ".toml" for path in asked.base):
        if len(asked.base) > 1:
            raise UsageError("a TOML file of expected figures is the whole base side")
        if asked.rerun:
            raise UsageError("--rerun: expected figures cannot be measured again")
        base = read_expected(asked.base[0])
        keep = selection(asked.only, asked.exclude, new.rows)
        if not asked.ignore_device:
            check_expected_device(base, new)
    else:
        base = read_table(asked.base)
        keep = selection(asked.only, asked.exclude, (*base.rows, *new.rows))
        base = base.chosen(keep)
        if not asked.ignore_device:
            check_machines(base, new)
    new = new.chosen(keep)
    if not new.rows or (isinstance(base, Table) and not base.points.keys() & new.points.keys()):
        raise UsageError(
            f"{', '.join(map(str, asked.base))} and {', '.join(map(str, asked.new))} have no point "
            "in common"
            + (" that --only and --exclude leave" if asked.only or asked.exclude else "")
        )
    return base, new


def _threshold(written: str) -> float:
    """`2%` or `0.02`."""
    share = _positive(written.removesuffix("%"), "--threshold", "2% or 0.02")
    share = share / 100 if written.endswith("%") else share
    if not 0 < share < 1:
        raise UsageError(f"--threshold: {shown(written)} is out of range: from 0 to 100 %")
    return share


def _floor(written: str) -> float:
    return _positive(written, "--floor-us", "microseconds, such as 0.5")


def _positive(written: str, flag: str, expects: str) -> float:
    try:
        value = float(written)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise UsageError(f"{flag}: '{shown(written)}' is not understood; write {expects}")
    return value


def _check_output(asked: Asked) -> None:
    if not asked.output:
        return
    require_free(asked.output, overwrite=True)
    if real(asked.output) in {real(path) for path in (*asked.base, *asked.new)}:
        raise UsageError(f"--output: {asked.output} is one of the files compared")


def _again(asked: Asked) -> str:
    """The command that was given, but for what concerns its output."""
    words = ["gpubench", "diff", "--base", *map(str, asked.base), "--new", *map(str, asked.new)]
    if len(asked.base) == len(asked.new) == 1:
        words = ["gpubench", "diff", str(asked.base[0]), str(asked.new[0])]
    usual = Limits()
    if _threshold(asked.threshold) != usual.threshold:
        words += ["--threshold", asked.threshold]
    if _floor(asked.floor_us) != usual.floor_us:
        words += ["--floor-us", asked.floor_us]
    for flag, value in (("--only", asked.only), ("--exclude", asked.exclude)):
        words += [flag, value] if value else []
    for flag, given in (("--strict", asked.strict), ("--ignore-device", asked.ignore_device)):
        words += [flag] if given else []
    return shlex.join(words)
