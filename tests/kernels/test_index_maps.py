"""Index maps of kernels on tensor cores: their own functions, compiled for the CPU."""

from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
import pytest
from machine_code import lines_printed

PROGRAM = """
#include "cuda.h"
#undef __shared__
#define __shared__  // of kernels that nothing here launches
#include "gemm/dmma.cu"
#include "lib/cluster/split_sums.cuh"
#include "lib/mma/tf32.cuh"
#include <cstdio>
#include <initializer_list>

template <typename Number>
void print(const char* name, int threads, int each, Number number) {
  std::printf("%s", name);
  for (int t = 0; t < threads; ++t) {
    for (int i = 0; i < each; ++i) std::printf(" %d", number(t, i));
  }
  std::puts("");
}

template <int GROUP>
void order(int down, int across) {
  std::printf("order %d %d %d", GROUP, down, across);
  for (int i = 0; i < down * across; ++i) {
    const Place place = snake<GROUP>(i, down, across);
    std::printf(" %d %d", place.row, place.col);
  }
  std::puts("");
}

int main() {
  print("boxes", 128, 4, [](int t, int i) { return ResultBoxes::offset(t, i); });
  print("ints", 128, 8, [](int t, int i) {
    return ResultBoxes::int_offset(t, ResultBoxes::int_block(t, i / 2), i % 2);
  });
  print("int_blocks", 128, 8, [](int t, int i) { return ResultBoxes::int_block(t, i / 2); });
  print("units", 128, 16, [](int t, int unit) { return unit_offset(t, unit); });
  print("halves", 6, 128, [](int i, int t) { return half_unit_offset(i / 2, i % 2, t); });
  print("swizzle", 64, 8, [](int row, int chunk) { return swizzle(row, chunk); });
  print("lanes", 32, 2, [](int t, int i) { return i ? unit_half<false>(t) : unit_row<false>(t); });
  print("lanes", 32, 2, [](int t, int i) { return i ? unit_half<true>(t) : unit_row<true>(t); });
  print("columns", 128, 1, [](int t, int) { return tf32_column(t); });
  print("tf32", 128, 8, [](int t, int i) { return tf32_address(tf32_offset(t), i); });
  print("dmma_a", 32, 2, [](int t, int i) { return dmma_a_address(dmma_a_offset(t), i); });
  print("dmma_b", 32, 4, [](int t, int i) { return dmma_b_address(dmma_b_offset(t), i); });
  for (int down : {1, 2, 7, 8, 9, 33}) {
    for (int across : {1, 2, 13}) {
      order<2>(down, across);
      order<8>(down, across);
      order<16>(down, across);
    }
  }
  for (int parts = 1; parts <= 8; ++parts) {
    for (int steps : {1, 2, 3, 7, 8, 9, 86, 128}) {
      std::printf("parts %d %d", parts, steps);
      for (int part = 0; part < parts; ++part) {
        const StepsOfPart of(steps, part, parts);
        std::printf(" %d %d %d", of.first, of.count, first_unit(steps, part, parts));
      }
      std::puts("");
    }
  }
}
"""

Printed = dict[str, list[list[int]]]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    """Numbers by thread or lane, and then by place."""
    return lines_printed(PROGRAM, tmp_path_factory.mktemp("index_maps"))


def swizzled(plain: np.ndarray) -> np.ndarray:
    """Addresses in shared memory as the TMA has them: bits 4 to 6 exclusive or bits 7 to 9."""
    return plain ^ (plain >> 7 & 7) << 4


T, I4, I8, UNIT = np.arange(128)[:, None], np.arange(4), np.arange(8), np.arange(16)
LANE = T % 32

ROW_AND_BYTE: dict[str, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "boxes": lambda _: (T // 32 * 16 + T % 16, 32 * I4 + LANE // 16 * 16),
    "ints": lambda block: (T // 32 * 16 + LANE // 4 + 8 * (I8 % 2), 32 * block + T % 4 * 8),
    "units": lambda _: (16 * UNIT + LANE // 16 * 8 + T % 8, T // 32 * 32 + T % 16 // 8 * 16),
}
"""The row and the byte in it that a thread stores, by its place; a row has 128 bytes."""


@pytest.mark.parametrize("stored", ROW_AND_BYTE)
def test_results_lie_at_the_addresses_that_the_tma_reads(printed: Printed, stored: str) -> None:
    (offsets,), (blocks,) = printed[stored], printed["int_blocks"]
    rows, at = ROW_AND_BYTE[stored](np.reshape(blocks, (128, 8)))
    assert offsets == swizzled(rows * 128 + at).ravel().tolist()


def test_half_a_warp_stores_ints_into_every_bank_once(printed: Printed) -> None:
    (offsets,) = printed["ints"]
    assert sorted(offsets) == list(range(0, 64 * 128, 8))
    for store in np.reshape(offsets, (8, 16, 8)).transpose(0, 2, 1).reshape(-1, 16):
        assert len(set(store // 4 % 32)) == 16  # pairs of banks, each by its first


def test_the_swizzle_is_that_of_the_tma(printed: Printed) -> None:
    rows, chunks = np.arange(64)[:, None], np.arange(8)
    assert printed["swizzle"] == [(chunks ^ rows % 8).ravel().tolist()]


def test_the_order_visits_each_tile_once_and_moves_to_a_neighbour(printed: Printed) -> None:
    assert len(printed["order"]) == 6 * 3 * 3
    for group, down, across, *numbers in printed["order"]:
        places = list(zip(numbers[::2], numbers[1::2], strict=True))
        assert sorted(places) == [(row, col) for row in range(down) for col in range(across)]
        for (row, col), (next_row, next_col) in pairwise(places):
            assert abs(next_col - col) <= 1, (group, down, across)
            assert (next_row == row + 1 and next_col == col) or next_row % group == 0


def test_a_warp_stores_each_half_row_of_its_unit_once_where_its_registers_belong(
    printed: Printed,
) -> None:
    # The i-th register of a thread is of matrix i, whose rows have the addresses of lanes 8i on.
    plain, transposed = (list(zip(line[::2], line[1::2], strict=True)) for line in printed["lanes"])
    assert sorted(plain) == sorted(transposed) == list(product(range(16), range(2)))
    assert plain[::8] == [(0, 0), (8, 0), (0, 1), (8, 1)]  # rows g, g + 8; then 8 columns further
    assert transposed[::8] == [(0, 0), (0, 1), (8, 0), (8, 1)]  # columns; then 8 rows further


def test_sums_for_other_blocks_fill_memory_without_a_gap(printed: Printed) -> None:
    (offsets,) = printed["halves"]
    assert sorted(offsets) == list(range(0, 3 * 4096, 16))
    assert all(after - before == 16 for before, after in pairwise(offsets[:128]))


def test_each_step_and_unit_is_in_one_part_and_no_part_is_empty(printed: Printed) -> None:
    assert len(printed["parts"]) == 8 * 8
    for parts, steps, *numbers in printed["parts"]:
        firsts, counts, units = (numbers[place::3] for place in range(3))
        total = max(steps, parts)  # a part has at least one step, of zeros where K is shorter
        assert firsts == [sum(counts[:part]) for part in range(parts)]
        assert sum(counts) == total
        assert min(counts) >= 1
        assert max(counts) - min(counts) <= 1
        assert units[0] == 0
        assert units == sorted(units)
        assert units[-1] <= steps


@pytest.mark.parametrize(
    ("loads", "shape", "words"),
    [("tf32", (128, 8), 2), ("dmma_a", (32, 2), 4), ("dmma_b", (32, 4), 4)],
)
def test_loads_have_no_bank_conflict(
    printed: Printed, loads: str, shape: tuple[int, int], words: int
) -> None:
    at_once = 32 // words  # lanes that one access of 128 bytes serves
    addresses = np.reshape(printed[loads], shape)
    for first in range(0, len(addresses), at_once):
        for load in addresses[first : first + at_once].T:
            assert len({(at // 4 + word) % 32 for at in load for word in range(words)}) == 32


def test_threads_own_every_column_once_and_store_whole_sectors(printed: Printed) -> None:
    columns = np.reshape(printed["columns"], (4, 8, 4))  # warp, g, t
    assert (columns == columns[:, :, :1]).all()  # t decides on the row only
    pairs = columns[:, :, 0].reshape(-1)
    assert sorted([*pairs, *(pairs + 1)]) == list(range(64))
    for warp in columns[:, :, 0]:  # a sector has 8 floats
        sectors = sorted({int(column) // 8 for column in warp})
        assert sorted(warp) == [8 * sector + i for sector in sectors for i in (0, 2, 4, 6)]


def in_shared_memory(part: np.ndarray) -> np.ndarray:
    """Rows of 128 bytes as the TMA puts them down."""
    flat = np.ascontiguousarray(part).reshape(-1)
    memory = np.empty_like(flat)
    memory[swizzled(np.arange(flat.size) * flat.itemsize) // flat.itemsize] = flat
    return memory


def test_tf32_products_come_out_right(printed: Printed) -> None:
    # PTX, wgmma.m64nNk8: of A a thread has (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4), of its
    # warp's 16 rows; of the result, of rows g and g + 8 columns 8j + 2t and one further.
    (columns,), addresses = printed["columns"], np.reshape(printed["tf32"], (128, 8))
    rng = np.random.default_rng(0)
    a = rng.integers(-9, 9, (16, 32)).astype(np.float32)
    b = rng.integers(-9, 9, (32, 64)).astype(np.float32)
    memory = np.concatenate([in_shared_memory(b[:, half : half + 32]) for half in (0, 32)])
    operand = np.full((64, 32), np.nan, np.float32)
    for t in range(128):
        row = t // 32 * 16 + t % 32 // 4
        for i, at in enumerate(addresses[t]):
            operand[[row, row + 8], 4 * i + t % 4] = memory[at // 4 : at // 4 + 2]
    result = operand @ a.T
    c = np.full((16, 64), np.nan)
    for t in range(128):
        row = t // 32 * 16 + t % 32 // 4
        for j in range(2):
            for i in range(2):
                at = 8 * j + t % 4 * 2 + i
                c[at, columns[t] : columns[t] + 2] = result[[row, row + 8], at]
    np.testing.assert_array_equal(c, a @ b)
