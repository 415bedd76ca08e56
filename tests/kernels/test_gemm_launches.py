"""Launches of kernels of gemm: grids that cover C, boxes that fill a stage, and refusals."""

from bisect import bisect_right
from functools import partial
from itertools import product

import pytest
from fakes import gemm as problem

from gpubench.kernels.block_tiles import MAX_SHARED_BYTES, tiles_of_c
from gpubench.kernels.fitted_tile import box_of_b
from gpubench.kernels.gemm.packed_panels import stream_k
from gpubench.kernels.tensor_cores import DTYPES, MAX_DYNAMIC_BYTES, clusters, even_grid, split
from gpubench.model import Config, CudaVariant, Problem
from gpubench.plan.registry import KERNELS, of_op

GEMM = {name: each for name, each in of_op("gemm").items() if isinstance(each, CudaVariant)}
EDGES = [each for each in GEMM.values() if each.tiles and len(each.tiles.block) == 1]
BLOCKS = [
    each
    for each in GEMM.values()
    if each.tiles and len(each.tiles.block) == 3 and "float32" in each.dtypes
]
FITTED = ("wgmma_fitted", "wgmma_pingpong", "wgmma_split_cluster", "wgmma_any_rows")
WGMMA = [
    each
    for name, each in GEMM.items()
    if name.startswith("wgmma") and set(each.dtypes) == set(DTYPES) and name not in FITTED
]
WIDE = [GEMM[name] for name in ("wgmma_tf32", "wgmma_tf32_wide", "dmma")]
BYTES = [GEMM[name] for name in ("wgmma_bytes", "wgmma_mixed_bytes", "wgmma_split")]
SPLIT = ("dmma_split_cluster", "splitk_cluster", "wgmma_bytes_cluster", "wgmma_tf32_cluster")


def at(size: str, variant: CudaVariant, dtype: str = "") -> Problem:
    return problem(*map(int, size.split("x")), dtype=dtype or variant.dtypes[0])


def of_cluster(tile: Config) -> tuple[int, int]:
    """Return the numbers of rows and columns of blocks in a cluster."""
    rows, columns = map(int, str(tile.get("cluster", "1x1")).split("x"))
    return rows, columns


# ---- grids


@pytest.mark.parametrize("variant", EDGES, ids=lambda each: each.name)
def test_a_tile_changes_the_run_and_blocks_cover_the_result(variant: CudaVariant) -> None:
    tiles = list(variant.tiles)
    size = problem(1000, 777, 8)
    runs = {(variant.launch(tile, size), variant.instance(tile, "float32")) for tile in tiles}
    assert len(runs) == len(tiles)
    for tile in tiles:
        rows, columns = covered(variant, tile)
        assert rows * columns % variant.launch(tile, size).threads_per_block == 0, tile
        for m, n in ((1, 1), (7, 1000), (1000, 7), (97, 101), (256, 512)):
            blocks = variant.launch(tile, problem(m, n, 8)).blocks
            assert blocks == -(-m // rows) * -(-n // columns), (tile, m, n)


def covered(variant: CudaVariant, tile: Config) -> tuple[int, int]:
    """Return the largest numbers of rows and columns of C for which the grid has one block."""
    sizes = range(1, 1025)
    rows = bisect_right(sizes, 1, key=lambda m: variant.launch(tile, problem(m, 1, 8)).blocks)
    columns = bisect_right(sizes, 1, key=lambda n: variant.launch(tile, problem(1, n, 8)).blocks)
    return rows, columns


@pytest.mark.parametrize("variant", BLOCKS, ids=lambda each: each.name)
def test_block_tiles_cover_the_result_and_none_is_idle(variant: CudaVariant) -> None:
    for tile in variant.tiles.sample(200, seed=3):
        for m, n in ((1, 1), (7, 1000), (1000, 7), (97, 101)):
            splits = tile.get("splits", 1)
            if variant.name == "packed_panels":  # each of its blocks has at least one step
                splits = min(splits, -(-8 // tile["BK"]))
            blocks = variant.launch(tile, problem(m, n, 8)).main.blocks
            assert blocks == splits * tiles_of_c(tile, problem(m, n, 8)), (tile, m, n)


@pytest.mark.parametrize("variant", [*WGMMA, *WIDE, *BYTES], ids=lambda each: each.name)
def test_every_grid_is_whole_clusters_and_no_larger_than_the_gpu(variant: CudaVariant) -> None:
    for tile in variant.tiles.sample(100, seed=3):
        rows, columns = of_cluster(tile)
        for m, n, k in ((1, 8, 16), (4096, 4096, 64), (1000, 1032, 16)):
            launch = variant.launch(tile, problem(m, n, k, variant.dtypes[0]))
            assert launch.blocks % (rows * columns) == 0, (tile, m)
            assert launch.cluster == (rows * columns, 1, 1)
            assert launch.threads_per_block % 128 == 0
            assert launch.shared_bytes <= MAX_DYNAMIC_BYTES
            if variant.name not in {"wgmma", "wgmma_ring"}:
                assert launch.blocks <= 132, (tile, m)
                if variant in WIDE:
                    down, across = -(-m // (tile["BM"] * rows)), -(-n // (tile["BN"] * columns))
                    assert launch.blocks <= down * across * rows * columns, (tile, m)


@pytest.mark.parametrize("name", [*SPLIT, "dot_few_rows"])
def test_grids_are_whole_clusters_and_cover_c_once_for_each_part(name: str) -> None:
    variant = GEMM[name]
    for tile in variant.tiles.sample(200, seed=4):
        for m, n, k in ((1, 4, 16), (1000, 1032, 16), (96, 64, 4096)):
            size = problem(m, n, k, variant.dtypes[0])
            launch = variant.launch(tile, size)
            down, across = of_cluster(tile)
            blocks = down * across * tile["splits"]
            tiles = -(-m // (tile["BM"] * down)) * -(-n // (tile["BN"] * across))
            assert launch.blocks == tiles * blocks, tile
            assert launch.cluster == (blocks, 1, 1)
            assert blocks <= (16 if name == "splitk_cluster" else 8)
            assert launch.shared_bytes <= MAX_SHARED_BYTES
            if tile["splits"] > 1:  # the sums of a tile fit into shared memory
                item = max(size.precision.item_bytes, 4)
                assert launch.shared_bytes >= tile["BM"] * tile["BN"] * item


def test_a_grid_is_the_smallest_that_needs_no_more_rounds() -> None:
    for at_most, tiles in product((1, 57, 66, 132), (1, 2, 56, 66, 67, 128, 256, 1024, 4096)):
        workers = even_grid(tiles, at_most)
        assert 1 <= workers <= at_most
        rounds = -(-tiles // at_most)
        assert -(-tiles // workers) == rounds
        assert workers == 1 or -(-tiles // (workers - 1)) > rounds


def test_two_widths_of_tiles_fill_the_rounds_of_an_h200() -> None:
    on_66 = partial(split, wide_columns=384, narrow_columns=256, at_most=66)
    assert on_66(down=16, columns=4096) == (8, 64)  # two wide tiles and a narrow tile per block
    assert on_66(down=32, columns=8192) == (20, 64)  # ten wide tiles and a narrow one
    assert on_66(down=1, columns=8) == (0, 1)
    for down, columns in ((1, 1000), (7, 264), (16, 3992), (64, 16384)):
        wide, workers = on_66(down=down, columns=columns)
        assert 0 <= wide <= -(-columns // 384)
        assert 1 <= workers <= 66


def test_persistent_blocks_share_the_steps_of_tiles_that_do_not_fill_a_round() -> None:
    counts = (1, 31, 131, 132, 133, 200, 263, 264, 265, 512, 8192)
    for tiles, steps, splits in product(counts, (1, 2, 7, 64), (1, 2, 4)):
        blocks, streamed = stream_k(tiles=tiles, steps=steps, splits=splits, resident_blocks=132)
        assert 1 <= blocks <= 132
        assert 0 <= streamed <= tiles
        # The other tiles are computed whole, the same number by each block.
        assert (tiles - streamed) % blocks == 0
        if tiles > 132:
            # A range of steps is longer than a tile, so at most two blocks share a tile.
            assert blocks == 132
            assert streamed == 0 or blocks < streamed < 2 * blocks
        else:
            assert blocks <= tiles * splits
            assert streamed * steps >= blocks or streamed == 0


# ---- boxes and workspaces


@pytest.mark.parametrize("variant", [*WGMMA, *WIDE, *BYTES], ids=lambda each: each.name)
def test_boxes_are_what_a_tensor_map_takes_and_fill_a_stage(variant: CudaVariant) -> None:
    for tile in variant.tiles.sample(100, seed=3):
        dtype = variant.dtypes[0]
        size = problem(4096, 2048, 1024, dtype)
        launch, item = variant.launch(tile, size), size.precision.item_bytes
        a, b, *c = launch.tensor_maps
        bm, bn, bk = tile.numbers("BM", "BN", "BK")
        down, across = of_cluster(tile)
        assert [each.box[1] * item for each in (a, b)] == [128, 128], tile
        assert all(extent <= 256 for each in (a, b, *c) for extent in each.box), tile
        assert {each.swizzle_bytes for each in (a, b, *c)} == {128}
        # The swizzle repeats after 1024 bytes, so every box must begin at a multiple of 1024 bytes.
        assert a.box[0] % 8 == b.box[0] % 8 == 0, tile
        assert a.box[0] * across == bm, tile
        assert a.shape == (4096, 1024)
        if variant in BYTES:  # B lies along k
            assert (b.shape, c[0].shape) == ((2048, 1024), (4096, 2048))
            assert bn % (b.box[0] * down) == 0, tile
            assert c[0].box == (64, 32 if dtype == "int8" else 64)
        else:
            assert b.box[0] == bk, tile
        if variant in WIDE:
            assert launch.shared_bytes == tile["stages"] * (bm + bn) * bk * item, tile


@pytest.mark.parametrize("name", FITTED[:3])
def test_a_launch_of_fitted_tiles_has_room_for_stages_sums_and_results(name: str) -> None:
    variant, in_turns = GEMM[name], name == "wgmma_pingpong"
    for number, tile in enumerate(variant.tiles.sample(150, seed=2)):
        size = problem(*(8 * (1 + 37 * number * by % 500) for by in (1, 3, 7)), "bfloat16")
        launch = variant.launch(tile, size)
        item = 4 if tile.get("splits", 1) > 1 else 2
        assert tile["BM"] * tile["BN"] * item <= launch.shared_bytes <= MAX_DYNAMIC_BYTES, tile
        blocks = launch.cluster[0]
        assert blocks <= (16 if "splits" in tile else 8)
        a, b, rest, *_ = launch.tensor_maps
        rows, columns = of_cluster(tile)
        # If rows cannot be divided into parts of a multiple of 8, one block sends them as one box.
        sent_rows = tile["BM"] // (columns if tile["BM"] % (8 * columns) == 0 else 1)
        assert (a.box, b.box) == ((sent_rows, 64), (box_of_b(tile["BN"], rows), 64))
        if in_turns:
            assert launch.blocks % blocks == 0
            assert launch.blocks <= 132
            assert rest.box == (tile["BM"], 64)  # the box of results
        else:
            assert launch.blocks == clusters(tile, size) * blocks
            assert rest.box == (64 // rows, tile["BN"] % 64 or 64)


def test_boxes_of_a_cluster_cover_a_stage_of_b_once() -> None:
    for columns, down in product(range(64, 257, 16), (1, 2, 4, 8)):
        box = box_of_b(columns, down)
        assert box % 8 == 0  # the swizzle has groups of 8 rows
        assert 64 % box == 0  # a box has values of k of the same 64 columns
        if columns % 64 == 0:
            assert columns % (down * box) == 0  # each block sends the same number of boxes
        else:
            assert box * down == 64


def test_a_workspace_has_room_for_packed_panels_and_for_parts_of_sums() -> None:
    tile = Config.parse("128x256x64/16x8/s2/k4")
    launch = GEMM["packed_panels"].launch(tile, problem(130, 10, 65))
    flags_and_panels = 1024 + 2 * 2 * 128 * 64
    rows_of_b = 65 * 12  # ten columns are no multiple of 16 bytes
    parts = 4 * 128 * 256  # four blocks, each with memory for a tile
    assert launch.workspace_bytes == 4 * (flags_and_panels + rows_of_b + parts)
    (tensor_map,) = launch.main.tensor_maps
    assert (tensor_map.array, tensor_map.offset_bytes) == (3, 4 * flags_and_panels)
    assert (tensor_map.shape, tensor_map.box) == ((65, 12), (64, 256))
    (aligned,) = GEMM["packed_panels"].launch(tile, problem(130, 12, 65)).main.tensor_maps
    assert (aligned.array, aligned.offset_bytes, aligned.shape) == (1, 0, (65, 12))


def test_the_row_of_a_point_describes_the_kernel_with_the_variants_name() -> None:
    for name, n in (("packed_panels", 999), ("packed_a", 999), ("packed_a", 1000)):
        launch = GEMM[name].launch(GEMM[name].tiles.defaults[0], problem(999, n, 99))
        assert launch.kernel == "pack"
        assert launch.main is launch.next_launches[0]
        if name == "packed_panels":
            assert launch.main.shared_bytes == 4 * (2 * 64 * (128 + 256) + 8 * (16 * 64 + 4))


def test_rows_that_are_no_multiple_of_16_bytes_are_copied_first_or_read_by_another_kernel() -> None:
    few_rows, bytes_ = GEMM["dot_few_rows"], GEMM["wgmma_bytes_cluster"]
    tile = few_rows.tiles.read("16x64/k2/rows=16/unroll=1")
    assert few_rows.launch(tile, at("3x6x8", few_rows)).kernel.endswith(", false>")
    split_k = GEMM["splitk_cluster"]
    tile = split_k.tiles.read("64x64x32/8x8/s3/k4")
    assert split_k.launch(tile, at("7x7x7", split_k)).kernel.endswith(", false>")
    assert split_k.launch(tile, at("7x8x7", split_k)).kernel == ""
    tile = bytes_.tiles.read("64x64x128/s8/k2/cluster=1x1")
    assert bytes_.launch(tile, at("7x7x16", bytes_)).workspace_bytes == 0
    launch = bytes_.launch(tile, at("7x16x24", bytes_)).main
    assert launch.workspace_bytes == 128 * (7 + 16)
    assert launch.note == "copies A and B first, into rows that are multiples of 128 bytes"


# ---- refusals


@pytest.mark.parametrize(
    ("name", "tile", "reason"),
    [
        ("wgmma_cluster", "256x256x64/s2/cluster=1x1/group=8/pdl=0/prefetch=0",
         "256 sums a thread, more than 192"),
        ("wgmma_cluster", "128x256x64/s8/cluster=1x1/group=8/pdl=0/prefetch=0",
         "bytes of shared memory, more than"),
        ("wgmma_cluster", "64x128x64/s8/cluster=1x2/group=8/pdl=0/prefetch=1", "needs pdl=1"),
        ("dmma_split_cluster", "64x64x32/s3/k5/cluster=1x2", "10 blocks in a cluster, more than 8"),
        ("dmma_split_cluster", "128x128x32/s4/k2/cluster=1x1", "bytes of shared memory, more than"),
        ("dmma_split_cluster", "112x96x32/s3/k2/cluster=1x1", "rows by 32, or columns by 64"),
        ("splitk_cluster", "96x128x32/12x8/s3/k2", "do not share its copies equally"),
        ("splitk_cluster", "32x32x32/8x8/s3/k2", "a warp of 4x8 threads covers 32x64"),
        ("dot_few_rows", "16x256/rows=2/unroll=1", "512 threads, and a block has 256"),
        ("wgmma_split_cluster", "80x80x64/s8/k2/cluster=1x1/group=8/pdl=1",
         "neither rows nor columns are a multiple of 64"),
        ("wgmma_split_cluster", "256x256x64/s3/k2/cluster=1x1/group=8/pdl=1",
         "256 sums a thread, more than 192"),
        ("wgmma_split_cluster", "208x192x64/s4/k2/cluster=1x1/group=8/pdl=1",
         "104 sums a thread, more than 96"),
        ("wgmma_split_cluster", "192x256x64/s8/k2/cluster=1x1/group=8/pdl=1",
         "bytes of shared memory"),
    ],
)  # fmt: skip
def test_a_tile_that_does_not_fit_is_refused_by_reason(name: str, tile: str, reason: str) -> None:
    tiles = GEMM[name].tiles
    assert reason in str(tiles.why_not(tiles.read(tile)))


BYTES_TILE = "128x192x128/s4/cluster=2x1/group=8"


@pytest.mark.parametrize(
    ("name", "tile", "size", "dtype", "capability", "reason"),
    [
        *(
            (each.name, "", *rest)
            for each in WGMMA
            for rest in (
                ("1021x512x1024", "", (9, 0), None),
                ("1021x509x1019", "", (9, 0),
                 "the TMA takes N and K divisible by 8, not 509 and 1019"),
                ("8x8x8", "", (10, 0), "runs on compute capability 9.0 only"),
            )
        ),
        ("mma_sync", "", "1021x509x1019", "", (8, 6), None),
        ("splitk_cluster", "", "7x7x7", "", (9, 0), None),
        ("dmma_split_cluster", "", "7x6x2", "", (9, 0), None),
        ("dmma_split_cluster", "", "7x7x2", "", (9, 0),
         "the TMA takes N and K divisible by 2, not 7 and 2"),
        ("wgmma_bytes_cluster", "", "7x16x24", "", (9, 0), None),
        ("wgmma_bytes", "128x256x128/s4/cluster=2x1/group=8", "512x512x512", "int8", (9, 0),
         "256 sums and results"),
        ("wgmma_bytes", BYTES_TILE, "512x504x504", "int8", (9, 0),
         "N divisible by 4 and K by 16"),
        ("wgmma_bytes", BYTES_TILE, "512x504x504", "float8_e4m3", (9, 0), "N divisible by 8"),
        ("wgmma_bytes_pingpong", "72x64x128/s3/cluster=1x1/group=8", "512x512x512", "int8", (9, 0),
         "rows are no multiple of 16, which int8 needs"),
        ("wgmma_bytes_pingpong", "72x64x128/s3/cluster=1x1/group=8", "512x512x512", "float8_e4m3",
         (9, 0), None),
        ("wgmma_split", "256x128x128/s4/cluster=1x2/group=8/promote=256", "512x512x512",
         "float8_e4m3_split", (9, 0), "share partial sums"),
        ("dot_few_rows", "16x64/k2/rows=16/unroll=1", "17x8x8", "", (9, 0),
         "reads B once for each 16 rows, so it takes M up to 16"),
        ("dot_few_rows", "16x64/k2/rows=16/unroll=1", "4x8x8", "bfloat16", (9, 0),
         "16 rows a thread have 128 sums with bfloat16, over 64"),
        ("packed_panels", "128x256x64/16x8/s2/k4", "2048x2048x64", "", (9, 0), None),
        ("packed_panels", "128x256x64/16x8/s2/k4", "4096x4096x4096", "", (9, 0),
         "splits are for up to 256 tiles of C, and 4096 has 512"),
        ("packed_panels", "128x256x64/16x8/s2", "4096x4096x4096", "", (9, 0), None),
        ("splitk_cluster", "32x64x16/8x4/s4/k16", "64x64x512", "", (9, 0), None),
        ("splitk_cluster", "32x64x16/8x4/s4/k8", "64x64x512", "", (12, 0), None),
        ("splitk_cluster", "32x64x16/8x4/s4/k16", "64x64x512", "", (12, 0),
         "a cluster of 16 blocks: this GPU allows only 8"),
    ],
)  # fmt: skip
def test_a_problem_or_gpu_that_a_kernel_cannot_take_is_refused_with_the_reason(
    name: str, tile: str, size: str, dtype: str, capability: tuple[int, int], reason: str | None
) -> None:
    variant = GEMM[name]
    config = variant.tiles.read(tile) if tile else variant.tiles.defaults[0]
    why = variant.why_not(config, at(size, variant, dtype), capability)
    assert (reason or "None") in str(why)


def test_few_rows_are_taken_whatever_their_size() -> None:
    variant = GEMM["dot_few_rows"]
    for size, dtype in (("1x7x7", "float32"), ("16x1312x2592", "float32"), ("3x8x8", "bfloat16")):
        tiles = variant.tiles_for(at(size, variant, dtype), 132)
        assert {variant.why_not(tile, at(size, variant, dtype), (9, 0)) for tile in tiles} == {None}


@pytest.mark.parametrize("variant", BYTES, ids=lambda each: each.name)
def test_every_dtype_of_bytes_has_a_default_tile_that_takes_it(variant: CudaVariant) -> None:
    for dtype in variant.dtypes:
        size = problem(512, 512, 512, dtype)
        assert any(variant.why_not(tile, size) is None for tile in variant.tiles.defaults), dtype


def test_the_shared_headers_name_no_toolkit_header() -> None:
    names = ("mma/bits16.cuh", "mma/tensor_cores.cuh", "mma/tf32.cuh", "cluster/cluster_tiles.cuh")
    for name in names:
        assert "#include <" not in (KERNELS / "lib" / name).read_text(encoding="utf-8"), name
