"""Configurations of named parameters: reading, printing, and spaces of legal configurations."""

import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubench.model.config import Config, Space, edges


def together(config: Config) -> str | None:
    threads = config["BM"] * config["BN"] // (config["TM"] * config["TN"])
    return f"{config}: {threads} threads" if threads > 1024 else None


TILES = Space(
    axes={
        "BM": (64, 128),
        "BN": (64, 128),
        "BK": (8, 16),
        "TM": (2, 8),
        "TN": (2, 8),
        "stages": (1, 2, 3),
        "splits": (1, 2),
        "cluster": ("1x1", "2x1"),
    },
    block=("BM", "BN", "BK"),
    thread=("TM", "TN"),
    default=("128x128x16/8x8/s3/cluster=2x1", "64x64x8/8x8/s2/k2/cluster=1x1"),
    constraint=together,
)

LARGE = Space(
    axes={
        "BM": range(32, 257, 32),
        "BN": range(32, 257, 32),
        "BK": range(8, 65, 8),
        "warps": (1, 2, 4, 8, 16),
        "stages": range(1, 9),
        "cluster": ("1x1", "2x1", "1x2", "2x2", "4x1"),
        "group": (1, 2, 4, 8, 16, 32),
        "order": ("row", "column"),
    },
    block=("BM", "BN", "BK"),
    default=("128x128x16/s3/warps=4/cluster=1x1/group=8/order=row",),
    constraint=lambda config: "too many warps" if config["warps"] > config["BM"] // 16 else None,
)


def test_a_configuration_is_an_ordered_mapping_that_nobody_can_change() -> None:
    config = TILES.read("128x64x8/8x2/s3/cluster=2x1")
    assert list(config) == list(TILES.axes)
    assert list(config.values()) == [128, 64, 8, 8, 2, 3, 1, "2x1"]
    assert (config["BK"], config["stages"]) == (8, 3)
    assert config["cluster"] == "2x1"
    with pytest.raises(KeyError):
        config["warps"]
    with pytest.raises(TypeError):
        config["BM"] = 64  # type: ignore[index]
    with pytest.raises(AttributeError):
        config.BM = 64  # type: ignore[attr-defined]
    assert repr(config) == "Config(128x64x8/8x2/s3/cluster=2x1)"


def test_equal_configurations_are_one_key_and_pass_to_another_process() -> None:
    config = TILES.read("128x64x8/8x2/cluster=2x1")
    same = TILES.read("0128x64x8/8x2/s1/k1/cluster=2x1")
    assert (config, hash(config), str(config)) == (same, hash(same), str(same))
    assert config != TILES.read("128x64x8/8x2/s2/cluster=2x1")
    assert config != dict(config)
    passed = pickle.loads(pickle.dumps(config))  # noqa: S301 # bytes of the test
    assert (passed, str(passed)) == (config, str(config))


def test_a_tile_without_a_space_has_the_usual_names() -> None:
    assert dict(Config.parse("16")) == {"edge": 16}
    config = Config.parse("128x64x8/8x4/s3/k2/group=8/order=row")
    names = ("BM", "BN", "BK", "TM", "TN", "stages", "splits", "group", "order")
    assert tuple(config.items()) == tuple(
        zip(names, (128, 64, 8, 8, 4, 3, 2, 8, "row"), strict=True)
    )
    assert dict(Config.parse("16x32/group=0")) == {"BM": 16, "BN": 32, "group": 0}


def test_a_text_that_is_not_a_tile_is_refused() -> None:
    texts = (
        "", "x16", "16x", "16x16x16x16", "16/8", "16x16/8x8x8", "0", "16x0", "16/s0", "9" * 10,
        "9" * 5000, "-1", "1.5", "16 ", "٣", "16\n",
        "16/s", "16/s3x3", "16/k2/s3", "16/s3/8x8", "16s3", "16/", "/s3", "16//s3", "1..4",
        "16/cluster", "16/cluster=", "16/=2", "16/2=2", "16/a=b=c", "16/a=1,b=2", "16/a=-1",
        "16/a=1/a=2", "16/s2/stages=2", "16x16/BM=4", "16/a=1/s3",
    )  # fmt: skip
    for text in texts:
        with pytest.raises(ValueError, match=r"is not a tile|states a parameter twice"):
            Config.parse(text)


@given(
    st.lists(st.integers(1, 10**9 - 1), min_size=1, max_size=3),
    st.none() | st.tuples(st.integers(1, 512), st.integers(1, 512)),
    st.integers(1, 8),
    st.integers(1, 8),
    st.dictionaries(
        st.sampled_from(("cluster", "s", "k3", "group_m", "bm")),
        st.integers(0, 99) | st.sampled_from(("2x1", "row", "0x", "true")),
        max_size=3,
    ),
)
def test_a_configuration_reads_back_as_it_prints(
    block: list[int],
    thread: tuple[int, int] | None,
    stages: int,
    splits: int,
    named: dict[str, int | str],
) -> None:
    text = "x".join(map(str, block))
    text += f"/{thread[0]}x{thread[1]}" if thread else ""
    text += f"/s{stages}" if stages > 1 else ""
    text += f"/k{splits}" if splits > 1 else ""
    text += "".join(f"/{name}={value}" for name, value in named.items())
    assert str(Config.parse(text)) == text
    assert Config.parse(str(Config.parse(text))) == Config.parse(text)


def test_template_arguments_are_the_values_in_the_order_of_the_axes() -> None:
    assert TILES.read("128x64x8/8x2/cluster=2x1").arguments == "128, 64, 8, 8, 2, 1, 1, 2, 1"
    assert edges(1, 32, because="of a test").read("16").arguments == "16"
    assert Config.parse("16/order=xy/deep=true/shape=2x3x4").arguments == "16, xy, true, 2, 3, 4"


def test_a_space_holds_each_legal_combination_once_in_order() -> None:
    listed = list(TILES)
    assert len(listed) == len(set(listed))
    assert not any(map(TILES.why_not, listed))
    assert all(TILES.read(str(config)) == config for config in listed)
    assert [str(config) for config in listed[:2]] == [
        "64x64x8/2x2/cluster=1x1",
        "64x64x8/2x2/cluster=2x1",
    ]
    # With 2x2 elements per thread, three of the four blocks need too many threads.
    assert len(listed) == (4 * 4 - 3) * 2 * 3 * 2 * 2


def test_values_are_read_by_any_axis_and_refused_with_what_would_be_right() -> None:
    reasons = {
        "128x64x8/8x2/s3/cluster=2x1": None,
        "96x64x8/8x2/cluster=2x1": "takes BM 64 or 128, not 96",
        "64x64x8/4x8/cluster=2x1": "takes TM 2 or 8, not 4",
        "64x64x8/8x8/s4/cluster=1x1": "takes stages 1 or 2 or 3, not 4",
        "64x64x8/8x8/cluster=4x1": "takes cluster 1x1 or 2x1, not 4x1",
        "128x128x8/2x2/cluster=1x1": "128x128x8/2x2/cluster=1x1: 4096 threads",
        "96x96x8": "takes BM 64 or 128, not 96",
        "64x64x8/8x8/warps=4": "takes BMxBNxBK, such as 128x128x16/8x8/s3/cluster=2x1, not "
        "64x64x8/8x8/warps=4",
    }
    assert {text: TILES.why_not(TILES.read(text)) for text in reasons} == reasons


def test_parameters_left_out_are_the_first_defaults_or_the_first_legal_ones() -> None:
    meant = {
        "128x128x16": "128x128x16/8x8/s3/cluster=2x1",
        "64x64x8": "64x64x8/8x8/s2/k2/cluster=1x1",
        "64x64x8/k2": "64x64x8/8x8/s2/k2/cluster=1x1",
        "64x64x8/8x8": "64x64x8/8x8/s2/k2/cluster=1x1",
        "128x128x8": "128x128x8/2x8/cluster=1x1",
        "128x128x8/s2/cluster=2x1": "128x128x8/2x8/s2/cluster=2x1",
        "64x64x8/8x8/cluster=2x1": "64x64x8/8x8/cluster=2x1",  # stages and splits are 1
        "128x128x8/2x2": "128x128x8/2x2",  # no similar tile is legal
        "64x64x9": "64x64x9",
        "16": "16",
        "64x64": "64x64",
    }
    assert {text: str(TILES.read(text)) for text in meant} == meant
    assert TILES.why_not(TILES.read("64x64x9")) == "takes BK 8 or 16, not 9"
    reason = f"takes BMxBNxBK, such as {TILES.default[0]}, not 64x64"
    assert TILES.why_not(TILES.read("64x64")) == reason


def test_a_space_says_in_words_what_its_values_are_and_edges_take_no_block_tiles() -> None:
    assert LARGE.summary == (
        "BM 32..256:32; BN 32..256:32; BK 8..64:8; warps 1..16:x2; stages 1..8; "
        "cluster 1x1, 2x1, 1x2, 2x2, 4x1; group 1..32:x2; order row, column"
    )
    space = edges(1, 32, because="of a test")
    assert space.summary == "1..32"
    for text in ("16x16", "16/8x8", "16/s2", "16/unroll=2"):
        reason = space.why_not(space.read(text))
        assert reason == f"takes a single edge, such as 1, not {text}"


def test_a_large_space_is_described_and_sampled_without_listing_it() -> None:
    asked: list[Config] = []

    def constraint(config: Config) -> str | None:
        asked.append(config)
        return LARGE.constraint(config) if LARGE.constraint else None

    space = Space(axes=LARGE.axes, block=LARGE.block, default=LARGE.default, constraint=constraint)
    sampled = space.sample(500, seed=7)
    assert space.read("64x64x8/cluster=2x2").keys() == space.axes.keys()
    assert space.why_not(space.read("64x64x8/s3/warps=16/cluster=1x1/group=1/order=row"))
    assert len(asked) < 1000
    assert len(sampled) == len(set(sampled)) == 500
    assert not any(map(space.why_not, sampled))
    assert sampled == space.sample(500, seed=7) != space.sample(500, seed=8)


def test_a_sample_of_everything_is_everything_in_another_order() -> None:
    everything = TILES.sample(10**6, seed=1)
    assert len(everything) == len(list(TILES))
    assert set(everything) == set(TILES)
    assert list(everything) != list(TILES)
    assert TILES.sample(0, seed=1) == ()


@given(st.integers(1, 64), st.integers(0, 64), st.integers(1, 200))
def test_an_edge_is_refused_exactly_when_it_is_not_legal(low: int, extra: int, edge: int) -> None:
    space = edges(low, low + extra, because="of a test")
    config = space.read(str(edge))
    reason = space.why_not(config)
    assert (reason is None) == (config in list(space))
    assert reason in {None, f"takes edges {low} to {low + extra}: of a test"}
    assert {space.read(text) for text in space.default} <= set(space)


def test_a_space_without_axes_has_one_configuration() -> None:
    space = Space()
    (tile,) = space
    assert (tile, str(tile), bool(tile), list(space)) == (Config(), "-", True, [tile])
    assert (space.read("-"), space.defaults, space.sample(3, seed=1)) == (tile, (tile,), (tile,))
    assert space.why_not(tile) is None
    assert space.why_not(space.read("32")) == "has no tile parameters, so it takes '-', not 32"
    assert TILES.why_not(TILES.read("-")) is not None
    assert pickle.loads(pickle.dumps(tile)) == tile  # noqa: S301 # bytes of the test


def test_a_space_whose_configurations_no_text_can_name_is_refused() -> None:
    def space(axes: dict[str, tuple[int | str, ...]], **facts: tuple[str, ...]) -> None:
        Space(axes=axes, **{"block": ("edge",), "default": ("1",), **facts})

    wrong: dict[str, Callable[[], None]] = {
        "a block that is no axis": lambda: space({}),
        "an axis without values": lambda: space({"edge": (1,), "group": ()}),
        "no block": lambda: space({"edge": (1,)}, block=()),
        "a thread of one": lambda: space({"edge": (1,), "TM": (1,)}, thread=("TM",)),
        "a name in capitals": lambda: space({"edge": (1,), "Cluster": (1,)}),
        "a text in capitals": lambda: space({"edge": (1,), "order": ("row", "Column")}),
        "a text that reads as a number": lambda: space({"edge": (1,), "order": ("8",)}),
        "a text by position": lambda: space({"edge": ("a",)}),
        "a number below 0": lambda: space({"edge": (1,), "group": (-1,)}),
    }
    for make in wrong.values():
        with pytest.raises(ValueError, match=r"cannot be read as|not a tile|zip"):
            make()
