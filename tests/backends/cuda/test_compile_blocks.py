"""Every kernel with block tiles compiles at every legal tile without a GPU, and none spills."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpubench.backends.cuda.compile import Compiled, compile_instance, instance
from gpubench.kernels.block_tiles import MAX_SHARED_BYTES
from gpubench.kernels.gemm.packed_panels import deal
from gpubench.model import CudaVariant, Launch, Problem, Tile
from gpubench.plan.registry import variants

BLOCKS = {
    one.name: one
    for one in variants()
    if isinstance(one, CudaVariant) and one.op == "gemm" and one.tiles and one.tiles.kind == 3
}

AMPERE, HOPPER = "sm_80", "sm_90"

Key = tuple[str, Tile, str, str, str]
"""Variant, tile, dtype, architecture, kernel (empty: the variant's own)."""


def legal(one: CudaVariant) -> tuple[Tile, ...]:
    assert one.tiles
    return one.tiles.legal


def default(one: CudaVariant) -> tuple[Tile, ...]:
    assert one.tiles
    return one.tiles.default


def problem(m: int, n: int, k: int, dtype: str = "float32") -> Problem:
    return Problem(op="gemm", m=m, n=n, k=k, dtype=dtype)


def launches(one: CudaVariant, tile: Tile, dtype: str) -> dict[str, Launch]:
    """By kernel: rows of B that are aligned, and that are not, may have kernels of their own."""
    problems = (problem(333, n, 155, dtype) for n in (443, 444))
    return {each.kernel: each for at in problems for each in one.launch(tile, at).sequence}


def keys() -> list[Key]:
    """Every tile in float32 on Hopper, the usual ones in other dtypes and on Ampere."""
    found: dict[Key, None] = {}
    for one in BLOCKS.values():
        for tile in legal(one):
            found |= {
                (one.name, tile, "float32", HOPPER, k): None for k in launches(one, tile, "float32")
            }
        for tile in default(one):
            found |= {(one.name, tile, dtype, HOPPER, ""): None for dtype in one.dtypes}
            if one.capability <= (8, 0):
                found[one.name, tile, "float32", AMPERE, ""] = None
    return list(found)


def build(key: Key) -> Compiled:
    name, tile, dtype, architecture, kernel = key
    one = BLOCKS[name]
    return compile_instance(one.source, instance(one, tile, dtype, kernel), architecture)


@pytest.fixture(scope="module")
def compiled() -> dict[Key, Compiled]:
    """All at once, in as many threads as there are CPUs."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(keys(), pool.map(build, keys()), strict=True))


def label(key: Key) -> str:
    return "-".join(str(part) for part in key if str(part))


def test_the_ladder_is_here() -> None:
    assert set(BLOCKS) >= {"blocktile_1d", "vectorized", "pipelined", "packed_panels", "splitk"}


@pytest.mark.parametrize("key", keys(), ids=label)
def test_every_instance_fits_the_gpu_and_none_spills(
    compiled: dict[Key, Compiled], key: Key
) -> None:
    name, tile, dtype, _, kernel = key
    resources = compiled[key].resources
    launch = launches(BLOCKS[name], tile, dtype)[kernel]
    assert (resources.spill_bytes, resources.local_bytes) == (0, 0)
    assert launch.threads_per_block <= 1024
    assert resources.registers * launch.threads_per_block <= 65_536
    assert resources.shared_bytes <= 48 * 1024
    assert resources.shared_bytes + launch.shared_bytes <= MAX_SHARED_BYTES


@pytest.mark.parametrize("name", BLOCKS)
def test_every_tile_compiles_to_code_of_its_own(compiled: dict[Key, Compiled], name: str) -> None:
    codes = [kernel.cubin for key, kernel in compiled.items() if key[0] == name and not key[4]]
    assert codes
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (7, 1000), (1000, 7), (97, 101), (256, 512)])
def test_blocks_cover_the_result_and_none_is_idle(name: str, m: int, n: int) -> None:
    one = BLOCKS[name]
    for tile in legal(one):
        bm, bn, bk = tile.block
        tiles = (-(-m // bm), -(-n // bn))
        splits = tile.splits
        if name == "packed_panels":  # a block has a step at the least
            splits = min(splits, -(-8 // bk))
        assert one.launch(tile, problem(m, n, 8)).main.blocks == splits * tiles[0] * tiles[1]


def test_a_workspace_has_room_for_what_is_packed_and_for_the_parts() -> None:
    tile = Tile.parse("128x256x64/16x8/s2/k4")
    launch = BLOCKS["packed_panels"].launch(tile, problem(130, 10, 65))
    flags_and_panels = 1024 + 2 * 2 * 128 * 64
    rows_of_b = 65 * 12  # ten columns are no multiple of 16 bytes
    parts = 4 * 128 * 256  # two tiles of two steps: four blocks, each with a place for a tile
    assert launch.workspace_bytes == 4 * (flags_and_panels + rows_of_b + parts)
    (tensor_map,) = launch.main.tensor_maps
    assert (tensor_map.array, tensor_map.offset_bytes) == (3, 4 * flags_and_panels)
    assert (tensor_map.shape, tensor_map.box) == ((65, 12), (64, 256))
    (aligned,) = BLOCKS["packed_panels"].launch(tile, problem(130, 12, 65)).main.tensor_maps
    assert (aligned.array, aligned.offset_bytes, aligned.shape) == (1, 0, (65, 12))


def test_splits_are_refused_where_they_would_change_nothing() -> None:
    one, tile = BLOCKS["packed_panels"], Tile.parse("128x256x64/16x8/s2/k4")
    assert one.refuse(tile, problem(2048, 2048, 64)) is None
    reason = "splits are for up to 256 tiles of C, and 4096 has 512"
    assert one.refuse(tile, problem(4096, 4096, 4096)) == reason
    assert one.refuse(Tile.parse("128x256x64/16x8/s2"), problem(4096, 4096, 4096)) is None


def test_the_row_of_a_point_shows_the_kernel_that_bears_its_name() -> None:
    launch = BLOCKS["packed_panels"].launch(Tile.parse("128x256x64/16x8/s2"), problem(999, 999, 99))
    assert launch.kernel == "pack"
    assert launch.main is launch.next_launches[0]
    assert launch.main.shared_bytes == 4 * (2 * 64 * (128 + 256) + 8 * (16 * 64 + 4))


@pytest.mark.parametrize("tiles", [1, 31, 131, 132, 133, 200, 263, 264, 265, 512, 8192])
@pytest.mark.parametrize("steps", [1, 2, 7, 64])
@pytest.mark.parametrize("splits", [1, 2, 4])
def test_blocks_that_stay_share_the_steps_of_what_does_not_come_out_even(
    tiles: int, steps: int, splits: int
) -> None:
    blocks, streamed = deal(tiles=tiles, steps=steps, splits=splits, resident_blocks=132)
    assert 1 <= blocks <= 132
    assert 0 <= streamed <= tiles
    # The others are whole, as many for each block.
    assert (tiles - streamed) % blocks == 0
    if tiles > 132:
        # A share is more than a tile, so that a tile has two blocks at the most.
        assert blocks == 132
        assert streamed == 0 or blocks < streamed < 2 * blocks
    else:
        assert blocks <= tiles * splits
        assert streamed * steps >= blocks or streamed == 0
