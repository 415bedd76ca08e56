"""The formats of `diff`: how they are chosen, and texts that would break them."""

import gzip
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
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
    assert written("b.md", "--format", "text") == written("b.txt")
    assert run(base, new, "-o", str(tmp_path / "c.json.gz"))[0] == 0
    assert json.loads(gzip.decompress((tmp_path / "c.json.gz").read_bytes()))["format"] == 1


@pytest.mark.parametrize("name", ["x.html", "x.csv", "x"])
def test_a_name_that_states_no_format_of_a_comparison_is_refused(
    file: Write, run: Run, tmp_path: Path, name: str
) -> None:
    base, new = file("base.csv", rows()), file("new.csv", rows(own=1.01))
    code, _, err = run(base, new, "-o", str(tmp_path / name))
    assert code == 2
    assert "--output: add --format, or end the name in .txt, .md, .json, .xml" in err
    assert not (tmp_path / name).exists()
