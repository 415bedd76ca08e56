"""A comparison for machines and pull requests: markdown, JSON, JUnit's XML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree as ET

import gpubench
from gpubench.commands.diff.input import Key
from gpubench.commands.diff.report import Report, change, counted, interval
from gpubench.commands.diff.verdicts import Finding, Verdict
from gpubench.row import KEY
from gpubench.view.tables import milliseconds

JSON_FORMAT = 1
"""Counts up when a field changes its meaning or goes; new fields may come without."""

COMMENT_LIMIT = 65_536
"""Characters that GitHub takes in a comment."""

SECTION_LIMIT = 8_000
"""Characters of one section's rows: seven sections, notes and headings stay below the limit."""

COMMAND_LIMIT = 2_000
"""Characters of a command that is advised: many files make it long."""

LONGEST = 200
"""Characters of a text from a file (a compiler's message, a name) that a comment repeats."""


def markdown(report: Report) -> str:
    """A pull-request comment: the verdict, the slower points, the rest to be folded out."""
    graver, milder = (Verdict.BROKEN, Verdict.SLOWER), tuple(Verdict)[2:-1]
    parts = [
        f"### gpubench diff: {_plain(report.headline)}",
        f"`{_code(report.base)}` → `{_code(report.new)}`, {_plain(report.machine)}",
    ]
    parts += [f"> **Note:** {_plain(note, 600)}" for note in report.notes]
    for verdict in graver:
        if findings := report.comparison.of(verdict):
            parts.append(_section(report, findings.items()))
    for verdict in milder:
        if findings := report.comparison.of(verdict):
            parts.append(
                f"<details><summary>{len(findings)} {verdict}</summary>\n\n"
                f"{_section(report, findings.items())}\n\n</details>"
            )
    same = report.comparison.counts[Verdict.SAME]
    parts.append(f"{counted(same, 'point')} the same within {report.limits}.")
    for line in report.advice:
        words, _, command = line.partition(": ")
        parts.append(f"{_plain(words)}:\n\n```sh\n{_fenced(command)}\n```")
    return "\n\n".join(parts) + "\n"


def _section(report: Report, findings: Iterable[tuple[Key, Finding]]) -> str:
    lines = ["| point | base, ms | new, ms | change | interval | |", "|---|--:|--:|--:|--:|---|"]
    length, left_out = 0, 0
    for key, one in findings:
        cells = (
            _plain(report.label(key)),
            milliseconds(one.base_us),
            milliseconds(one.new_us),
            change(one.ratio),
            interval(one),
            _plain(_remark(one)),
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


def _remark(one: Finding) -> str:
    if one.verdict == Verdict.CLOCK:
        return f"in cycles {change(one.cycles_ratio)}"
    return one.reason


def _plain(text: str, longest: int = LONGEST) -> str:
    """A text that markdown shows as it is, on one line."""
    line = " ".join(text.split())
    if len(line) > longest:
        line = f"{line[: longest - 1]}…"
    line = line.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_{}\[\]|~@#])", r"\\\1", line)


def _code(text: str) -> str:
    return " ".join(text.split()).replace("`", "'")[:LONGEST]


def _fenced(command: str) -> str:
    """A command on a line of its own, in a fenced block."""
    return " ".join(command.split()).replace("```", "")[:COMMAND_LIMIT]


def as_json(report: Report) -> str:
    """Everything, as docs/diff.md describes it."""
    comparison = report.comparison
    limits = comparison.limits
    return json.dumps(
        {
            "format": JSON_FORMAT,
            "gpubench": gpubench.__version__,
            "headline": report.headline,
            "exit_code": report.exit_code,
            "strict": report.strict,
            "base": report.base,
            "new": report.new,
            "limits": {
                "threshold": limits.threshold,
                "floor_us": limits.floor_us,
                "q": limits.q,
                "between_gpus": limits.between_gpus,
            },
            "counts": {str(verdict): comparison.counts[verdict] for verdict in Verdict},
            "drift": comparison.drift,
            "drifted": comparison.drifted,
            "untested": comparison.untested,
            "notes": list(report.notes),
            "advice": list(report.advice),
            "points": [
                _key_fields(report, key) | _figures(one) for key, one in comparison.findings.items()
            ],
            "untimed": [
                _key_fields(report, key) | {"reason": reason}
                for key, reason in comparison.untimed.items()
            ],
        },
        indent=2,
        ensure_ascii=False,
        allow_nan=False,
    )


def _key_fields(report: Report, key: Key) -> dict[str, object]:
    return {name: getattr(report.rows[key], name) for name in KEY}


def _figures(one: Finding) -> dict[str, object]:
    return {
        "verdict": str(one.verdict),
        "reason": one.reason,
        "base_median_us": one.base_us,
        "new_median_us": one.new_us,
        "ratio": one.ratio,
        "ratio_low": one.ratio_low,
        "ratio_high": one.ratio_high,
        "cycles_ratio": one.cycles_ratio,
        "p": one.p,
        "p_adjusted": one.p_adjusted,
        "base_rounds": one.base_rounds,
        "new_rounds": one.new_rounds,
    }


def junit(report: Report) -> str:
    """Each point a test case: broken is an error, slower a failure, what is open is skipped.

    With `--strict`, what is open is a failure too.
    """
    cases = [_case(report, key, one) for key, one in report.comparison.findings.items()]
    suite = ET.Element("testsuite", name="gpubench diff")
    suite.extend(cases)
    _count(suite, cases)
    suites = ET.Element("testsuites", name="gpubench diff")
    _count(suites, cases)
    suites.append(suite)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _count(element: ET.Element, cases: Sequence[ET.Element]) -> None:
    element.set("tests", str(len(cases)))
    for name, child in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(name, str(sum(case.find(child) is not None for case in cases)))


def _case(report: Report, key: Key, one: Finding) -> ET.Element:
    row = report.rows[key]
    case = ET.Element(
        "testcase",
        classname=_xml(f"gpubench.{row.op}.{row.variant}"),
        name=_xml(report.label(key)),
        time=f"{(one.new_us or 0.0) / 1e6:.9f}",
    )
    kind = _kind(one.verdict, strict=report.strict)
    if kind:
        outcome = ET.SubElement(case, kind, message=_xml(_message(one)))
        if kind != "skipped":
            outcome.set("type", str(one.verdict))
    return case


def _kind(verdict: Verdict, *, strict: bool) -> str:
    if verdict == Verdict.BROKEN:
        return "error"
    if verdict == Verdict.SLOWER:
        return "failure"
    if verdict in {Verdict.AMBIGUOUS, Verdict.MISSING}:
        return "failure" if strict else "skipped"
    return ""


def _message(one: Finding) -> str:
    figures = ""
    if one.ratio is not None:
        figures = (
            f"{milliseconds(one.base_us)} ms → {milliseconds(one.new_us)} ms: {change(one.ratio)} "
            f"({interval(one)})"
        )
    return ", ".join(filter(None, (str(one.verdict), figures, one.reason)))


_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""XML 1.0, section 2.2: the characters a document may hold, and no others."""


def _xml(text: str) -> str:
    return _NOT_XML.sub("?", text)
