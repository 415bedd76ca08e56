"""A report as text for the terminal, as markdown for pull requests, as JSON and as JUnit's XML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from io import StringIO
from xml.etree import ElementTree as ET

from rich.console import Console, Group, RenderableType
from rich.text import Text

import gpubench
from gpubench.commands.diff.compare import ABSENT
from gpubench.commands.diff.findings import Finding, Key, Verdict
from gpubench.commands.diff.options import Format
from gpubench.commands.diff.report import Report, change, counted, interval
from gpubench.row import KEY
from gpubench.view.tables import PIPED_WIDTH, milliseconds, table

# ---- text

SHORT = 8
"""Points named in the short lists; the others are counted."""

IN_SHORT = (Verdict.MISSING, Verdict.AMBIGUOUS, Verdict.CLOCK, Verdict.FASTER, Verdict.NEW)


def text(report: Report) -> RenderableType:
    """What the terminal shows: the headline, what got slower, the rest in short."""
    comparison = report.comparison
    parts: list[RenderableType] = [
        Text(report.headline, style="bold red" if report.exit_code else "bold green"),
        Text(f"{report.base} → {report.new}, {report.machine}"),
        *(Text(f"! {note}", style="yellow") for note in report.notes),
    ]
    if broken := comparison.of(Verdict.BROKEN):
        parts.append(Text(""))
        parts += [
            Text(f"broken: {report.label(key)}: {finding.reason}", style="red")
            for key, finding in broken.items()
        ]
    if slower := comparison.of(Verdict.SLOWER):
        parts += [Text(""), _slower_table(report, slower)]
    parts.append(Text(""))
    for verdict in IN_SHORT:
        if findings := comparison.of(verdict):
            names = [f"{report.label(key)}{_in_short(findings[key])}" for key in findings]
            more = [f"{len(names) - SHORT} more"] if len(names) > SHORT else []
            parts.append(Text(f"{verdict} ({len(names)}): {'; '.join(names[:SHORT] + more)}"))
    if same := comparison.counts[Verdict.SAME]:
        parts.append(Text(f"same: {counted(same, 'point')} within {report.limits}"))
    if comparison.untimed:
        parts.append(Text(f"no time on either side: {len(comparison.untimed)}"))
    return Group(*parts, *(Text(f"\n{line}") for line in report.advice))


def _plain_text(report: Report) -> str:
    page = StringIO()
    Console(file=page, width=PIPED_WIDTH, highlight=False, color_system=None).print(text(report))
    return page.getvalue()


def _slower_table(report: Report, slower: Mapping[Key, Finding]) -> RenderableType:
    # Two files give an interval; an expected figure gives its limits as the reason.
    last = "interval, %" if any(finding.ratio_low for finding in slower.values()) else "because"
    grid = table("slower", "base, ms", "new, ms", "change", last, left={"slower", "because"})
    for key, finding in slower.items():
        grid.add_row(
            report.label(key),
            milliseconds(finding.base_median_us),
            milliseconds(finding.new_median_us),
            change(finding.ratio),
            interval(finding).removesuffix(" %") or finding.reason,
        )
    return grid


def _in_short(finding: Finding) -> str:
    """What a short list says about a point: its change, or why there is none."""
    if finding.ratio is None:
        return f" ({finding.reason})" if finding.reason not in {"", ABSENT} else ""
    if finding.verdict == Verdict.CLOCK:
        return f" {change(finding.ratio)}, in cycles {change(finding.cycles_ratio)}"
    if finding.verdict == Verdict.AMBIGUOUS:
        reason = f", {finding.reason}" if finding.reason else ""
        return f" {change(finding.ratio)} ({interval(finding)}{reason})"
    return f" {change(finding.ratio)}"


# ---- markdown

SECTION_LIMIT = 8_000
"""Characters of one section's rows: seven sections, notes and headings stay below the 65,536
characters that GitHub takes in a comment."""

COMMAND_LIMIT = 2_000
"""Characters of a command that is advised: many files make it long."""

TEXT_LIMIT, NOTE_LIMIT = 200, 600
"""Characters of a text from a file (a compiler's message, a name) or of a note in a comment."""


def _markdown(report: Report) -> str:
    """A pull-request comment: the headline, the slower points, the rest to be unfolded."""
    parts = [
        f"### gpubench diff: {_escaped(report.headline)}",
        f"`{_code(report.base)}` → `{_code(report.new)}`, {_escaped(report.machine)}",
        *(f"> **Note:** {_escaped(note, NOTE_LIMIT)}" for note in report.notes),
    ]
    for verdict in Verdict:
        findings = report.comparison.of(verdict)
        if not findings or verdict == Verdict.SAME:
            continue
        section = _section(report, findings)
        if verdict not in {Verdict.BROKEN, Verdict.SLOWER}:
            summary = f"<summary>{len(findings)} {verdict}</summary>"
            section = f"<details>{summary}\n\n{section}\n\n</details>"
        parts.append(section)
    same = report.comparison.counts[Verdict.SAME]
    parts.append(f"{counted(same, 'point')} the same within {report.limits}.")
    for line in report.advice:
        words, _, command = line.partition(": ")
        command = " ".join(command.split()).replace("```", "")[:COMMAND_LIMIT]
        parts.append(f"{_escaped(words)}:\n\n```sh\n{command}\n```")
    return "\n\n".join(parts) + "\n"


def _section(report: Report, findings: Mapping[Key, Finding]) -> str:
    """A table of findings, as many as fit."""
    lines = ["| point | base, ms | new, ms | change | interval | |", "|---|--:|--:|--:|--:|---|"]
    length = left_out = 0
    for key, finding in findings.items():
        remark = finding.reason
        if finding.verdict == Verdict.CLOCK:
            remark = f"in cycles {change(finding.cycles_ratio)}"
        cells = (
            _escaped(report.label(key)),
            milliseconds(finding.base_median_us),
            milliseconds(finding.new_median_us),
            change(finding.ratio),
            interval(finding),
            _escaped(remark),
        )
        line = f"| {' | '.join(cells)} |"
        length += len(line) + 1
        if length > SECTION_LIMIT:
            left_out += 1
        else:
            lines.append(line)
    if left_out:
        lines.append(f"\nand {left_out} more.")
    return "\n".join(lines)


def _escaped(text: str, limit: int = TEXT_LIMIT) -> str:
    """A text that markdown shows as it is, on one line."""
    line = " ".join(text.split())
    if len(line) > limit:
        line = f"{line[: limit - 1]}…"
    line = line.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_{}\[\]|~@#])", r"\\\1", line)


def _code(text: str) -> str:
    return " ".join(text.split()).replace("`", "'")[:TEXT_LIMIT]


# ---- JSON

JSON_FORMAT = 1
"""Goes up when a field changes its meaning or is removed; new fields may be added without."""


def _json(report: Report) -> str:
    """Everything, as docs/diff.md describes it."""
    comparison = report.comparison
    return json.dumps(
        {
            "format": JSON_FORMAT,
            "gpubench": gpubench.__version__,
            "headline": report.headline,
            "exit_code": report.exit_code,
            "strict": report.strict,
            "base": report.base,
            "new": report.new,
            "limits": asdict(comparison.limits),
            "counts": {str(verdict): comparison.counts[verdict] for verdict in Verdict},
            "drift": comparison.drift,
            "drifted": comparison.drifted,
            "untested": comparison.untested,
            "notes": list(report.notes),
            "advice": list(report.advice),
            "points": [
                _key_columns(report, key) | asdict(finding)
                for key, finding in comparison.findings.items()
            ],
            "untimed": [
                _key_columns(report, key) | {"reason": reason}
                for key, reason in comparison.untimed.items()
            ],
        },
        indent=2,
        ensure_ascii=False,
        allow_nan=False,
    )


def _key_columns(report: Report, key: Key) -> dict[str, object]:
    return {name: getattr(report.rows[key], name) for name in KEY}


# ---- JUnit


def _junit(report: Report) -> str:
    """Each point a test case: broken is an error, slower a failure, open points are skipped.

    With `--strict`, open points are failures too.
    """
    cases = [_case(report, key, found) for key, found in report.comparison.findings.items()]
    suites = ET.Element("testsuites", name="gpubench diff")
    suite = ET.SubElement(suites, "testsuite", name="gpubench diff")
    suite.extend(cases)
    for element in (suites, suite):
        element.set("tests", str(len(cases)))
        for name, child in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            element.set(name, str(sum(case.find(child) is not None for case in cases)))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _case(report: Report, key: Key, finding: Finding) -> ET.Element:
    row = report.rows[key]
    case = ET.Element(
        "testcase",
        classname=_xml(f"gpubench.{row.op}.{row.variant}"),
        name=_xml(report.label(key)),
        time=f"{(finding.new_median_us or 0.0) / 1e6:.9f}",
    )
    unsettled = "failure" if report.strict else "skipped"
    outcomes = {
        Verdict.BROKEN: "error",
        Verdict.SLOWER: "failure",
        Verdict.AMBIGUOUS: unsettled,
        Verdict.MISSING: unsettled,
    }
    if outcome := outcomes.get(finding.verdict):
        element = ET.SubElement(case, outcome, message=_xml(_message(finding)))
        if outcome != "skipped":
            element.set("type", str(finding.verdict))
    return case


def _message(finding: Finding) -> str:
    figures = ""
    if finding.ratio is not None:
        before, after = map(milliseconds, (finding.base_median_us, finding.new_median_us))
        figures = f"{before} ms → {after} ms: {change(finding.ratio)} ({interval(finding)})"
    return ", ".join(filter(None, (str(finding.verdict), figures, finding.reason)))


_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""XML 1.0, section 2.2: the characters that a document may hold, and no others."""


def _xml(text: str) -> str:
    return _NOT_XML.sub("?", text)


FORMATS: dict[Format, Callable[[Report], str]] = {
    Format.TEXT: _plain_text,
    Format.MARKDOWN: _markdown,
    Format.JSON: _json,
    Format.JUNIT: _junit,
}
