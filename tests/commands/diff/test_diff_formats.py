"""The formats of `diff` with texts that would break them."""

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from gpubench.text import clean


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_becomes_xml_that_can_be_read(text: str) -> None:
    element = ET.Element("point", name=clean(text))
    ET.fromstring(ET.tostring(element, encoding="unicode"))  # noqa: S314 # our own
