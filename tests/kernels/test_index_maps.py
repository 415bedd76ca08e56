"""Index maps of kernels on tensor cores, which are functions of the kernels, compiled for the CPU.

test_emulated.py shows by right results that each thread has the right elements.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from machine_code import lines_printed

Printed = dict[str, list[list[int]]]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    """The numbers that the program prints: a row for each thread or lane."""
    program = (Path(__file__).parent / "ptx" / "index_maps.cpp").read_text(encoding="utf-8")
    return lines_printed(program, tmp_path_factory.mktemp("index_maps"))


def test_half_a_warp_stores_ints_into_every_bank_once(printed: Printed) -> None:
    (offsets,) = printed["ints"]
    assert sorted(offsets) == list(range(0, 64 * 128, 8))
    for store in np.reshape(offsets, (8, 16, 8)).transpose(0, 2, 1).reshape(-1, 16):
        assert len(set(store // 4 % 32)) == 16  # each number is the first bank of a pair


def test_the_order_visits_each_tile_once_and_moves_to_a_neighbour(printed: Printed) -> None:
    assert len(printed["order"]) == 6 * 3 * 3
    for group, down, across, *numbers in printed["order"]:
        places = list(zip(numbers[::2], numbers[1::2], strict=True))
        assert sorted(places) == [(row, col) for row in range(down) for col in range(across)]
        for (row, col), (next_row, next_col) in pairwise(places):
            assert abs(next_col - col) <= 1, (group, down, across)
            assert (next_row == row + 1 and next_col == col) or next_row % group == 0


@pytest.mark.parametrize(
    ("loads", "shape", "words"),
    [("tf32", (128, 8), 2), ("dmma_a", (32, 2), 4), ("dmma_b", (32, 4), 4)],
)
def test_lanes_that_one_access_serves_use_all_32_banks(
    printed: Printed, loads: str, shape: tuple[int, int], words: int
) -> None:
    at_once = 32 // words  # lanes that one access of 128 bytes serves
    addresses = np.reshape(printed[loads], shape)
    for first in range(0, len(addresses), at_once):
        for load in addresses[first : first + at_once].T:
            assert len({(at // 4 + word) % 32 for at in load for word in range(words)}) == 32


def test_threads_own_every_column_once_and_store_whole_sectors(printed: Printed) -> None:
    columns = np.reshape(printed["columns"], (4, 8, 4))  # warp, g, t
    assert (columns == columns[:, :, :1]).all()  # t only decides on the row
    pairs = columns[:, :, 0].reshape(-1)
    assert sorted([*pairs, *(pairs + 1)]) == list(range(64))
    for warp in columns[:, :, 0]:  # a sector has 8 floats
        sectors = sorted({int(column) // 8 for column in warp})
        assert sorted(warp) == [8 * sector + i for sector in sectors for i in (0, 2, 4, 6)]
