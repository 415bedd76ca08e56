"""Kernels beside the 16-bit ones that divide K in a cluster: PTX emulated, launches and models."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from emulation import compile_emulator, compile_program, program, run
from machine_code import between_labels, listing_of, opcodes

from gpubench.backends.cuda.compile import compile_instance
from gpubench.kernels.block_tiles import MAX_SHARED_BYTES
from gpubench.kernels.gemm import splitk_cluster
from gpubench.kernels.tile_costs import PICKS, PICKS_TOGETHER
from gpubench.model import Config, CudaVariant, Problem
from gpubench.plan.registry import of_op

NAMES = ("dmma_split_cluster", "splitk_cluster", "wgmma_bytes_cluster", "wgmma_tf32_cluster")

VARIANTS = {
    name: variant
    for name, variant in of_op("gemm").items()
    if name in NAMES and isinstance(variant, CudaVariant)
}

PRODUCTS = {"DMMA", "FFMA", "HGMMA", "IGMMA"}

CASES = {
    "wgmma_any_rows": (
        ("16x64x64/s3/k3/cluster=1x2/group=8/pdl=1", "13x199x521"),
        ("80x128x64/s3/k1/cluster=1x2/group=8/pdl=1", "83x262x65"),
        ("64x64x64/s3/k2/cluster=1x1/group=8/pdl=1", "1x1x1"),
    ),
    "dmma": (("64x128x32/s4/cluster=1x2/group=6/pdl=0", "130x258x70"),),
    "dot_few_rows": (
        ("1x64/k8/rows=1/unroll=2", "1x132x1000"),
        ("4x64/k3/rows=2/unroll=1", "3x70x301"),
        ("8x128/k2/rows=8/unroll=1", "5x1x1"),
    ),
    "dot_few_rows/bfloat16": (
        ("1x64/k8/rows=1/unroll=2", "1x136x1000"),
        ("4x256/k2/rows=2/unroll=1", "4x264x40"),
    ),
    "dmma_split_cluster": (
        ("48x32x32/s2/k4/cluster=1x2", "100x66x130"),
        ("128x96x32/s3/k2/cluster=2x1", "130x98x66"),
        ("32x32x32/s6/k8/cluster=1x1", "1x2x2"),
    ),
    "splitk_cluster": (
        ("32x64x32/4x8/s3/k4", "33x68x130"),
        ("96x64x16/12x8/s4/k3", "100x64x35"),
        ("32x32x32/4x4/s2/k16", "1x1x1"),
        ("32x32x32/4x4/s2/k2", "32x32x128"),
        ("32x128x16/8x4/s2/k2", "31x127x45"),
    ),
    "wgmma_bytes": (("128x192x128/s3/cluster=2x1/group=8", "300x336x272"),),
    "wgmma_bytes_cluster": (
        ("64x80x128/s3/k3/cluster=1x2", "65x165x400"),
        ("128x112x128/s3/k2/cluster=2x1", "130x115x272"),
        ("192x96x128/s3/k2/cluster=1x1", "100x97x272"),
        ("16x64x128/s3/k8/cluster=1x1", "1x1x1"),
        ("64x64x128/s3/k1/cluster=1x1", "65x69x133"),
        ("24x64x128/s3/k1/cluster=2x1", "40x200x272"),
    ),
    "wgmma_bytes_pingpong": (
        ("72x64x128/s3/cluster=2x1/group=8", "80x136x144"),
        ("16x64x128/s3/cluster=1x2/group=8", "9x200x400"),
    ),
    "wgmma_deferred": (("128x128x64/s3/cluster=1x2/group=8", "300x392x328"),),
    "wgmma_fitted": (
        ("72x128x64/s3/cluster=2x1/group=8/pdl=1", "150x136x200"),
        ("64x80x64/s3/cluster=2x2/group=8/pdl=1", "130x168x136"),
        ("8x64x64/s4/cluster=1x1/group=8/pdl=1", "5x136x328"),
    ),
    "wgmma_pingpong": (("72x64x64/s3/cluster=2x1/group=8", "150x136x264"),),
    "wgmma_split_cluster": (
        ("16x64x64/s3/k3/cluster=1x2/group=8/pdl=1", "13x200x520"),
        ("64x80x64/s3/k2/cluster=2x2/group=8/pdl=1", "130x168x328"),
    ),
    "wgmma_tf32": (("128x64x32/s8/cluster=1x2/group=8/pdl=0", "130x132x72"),),
    "wgmma_tf32_cluster": (
        ("64x128x32/s8/k1/cluster=1x1", "70x132x100"),
        ("80x64x32/s3/k3/cluster=1x2", "81x132x100"),
        ("112x128x32/s3/k2/cluster=2x1", "230x132x200"),
        ("64x64x32/s2/k8/cluster=1x1", "1x1x1"),
        ("64x64x32/s2/k1/cluster=1x1", "65x69x67"),
    ),
}
"""Configurations and sizes: ragged, less than a tile, and with parts of K that have no values."""


FAULTS = {
    "stages overwritten while others read them": (
        "dmma_split_cluster 64x64x32/s2/k2/cluster=1x1 64x64x64",
        'PTX("bar.sync 1, %0;", "n"(32 * W::COUNT));',
        "",
    ),
    "a copy sent to the blocks of another part": (
        "dmma_split_cluster 32x32x32/s2/k2/cluster=1x2 32x64x64",
        "ROW << (rank.first + rank.row * CN)",
        "ROW << (rank.row * CN)",
    ),
    "a stage freed in the blocks of another part": (
        "dmma_split_cluster 32x32x32/s2/k2/cluster=1x2 32x64x256",
        "free_stage<BLOCKS, 32>(ring.freed[stage], first_block);",
        "free_stage<BLOCKS, 32>(ring.freed[stage]);",
    ),
    "sums read before the other parts have left them": (
        "splitk_cluster 32x32x32/4x4/s2/k4 32x32x128",
        'PTX("barrier.cluster.wait.acquire.aligned;");',
        "",
    ),
    "columns of B sent from the wrong place": (
        "wgmma_bytes_cluster 64x80x128/s3/k2/cluster=2x1 128x80x256",
        "box * EACH",
        "box * (64 / CM)",
    ),
    "a stage freed before it was multiplied": (
        "wgmma_bytes_cluster 64x64x128/s3/k2/cluster=1x1 64x64x2048",
        (
            "await_multiplications<1>();\n"
            "  if (!first) free_stage<BLOCKS>(ring.freed[previous], first_block);"
        ),
        "if (!first) free_stage<BLOCKS>(ring.freed[previous], first_block);",
    ),
}
"""What the emulation must report: a kernel, its tile and a size; a text of its source; another."""


def problem(variant: CudaVariant, size: str, dtype: str = "") -> Problem:
    m, n, k = map(int, size.split("x"))
    return Problem(op="gemm", m=m, n=n, k=k, dtype=dtype or variant.dtypes[0])


def cases(name: str) -> list[tuple[Config, Problem]]:
    """Return the kernel's cases, and those in which a fault is planted, here without it."""
    variant, dtype = gemm(name), name.partition("/")[2]
    planted = [case.split() for case, _, _ in FAULTS.values()]
    chosen = [*CASES[name], *((tile, size) for kernel, tile, size in planted if kernel == name)]
    return [(variant.tiles.read(tile), problem(variant, size, dtype)) for tile, size in chosen]


def gemm(name: str) -> CudaVariant:
    variant = of_op("gemm")[name.partition("/")[0]]
    assert isinstance(variant, CudaVariant)
    return variant


# ---- the kernels themselves, with their PTX emulated


KNOWN_RIGHT = (
    *("dmma", "dot_few_rows", "dot_few_rows/bfloat16", "wgmma_bytes", "wgmma_bytes_pingpong"),
    *("wgmma_deferred", "wgmma_fitted", "wgmma_pingpong", "wgmma_split_cluster", "wgmma_tf32"),
    "wgmma_tf32_cluster",
)
"""Kernels that are right on a GPU, which test the emulation."""


def faults_of(name: str) -> dict[str, tuple[str, str]]:
    """The faults that are planted in a kernel: a text of its source, and another, by fault."""
    return {
        fault: (text, instead)
        for fault, (case, text, instead) in FAULTS.items()
        if case.split()[0] == name
    }


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The program of a kernel, which is compiled once, for all its cases and faults."""
    folder = tmp_path_factory.mktemp("emulated")
    compile_emulator(folder)

    @cache
    def compiled(name: str) -> Path:
        text = program(gemm(name), cases(name), [*faults_of(name).values()])
        binary = folder / name.replace("/", "_")
        compile_program(text, binary)
        return binary

    return compiled


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.exhaustive if name in KNOWN_RIGHT else ())
        for name in CASES
    ],
)
def test_every_element_is_right_and_no_schedule_changes_a_bit(
    name: str, programs: Callable[[str], Path]
) -> None:
    lines = list(run(programs(name)))
    assert lines == [f"right: {tile} {of.size}" for tile, of in cases(name)]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulation_reports(fault: str, programs: Callable[[str], Path]) -> None:
    name, tile, size = FAULTS[fault][0].split()
    at = cases(name).index((gemm(name).tiles.read(tile), problem(gemm(name), size)))
    (line,) = run(programs(name), [*faults_of(name)].index(fault) + 1, at)
    assert line.startswith("fault: ")


# ---- machine code


@pytest.mark.slow
@pytest.mark.parametrize(
    "count", [1, pytest.param(None, marks=pytest.mark.exhaustive)], ids=["first", "all"]
)
def test_the_default_tiles_compile_without_a_spill(count: int | None) -> None:
    keys = [
        (variant, tile) for variant in VARIANTS.values() for tile in variant.tiles.defaults[:count]
    ]
    with ThreadPoolExecutor() as pool:
        for (variant, tile), listing in zip(
            keys, pool.map(listing_without_spills, keys), strict=True
        ):
            where = f"{variant.name} {tile}"
            assert not re.search(r"\b(LDL|STL)\b", listing), where
            loops = [text for text in between_labels(listing) if PRODUCTS & {*opcodes(text)}]
            assert loops, where
            assert not any("MEMBAR" in loop for loop in loops), where
            # Barriers of the cluster: before and after sums are read, and of the TMA's mbarriers.
            for_mbarriers = {"dmma_split_cluster": 1, "splitk_cluster": 0}.get(variant.name, 2)
            waits = 2 * (tile["splits"] > 1) + for_mbarriers  # 2: in each role
            assert listing.count("UCGABAR_WAIT") == waits, where
            if variant.name == "dmma_split_cluster":
                assert "DMMA.16x8x16" in listing, where
                assert listing.count("USETMAXREG") == 2, where
            waits = {"wgmma_bytes_cluster": 2, "wgmma_tf32_cluster": 3}  # more: the compiler's
            assert listing.count("WARPGROUP.DEPBAR") == waits.get(variant.name, 0), where


def listing_without_spills(key: tuple[CudaVariant, Config]) -> str:
    variant, tile = key
    instance = variant.instance(tile, variant.dtypes[0])
    built = compile_instance(variant.source, instance, variant.architecture("sm_90"))
    assert (built.resources.spill_bytes, built.resources.local_bytes) == (0, 0), f"{key}"
    threads = variant.launch(tile, problem(variant, "64x64x64")).threads_per_block
    assert built.resources.registers * threads <= 65_536, f"{key}"
    return listing_of(built)


# ---- launches


def test_grids_are_whole_clusters_and_cover_c_once_for_each_part() -> None:
    for variant in (*VARIANTS.values(), gemm("dot_few_rows")):
        for tile in variant.tiles.sample(200, seed=4):
            for size in ("1x4x16", "1000x1032x16", "96x64x4096"):
                launch = variant.launch(tile, problem(variant, size))
                m, n, _ = map(int, size.split("x"))
                down, across = map(int, str(tile.get("cluster", "1x1")).split("x"))
                blocks = down * across * tile["splits"]
                clusters = -(-m // (tile["BM"] * down)) * -(-n // (tile["BN"] * across))
                assert launch.blocks == clusters * blocks, (variant.name, tile)
                assert launch.cluster == (blocks, 1, 1)
                assert blocks <= (16 if variant.name == "splitk_cluster" else 8)
                assert launch.shared_bytes <= MAX_SHARED_BYTES
                if tile["splits"] > 1:  # the sums of a tile fit
                    item = max(problem(variant, size).precision.item_bytes, 4)
                    assert launch.shared_bytes >= tile["BM"] * tile["BN"] * item


def test_rows_that_are_no_multiple_of_16_bytes_are_taken_or_refused_with_the_reason() -> None:
    split = VARIANTS["splitk_cluster"]
    tile = split.tiles.read("64x64x32/8x8/s3/k4")
    assert split.why_not(tile, problem(split, "7x7x7"), (9, 0)) is None
    assert split.launch(tile, problem(split, "7x7x7")).kernel.endswith(", false>")
    assert split.launch(tile, problem(split, "7x8x7")).kernel == ""
    dmma = VARIANTS["dmma_split_cluster"]
    tile = dmma.tiles.read("64x64x32/s3/k2/cluster=1x1")
    assert dmma.why_not(tile, problem(dmma, "7x6x2"), (9, 0)) is None
    reason = dmma.why_not(tile, problem(dmma, "7x7x2"), (9, 0))
    assert reason == "the TMA takes N and K divisible by 2, not 7 and 2"
    byte = VARIANTS["wgmma_bytes_cluster"]
    tile = byte.tiles.read("64x64x128/s8/k2/cluster=1x1")
    assert byte.why_not(tile, problem(byte, "7x16x24"), (9, 0)) is None
    assert byte.launch(tile, problem(byte, "7x7x16")).workspace_bytes == 0
    product = byte.launch(tile, problem(byte, "7x16x24")).main
    assert product.workspace_bytes == 128 * (7 + 16)
    assert product.note == "copies A and B first, into rows that are multiples of 128 bytes"


def test_few_rows_are_taken_whatever_their_size_and_many_are_refused() -> None:
    few = gemm("dot_few_rows")
    for size, dtype in (("1x7x7", "float32"), ("16x1312x2592", "float32"), ("3x8x8", "bfloat16")):
        tiles = few.tiles_for(problem(few, size, dtype), 132)
        assert tiles
        for tile in tiles:
            assert few.why_not(tile, problem(few, size, dtype), (9, 0)) is None, str(tile)
    tile = few.tiles.read("16x64/k2/rows=16/unroll=1")
    assert few.launch(tile, problem(few, "3x6x8")).kernel.endswith(", false>")
    reason = few.why_not(tile, problem(few, "17x8x8"), (9, 0))
    assert reason == "reads B once for each 16 rows, so it takes M up to 16"
    reason = few.why_not(tile, problem(few, "4x8x8", "bfloat16"), (9, 0))
    assert reason == "16 rows a thread have 128 sums with bfloat16, over 64"


def test_tiles_that_do_not_fit_are_refused_with_the_reason() -> None:
    for name, text, reason in (
        ("dmma_split_cluster", "64x64x32/s3/k5/cluster=1x2", "10 blocks in a cluster, over 8"),
        ("dmma_split_cluster", "128x128x32/s4/k2/cluster=1x1", "bytes of shared memory, over"),
        ("dmma_split_cluster", "112x96x32/s3/k2/cluster=1x1", "rows by 32, or columns by 64"),
        ("splitk_cluster", "96x128x32/12x8/s3/k2", "do not share its copies equally"),
        ("splitk_cluster", "32x32x32/8x8/s3/k2", "a warp of 4x8 threads covers 32x64"),
        ("dot_few_rows", "16x256/rows=2/unroll=1", "512 threads, and a block has 256"),
    ):
        tiles = gemm(name).tiles
        assert reason in str(tiles.why_not(tiles.read(text))), text


def test_clusters_of_16_blocks_are_refused_on_gpus_without_them() -> None:
    split = VARIANTS["splitk_cluster"]
    at = problem(split, "64x64x512")
    for parts, capability, reason in (
        (16, (9, 0), None),
        (8, (12, 0), None),
        (16, (12, 0), "a cluster of 16 blocks: this GPU has at most 8"),
    ):
        tile = split.tiles.read(f"32x64x16/8x4/s4/k{parts}")
        assert split.why_not(tile, at, capability) == reason


# ---- the model


SMALL_TILES = ("dmma_split_cluster", "splitk_cluster")


def shapes(variant: CudaVariant, count: int) -> list[Problem]:
    draw = random.Random(5)  # noqa: S311 # a sample, not a secret
    sizes = ["x".join(str(16 * draw.randint(1, 512)) for _ in range(3)) for _ in range(count)]
    return [problem(variant, size) for size in ("8x16x16", *sizes)]


@pytest.mark.parametrize("name", VARIANTS)
def test_auto_tiles_are_legal_and_few(name: str) -> None:
    variant = VARIANTS[name]
    for of_shape in shapes(variant, 8):
        tiles = variant.tiles_for(of_shape, 132)
        alone = 2 * PICKS if of_shape.m <= splitk_cluster.FEW_ROWS else PICKS
        assert 1 <= len(tiles) <= (alone if name in SMALL_TILES else PICKS_TOGETHER)
        sizes = {tile["BM"] * tile["BN"] / tile["splits"] for tile in tiles}
        assert len(sizes) == len(tiles) or name not in SMALL_TILES
        for tile in tiles:
            assert variant.why_not(tile, of_shape, (9, 0)) is None, str(tile)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_model_divides_k_where_there_are_few_tiles_and_not_where_there_are_many(
    name: str,
) -> None:
    variant = VARIANTS[name]
    deep, *_ = variant.tiles_for(problem(variant, "456x728x8192"), 132)
    assert deep["splits"] > 1
    many, *_ = variant.tiles_for(problem(variant, "8192x8192x512"), 132)
    assert many["splits"] == 1
    assert many["BM"] * many["BN"] > deep["BM"] * deep["BN"] / deep["splits"]
