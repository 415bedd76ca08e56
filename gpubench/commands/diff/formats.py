"""The report on a comparison in four formats: text, Markdown, JSON and JUnit's XML.

`report.py` makes the report on times, and `static_report.py` the report on build files.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from io import StringIO
from itertools import accumulate
from typing import Any
from xml.etree import ElementTree as ET

from rich.console import Console, Group, RenderableType
from rich.text import Text

import gpubench
from gpubench.commands.diff.compare import Finding
from gpubench.commands.diff.options import Format
from gpubench.commands.diff.static import BuildFinding
from gpubench.model import PointKey
from gpubench.results.build_row import BuildKey
from gpubench.text import clean, counted
from gpubench.view.tables import Table, console, escaped, table

SLOWER, STRICT, BROKEN = 1, 3, 4
"""Exit codes. 0 means no confirmed regression, and 2 means sides that cannot be compared."""


def exit_code(
    verdicts: Collection[StrEnum], worst_first: Iterable[StrEnum], *, unsettled: bool
) -> int:
    """Return the code of the worst verdict: broken, then the regression, then not settled."""
    broken, regression, *_ = worst_first
    if broken in verdicts:
        return BROKEN
    if regression in verdicts:
        return SLOWER
    return STRICT if unsettled else 0


JSON_FORMAT = 1
"""Version of the JSON format. It increases when a field is removed or changes its meaning."""

MAX_TABLE_ROWS = 1000
"""Maximum number of regressions that the text's table has; the other formats have all."""

WORDS = {"", "because", "also changed"}
"""Headings of the columns that hold words, not numbers."""

MAX_LISTED = 8
"""Maximum number of points that a list names; the others are counted."""

SECTION_LIMIT, COMMAND_LIMIT = 8_000, 2_000
TEXT_LIMIT, NOTE_LIMIT = 200, 600
"""Maximum number of characters of a section, an advised command, a text from a file (a compiler's
message, a name) and a note. Together they stay below GitHub's limit of 65,536 for a comment."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """The finding on a point, or on a row of a build file, as the formats show it."""

    key: PointKey | BuildKey
    label: str
    finding: Finding | BuildFinding
    cells: tuple[str, ...]
    """Cells of a table, below the headings of the report."""

    brief: str
    """What a list says behind the label, such as ` +5.1 %`."""

    figures: str
    """All figures, and the reason of the verdict."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A comparison of two sides as the formats show it."""

    unit: str
    """What a finding is about: `point` or `row`."""

    verdicts: tuple[StrEnum, ...]
    """The worst verdict first: broken, the regression, lesser ones, and `same`."""

    headings: tuple[str, ...]
    """Headings of a table of findings, after the label's."""

    lines: tuple[Line, ...]
    headline: str
    colour: str
    """Colour of the headline."""

    exit_code: int
    base: str
    new: str
    machine: str = ""
    notes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    """Sentences that end in a colon and a command."""

    equal: str = ""
    """When a point counts as the same, such as `within ±2 %`."""

    closing: tuple[str, ...] = ()
    """Lines at the end of the text."""

    outcomes: Mapping[StrEnum, str]
    """JUnit's outcome of a verdict: error, failure or skipped. Other verdicts pass."""

    fields: Mapping[str, Any]
    """Fields of the JSON format that only this kind of comparison has."""

    strict: bool
    full: bool
    """Whether the text lists every point that is not a regression."""

    def of(self, verdict: StrEnum) -> list[Line]:
        """Return the lines with a verdict, the largest change first."""
        lines = [line for line in self.lines if line.finding.verdict == verdict]

        def change(line: Line) -> float:
            return abs(math.log(getattr(line.finding, "judged_ratio", None) or 1))

        return sorted(lines, key=change, reverse=True)


def _table(report: Report, lines: Iterable[Line], verdict: StrEnum) -> Table:
    """Return a table with a line per point, and the verdict above the labels."""
    grid = table(str(verdict), *report.headings, left={str(verdict), *WORDS})
    for line in lines:
        grid.add_row(line.label, *line.cells)
    return grid


# ---- text


def text(report: Report) -> RenderableType:
    """Return the text: the headline, the regressions, and short lists of the others."""
    broken, regression, *others, same = report.verdicts
    sides = ", ".join(filter(None, (f"{report.base} → {report.new}", report.machine)))
    parts: list[RenderableType] = [
        Text(report.headline, style=f"bold {report.colour}"),
        Text(sides),
        *(Text(f"! {note}", style="yellow") for note in report.notes),
    ]
    if lost := report.of(broken):
        reasons = (f"broken: {line.label}: {line.figures}" for line in lost)
        parts += [Text(""), *(Text(reason, style="red") for reason in reasons)]
    if regressions := report.of(regression):
        parts += [Text(""), _table(report, regressions[:MAX_TABLE_ROWS], regression)]
        if len(regressions) > MAX_TABLE_ROWS:
            parts.append(Text(f"and {len(regressions) - MAX_TABLE_ROWS} more"))
    parts.append(Text(""))
    for verdict in others:
        if lines := report.of(verdict):
            names = [f"{line.label}{line.brief}" for line in lines]
            listed = "; ".join(names) if report.full else shortened(names, "; ")
            parts.append(Text(f"{verdict} ({len(lines)}): {listed}"))
    if equal := report.of(same):
        parts.append(Text(f"same: {counted(len(equal), report.unit)} {report.equal}".rstrip()))
    return Group(*parts, *map(Text, report.closing))


def print_text(report: Report, screen: Console) -> None:
    """Print the report. Commands are not wrapped, so that they can be copied."""
    screen.print(text(report))
    for line in report.advice:
        screen.print(Text(f"\n{line}"), soft_wrap=True)


def _plain_text(report: Report) -> str:
    page = StringIO()
    print_text(report, console(page))
    return page.getvalue()


def shortened(names: Iterable[str], separator: str) -> str:
    """List the first names, and count the others."""
    listed = list(names)
    more = [f"{len(listed) - MAX_LISTED} more"] if len(listed) > MAX_LISTED else []
    return separator.join(listed[:MAX_LISTED] + more)


# ---- Markdown


def _markdown(report: Report) -> str:
    """Return a pull-request comment: the regressions, and the rest in sections to unfold."""
    sides = f"`{code_text(report.base)}` → `{code_text(report.new)}`"
    parts = [
        f"### gpubench diff: {markdown_text(report.headline)}",
        ", ".join(filter(None, (sides, markdown_text(report.machine)))),
        *(f"> **Note:** {markdown_text(note, NOTE_LIMIT)}" for note in report.notes),
    ]
    broken, regression, *_, same = report.verdicts
    for verdict in report.verdicts[:-1]:
        if lines := report.of(verdict):
            section = _section(_table(report, lines, verdict))
            summary = f"<summary>{len(lines)} {verdict}</summary>"
            folded = f"<details>{summary}\n\n{section}\n\n</details>"
            parts.append(section if verdict in {broken, regression} else folded)
    equal = f"{counted(len(report.of(same)), report.unit)} the same {report.equal}".rstrip()
    parts += [f"{markdown_text(line)}." for line in (equal, *report.closing)]
    for line in report.advice:
        words, _, command = line.partition(": ")
        command = " ".join(command.split()).replace("```", "")[:COMMAND_LIMIT]
        parts.append(f"{markdown_text(words)}:\n\n```sh\n{command}\n```")
    return "\n\n".join(parts) + "\n"


def _section(grid: Table) -> str:
    """Return a table in Markdown, cut at the limit of a section."""
    grid.lines = [tuple(_cut(str(cell)) for cell in line) for line in grid.lines]
    head, rule, *lines = grid.markdown()
    lengths = accumulate(len(line) + 1 for line in lines)
    shown = [line for line, length in zip(lines, lengths, strict=True) if length <= SECTION_LIMIT]
    left_out = [f"\nand {len(lines) - len(shown)} more."] if len(shown) < len(lines) else []
    return "\n".join([head, rule, *shown, *left_out])


def markdown_text(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return a text as one line of Markdown, cut at a limit."""
    return escaped(_cut(" ".join(text.split()), limit))


def code_text(text: str) -> str:
    """Return a text to be written between backquotes."""
    return " ".join(text.split()).replace("`", "'")[:TEXT_LIMIT]


def _cut(text: str, limit: int = TEXT_LIMIT) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


# ---- JSON


def _json(report: Report) -> str:
    """Return all findings, as docs/diff.md describes them."""
    common = {
        "format": JSON_FORMAT,
        "gpubench": gpubench.__version__,
        "headline": report.headline,
        "exit_code": report.exit_code,
        "strict": report.strict,
        "base": report.base,
        "new": report.new,
        "counts": {str(verdict): len(report.of(verdict)) for verdict in report.verdicts},
        "notes": report.notes,
        "advice": report.advice,
    }
    lines = [line.key._asdict() | asdict(line.finding) for line in report.lines]
    fields = {**common, **report.fields, f"{report.unit}s": lines}
    return json.dumps(fields, indent=2, ensure_ascii=False, allow_nan=False)


# ---- JUnit


def _junit(report: Report) -> str:
    suites = ET.Element("testsuites", name="gpubench diff")
    suite = ET.SubElement(suites, "testsuite", name="gpubench diff")
    suite.extend(_case(report, line) for line in report.lines)
    for element in (suites, suite):
        element.set("tests", str(len(suite)))
        for name, child in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            element.set(name, str(sum(case.find(child) is not None for case in suite)))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _case(report: Report, line: Line) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=clean(f"gpubench.{line.key.op}.{line.key.variant}"),
        name=clean(line.label),
    )
    if (time_us := getattr(line.finding, "new_median_us", None)) is not None:
        case.set("time", f"{time_us / 1e6:.9f}")
    verdict = line.finding.verdict
    message = clean(", ".join(filter(None, (verdict, line.figures))))
    if outcome := report.outcomes.get(verdict):
        element = ET.SubElement(case, outcome, message=message)
        if outcome != "skipped":
            element.set("type", verdict)
    elif verdict != report.verdicts[-1]:
        ET.SubElement(case, "system-out").text = message
    return case


FORMATS: dict[Format, Callable[[Report], str]] = {
    Format.TEXT: _plain_text,
    Format.MARKDOWN: _markdown,
    Format.JSON: _json,
    Format.JUNIT: _junit,
}
