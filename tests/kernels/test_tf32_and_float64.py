"""Tensor cores in TF32 and float64, without a GPU: machine code, index maps, grids and refusals."""

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from machine_code import between_labels, lines_printed, listing_of, opcodes

from gpubench.backends.cuda.compile import Compiled, compile_instance
from gpubench.commands.explain.sass import inner_loop
from gpubench.kernels.tensor_cores import MAX_DYNAMIC_BYTES
from gpubench.model import Config, CudaVariant, Problem
from gpubench.plan.registry import variants

STEPS = {
    variant.name: variant
    for variant in variants()
    if isinstance(variant, CudaVariant)
    and variant.dtypes in {("tf32",), ("float64",)}
    and variant.name not in {"dmma_split_cluster", "wgmma_tf32_cluster"}  # test_parts_in_cluster.py
}


def problem(variant: CudaVariant, m: int, n: int, k: int) -> Problem:
    return Problem(op="gemm", m=m, n=n, k=k, dtype=variant.dtypes[0])


# ---- machine code


@pytest.mark.slow
@pytest.mark.parametrize(
    "count", [1, pytest.param(None, marks=pytest.mark.exhaustive)], ids=["first", "all"]
)
def test_the_loops_multiply_on_tensor_cores_without_a_spill_or_a_wait_of_the_compilers(
    count: int | None,
) -> None:
    keys = [
        (variant, tile) for variant in STEPS.values() for tile in variant.tiles.defaults[:count]
    ]
    with ThreadPoolExecutor() as pool:
        for (variant, tile), built in zip(keys, pool.map(build, keys), strict=True):
            check_that_it_fits(variant, tile, built)
            if not tile.get("pdl", 0):  # which changes no loop, and nvdisasm takes a second
                check_code(variant, tile, listing_of(built))


def build(key: tuple[CudaVariant, Config]) -> Compiled:
    variant, tile = key
    instance = variant.instance(tile, variant.dtypes[0])
    return compile_instance(variant.source, instance, variant.architecture("sm_90"))


def check_that_it_fits(variant: CudaVariant, tile: Config, built: Compiled) -> None:
    where = f"{variant.name} {tile}"
    launch = variant.launch(tile, problem(variant, 999, 888, 776))
    assert (built.resources.spill_bytes, built.resources.local_bytes) == (0, 0), where
    assert built.resources.registers * launch.threads_per_block <= 65_536, where
    assert built.resources.shared_bytes <= 1024, where
    assert launch.shared_bytes <= MAX_DYNAMIC_BYTES, where


def check_code(variant: CudaVariant, tile: Config, listing: str) -> None:
    where = f"{variant.name} {tile}"
    found = inner_loop(listing, variant.dtypes[0])
    assert found, where
    loops = [text for text in between_labels(listing) if {"HGMMA", "DMMA"} & set(opcodes(text))]
    assert "MEMBAR" not in listing, where  # released in the cluster, arrivals would become this
    assert not any("CCTL" in loop for loop in loops), where
    assert ("MULTICAST" in listing) == (tile["cluster"] != "1x1"), where
    # Warps give registers to other warps. A compiler that ignores this emits no instruction.
    assert listing.count("USETMAXREG") == (0 if variant.name == "wgmma_tf32_wide" else 2), where
    bm, bn, bk = tile.numbers("BM", "BN", "BK")
    if variant.name == "dmma":
        warp_rows, warp_columns = bm // 2, bn // 4
        products = warp_rows // 8 * (warp_columns // 16) * (bk // 16)
        assert listing.count("DMMA.16x8x16") == found.tensor == products, where
        pairs = (warp_rows // 8 * 2 + warp_columns // 16 * 4) * (bk // 16)
        assert found.shared_loads == {"128": pairs}, where
        return
    # The operand of 64 rows comes from registers. Of `wgmma_tf32` two steps are written out. More
    # waits than these are the compiler's: it serializes what it cannot follow (C7510 to C7519).
    steps, waits = (1, 2) if variant.name == "wgmma_tf32_wide" else (2, 3)
    from_registers = rf"HGMMA\.64x{bm}x8\.F32\.TF32 R\d+, R\d+, gdesc"
    assert len(re.findall(from_registers, listing)) == found.tensor == 4 * steps, where
    assert listing.count("WARPGROUP.DEPBAR") == waits, where
    assert found.shared_loads == {"64": 8 * steps}, where


# ---- index maps: the kernels' own functions, compiled for the CPU

PROGRAM = """
#include "cuda.h"
#undef __shared__
#define __shared__  // of kernels that nothing here launches
#include "gemm/dmma.cu"
#include "lib/mma/tf32.cuh"
#include <cstdio>

int main() {
  for (int t = 0; t < 128; ++t) std::printf("%d ", tf32_column(t));
  std::puts("");
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < 8; ++i) std::printf("%d ", tf32_address(tf32_offset(t), i));
  }
  std::puts("");
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 2; ++i) std::printf("%d ", dmma_a_address(dmma_a_offset(lane), i));
  }
  std::puts("");
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) std::printf("%d ", dmma_b_address(dmma_b_offset(lane), i));
  }
  std::puts("");
}
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    """Columns by thread; addresses of TF32's loads, and of A's and B's for float64."""
    columns, *addresses = lines_printed(PROGRAM, tmp_path_factory.mktemp("index_maps"))
    shapes = ((128, 8), (32, 2), (32, 4))
    numbers = map(np.array, addresses)
    found = [one.reshape(shape) for one, shape in zip(numbers, shapes, strict=True)]
    return [np.array(columns), *found]


def in_shared_memory(part: np.ndarray) -> np.ndarray:
    """Rows of 128 bytes as the TMA puts them down: address bits 4 to 6 exclusive or bits 7 to 9."""
    flat = np.ascontiguousarray(part).reshape(-1)
    plain = np.arange(flat.size) * flat.itemsize
    memory = np.empty_like(flat)
    memory[(plain ^ (plain >> 7 & 7) << 4) // flat.itemsize] = flat
    return memory


def check_banks(addresses: np.ndarray, *, words: int) -> None:
    """Check that the lanes that one access of 128 bytes serves use different banks."""
    at_once = 32 // words
    for first in range(0, len(addresses), at_once):
        for load in addresses[first : first + at_once].T:
            assert len({(at // 4 + word) % 32 for at in load for word in range(words)}) == 32


def test_tf32_loads_have_no_bank_conflict(printed: list[np.ndarray]) -> None:
    _, addresses, *_ = printed
    check_banks(addresses, words=2)


def test_float64_loads_have_no_bank_conflict(printed: list[np.ndarray]) -> None:
    *_, of_a, of_b = printed
    check_banks(of_a, words=4)
    check_banks(of_b, words=4)


def test_threads_own_every_column_once_and_store_whole_sectors(printed: list[np.ndarray]) -> None:
    columns = printed[0].reshape(4, 8, 4)  # warp, g, t
    assert (columns == columns[:, :, :1]).all()  # t decides on the row only
    pairs = columns[:, :, 0].reshape(-1)
    assert sorted([*pairs, *(pairs + 1)]) == list(range(64))
    for warp in columns[:, :, 0]:  # a sector has 8 floats
        sectors = sorted({int(column) // 8 for column in warp})
        assert sorted(warp) == [8 * sector + i for sector in sectors for i in (0, 2, 4, 6)]


def test_tf32_products_come_out_right(printed: list[np.ndarray]) -> None:
    # PTX, wgmma.m64nNk8: of A a thread has (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4), of its
    # warp's 16 rows; of the result, of rows g and g + 8 columns 8j + 2t and one further.
    columns, addresses, *_ = printed
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


# ---- grids, boxes and refusals


def test_every_grid_is_whole_clusters_no_more_than_tiles_and_no_larger_than_the_gpu() -> None:
    for name, variant in STEPS.items():
        for tile in variant.tiles:
            rows, columns = map(int, tile["cluster"].split("x"))
            for m, n, k in ((1, 8, 8), (4096, 4096, 64), (1000, 1032, 8)):
                launch = variant.launch(tile, problem(variant, m, n, k))
                down, across = -(-m // (tile["BM"] * rows)), -(-n // (tile["BN"] * columns))
                assert launch.cluster == (rows * columns, 1, 1), (name, tile)
                assert launch.blocks % (rows * columns) == 0, (name, tile)
                assert launch.blocks <= min(132, down * across * rows * columns), (name, tile)
                assert launch.threads_per_block % 128 == 0, (name, tile)


def test_boxes_are_what_a_tensor_map_takes_and_fill_a_stage() -> None:
    for name, variant in STEPS.items():
        for tile in variant.tiles:
            bm, bn, bk = tile.numbers("BM", "BN", "BK")
            of = problem(variant, 4096, 4096, 4096)
            launch, item = variant.launch(tile, of), of.precision.item_bytes
            a, b = launch.tensor_maps
            _, across = map(int, tile["cluster"].split("x"))
            assert [one.box[1] * item for one in (a, b)] == [128, 128], (name, tile)
            assert (a.box[0] * across, b.box[0]) == (bm, bk), (name, tile)
            assert max(*a.box, *b.box) <= 256, (name, tile)
            # The swizzle repeats after 1024 bytes: every box must begin at a multiple of them.
            assert a.box[0] % 8 == b.box[0] % 8 == 0, (name, tile)
            assert launch.shared_bytes == tile["stages"] * (bm + bn) * bk * item, (name, tile)


def test_stages_that_do_not_fit_are_refused_with_the_reason() -> None:
    for name, text in (
        ("wgmma_tf32", "256x128x32/s8/cluster=1x1/group=8/pdl=0"),
        ("dmma", "128x128x32/s4/cluster=1x1/group=6/pdl=0"),
    ):
        tiles = STEPS[name].tiles
        assert "bytes of shared memory, over" in str(tiles.why_not(tiles.read(text))), text
