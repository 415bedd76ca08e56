"""Every kernel with block tiles compiles without a GPU, and none spills."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from gpubench.backends.cuda.compile import Compiled, compile_instance
from gpubench.kernels.block_tiles import MAX_SHARED_BYTES, tiles_of_c
from gpubench.kernels.gemm.packed_panels import stream_k
from gpubench.model import Config, CudaVariant, Launch, Problem
from gpubench.plan.registry import variants

BLOCKS = {
    kernel.name: kernel
    for kernel in variants()
    if isinstance(kernel, CudaVariant)
    and kernel.op == "gemm"
    and kernel.tiles
    and len(kernel.tiles.block) == 3
    and "float32" in kernel.dtypes
}
"""tests/kernels/test_tensor_cores.py has those on tensor cores."""

AMPERE, HOPPER = "sm_80", "sm_90"

Key = tuple[str, Config, str, str, str]
"""Variant, tile, dtype, architecture, kernel (empty: the variant's own)."""


def legal(variant: CudaVariant) -> tuple[Config, ...]:
    assert variant.tiles
    return tuple(variant.tiles)


def default(variant: CudaVariant) -> tuple[Config, ...]:
    assert variant.tiles
    return variant.tiles.defaults


def problem(m: int, n: int, k: int, dtype: str = "float32") -> Problem:
    return Problem(op="gemm", m=m, n=n, k=k, dtype=dtype)


def launches(variant: CudaVariant, tile: Config, dtype: str) -> dict[str, Launch]:
    """By kernel: aligned and unaligned rows of B may have kernels of their own."""
    problems = (problem(333, n, 155, dtype) for n in (443, 444))
    return {
        launch.kernel: launch for at in problems for launch in variant.launch(tile, at).sequence
    }


STEPS = ("blocktile_2d", "bulk_copies", "interleaved", "large_tile", "packed_a", "register_banks")
"""Kernels whose code a later kernel has too. Only the exhaustive test compiles them."""

SMALL = ("blocktile_1d", "splitk_cluster", "vectorized", "warptile")
"""Kernels that compile in half a second."""


def keys(*, every: bool = False) -> list[Key]:
    """The first default of most kernels on Hopper, and of small kernels one more, by turns: another
    dtype, kernel or architecture. Or every one of all."""
    found: dict[Key, None] = {}
    for turn, (name, variant) in enumerate(BLOCKS.items()):
        if name in STEPS and not every:
            continue
        tiles = list(filter(partial(has_code_of_its_own, name), legal(variant)))
        usual = default(variant)[0]
        for tile in tiles if every else ():
            for kernel in launches(variant, tile, "float32"):
                found[name, tile, "float32", HOPPER, kernel] = None
        for launch in variant.launch(usual, problem(333, 444, 155)).sequence:
            found[name, usual, "float32", HOPPER, launch.kernel] = None
        others = [
            (name, usual, dtype, HOPPER, "") for dtype in variant.dtypes if dtype != "float32"
        ]
        kernels = filter(None, launches(variant, usual, "float32"))
        others += [(name, usual, "float32", HOPPER, kernel) for kernel in kernels]
        if variant.capability <= (8, 0):
            others.append((name, usual, "float32", AMPERE, ""))
        if every or name in SMALL:
            found |= dict.fromkeys(others if every else others[turn % len(others) :][:1])
    return list(found)


def has_code_of_its_own(name: str, tile: Config) -> bool:
    """Whether a tile's code differs from that of the same tile without splits."""
    return name != "packed_panels" or tile["splits"] == 1


def test_splits_change_the_launch_of_packed_panels_and_not_its_code() -> None:
    text = BLOCKS["packed_panels"].source.read_text(encoding="utf-8")
    assert text.count("SPLITS") == text.count("int SPLITS = 1>") == 2


def build(key: Key) -> Compiled:
    name, tile, dtype, architecture, kernel = key
    variant = BLOCKS[name]
    return compile_instance(variant.source, variant.instance(tile, dtype, kernel), architecture)


@pytest.fixture(scope="module")
def compiled() -> dict[Key, Compiled]:
    return built(keys())


def built(wanted: list[Key]) -> dict[Key, Compiled]:
    """All at once, in as many threads as there are CPUs."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(wanted, pool.map(build, wanted), strict=True))


@pytest.mark.slow
def test_every_instance_fits_the_gpu_without_spilling(compiled: dict[Key, Compiled]) -> None:
    check_that_they_fit(compiled)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_every_legal_tile_fits_the_gpu_and_none_spills() -> None:
    check_that_they_fit(built(keys(every=True)))


def check_that_they_fit(compiled: dict[Key, Compiled]) -> None:
    for key, built in compiled.items():
        name, tile, dtype, _, kernel = key
        resources = built.resources
        launch = launches(BLOCKS[name], tile, dtype)[kernel]
        assert (resources.spill_bytes, resources.local_bytes) == (0, 0), key
        assert launch.threads_per_block <= 1024, key
        assert resources.registers * launch.threads_per_block <= 65_536, key
        assert resources.shared_bytes <= 48 * 1024, key
        assert resources.shared_bytes + launch.shared_bytes <= MAX_SHARED_BYTES, key


def test_blocks_cover_the_result_and_none_is_idle() -> None:
    for name, variant in BLOCKS.items():
        for tile in legal(variant):
            for m, n in ((1, 1), (7, 1000), (1000, 7), (97, 101), (256, 512)):
                at = problem(m, n, 8)
                splits = tile.get("splits", 1)
                if name == "packed_panels":  # a block has at least one step
                    splits = min(splits, -(-8 // tile["BK"]))
                blocks = variant.launch(tile, at).main.blocks
                assert blocks == splits * tiles_of_c(tile, at), (name, tile, m, n)


def test_a_workspace_has_room_for_what_is_packed_and_for_the_parts() -> None:
    tile = Config.parse("128x256x64/16x8/s2/k4")
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
    variant = BLOCKS["packed_panels"]
    assert variant.tiles
    tile, whole = map(variant.tiles.read, ("128x256x64/16x8/s2/k4", "128x256x64/16x8/s2"))
    assert variant.refuse(tile, problem(2048, 2048, 64)) is None
    reason = "splits are for up to 256 tiles of C, and 4096 has 512"
    assert variant.refuse(tile, problem(4096, 4096, 4096)) == reason
    assert variant.refuse(whole, problem(4096, 4096, 4096)) is None


def test_the_row_of_a_point_shows_the_kernel_that_bears_its_name() -> None:
    variant = BLOCKS["packed_panels"]
    launch = variant.launch(default(variant)[0], problem(999, 999, 99))
    assert launch.kernel == "pack"
    assert launch.main is launch.next_launches[0]
    assert launch.main.shared_bytes == 4 * (2 * 64 * (128 + 256) + 8 * (16 * 64 + 4))
    variant = BLOCKS["packed_a"]
    for n in (999, 1000):  # by an instance for unaligned rows, and by the template itself
        launch = variant.launch(default(variant)[0], problem(999, n, 99))
        assert launch.kernel == "pack"
        assert launch.main is launch.next_launches[0]


def test_persistent_blocks_share_the_steps_of_what_does_not_come_out_even() -> None:
    for tiles in (1, 31, 131, 132, 133, 200, 263, 264, 265, 512, 8192):
        for steps in (1, 2, 7, 64):
            for splits in (1, 2, 4):
                check_streamed(tiles, steps, splits)


def check_streamed(tiles: int, steps: int, splits: int) -> None:
    blocks, streamed = stream_k(tiles=tiles, steps=steps, splits=splits, resident_blocks=132)
    assert 1 <= blocks <= 132
    assert 0 <= streamed <= tiles
    # The others are whole, as many for each block.
    assert (tiles - streamed) % blocks == 0
    if tiles > 132:
        # A range is longer than a tile, so that a tile has at most two blocks.
        assert blocks == 132
        assert streamed == 0 or blocks < streamed < 2 * blocks
    else:
        assert blocks <= tiles * splits
        assert streamed * steps >= blocks or streamed == 0
