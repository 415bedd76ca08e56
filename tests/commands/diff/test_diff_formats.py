"""What the formats do with texts that would break them."""

from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from gpubench.commands.diff.formats import TEXT_LIMIT, markdown_text
from gpubench.text import clean


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_becomes_xml_that_can_be_read(text: str) -> None:
    element = ET.Element("point", name=clean(text))
    ET.fromstring(ET.tostring(element, encoding="unicode"))  # noqa: S314 # our own


@settings(max_examples=40)
@given(st.text())
def test_any_text_is_one_short_line_of_a_table_in_markdown(text: str) -> None:
    shown = markdown_text(text)
    assert len(shown.splitlines()) <= 1
    assert len(shown) <= 5 * TEXT_LIMIT  # of which escapes
    assert "|" not in shown.replace("\\|", "")
    assert "<" not in shown
