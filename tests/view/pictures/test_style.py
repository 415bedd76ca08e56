"""How pictures look: colours that are seen, labels that do not overlap."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

from gpubench.view.pictures.labels import short, spread
from gpubench.view.pictures.style import COLOURS, DASHES, MARKS, THEMES, looks

WHITE, GITHUB_DARK = "#ffffff", "#0d1117"

CONE_LOSS = {
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
"""Linear RGB as seen without one kind of cone: Machado, Oliveira and Fernandes, 2009, table 1."""

JUST_NOTICEABLE = 2.3
"""CIE 1976 colour difference that an observer just sees (Mahy and others, 1994)."""


def linear(colour: str) -> np.ndarray:
    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's contrast ratio."""
    lights = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear sRGB, white point D65."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = (np.array(to_xyz) @ rgb.clip(0, 1)) / [0.9505, 1.0, 1.089]
    fx, fy, fz = (np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


@pytest.mark.parametrize("page", [WHITE, GITHUB_DARK])
@pytest.mark.parametrize("colour", COLOURS)
def test_every_colour_is_seen_on_a_light_and_on_a_dark_page(colour: str, page: str) -> None:
    assert contrast(colour, page) >= 3.0


@pytest.mark.parametrize("page", [WHITE, GITHUB_DARK])
def test_grey_text_is_read_on_either_page(page: str) -> None:
    assert contrast(THEMES["both"][0], page) >= 4.3


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_theme_of_its_own_page_has_strong_text(theme: str) -> None:
    ink, page = THEMES[theme]
    assert contrast(ink, page) >= 7.0


@pytest.mark.parametrize("kind", CONE_LOSS)
def test_colours_differ_for_colour_blind_readers(kind: str) -> None:
    seen = [lab(np.array(CONE_LOSS[kind]) @ linear(colour)) for colour in COLOURS]
    least = min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2))
    assert least > 4 * JUST_NOTICEABLE


def test_a_look_repeats_only_after_every_pair_of_colour_and_mark() -> None:
    names = [f"variant {number}" for number in range(len(COLOURS) * len(MARKS))]
    drawn = looks(names, [""])
    assert len({(look.colour, look.mark) for look in drawn.values()}) == len(names)


def test_sources_differ_in_their_dashes_alone() -> None:
    drawn = looks(["naive"], ["old", "new"])
    assert drawn["naive", "old"].colour == drawn["naive", "new"].colour
    assert [look.dashes for look in drawn.values()] == list(DASHES[:2])


def test_labels_with_room_stay_where_they_belong() -> None:
    assert spread([0.5, 2.0, 1.2], [0.2, 0.2, 0.2], 0.0, 3.0) == [0.5, 2.0, 1.2]


def test_labels_that_collide_share_the_room_about_their_mean() -> None:
    assert spread([1.0, 1.0], [0.4, 0.4], 0.0, 3.0) == pytest.approx([0.8, 1.2])


def test_labels_stay_between_the_limits() -> None:
    assert spread([-5.0, 9.0], [0.4, 0.4], 0.0, 3.0) == pytest.approx([0.2, 2.8])


@given(st.lists(st.tuples(st.floats(-1, 4), st.floats(0.05, 0.3)), min_size=1, max_size=10))
def test_labels_never_overlap_and_keep_their_order(labels: list[tuple[float, float]]) -> None:
    wanted, heights = [place for place, _ in labels], [height for _, height in labels]
    places = spread(wanted, heights, 0.0, 3.0)
    order = sorted(range(len(labels)), key=lambda index: (wanted[index], places[index]))
    boxes = [
        (places[index] - heights[index] / 2, places[index] + heights[index] / 2)
        for index in sorted(order, key=lambda index: places[index])
    ]
    assert all(top <= bottom + 1e-9 for (_, top), (bottom, _) in pairwise(boxes))
    assert boxes[0][0] >= -1e-9
    assert boxes[-1][1] <= 3.0 + 1e-9
    assert [places[index] for index in order] == sorted(places)


def test_a_label_too_long_for_the_page_is_cut() -> None:
    assert short("register_tile") == "register_tile"
    cut = short("a_kernel_whose_author_had_a_lot_to_say_in_its_name")
    assert len(cut) == 32
    assert cut.endswith("…")
