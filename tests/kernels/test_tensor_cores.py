"""Kernels on tensor cores, without one: their machine code, index maps, grids and refusals."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path

import pytest
from machine_code import between_labels, lines_printed, listing_of, opcodes

from gpubench.backends.cuda import compile as module
from gpubench.backends.cuda.compile import Compiled, compile_instance
from gpubench.commands.explain.sass import inner_loop
from gpubench.kernels.tensor_cores import DTYPES, MAX_DYNAMIC_BYTES, even_grid, split
from gpubench.model import PRECISIONS, Config, CudaVariant, Problem
from gpubench.plan.registry import KERNELS, variants

ON_TENSOR_CORES = {
    variant.name: variant
    for variant in variants()
    if isinstance(variant, CudaVariant) and set(variant.dtypes) == set(DTYPES)
}
FITTED = (
    *("wgmma_fitted", "wgmma_pingpong", "wgmma_split_cluster"),
    "wgmma_any_rows",
)
"""Kernels whose tiles have a multiple of 8 or 16 rows: test_fitted_tiles.py tests them."""

WGMMA = [name for name in ON_TENSOR_CORES if name.startswith("wgmma") and name not in FITTED]

STEPS = ("wgmma", "wgmma_ring", "wgmma_persistent", "wgmma_cluster", "wgmma_fitted")
"""Kernels whose code a later kernel has too. Only the exhaustive test compiles them."""

TENSOR_SOURCE = Path(module.__file__).with_name("tensor_peak.cu")

SAMPLED = 1
"""Of each kernel's legal tiles beside the defaults, in the exhaustive test: an instance takes
seconds to compile."""

Key = tuple[str, Config, str]


def problem(m: int, n: int, k: int, dtype: str = "bfloat16") -> Problem:
    return Problem(op="gemm", m=m, n=n, k=k, dtype=dtype)


def build(key: Key, architecture: str = "sm_90") -> Compiled:
    name, tile, dtype = key
    variant = ON_TENSOR_CORES[name]
    return compile_instance(
        variant.source, variant.instance(tile, dtype), variant.architecture(architecture)
    )


def keys(*, every: bool = False) -> list[Key]:
    """The first default of most, in the two dtypes by turns; or all of each, and others."""
    first = {name: variant.tiles.defaults[0] for name, variant in ON_TENSOR_CORES.items()}
    if not every:
        dtypes = cycle(DTYPES)
        return [(name, tile, next(dtypes)) for name, tile in first.items() if name not in STEPS]
    found: dict[Key, None] = {}
    for name, variant in ON_TENSOR_CORES.items():
        found[name, first[name], "float16"] = None
        for tile in variant.tiles.defaults:
            found[name, tile, "bfloat16"] = None
        for tile in variant.tiles.sample(SAMPLED, seed=1):
            found[name, tile, "bfloat16"] = None
    return list(found)


@pytest.fixture(scope="module")
def compiled() -> dict[Key, Compiled]:
    return built(keys())


def built(wanted: list[Key]) -> dict[Key, Compiled]:
    with ThreadPoolExecutor() as pool:
        return dict(zip(wanted, pool.map(build, wanted), strict=True))


@pytest.mark.slow
def test_every_instance_fits_the_gpu_without_spilling(compiled: dict[Key, Compiled]) -> None:
    check_that_they_fit(compiled)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_more_instances_fit_the_gpu_and_have_the_code_they_should() -> None:
    more = built(keys(every=True))
    check_that_they_fit(more)
    check_loops(more)


def check_that_they_fit(compiled: dict[Key, Compiled]) -> None:
    for key, built in compiled.items():
        name, tile, dtype = key
        launch = ON_TENSOR_CORES[name].launch(tile, problem(999, 888, 776, dtype))
        assert (built.resources.spill_bytes, built.resources.local_bytes) == (0, 0), key
        assert built.resources.registers * launch.threads_per_block <= 65_536, key
        assert built.resources.shared_bytes <= 1024, key
        assert launch.shared_bytes <= MAX_DYNAMIC_BYTES, key


@pytest.mark.slow
def test_mma_sync_compiles_for_the_first_gpus_that_have_it(compiled: dict[Key, Compiled]) -> None:
    key = next(key for key in compiled if key[0] == "mma_sync")
    assert build(key, "sm_80").resources.spill_bytes == 0


@pytest.mark.slow
def test_the_loops_multiply_on_tensor_cores_and_wait_for_no_memory(
    compiled: dict[Key, Compiled],
) -> None:
    check_loops(compiled)


def check_loops(compiled: dict[Key, Compiled]) -> None:
    for (name, tile, dtype), built in compiled.items():
        listing = listing_of(built)
        assert listing
        check_code(name, tile, dtype, listing)


def check_code(name: str, tile: Config, dtype: str, listing: str) -> None:
    """Return the instructions of all loops that multiply. Check what the whole kernel must lack."""
    where = f"{name} {tile} {dtype}"
    loops = [loop for loop in between_labels(listing) if {"HGMMA", "HMMA"} & set(opcodes(loop))]
    assert loops, where
    counts = Counter(opcode for loop in loops for opcode in opcodes(loop))
    assert not {"LDL", "STL"} & set(opcodes(listing)), where
    if name == "mma_sync":
        wm, wn, bk = tile.numbers("WM", "WN", "BK")
        assert counts["HMMA"] == wm // 16 * (wn // 8) * (bk // 16), where
        assert counts["LDSM"] == (wm + wn) // 16 * (bk // 16), where
        return
    # Released in the cluster, arrivals and waits would become these.
    assert name in FITTED or "MEMBAR.ALL.GPU" not in listing, where
    assert not any("CCTL.IVALL" in loop for loop in loops), where
    element = "BF16" if dtype == "bfloat16" else ""
    shapes = Counter(re.findall(r"HGMMA\.64x(\d+)x16\.F32(?:\.BF16)?", listing))
    assert f".F32.{element}".rstrip(".") in listing, where
    if name in FITTED:
        check_fitted(name, tile, listing, shapes)
        return
    wide = {str(tile["BN"])} | ({"128"} if name == "wgmma_mixed" else set())
    assert set(shapes) == wide, where
    if name != "wgmma":
        assert listing.count("USETMAXREG") == 2, where  # else the compiler has ignored it
        assert ("MULTICAST" in listing) == (tile.get("cluster", "1x1") != "1x1"), where
    # Four instructions for 64 values of k in each piece; more waits than these are the compiler's,
    # where it cannot tell which sums are being computed.
    pieces = max(1, tile["BM"] // 128)
    waits = listing.count("WARPGROUP.DEPBAR")
    if name in {"wgmma_persistent", "wgmma_cluster"}:
        assert (sum(shapes.values()), waits) == (4 * pieces, 2), where
    if name == "wgmma_deferred":
        boxes = pieces * tile["BN"] // 64
        assert (sum(shapes.values()), waits) == (4 * pieces * (boxes + 1), boxes + 2), where
    if name == "wgmma_mixed":
        assert (sum(shapes.values()), waits) == (4 * 32, 4 * 4), where


def check_fitted(name: str, tile: Config, listing: str, shapes: Counter[str]) -> None:
    """Check that a loop has one form of multiplication, and no more waits than the source."""
    transposed = tile["BN"] % 64 == 0
    assert set(shapes) == {str(tile["BM"] if transposed else tile["BN"])}, (name, tile)
    assert ("MULTICAST" in listing) == (tile["cluster"] != "1x1"), (name, tile)
    by_64 = tile["BN"] if transposed else tile["BM"]
    in_turns = name == "wgmma_pingpong"
    pieces = by_64 // 64 if in_turns else {64: 1, 128: 1, 192: 1, 256: 2}[by_64]
    moves_registers = "USETMAXREG" in listing
    sums = pieces * (tile["BM"] if transposed else tile["BN"]) // 2
    many = sums > (64 if by_64 == 192 else 128)
    assert moves_registers == (in_turns or many), (name, tile)
    assert sum(shapes.values()) == 4 * pieces, (name, tile)
    assert listing.count("WARPGROUP.DEPBAR") == 2, (name, tile)


def test_the_measured_peak_multiplies_without_a_pause() -> None:
    for architecture, dtype, products, waits in (
        ("sm_80", "bfloat16", 8, 0),
        ("sm_90a", "float64", 8, 0),
        *(("sm_90a", dtype, 4, 1) for dtype in ("bfloat16", "int8")),
    ):
        name = f"tensor_peak<{PRECISIONS[dtype].cpp}>"
        built = compile_instance(TENSOR_SOURCE, name, architecture)
        loop = inner_loop(listing_of(built), dtype)
        assert loop
        assert (loop.tensor, built.resources.spill_bytes) == (products, 0), (architecture, dtype)
        # One starts the step, one waits for the step before; the compiler may add its own.
        assert loop.opcodes.get("WARPGROUP", 0) == 2 * waits, (architecture, dtype)


# ---- index maps: the kernels' own functions, compiled for the CPU

PROGRAM = """
#include "cuda.h"
#include "lib/cluster/cluster_tiles.cuh"
#include <cstdio>
#include <initializer_list>

template <int GROUP>
void order(int down, int across) {
  std::printf("%d %d %d", GROUP, down, across);
  for (int i = 0; i < down * across; ++i) {
    const Place place = snake<GROUP>(i, down, across);
    std::printf(" %d %d", place.row, place.col);
  }
  std::puts("");
}

int main() {
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < 4; ++i) std::printf("%d ", ResultBoxes::offset(t, i));
  }
  std::puts("");
  for (int row = 0; row < 64; ++row) {
    for (int chunk = 0; chunk < 8; ++chunk) std::printf("%d ", swizzle(row, chunk));
  }
  std::puts("");
  for (int down : {1, 2, 7, 8, 9, 33}) {
    for (int across : {1, 2, 13}) {
      order<2>(down, across);
      order<8>(down, across);
      order<16>(down, across);
    }
  }
}
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """Lines of numbers: offsets of stmatrix by thread, the swizzle by row, orders of tiles."""
    return lines_printed(PROGRAM, tmp_path_factory.mktemp("index_maps"))


def banks(offset: int) -> tuple[int, ...]:
    """The banks of shared memory, 4 bytes wide, of 16 bytes."""
    return tuple((offset // 4 + word) % 32 for word in range(4))


def test_each_place_of_a_box_gets_one_result(printed: list[list[int]]) -> None:
    offsets = printed[0]
    assert sorted(offsets) == list(range(0, 64 * 128, 16))


def test_results_lie_at_the_addresses_that_the_tma_reads(printed: list[list[int]]) -> None:
    offsets = iter(printed[0])
    for t in range(128):
        for i in range(4):
            row, column = t // 32 * 16 + t % 16, 16 * i + 8 * (t % 32 // 16)
            # The swizzle by address: bits 4 to 6 of the plain one, exclusive or bits 7 to 9.
            plain = row * 128 + column * 2
            assert next(offsets) == plain ^ (plain >> 7 & 7) << 4


def test_eight_rows_that_are_stored_at_once_share_no_bank(printed: list[list[int]]) -> None:
    offsets = printed[0]
    for warp in range(4):
        for i in range(4):
            for first in range(0, 32, 8):
                of_rows = [offsets[(warp * 32 + first + lane) * 4 + i] for lane in range(8)]
                assert len({bank for offset in of_rows for bank in banks(offset)}) == 32


def test_the_swizzle_moves_chunks_within_a_row_and_eight_rows_to_different_banks(
    printed: list[list[int]],
) -> None:
    chunks = [printed[1][8 * row : 8 * row + 8] for row in range(64)]
    assert all(sorted(row) == list(range(8)) for row in chunks)
    for first in range(0, 64, 8):  # `ldmatrix` and `wgmma` read the same chunk of eight rows
        for chunk in range(8):
            assert len({chunks[first + row][chunk] for row in range(8)}) == 8


def test_the_order_visits_each_tile_once_and_moves_to_a_neighbour(
    printed: list[list[int]],
) -> None:
    assert len(printed) > 2
    for group, down, across, *numbers in printed[2:]:
        places = list(zip(numbers[::2], numbers[1::2], strict=True))
        assert sorted(places) == [(row, col) for row in range(down) for col in range(across)]
        for (row, col), (next_row, next_col) in pairwise(places):
            assert abs(next_col - col) <= 1, (group, down, across)
            assert (next_row == row + 1 and next_col == col) or next_row % group == 0


# ---- grids and refusals


def test_a_grid_is_the_smallest_that_needs_no_more_rounds() -> None:
    for at_most in (1, 57, 66, 132):
        for tiles in (1, 2, 56, 66, 67, 128, 256, 1024, 4096):
            workers = even_grid(tiles, at_most)
            assert 1 <= workers <= at_most
            rounds = -(-tiles // at_most)
            assert -(-tiles // workers) == rounds
            assert workers == 1 or -(-tiles // (workers - 1)) > rounds
    assert even_grid(256, 66) == 64


def test_two_widths_of_tiles_fill_the_rounds_of_an_h200() -> None:
    on_66 = partial(split, wide_columns=384, narrow_columns=256, at_most=66)
    assert on_66(down=16, columns=4096) == (8, 64)  # two wide tiles and a narrow one for each
    assert on_66(down=32, columns=8192) == (20, 64)  # ten and one
    assert on_66(down=1, columns=8) == (0, 1)
    for down, columns in ((1, 1000), (7, 264), (16, 3992), (64, 16384)):
        wide, workers = on_66(down=down, columns=columns)
        assert 0 <= wide <= -(-columns // 384)
        assert 1 <= workers <= 66


def test_every_grid_is_whole_clusters_and_no_larger_than_the_gpu() -> None:
    for name in WGMMA:
        variant = ON_TENSOR_CORES[name]
        for tile in variant.tiles:
            for m, n, k in ((1, 8, 8), (4096, 4096, 64), (1000, 1032, 8)):
                launch = variant.launch(tile, problem(m, n, k))
                assert launch.blocks % launch.cluster[0] == 0, (name, tile)
                if name not in {"wgmma", "wgmma_ring"}:
                    assert launch.blocks <= 132, (name, tile)


def test_boxes_are_what_a_tensor_map_takes_and_fill_a_stage() -> None:
    for name in WGMMA:
        variant = ON_TENSOR_CORES[name]
        for tile in variant.tiles:
            a, b, *c = variant.launch(tile, problem(4096, 4096, 4096)).tensor_maps
            sent = a.box[0] * (2 if tile.get("cluster") == "1x2" else 1)
            assert (sent, a.box[1], *b.box) == (tile["BM"], 64, 64, 64), (name, tile)
            assert all(extent <= 256 for one in (a, b, *c) for extent in one.box)
            assert {one.swizzle_bytes for one in (a, b, *c)} == {128}


def test_rows_that_the_tma_cannot_take_are_refused_with_the_reason() -> None:
    for name in WGMMA:
        variant = ON_TENSOR_CORES[name]
        (tile, *_) = variant.tiles.defaults
        assert variant.why_not(tile, problem(1021, 512, 1024), (9, 0)) is None
        assert variant.why_not(tile, problem(1021, 509, 1019), (9, 0)) == (
            "the TMA takes N and K divisible by 8, not 509 and 1019"
        )
        assert variant.why_not(tile, problem(8, 8, 8), (10, 0)) == (
            "runs on compute capability 9.0 only"
        )
    sync = ON_TENSOR_CORES["mma_sync"]
    (tile, *_) = sync.tiles.defaults
    assert sync.why_not(tile, problem(1021, 509, 1019), (8, 6)) is None


def test_tiles_that_do_not_fit_are_refused_with_the_reason() -> None:
    tiles = ON_TENSOR_CORES["wgmma_cluster"].tiles
    for text, reason in (
        ("256x256x64/s2/cluster=1x1/group=8/pdl=0/prefetch=0", "256 sums a thread, over 192"),
        ("128x256x64/s8/cluster=1x1/group=8/pdl=0/prefetch=0", "bytes of shared memory, over"),
        ("64x128x64/s8/cluster=1x2/group=8/pdl=0/prefetch=1", "with pdl=1"),
    ):
        assert reason in str(tiles.why_not(tiles.read(text))), text


def test_the_shared_headers_name_no_toolkit_header() -> None:
    names = ("mma/bits16.cuh", "mma/tensor_cores.cuh", "mma/tf32.cuh", "cluster/cluster_tiles.cuh")
    for name in names:
        text = Path(KERNELS / "lib" / name).read_text(encoding="utf-8")
        assert "#include <" not in text, name
