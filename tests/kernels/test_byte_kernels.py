"""The kernels on operands of 8 bits, without a GPU: machine code, index maps, boxes, refusals."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from machine_code import between_labels, lines_printed, listing_of

from gpubench.backends.cuda.compile import Compiled, compile_instance
from gpubench.commands.explain.sass import inner_loop
from gpubench.kernels.tensor_cores import MAX_DYNAMIC_BYTES
from gpubench.model import Config, CudaVariant, Problem
from gpubench.plan.registry import of_op

Key = tuple[str, Config, str]
GEMM = of_op("gemm")
BYTE_KERNELS = ("wgmma_bytes", "wgmma_mixed_bytes", "wgmma_split")


def kernel(name: str) -> CudaVariant:
    found = GEMM[name]
    assert isinstance(found, CudaVariant)
    return found


def problem(m: int, n: int, k: int, dtype: str = "int8") -> Problem:
    return Problem(op="gemm", m=m, n=n, k=k, dtype=dtype)


def defaults() -> list[Key]:
    """Each default tile in each dtype that takes it."""
    return [
        (name, tile, dtype)
        for name in BYTE_KERNELS
        for dtype in kernel(name).dtypes
        for tile in kernel(name).tiles.defaults
        if kernel(name).why_not(tile, problem(512, 512, 512, dtype)) is None
    ]


def build(key: Key) -> Compiled:
    name, tile, dtype = key
    return compile_instance(kernel(name).source, kernel(name).instance(tile, dtype), "sm_90a")


def test_every_dtype_has_a_default_tile_that_takes_it() -> None:
    taken = {(name, dtype) for name, _, dtype in defaults()}
    assert taken == {(name, dtype) for name in BYTE_KERNELS for dtype in kernel(name).dtypes}


@pytest.mark.slow
def test_the_loops_multiply_bytes_without_spilling_and_wait_for_no_memory() -> None:
    first = {name: key for key in reversed(defaults()) if (name := key[0]) != "wgmma_mixed_bytes"}
    check([*first.values()])


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_loops_do_so_at_every_default_tile() -> None:
    check(defaults())


def check(keys: list[Key]) -> None:
    with ThreadPoolExecutor() as pool:
        compiled = dict(zip(keys, pool.map(build, keys), strict=True))
    for (name, tile, dtype), built in compiled.items():
        where = f"{name} {tile} {dtype}"
        launch = kernel(name).launch(tile, problem(999, 896, 784, dtype))
        assert (built.resources.spill_bytes, built.resources.local_bytes) == (0, 0), where
        assert built.resources.registers * launch.threads_per_block <= 65_536, where
        assert max(launch.shared_bytes, MAX_DYNAMIC_BYTES) == MAX_DYNAMIC_BYTES, where
        check_code(name, tile, dtype, listing_of(built))


def check_code(name: str, tile: Config, dtype: str, listing: str) -> None:
    where = f"{name} {tile} {dtype}"
    kind = r"IGMMA\.64x(\d+)x32\.S8\.S8" if dtype == "int8" else r"QGMMA\.64x(\d+)x32\.F32\.E4M3"
    widths = Counter(map(int, re.findall(kind, listing)))
    pieces = tile["BM"] // 128
    found = inner_loop(listing, dtype)
    assert found, where
    # What explain says.
    assert found.tensor == found.opcodes["IGMMA" if dtype == "int8" else "QGMMA"] > 0, where
    assert found.shared_bytes_per_operation, where
    assert "MEMBAR.ALL.GPU" not in listing, where
    loops = [loop for loop in between_labels(listing) if "GMMA" in loop]
    assert not any("CCTL.IVALL" in loop for loop in loops), where
    assert listing.count("USETMAXREG") == 2, where
    assert "MULTICAST" in listing, where
    # Four instructions for 128 values of k in each piece, and no waits but those of the source.
    waits = listing.count("WARPGROUP.DEPBAR")
    if name == "wgmma_mixed_bytes":
        assert (dict(widths), waits) == ({192: 4 * 16, 128: 4 * 16}, 4 * 4), where
    elif name == "wgmma_split":
        assert (dict(widths), waits) == ({tile["BN"]: 4 * pieces}, pieces), where
        assert listing.count(" FADD ") + listing.count(" FADD.") >= pieces * tile["BN"] // 2, where
    else:
        boxes = pieces * tile["BN"] // (32 if dtype == "int8" else 64)
        columns = {tile["BN"]} | ({128} if tile["BN"] == 192 else set())
        assert dict(widths) == dict.fromkeys(columns, 4 * pieces * (boxes + 1)), where
        assert waits == len(columns) * (boxes + 2), where


# ---- index maps

PROGRAM = """
#include "cuda.h"
#include "lib/cluster/cluster_tiles.cuh"
#include <cstdio>

int main() {
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < 4; ++i) {
      const int block = ResultBoxes::int_block(t, i);
      for (int half = 0; half < 2; ++half) {
        std::printf("%d %d %d %d\\n", t, block, half, ResultBoxes::int_offset(t, block, half));
      }
    }
  }
}
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """Thread, block of columns, half of rows and offset, in the order of a thread's stores."""
    return lines_printed(PROGRAM, tmp_path_factory.mktemp("int_maps"))


def test_ints_lie_at_the_addresses_that_the_tma_reads(places: list[list[int]]) -> None:
    assert sorted(offset for *_, offset in places) == list(range(0, 64 * 128, 8))
    for t, block, half, offset in places:
        row, column = t // 32 * 16 + t % 32 // 4 + 8 * half, 8 * block + 2 * (t % 4)
        plain = row * 128 + column * 4
        assert offset == plain ^ (plain >> 7 & 7) << 4


def test_half_a_warp_stores_ints_into_every_bank_once(places: list[list[int]]) -> None:
    for store in range(8):
        offsets = [places[8 * t + store][3] for t in range(128)]
        for first in range(0, 128, 16):
            banks = {offset // 4 % 32 for offset in offsets[first : first + 16]}
            assert len(banks) == 16  # pairs of banks, each by its first


# ---- boxes, grids and refusals


def test_boxes_fill_a_stage_and_those_of_b_lie_along_k() -> None:
    for name in BYTE_KERNELS:
        for tile in kernel(name).tiles:
            dtype = kernel(name).dtypes[0]
            rows, columns = map(int, str(tile["cluster"]).split("x"))
            launch = kernel(name).launch(tile, problem(4096, 2048, 1024, dtype))
            a, b, c = launch.tensor_maps
            assert (a.shape, b.shape, c.shape) == ((4096, 1024), (2048, 1024), (4096, 2048))
            assert (a.box[0] * columns, a.box[1], b.box[1]) == (tile["BM"], 128, 128)
            assert tile["BN"] % (b.box[0] * rows) == 0, (name, tile)
            assert c.box == (64, 32 if dtype == "int8" else 64)
            assert {one.swizzle_bytes for one in (a, b, c)} == {128}
            assert launch.blocks % launch.cluster[0] == 0
            assert launch.blocks <= 132


def test_what_does_not_fit_is_refused_with_the_reason() -> None:
    split, whole = kernel("wgmma_split"), kernel("wgmma_bytes")
    for variant, tile, size, dtype, reason in (
        (whole, "128x256x128/s4/cluster=2x1/group=8", 512, "int8", "256 sums and results"),
        (whole, "128x192x128/s4/cluster=2x1/group=8", 504, "int8", "N divisible by 4 and K by 16"),
        (whole, "128x192x128/s4/cluster=2x1/group=8", 504, "float8_e4m3", "N divisible by 8"),
        (
            split,
            "256x128x128/s4/cluster=1x2/group=8/promote=256",
            512,
            "float8_e4m3_split",
            "share partial sums",
        ),
    ):
        config = variant.tiles.read(tile)
        why = variant.why_not(config, problem(512, size, size, dtype), (9, 0))
        assert reason in str(why)
