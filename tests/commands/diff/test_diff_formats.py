"""The formats of `diff`: how they are chosen, and texts that would break them."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

from diffs import Run, Write, rows
from hypothesis import given
from hypothesis import strategies as st

from gpubench.text import clean


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_becomes_xml_that_can_be_read(text: str) -> None:
    element = ET.Element("point", name=clean(text))
    ET.fromstring(ET.tostring(element, encoding="unicode"))  # noqa: S314 # our own


def test_a_written_comparison_has_the_format_that_its_name_states(
    file: Write, run: Run, tmp_path: Path
) -> None:
    base, new = file("base.csv", rows()), file("new.csv", rows(own=1.01))

    def written(name: str, *options: str) -> str:
        code, out, _ = run(base, new, "-o", str(tmp_path / name), *options)
        assert (code, out.partition(":")[0]) == (0, "no confirmed regression")
        return (tmp_path / name).read_text()

    assert json.loads(written("a.json"))["format"] == 1
    assert ET.fromstring(written("a.xml")).tag == "testsuites"  # noqa: S314 # our own
    assert written("a.md").startswith("#")
    assert written("a.txt").startswith("no confirmed regression")
    assert written("b.md", "--format", "text") == written("b")
