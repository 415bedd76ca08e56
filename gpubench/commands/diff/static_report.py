"""The report on two build files, and its formats: text, Markdown, JSON and JUnit's XML."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree as ET

from rich.console import Console, Group, RenderableType
from rich.text import Text

import gpubench
from gpubench.commands.diff.options import Format, Options
from gpubench.commands.diff.report import BROKEN, MAX_TABLE_ROWS, STRICT
from gpubench.commands.diff.static import (
    Comparison,
    Finding,
    Verdict,
    compare_builds,
    read_limits,
)
from gpubench.commands.diff.texts import (
    code_text,
    junit_text,
    markdown_page,
    markdown_text,
    shortened,
    xml_text,
)
from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.plan.selection import selection
from gpubench.results.build_row import BuildKey, BuildRow, is_build_file, read
from gpubench.results.columns import opened
from gpubench.view.numbers import counted
from gpubench.view.tables import Table, console, table

WORSE = 1
"""Exit code if a row is worse. The other verdicts have the codes of a comparison of results."""

JSON_FORMAT = 1
"""Version of the JSON format."""

MAX_CHANGES = 4
"""Maximum number of changed columns that a line of a table names."""


@dataclass(frozen=True, kw_only=True)
class StaticReport:
    """A comparison of two build files, with the texts that its formats share."""

    comparison: Comparison
    base: str
    new: str
    compilers: tuple[str, str]
    """The compilers of both sides."""

    notes: tuple[str, ...]
    strict: bool
    full: bool = False

    @property
    def compiler_changed(self) -> bool:
        """Whether the sides were made by different compilers."""
        return self.compilers[0] != self.compilers[1]

    @property
    def exit_code(self) -> int:
        """The code of the most important verdict.

        With `strict`, a changed or missing row counts too, unless the compilers differ.
        """
        verdicts = self.comparison.counts.keys()
        if Verdict.BROKEN in verdicts:
            return BROKEN
        if Verdict.WORSE in verdicts:
            return WORSE
        unequal = verdicts & {Verdict.CHANGED, Verdict.MISSING}
        return STRICT if self.strict and unequal and not self.compiler_changed else 0

    @property
    def headline(self) -> str:
        """The verdict in a line, which begins with a change of the compiler."""
        counts = self.comparison.counts
        rows = f"of {counted(sum(counts.values()), 'row')}"
        listed = ", ".join(f"{counts[name]} {name}" for name in Verdict if counts[name])
        kind = {BROKEN: "broken", WORSE: "worse", STRICT: "changed"}.get(
            self.exit_code, "nothing worse"
        )
        return f"{self._compilers}{kind}: {rows} {listed}"

    @property
    def _compilers(self) -> str:
        if not self.compiler_changed:
            return ""
        return "another compiler, {} → {}: ".format(*(name or "none" for name in self.compilers))

    def first(self, changes: Sequence[str]) -> str:
        """List the first changes, or all of them in a full report."""
        shown = changes if self.full else changes[:MAX_CHANGES]
        more = [f"{len(changes) - len(shown)} more"] if len(shown) < len(changes) else []
        return "; ".join([*shown, *more])

    @property
    def words(self) -> str:
        """The limits, as `--allow` takes them."""
        return ", ".join(f"{name}={limit}" for name, limit in self.comparison.limits.items())


def build_files(base: Sequence[Path], new: Sequence[Path]) -> bool:
    """Return whether both sides are build files. Raises UsageError if only some files are."""
    kinds = {path: is_build_file(path) for path in (*base, *new)}
    if len(set(kinds.values())) > 1:
        build = next(path for path, is_build in kinds.items() if is_build)
        other = next(path for path, is_build in kinds.items() if not is_build)
        with opened(other):  # a file that cannot be read has its own message
            pass
        raise UsageError(
            f"{build} is a build file, which has no times, and {other} is another kind of file"
        )
    return all(kinds.values()) and bool(base) and bool(new)


def compared_builds(base: Sequence[Path], new: Sequence[Path], options: Options) -> StaticReport:
    """Judge two build files. Raises UsageError for files and options that do not fit together."""
    if len(base) > 1 or len(new) > 1:
        raise UsageError("one build file per side is compared: gpubench diff BASE.csv NEW.csv")
    if options.rerun:
        raise UsageError("--rerun: build files have no times to measure again")
    if options.threshold != Options.threshold:
        raise UsageError("--threshold: is for times; build files have --allow")
    limits = read_limits(options.allow)
    before, after = read(base[0]), read(new[0])
    keep = selection([*before, *after], options.only, options.exclude)
    before, after = list(filter(keep, before)), list(filter(keep, after))
    if not {row.key for row in before} & {row.key for row in after}:
        raise UsageError(f"{base[0]} and {new[0]} have no row in common")
    return StaticReport(
        comparison=compare_builds(before, after, limits),
        base=str(base[0]),
        new=str(new[0]),
        compilers=(_values(before, "compiler"), _values(after, "compiler")),
        notes=tuple(_notes(before, after)),
        strict=options.strict,
        full=options.full,
    )


def _values(rows: Sequence[BuildRow], column: str) -> str:
    return ", ".join(sorted({value for row in rows if (value := getattr(row, column))}))


def _notes(before: Sequence[BuildRow], after: Sequence[BuildRow]) -> Iterator[str]:
    for side, rows in (("base", before), ("new", after)):
        unlisted = sum(row.status == Status.OK and not row.disassembler for row in rows)
        if unlisted:
            named = f"{counted(unlisted, 'row')} of the {side} side"
            yield f"nvdisasm did not list {named}, so inner loops are not compared there"
    disassemblers = [_values(rows, "disassembler") for rows in (before, after)]
    if all(disassemblers) and disassemblers[0] != disassemblers[1]:
        yield "another nvdisasm, {} → {}".format(*disassemblers)
    versions = [_values(rows, "gpubench") for rows in (before, after)]
    if versions[0] != versions[1]:
        yield "gpubench: {} on the base side, {} on the new one".format(*versions)


def _table(report: StaticReport, findings: Mapping[BuildKey, Finding], heading: str) -> Table:
    """Return a line per row: what decided, and what else changed."""
    grid = table(heading, "because", "also changed", left=None)
    for key, finding in findings.items():
        deciding = [str(at) for at in finding.changes if at.effect == finding.verdict]
        also = [str(at) for at in finding.changes if at.effect != finding.verdict]
        if finding.verdict == Verdict.CHANGED or finding.reason:
            deciding, also = [finding.reason] if finding.reason else [], deciding + also
        grid.add_row(report.comparison.rows[key].label, "; ".join(deciding), report.first(also))
    return grid


# ---- text


def text(report: StaticReport) -> RenderableType:
    """Return the text: the headline, the broken and the worse rows, and lists of the others."""
    comparison = report.comparison
    parts: list[RenderableType] = [
        Text(report.headline, style="bold red" if report.exit_code else "bold green"),
        Text(f"{report.base} → {report.new}"),
        *(Text(f"! {note}", style="yellow") for note in report.notes),
    ]
    for verdict in (Verdict.BROKEN, Verdict.WORSE):
        if findings := comparison.of(verdict):
            listed = dict(islice(findings.items(), MAX_TABLE_ROWS))
            parts += [Text(""), _table(report, listed, str(verdict))]
            if len(findings) > len(listed):
                parts.append(Text(f"and {len(findings) - len(listed)} more"))
    parts.append(Text(""))
    for verdict in (Verdict.MISSING, Verdict.CHANGED, Verdict.BETTER, Verdict.NEW):
        if findings := comparison.of(verdict):
            names = [_in_short(report, key, finding) for key, finding in findings.items()]
            line = "; ".join(names) if report.full else shortened(names, "; ")
            parts.append(Text(f"{verdict} ({len(findings)}): {line}"))
    if same := comparison.counts[Verdict.SAME]:
        parts.append(Text(f"same: {counted(same, 'row')}"))
    if comparison.not_compiled:
        parts.append(Text(f"not compiled on either side: {comparison.not_compiled}"))
    parts.append(Text(f"--allow {report.words}", style="dim"))
    return Group(*parts)


def _in_short(report: StaticReport, key: BuildKey, finding: Finding) -> str:
    """Return a row's name with its first changes, or with the reason."""
    figures = finding.reason or report.first(list(map(str, finding.changes)))
    label = report.comparison.rows[key].label
    return f"{label} ({figures})" if figures else label


def print_text(report: StaticReport, screen: Console) -> None:
    """Print the report."""
    screen.print(text(report))


def _plain_text(report: StaticReport) -> str:
    page = StringIO()
    print_text(report, console(page))
    return page.getvalue()


# ---- Markdown, JSON, JUnit


def _markdown(report: StaticReport) -> str:
    """Return a pull-request comment: what is broken or worse, and the rest to unfold."""
    same = counted(report.comparison.counts[Verdict.SAME], "row")
    tables = {
        str(verdict): _table(report, findings, str(verdict))
        for verdict in Verdict
        if verdict != Verdict.SAME and (findings := report.comparison.of(verdict))
    }
    return markdown_page(
        report.headline,
        f"`{code_text(report.base)}` → `{code_text(report.new)}`",
        report.notes,
        tables,
        {Verdict.BROKEN, Verdict.WORSE},
        [f"{same} the same. Allowed: {markdown_text(report.words)}."],
    )


def _json(report: StaticReport) -> str:
    """Return all findings, as docs/diff.md describes them."""
    comparison = report.comparison
    return json.dumps(
        {
            "format": JSON_FORMAT,
            "kind": "build",
            "gpubench": gpubench.__version__,
            "headline": report.headline,
            "exit_code": report.exit_code,
            "strict": report.strict,
            "base": report.base,
            "new": report.new,
            "compilers": list(report.compilers),
            "limits": {name: str(limit) for name, limit in comparison.limits.items()},
            "counts": {str(verdict): comparison.counts[verdict] for verdict in Verdict},
            "not_compiled": comparison.not_compiled,
            "notes": list(report.notes),
            "rows": [
                key._asdict() | asdict(finding) for key, finding in comparison.findings.items()
            ],
        },
        indent=2,
        ensure_ascii=False,
        allow_nan=False,
    )


def _junit(report: StaticReport) -> str:
    cases = [_case(report, key, finding) for key, finding in report.comparison.findings.items()]
    return junit_text(cases)


def _case(report: StaticReport, key: BuildKey, finding: Finding) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=xml_text(f"gpubench.{key.op}.{key.variant}"),
        name=xml_text(report.comparison.rows[key].label),
    )
    counts = report.strict and not report.compiler_changed
    outcomes = {Verdict.BROKEN: "error", Verdict.WORSE: "failure"}
    outcomes |= {Verdict.MISSING: "failure" if counts else "skipped"}
    outcomes |= {Verdict.CHANGED: "failure"} if counts else {}
    figures = ", ".join(filter(None, (finding.reason, *map(str, finding.changes))))
    if outcome := outcomes.get(finding.verdict):
        message = xml_text(f"{finding.verdict}: {figures}")
        element = ET.SubElement(case, outcome, message=message)
        if outcome != "skipped":
            element.set("type", str(finding.verdict))
    elif figures:
        ET.SubElement(case, "system-out").text = xml_text(f"{finding.verdict}: {figures}")
    return case


FORMATS: dict[Format, Callable[[StaticReport], str]] = {
    Format.TEXT: _plain_text,
    Format.MARKDOWN: _markdown,
    Format.JSON: _json,
    Format.JUNIT: _junit,
}
