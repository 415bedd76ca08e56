"""What the formats of both kinds of comparison share: short lists, Markdown and JUnit's XML."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from xml.etree import ElementTree as ET

from gpubench.view.tables import Table, escaped

MAX_LISTED = 8
"""Maximum number of points that a list names; the others are counted."""

SECTION_LIMIT, COMMAND_LIMIT = 8_000, 2_000
TEXT_LIMIT, NOTE_LIMIT = 200, 600
"""Maximum number of characters of a section, an advised command, a text from a file (a compiler's
message, a name) and a note. Together they stay below GitHub's limit of 65,536 for a comment."""

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that a document must not hold: XML 1.0, section 2.2."""


def shortened(names: Iterable[str], separator: str) -> str:
    """List the first names, and count the others."""
    listed = list(names)
    more = [f"{len(listed) - MAX_LISTED} more"] if len(listed) > MAX_LISTED else []
    return separator.join(listed[:MAX_LISTED] + more)


def markdown_text(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return a text as one line of Markdown, cut at a limit."""
    return escaped(_cut(" ".join(text.split()), limit))


def code_text(text: str) -> str:
    """Return a text to be written between backquotes."""
    return " ".join(text.split()).replace("`", "'")[:TEXT_LIMIT]


def markdown_section(grid: Table) -> str:
    """Return a table in Markdown, cut at the limit of a section."""
    grid.lines = [tuple(_cut(str(cell)) for cell in line) for line in grid.lines]
    head, rule, *lines = grid.markdown()
    lengths = accumulate(len(line) + 1 for line in lines)
    shown = [line for line, length in zip(lines, lengths, strict=True) if length <= SECTION_LIMIT]
    left_out = [f"\nand {len(lines) - len(shown)} more."] if len(shown) < len(lines) else []
    return "\n".join([head, rule, *shown, *left_out])


def markdown_page(
    headline: str,
    sides: str,
    notes: Iterable[str],
    tables: Mapping[str, Table],
    unfolded: Collection[str],
    end: Iterable[str],
) -> str:
    """Return a pull-request comment with a table for each verdict, most of them folded."""
    parts = [f"### gpubench diff: {markdown_text(headline)}", sides]
    parts += [f"> **Note:** {markdown_text(note, NOTE_LIMIT)}" for note in notes]
    for verdict, grid in tables.items():
        summary = f"<summary>{len(grid.lines)} {verdict}</summary>"
        section = markdown_section(grid)
        folded = f"<details>{summary}\n\n{section}\n\n</details>"
        parts.append(section if verdict in unfolded else folded)
    return "\n\n".join([*parts, *end]) + "\n"


def _cut(text: str, limit: int = TEXT_LIMIT) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def junit_text(cases: Sequence[ET.Element]) -> str:
    """Return the document of test cases, with their counts."""
    suites = ET.Element("testsuites", name="gpubench diff")
    suite = ET.SubElement(suites, "testsuite", name="gpubench diff")
    suite.extend(cases)
    for element in (suites, suite):
        element.set("tests", str(len(cases)))
        for name, child in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            element.set(name, str(sum(case.find(child) is not None for case in cases)))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def xml_text(text: str) -> str:
    """Return a text without characters that XML does not allow."""
    return _NOT_XML.sub("?", text)
