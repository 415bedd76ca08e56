"""The page of `gpubench report` is complete and valid, and has no markup from a file.

tests/browser/check_report.py tests the page in a browser.
"""

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from samples import COMPARE, SWEEP, curve, sample

from gpubench.commands.report.page import inline, page
from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.results.row import Row, read

VOID = {"meta", "link", "input", "br", "img", "wbr"}

ATTACK = "</svg></td><script>steal()</script><img src=x onerror=steal()>\" onload='steal()"


class Outline(HTMLParser):
    """A parser that lists elements with their attributes, and fails at unbalanced elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: Counter[str] = Counter()
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts[data.strip()] += 1

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def of(*rows: Row) -> str:
    return page([(Path("file.csv"), rows)])


SWEPT = [row for row in read(SWEEP) if row.n == 1024 and row.variant in {"naive", "cublas"}]
COMPARED = [
    row
    for row in read(COMPARE)
    if row.dtype == "float32" and row.n in {512, 1024}
    if row.variant in {"naive", "shared_tile", "cublas"} or row.status != Status.OK
]


@pytest.fixture(scope="module")
def h200() -> str:
    """The page of rows of one precision, because each further picture takes a second."""
    return page([(SWEEP, SWEPT), (COMPARE, COMPARED)])


@pytest.mark.slow
def test_the_page_is_sound_and_small_and_needs_no_network_and_no_script_but_its_own(
    h200: str,
) -> None:
    outline = Outline(h200)
    assert len(h200.encode()) < 2_000_000
    assert outline.all("html")[0]["lang"] == "en"
    assert len(outline.all("svg")) > 2
    assert outline.texts[f"{sum(row.status == Status.OK for row in SWEPT + COMPARED):,}"] >= 1
    for _, attributes in outline.elements:
        for name in ("src", "href", "xlink:href", "data", "action", "srcset"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,"))
    (policy,) = (element for element in outline.all("meta") if "http-equiv" in element)
    assert str(policy["content"]).startswith("default-src 'none'")
    assert "@import" not in h200
    assert not re.search(r"url\((?!#)", h200)
    (script,) = re.findall(r"<script>(.*?)</script>", h200, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in h200
    assert not re.search(r"\son[a-z]+=", h200)


@pytest.mark.slow
def test_what_screen_readers_need_is_there(h200: str) -> None:
    outline = Outline(h200)
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in outline.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(name, ids[0]) in ids
    assert {element.get("scope") for element in outline.all("th")} == {"col", "row"}
    assert len(outline.all("caption")) == len(outline.all("table")) == 3
    assert all(element["role"] == "img" and element["aria-label"] for element in outline.all("svg"))
    assert outline.all("a")[0] == {"class": "skip", "href": "#content"}
    assert "content" in ids
    fields = len(outline.all("input")) + len(outline.all("select"))
    assert len(outline.all("label")) == fields


@pytest.mark.slow
def test_markup_from_a_file_is_text() -> None:
    rows = [
        replace(row, variant=ATTACK, device=ATTACK, library=ATTACK, driver=ATTACK)
        for row in curve("naive", (8, 4, 6, 7), percent_of_blas=10.0, percent_of_peak=10.0)
    ]
    failed = replace(rows[0], tile="16", status="error", reason=ATTACK, median_us=None)
    text = page([(Path(f"{ATTACK}.csv".replace("/", "")), [*rows, failed])])
    outline = Outline(text)
    assert len(outline.all("script")) == 1
    assert outline.all("img") == []
    assert not [
        element for _, element in outline.elements if {"onerror", "onload"} & element.keys()
    ]
    assert outline.texts[ATTACK] >= len(rows)


def test_every_point_is_a_row_and_every_failure_has_its_reason() -> None:
    skipped = replace(
        sample(tile="33"), status="skipped", reason="too many threads", median_us=None
    )
    also = replace(skipped, tile="34")
    wrong = replace(skipped, tile="8", status="wrong", reason="off by 1e3")
    outline = Outline(of(*curve("naive", (8, 4, 6)), skipped, also, wrong))
    names = outline.texts
    assert names["naive"] >= 3
    assert names["33..34"] == 1
    assert names["too many threads"] == names["off by 1e3"] == 1
    marked = [element for tag, element in outline.elements if tag == "tr" and element.get("class")]
    assert [element["class"] for element in marked] == ["best", "best", "bad"]


def test_no_rows_are_nothing_to_report() -> None:
    with pytest.raises(UsageError, match=r"no row is in file\.csv$"):
        page([(Path("file.csv"), [])])


def test_a_picture_in_the_page_takes_the_pages_ink_and_ids_of_its_own() -> None:
    drawing = (
        '<?xml version="1.0"?><svg width="1"><metadata>m</metadata><path id="a" '
        'style="fill: #797979"/><use xlink:href="#a" clip-path="url(#b)"/>'
        "<text>#797979</text></svg>"
    )
    assert inline(drawing, "p0", 'a "label"') == (
        '<svg role="img" aria-label="a &#34;label&#34;" width="1"><path id="p0-a" '
        'style="fill: currentColor"/><use xlink:href="#p0-a" clip-path="url(#p0-b)"/>'
        "<text>#797979</text></svg>"
    )


def test_times_are_all_in_milliseconds_so_that_they_sort_and_are_marked_in_doubt() -> None:
    short = replace(sample(), median_us=2.5)
    unstable = replace(sample(tile="9"), median_us=250.0, round_medians_us=(250.0, 400.0, 240.0))
    texts = Outline(of(short, unstable)).texts
    assert any(text.startswith("0.0025") for text in texts)
    assert any(text.startswith("0.2500 !") for text in texts)
    assert not any(text.endswith("µs") for text in texts)


def test_sizes_are_ordered_by_number_in_tables_and_menus() -> None:
    rows = [sample(n=n) for n in (1024, 64, 512)] + [sample(n=256, status="skipped", reason="no")]
    text = of(*rows)
    tables = re.findall(r"<tbody>(.*?)</tbody>", text, re.DOTALL)
    sizes = [re.findall(r"</th><td>(\d+)</td>", table) for table in tables]
    assert sizes == [["64", "512", "1024"], ["64", "512", "1024"], ["256"]]
    menu = re.search(r"<label>size\n(.*?)</select>", text, re.DOTALL)
    assert menu
    assert re.findall(r"<option>(\d+)", menu[1]) == ["64", "512", "1024"]
