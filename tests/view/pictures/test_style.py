"""Pictures have visible colours, and the same rows give the same files."""

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from samples import SWEEP, curve, source

from gpubench.errors import UsageError
from gpubench.files import Output
from gpubench.results.row import read
from gpubench.view.pictures import Theme
from gpubench.view.pictures.kinds import draw
from gpubench.view.pictures.series import sources
from gpubench.view.pictures.style import (
    COLOURS,
    FORMATS,
    INK_AND_PAGE,
    MARKERS,
    WIDTH_IN,
    claim,
    label,
    looks,
    save,
    svg,
)
from gpubench.view.pictures.tiles import looks_of

WHITE, GITHUB_DARK = "#ffffff", "#0d1117"

CONE_LOSS = {
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
"""Linear RGB as people without one kind of cone see it: Machado, Oliveira and Fernandes, 2009,
table 1."""

JUST_NOTICEABLE = 2.3
"""Smallest CIE 1976 colour difference that an observer sees (Mahy and others, 1994)."""


def linear(colour: str) -> np.ndarray:
    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of WCAG 2.2."""
    lights = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (first, second))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    """Return CIE L*a*b* of linear sRGB, with the white point D65."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = (np.array(to_xyz) @ rgb.clip(0, 1)) / [0.9505, 1.0, 1.089]
    fx, fy, fz = (np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


BEGINNINGS = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}


def test_every_colour_is_seen_on_a_light_and_on_a_dark_page() -> None:
    for page in (WHITE, GITHUB_DARK):
        for colour in COLOURS:
            assert contrast(colour, page) >= 3.0, (colour, page)
        assert contrast(INK_AND_PAGE[Theme.BOTH][0], page) >= 4.3


def test_a_page_of_its_own_has_strong_text() -> None:
    assert contrast(*INK_AND_PAGE[Theme.LIGHT]) >= 7.0


@pytest.mark.parametrize("kind", CONE_LOSS)
def test_colours_differ_for_colour_blind_readers(kind: str) -> None:
    perceived = [lab(np.array(CONE_LOSS[kind]) @ linear(colour)) for colour in COLOURS[:10]]
    distance = min(float(np.linalg.norm(a - b)) for a, b in combinations(perceived, 2))
    assert distance > 4 * JUST_NOTICEABLE


def test_a_look_repeats_only_after_every_pair_of_colour_and_marker() -> None:
    names = [f"variant {number}" for number in range(len(COLOURS) * len(MARKERS))]
    drawn = looks(names)
    assert len({(look.colour, look.marker) for look in drawn.values()}) == len(names)


def test_panels_stand_in_one_column_so_that_their_text_has_the_size_of_the_pages() -> None:
    rows = [row for n in (64, 128, 256, 512, 1024) for row in curve("naive", (8, 4, 6), n=n)]
    picture = draw(source(*rows), "tiles")
    assert len({round(axes.get_position().x0, 2) for axes in picture.axes}) == 1
    assert picture.get_figwidth() == WIDTH_IN


def test_a_label_too_long_for_a_line_goes_on_in_the_next() -> None:
    assert label("register_tile", "", "best 8: 0.9 ms") == "register_tile\nbest 8: 0.9 ms"
    name = "a_kernel_whose_author_had_a_lot_to_say_in_its_name"
    lines = label(name).splitlines()
    assert "".join(lines) == name
    assert len(lines) == 2


# ---- writing


ROWS = source(*curve("naive", (800.12345, 400.12345, 600)))


@pytest.fixture(scope="module")
def drawn() -> str:
    return svg(draw(ROWS), "made by <a test>")


@pytest.mark.slow
def test_the_name_says_the_format_and_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    pictures = [draw(ROWS), draw(ROWS)]
    for kind in FORMATS:
        paths = [tmp_path / kind / f"{number}{kind}" for number in (1, 2)]
        for picture, path in zip(pictures, paths, strict=True):
            save(picture, Output(path, overwrite=True))
        assert paths[0].read_bytes().startswith(BEGINNINGS[kind])
        assert paths[0].read_bytes() == paths[1].read_bytes(), kind
        assert sorted(paths[0].parent.iterdir()) == paths


def test_an_svg_is_text_that_a_reader_can_search(drawn: str) -> None:
    tree = ET.fromstring(drawn)  # noqa: S314 - drawn by us
    texts = {
        "".join(element.itertext()) for element in tree.iter("{http://www.w3.org/2000/svg}text")
    }
    assert {"naive", "best 2: 0.4001 ms"} <= texts  # only coordinates are shortened
    assert "made by &lt;a test&gt;" in drawn
    assert "<dc:date>" not in drawn


def test_a_picture_for_both_pages_has_no_page_of_its_own(drawn: str) -> None:
    assert "#ffffff" not in svg(draw(ROWS, theme=Theme.BOTH))
    assert "#ffffff" in drawn


def test_a_picture_is_claimed_by_its_suffix_and_not_over_a_file(tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists; --force overwrites it"):
        claim(path, force=False)
    claim(path, force=True)
    for name in ("picture.gif", "picture", "picture.svg.gz"):
        with pytest.raises(UsageError, match=r"does not end in \.svg, \.png, \.pdf"):
            claim(tmp_path / name, force=False)


def test_a_kernel_has_one_colour_in_all_pictures_of_the_documentation() -> None:
    colours: dict[str, set[str]] = {}
    for path in (Path(__file__).parents[3] / "docs" / "images").glob("*.svg"):
        texts = re.findall(r'fill: (#[0-9a-f]{6})[^"]*"[^>]*>(\w+)</text>', path.read_text())
        for colour, text in texts:
            if colour != INK_AND_PAGE[Theme.BOTH][0]:
                colours.setdefault(text, set()).add(colour)
    assert {"packed_panels", "shared_tile"} <= colours.keys()
    assert {name: many for name, many in colours.items() if len(many) > 1} == {}


def test_at_most_eight_kernels_of_a_panel_are_in_colour_and_the_others_are_named() -> None:
    names = [f"kernel_{number}" for number in range(12)]
    rows = [row for us, name in enumerate(names, 1) for row in curve(name, (8 * us, 4 * us, 6))]
    for kind in ("tiles", "sizes"):
        (axes,) = draw(source(*rows), kind).axes
        legend = axes.get_legend()
        assert legend is not None
        shown = " ".join(text.get_text() for text in legend.texts)
        assert all(name in shown for name in names)
        grey = INK_AND_PAGE[Theme.LIGHT][0]
        drawn = {line.get_color() for line in legend.legend_handles} - {grey}
        assert len(drawn) == 8
        thin = {line.get_marker() for line in axes.lines if line.get_linewidth() < 1}
        assert len(thin - {"", "None"}) == 4  # grey lines have different markers


def test_a_variant_has_the_same_colour_in_all_pictures_of_a_page() -> None:
    drawn_sources = sources([(SWEEP, [row for row in read(SWEEP) if row.n == 1024])])
    page = looks_of(drawn_sources)
    for kind in ("tiles", "roofline"):
        for axes in draw(drawn_sources, kind, looks=page).axes:
            for text in axes.get_legend().texts if axes.get_legend() else ():
                name = text.get_text().splitlines()[0]
                if name in page and page[name].colour:
                    assert text.get_color() in {page[name].colour, INK_AND_PAGE[Theme.LIGHT][0]}
    assert {"naive", "naive_uncoalesced", "register_tile", "shared_tile"} <= page.keys()
