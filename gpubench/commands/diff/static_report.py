"""Makes the report on a comparison of two build files."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpubench.commands.diff.formats import (
    BROKEN,
    SLOWER,
    STRICT,
    Line,
    Report,
    exit_code,
    shortened,
)
from gpubench.commands.diff.options import Options
from gpubench.commands.diff.static import BuildFinding, BuildVerdict, compare_builds, read_limits
from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.plan.selection import selection
from gpubench.results.build_row import BuildKey, BuildRow, is_build_file, read
from gpubench.results.columns import opened
from gpubench.text import counted

MAX_CHANGES = 4
"""Maximum number of changed columns that a line of a table names."""


def build_files(base: Sequence[Path], new: Sequence[Path]) -> bool:
    """Return whether all files are build files. Raises UsageError if only some are build files."""
    kinds = {path: is_build_file(path) for path in (*base, *new)}
    if len(set(kinds.values())) > 1:
        build = next(path for path, is_build in kinds.items() if is_build)
        other = next(path for path, is_build in kinds.items() if not is_build)
        with opened(other):  # raises UsageError if the file cannot be read
            pass
        raise UsageError(
            f"{build} is a build file, which has no times, and {other} is another kind of file"
        )
    return all(kinds.values()) and bool(base) and bool(new)


def compared_builds(base: Sequence[Path], new: Sequence[Path], options: Options) -> Report:
    """Judge two build files. Raises UsageError for files and options that do not fit together."""
    if len(base) > 1 or len(new) > 1:
        raise UsageError("name one build file per side: gpubench diff BASE.csv NEW.csv")
    if os.path.realpath(base[0]) == os.path.realpath(new[0]):
        raise UsageError(f"{new[0]} is compared with itself")
    if options.threshold is not None:
        raise UsageError("--threshold is only for times; for build files, use --allow")
    if options.weights is not None:
        raise UsageError("--weights is only for times; build files have no times")
    limits = read_limits(options.allow)
    before, after = read(base[0]), read(new[0])
    keep = selection([*before, *after], options.only, options.exclude)
    before, after = list(filter(keep, before)), list(filter(keep, after))
    if not {row.key for row in before} & {row.key for row in after}:
        raise UsageError(f"{base[0]} and {new[0]} have no row in common")
    findings = compare_builds(before, after, limits)
    rows = {row.key: row for row in (*before, *after)}
    left_out = len(rows) - len(findings)
    counts = Counter(finding.verdict for finding in findings.values())
    compilers = _values(before, "compiler"), _values(after, "compiler")
    strict = options.strict and compilers[0] == compilers[1]
    open_verdicts = {BuildVerdict.MISSING, BuildVerdict.CHANGED}
    one_sided = {BuildVerdict.MISSING, BuildVerdict.NEW}
    compared = bool(counts.keys() - one_sided)
    unsettled = not compared or (strict and bool(counts.keys() & open_verdicts))
    code = exit_code(counts, BuildVerdict, unsettled=unsettled)
    return Report(
        unit="row",
        verdicts=tuple(BuildVerdict),
        open_verdicts=open_verdicts if strict else {BuildVerdict.MISSING},
        headings=("because", "also changed"),
        lines=tuple(
            _line(key, rows[key].label, finding, None if options.full else MAX_CHANGES)
            for key, finding in findings.items()
        ),
        headline=_headline(counts, code if compared else None, compilers),
        colour="red" if code else "green",
        exit_code=code,
        base=str(base[0]),
        new=str(new[0]),
        notes=tuple(_notes(before, after)),
        closing=(
            *((f"not compiled on either side: {left_out}",) if left_out else ()),
            f"may get worse by: {', '.join(f'{name}={limit}' for name, limit in limits.items())}",
        ),
        fields={
            "kind": "build",
            "compilers": compilers,
            "limits": limits,
            "not_compiled": left_out,
        },
        strict=strict,
        full=options.full,
    )


def _headline(counts: Counter[BuildVerdict], code: int | None, compilers: tuple[str, str]) -> str:
    """Return a line with the overall verdict.

    If the compiler changed, the line begins with this change.

    `code` is None if no row was compared.
    """
    rows = f"of {counted(sum(counts.values()), 'row')}"
    listed = ", ".join(f"{counts[name]} {name}" for name in BuildVerdict if counts[name])
    kinds = {BROKEN: "broken", SLOWER: "worse", STRICT: "changed", None: "nothing compared"}
    before, after = (name or "none" for name in compilers)
    changed = f"another compiler, {before} → {after}: " if before != after else ""
    return f"{changed}{kinds.get(code, 'nothing worse')}: {f'{listed} {rows}'.lstrip()}"


def _line(key: BuildKey, label: str, finding: BuildFinding, limit: int | None) -> Line:
    """Return a row's line, with at most `limit` of the changes that do not decide the verdict."""
    changes = [str(change) for change in finding.changes]
    worse = [str(each) for each in finding.changes if each.effect == BuildVerdict.WORSE]
    because = [finding.reason] if finding.reason else worse
    also = [change for change in changes if change not in because]
    in_short = finding.reason or shortened(changes, limit)
    cells = ("; ".join(because), shortened(also, limit))
    return Line(key, label, finding, cells, f" ({in_short})" if in_short else "")


def _values(rows: Sequence[BuildRow], column: str) -> str:
    return ", ".join(sorted({value for row in rows if (value := getattr(row, column))}))


def _notes(before: Sequence[BuildRow], after: Sequence[BuildRow]) -> Iterator[str]:
    for tool, column, verb, left in (
        ("nvdisasm", "disassembler", "list", "inner loops are"),
        ("g++", "recorder", "record", "accesses are"),
    ):
        for side, rows in (("base", before), ("new", after)):
            if missing := sum(row.status == Status.OK and not getattr(row, column) for row in rows):
                named = f"{counted(missing, 'row')} of the {side} side"
                yield f"{tool} did not {verb} {named}, so {left} not compared there"
        versions = [_values(rows, column) for rows in (before, after)]
        if all(versions) and versions[0] != versions[1]:
            yield f"{tool} differs: {versions[0]} → {versions[1]}"
    versions = [_values(rows, "gpubench") for rows in (before, after)]
    if versions[0] != versions[1]:
        yield "gpubench: {} on the base side, {} on the new side".format(*versions)
