"""The report on a comparison in four formats: text, Markdown, JSON and JUnit's XML.

`report.py` makes the report on times, and `static_report.py` the report on build files.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from io import StringIO
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from rich.console import Console, Group, RenderableType
from rich.text import Text

import gpubench
from gpubench.commands.diff.findings import Finding
from gpubench.commands.diff.options import Format
from gpubench.commands.diff.static import BuildFinding
from gpubench.model import PointKey
from gpubench.results.build_row import BuildKey
from gpubench.text import clean, counted
from gpubench.view.tables import console, escaped, markdown, table

SLOWER = 1  # exit codes. 0 means no confirmed regression, and 2 that sides cannot be compared
STRICT = 3
BROKEN = 4


def exit_code(
    verdicts: Collection[StrEnum], worst_first: Iterable[StrEnum], *, unsettled: bool
) -> int:
    """Return the exit code for the worst verdict.

    A broken point is worse than a regression. A regression is worse than a comparison that is not
    settled.
    """
    broken, regression, *_ = worst_first
    if broken in verdicts:
        return BROKEN
    if regression in verdicts:
        return SLOWER
    return STRICT if unsettled else 0


JSON_FORMAT = 1
"""Version of the JSON format. The version increases when a field is removed or changes its
meaning."""

MAX_TABLE_ROWS = 1000
"""Maximum number of regressions, and of broken points, that the text format lists. JSON and JUnit
list all points."""

MAX_MARKDOWN_ROWS = 50  # maximum number of regressions, and of broken points, in Markdown

WORDS = {"", "because", "also changed"}
"""Headings of the columns that hold words, not numbers."""

MAX_LISTED = 8
"""Maximum number of points that a list names. For further points, the list has only their
number."""

LINE_LIMIT = 500
"""Maximum number of characters of a line of Markdown. With this limit, a comment stays below
GitHub's limit of 65,536 characters."""

COMMAND_LIMIT = 2_000  # maximum number of characters of an advised command


class Line(NamedTuple):
    """The finding on a point, or on a row of a build file, as the formats show it."""

    key: PointKey | BuildKey
    label: str
    finding: Finding | BuildFinding
    cells: tuple[str, ...]
    """One cell for each heading of the report."""

    brief: str
    """Text that follows the label in a list, such as ` +5.1 %`."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A comparison of two sides as the formats show it."""

    unit: str
    """What a finding is about: `point` or `row`."""

    verdicts: tuple[StrEnum, ...]
    """All verdicts, starting with the worst. The first is `broken`, the second is the regression,
    and the last is `same`."""

    open_verdicts: Collection[StrEnum]
    """Verdicts that JUnit counts as skipped, or as failures if `strict` is set."""

    headings: tuple[str, ...]
    """Headings of a table of findings, except the heading of the first column, which has the
    labels."""

    lines: tuple[Line, ...]
    headline: str
    colour: str
    exit_code: int
    base: str
    new: str
    machine: str = ""
    notes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    """Sentences that end in a colon and a command."""

    equal: str = ""
    """Condition under which a point counts as the same, such as `within ±2 %`."""

    closing: tuple[str, ...] = ()
    """Lines at the end of the text."""

    fields: Mapping[str, Any]
    """Fields of the JSON format that only this kind of comparison has."""

    strict: bool
    """Whether the comparison fails if a verdict is open."""

    full: bool
    """Whether the text lists every point that is not a regression."""

    def of(self, verdict: StrEnum) -> list[Line]:
        """Return the lines that have this verdict, starting with the largest change."""
        lines = [line for line in self.lines if line.finding.verdict == verdict]

        def change(line: Line) -> float:
            return abs(math.log(getattr(line.finding, "judged_ratio", None) or 1))

        return sorted(lines, key=change, reverse=True)


def parts(report: Report, limit: int) -> list[RenderableType]:
    """Return the regressions, and short lists of other points, to be shown below the headline.

    `limit` is the maximum number of regressions, and of broken points.
    """
    broken, regression, *others, same = report.verdicts
    sides = ", ".join(filter(None, (f"{report.base} → {report.new}", report.machine)))
    shown: list[RenderableType] = [Text(sides)]
    shown += [Text(f"! {note}", style="yellow") for note in report.notes]
    lost, regressions = report.of(broken), report.of(regression)
    if lost:
        shown.append(Text(""))
    for line in lost[:limit]:
        shown.append(Text(f"broken: {line.label}: {line.finding.reason}", style="red"))
    if regressions:
        name = str(regression)
        grid = table(name, *report.headings, left={name, *WORDS})
        for line in regressions[:limit]:
            grid.add_row(line.label, *line.cells)
        shown += [Text(""), grid]
    for lines in (lost, regressions):
        if len(lines) > limit:
            shown.append(Text(f"and {len(lines) - limit} more {lines[0].finding.verdict}"))
    shown.append(Text(""))
    for verdict in others:
        if lines := report.of(verdict):
            names = (f"{line.label}{line.brief}" for line in lines)
            listed = shortened(names, None if report.full else MAX_LISTED)
            shown.append(Text(f"{verdict} ({len(lines)}): {listed}"))
    if equal := report.of(same):
        shown.append(Text(f"same: {counted(len(equal), report.unit)} {report.equal}".rstrip()))
    return [*shown, *map(Text, report.closing)]


def print_text(report: Report, screen: Console) -> None:
    """Print the report. Commands are not wrapped, so that they can be copied."""
    screen.print(Text(report.headline, style=f"bold {report.colour}"))
    screen.print(Group(*parts(report, MAX_TABLE_ROWS)))
    for line in report.advice:
        screen.print(Text(f"\n{line}"), soft_wrap=True)


def _plain_text(report: Report) -> str:
    page = StringIO()
    print_text(report, console(page))
    return page.getvalue()


def shortened(names: Iterable[str], limit: int | None = MAX_LISTED) -> str:
    """Return names as a text: all names, or the first names and the number of further names."""
    listed = list(names)
    more = len(listed) - len(listed[:limit])
    return "; ".join([*listed[:limit], *([f"{more} more"] if more else [])])


def _markdown(report: Report) -> str:
    """Return the text as a comment on a pull request, with the commands as blocks of code."""
    body = markdown(parts(report, MAX_MARKDOWN_ROWS)).splitlines()
    lines = [line if len(line) <= LINE_LIMIT else f"{line[:LINE_LIMIT]}…" for line in body]
    for line in report.advice:
        words, _, command = line.partition(": ")
        command = " ".join(command.split()).replace("```", "")[:COMMAND_LIMIT]
        lines += ["", f"{escaped(words)}:", "", "```sh", command, "```"]
    return "\n".join((f"### gpubench diff: {escaped(report.headline)}", "", *lines, ""))


def _json(report: Report) -> str:
    """Return the report as JSON, in the format that docs/diff.md describes."""
    names = ("headline", "exit_code", "strict", "base", "new", "notes", "advice")
    fields = {
        "format": JSON_FORMAT,
        "gpubench": gpubench.__version__,
        **{name: getattr(report, name) for name in names},
        "counts": {str(verdict): len(report.of(verdict)) for verdict in report.verdicts},
        **report.fields,
        f"{report.unit}s": [line.key._asdict() | asdict(line.finding) for line in report.lines],
    }
    return json.dumps(fields, indent=2, ensure_ascii=False, allow_nan=False)


def _junit(report: Report) -> str:
    suites = ET.Element("testsuites", name="gpubench diff")
    suite = ET.SubElement(suites, "testsuite", name="gpubench diff")
    suite.extend(_case(report, line) for line in report.lines)
    for total in report.fields.get("totals", ()):
        name = clean(f"weighted total of {total['kernel']}")
        case = ET.SubElement(suite, "testcase", classname="gpubench.diff", name=name)
        if outcome := _outcomes(report).get(total["verdict"]):
            message = f"{100 * (total['ratio'] - 1):+.2f} %"
            ET.SubElement(case, outcome, message=message, type=total["verdict"])
    for element in (suites, suite):
        element.set("tests", str(len(suite)))
        for name, child in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            element.set(name, str(sum(case.find(child) is not None for case in suite)))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _outcomes(report: Report) -> dict[StrEnum, str]:
    """Map each verdict that JUnit does not count as passed to the name of JUnit's element."""
    broken, regression, *_ = report.verdicts
    outcomes = dict.fromkeys(report.open_verdicts, "failure" if report.strict else "skipped")
    return outcomes | {broken: "error", regression: "failure"}


def _case(report: Report, line: Line) -> ET.Element:
    """Return a JUnit test case. The verdict `broken` is an error, and a regression is a failure."""
    case = ET.Element(
        "testcase",
        classname=clean(f"gpubench.{line.key.op}.{line.key.variant}"),
        name=clean(line.label),
    )
    if (time_us := getattr(line.finding, "new_median_us", None)) is not None:
        case.set("time", f"{time_us / 1e6:.9f}")
    verdict = line.finding.verdict
    figures = zip(report.headings, line.cells, strict=True)
    texts = (f"{heading} {cell}".strip() for heading, cell in figures if cell)
    message = clean("; ".join((verdict, *texts)))
    if outcome := _outcomes(report).get(verdict):
        ET.SubElement(case, outcome, message=message, type=verdict)
    elif verdict != report.verdicts[-1]:
        ET.SubElement(case, "system-out").text = message
    return case


FORMATS: dict[Format, Callable[[Report], str]] = {
    Format.TEXT: _plain_text,
    Format.MARKDOWN: _markdown,
    Format.JSON: _json,
    Format.JUNIT: _junit,
}
