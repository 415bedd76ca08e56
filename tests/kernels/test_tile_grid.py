"""Tiles of several numbers."""

from gpubench.kernels.vectors import THREADS, tile_grid

GRID = tile_grid(
    {"threads": (32, 64, 128), "unroll": range(1, 5), "depth": (1, 3, 7)},
    default=("32x1x3", "64x4x7"),
    refuse=lambda tile: "is too much" if tile["unroll"] * tile["depth"] > 12 else None,
)


def test_a_grid_holds_every_combination_that_is_not_refused() -> None:
    assert len(list(GRID)) == 3 * (4 + 4 + 1)
    assert GRID.defaults == (GRID.read("32x1x3"), GRID.read("64x4x7"))
    assert GRID.summary == "threads 32, 64, 128; unroll 1..4; depth 1, 3, 7"


def test_threads_are_whole_warps_up_to_what_a_block_holds() -> None:
    assert (THREADS[0], THREADS[-1]) == (32, 1024)
