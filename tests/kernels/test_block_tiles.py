"""Spaces of block tiles, and the reasons for refusals."""

from gpubench.kernels.block_tiles import (
    at_most_1024_threads,
    blocks,
    rows_and_columns,
    threads_of,
    whole_warps,
)
from gpubench.model import Config

SPACE = blocks(
    rows=(64, 128),
    columns=(64, 128),
    depths=(8,),
    threads=("4x4", "8x8"),
    default=("128x128x8/8x8",),
    together=lambda tile: "too odd" if tile["BM"] > tile["BN"] else None,
)


def test_a_thread_tile_is_one_of_those_listed_and_a_combination_may_be_illegal() -> None:
    for tile, reason in (
        ("128x128x8/8x8", None),
        ("128x128x8/4x8", "takes a thread tile 4x4 or 8x8, not 4x8"),
        ("128x64x8/8x8", "too odd"),
    ):
        assert SPACE.why_not(SPACE.read(tile)) == reason


def test_threads_follow_from_block_and_thread_tile() -> None:
    assert threads_of(Config.parse("128x64x8/8x4")) == 256
    assert rows_and_columns(Config.parse("128x64x8/8x4")) == (128, 64)


def test_a_block_has_at_most_1024_threads_and_whole_elements() -> None:
    assert at_most_1024_threads(Config.parse("64x64x8/2x2")) is None
    assert "2048 threads" in str(at_most_1024_threads(Config.parse("64x64x8/2x1")))
    assert "does not divide" in str(at_most_1024_threads(Config.parse("64x64x8/24x1")))


def test_warps_of_4_by_8_threads_cover_the_block() -> None:
    assert whole_warps(Config.parse("64x64x8/16x8")) is None
    assert "covers 64x128" in str(whole_warps(Config.parse("64x64x8/16x16")))
