"""What the formats do with texts that would break them."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubench.commands.diff.formats import TEXT_LIMIT, markdown_text, xml_text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_becomes_xml_that_can_be_read(text: str) -> None:
    element = ET.Element("point", name=xml_text(text))
    ET.fromstring(ET.tostring(element, encoding="unicode"))  # noqa: S314 # our own


def test_what_xml_cannot_hold_is_a_question_mark() -> None:
    assert xml_text("a\x00b\x0bc\ud800d\ufffee <&>") == "a?b?c?d?e <&>"


@pytest.mark.slow
@given(st.text())
def test_any_text_is_one_short_line_of_a_table_in_markdown(text: str) -> None:
    shown = markdown_text(text)
    assert len(shown.splitlines()) <= 1
    assert len(shown) <= 5 * TEXT_LIMIT  # of which escapes
    assert "|" not in shown.replace("\\|", "")
    assert "<" not in shown
