"""Launches of kernels of gemv, gemv_t and atax."""

from itertools import product

import pytest

from gpubench.kernels.vectors import staged_blocks
from gpubench.model import ITEM_BYTES, OPERATIONS, Config, CudaVariant, Gpu, Problem
from gpubench.plan.registry import variants

H200 = Gpu(multiprocessors=132, threads_per_multiprocessor=2048)
TITAN_RTX = Gpu(multiprocessors=72, threads_per_multiprocessor=1024)

OF_VECTORS = {
    kernel.name: kernel
    for kernel in variants()
    if isinstance(kernel, CudaVariant) and not OPERATIONS[kernel.op].has_k
}
EXTENTS = (1, 31, 32, 33, 127, 1000, 4097, 199_999)
SHAPES = list(product(EXTENTS, repeat=2))


def problem(kernel: CudaVariant, m: int = 1000, n: int = 1000, dtype: str = "float32") -> Problem:
    return Problem(op=kernel.op, m=m, n=n, dtype=dtype)


def tiles_of(kernel: CudaVariant) -> tuple[Config, ...]:
    assert kernel.tiles
    return kernel.tiles.defaults


def test_every_legal_tile_changes_the_launch_or_the_instance() -> None:
    for name, variant in OF_VECTORS.items():
        assert variant.tiles
        legal = list(variant.tiles)
        runs = {
            (variant.launch(tile, problem(variant)), variant.instance(tile, "float32"))
            for tile in legal
        }
        assert len(runs) == len(legal) > 5, name
        assert all(variant.tiles.why_not(tile) is None for tile in legal), name
        assert set(variant.tiles.defaults) <= set(legal), name


# ---- every row and column has its thread


@pytest.mark.parametrize("name", ["gemv_thread", "gemv_warp", "gemv_vectorized"])
def test_blocks_cover_all_rows_and_none_is_idle(name: str) -> None:
    kernel = OF_VECTORS[name]
    for tile, (m, n) in product(tiles_of(kernel), SHAPES):
        threads, rows = tile["threads"], tile.get("rows_per_warp")
        covered = threads // 32 * rows if rows else threads
        blocks = kernel.launch(tile, problem(kernel, m, n)).blocks
        assert (blocks - 1) * covered < m <= blocks * covered


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["gemv_t_vectorized", "atax_pair"])
def test_slabs_cover_the_matrix_and_parts_fit_the_workspace(name: str, dtype: str) -> None:
    item, kernel = ITEM_BYTES[dtype], OF_VECTORS[name]
    for tile, (m, n) in product(tiles_of(kernel), SHAPES):
        threads, rows = tile.numbers("threads", "rows_per_slab")
        launch = kernel.launch(tile, problem(kernel, m, n, dtype))
        slabs = next(part for part in launch.sequence if part.kernel != "atax_pair")
        if name == "atax_pair":
            assert launch.grid == (m,)
            slabs = launch.next_launches[0]
        down = -(-m // rows)
        across, rest = divmod(slabs.blocks, down)
        assert rest == 0
        assert (across - 1) * threads * 16 // item < n <= across * threads * 16 // item
        b_bytes = m * item if name == "atax_pair" else 0
        assert launch.workspace_bytes >= b_bytes + down * n * item
        sums = [part for part in launch.sequence if part.kernel.endswith("_sum")]
        assert len(sums) == (down > 1)
        assert all((one_sum.blocks - 1) * 32 < n <= one_sum.blocks * 32 for one_sum in sums)


@pytest.mark.parametrize("gpu", [H200, TITAN_RTX])
def test_the_fused_pass_has_as_many_parts_as_blocks_and_no_more_than_fit(gpu: Gpu) -> None:
    kernel = OF_VECTORS["atax_fused"]
    for tile, (m, n) in product(tiles_of(kernel), SHAPES[: -len(EXTENTS)]):
        launch = kernel.launch_on(gpu, tile, problem(kernel, m, n))
        assert launch.blocks <= m
        assert launch.blocks * launch.threads_per_block <= (
            gpu.multiprocessors * gpu.threads_per_multiprocessor
        )
        assert launch.workspace_bytes == launch.blocks * n * 4
        arguments = [part.int_arguments for part in launch.next_launches]
        assert arguments == ([(launch.blocks,)] if launch.blocks > 1 else [])


def test_a_row_that_no_block_can_hold_is_refused_with_the_reason() -> None:
    kernel = OF_VECTORS["atax_fused"]
    assert kernel.tiles
    tile = kernel.tiles.read("512x8x2")
    assert kernel.refuse(tile, problem(kernel, 5, 16_384)) is None
    assert "up to 16384 elements" in (kernel.refuse(tile, problem(kernel, 5, 16_385)) or "")
    assert "up to 8192 elements" in (kernel.refuse(tile, problem(kernel, 5, 8193, "float64")) or "")


# ---- the published grid


def test_the_published_grid_is_the_largest_divisor_that_the_gpu_holds() -> None:
    # At most 1024 / 128 · 72 = 576 blocks.
    assert staged_blocks(512, 128, TITAN_RTX) == 512
    assert staged_blocks(576, 128, TITAN_RTX) == 576
    assert staged_blocks(16_384, 128, TITAN_RTX) == 512
    assert staged_blocks(128 * 45, 128, TITAN_RTX) == 576
    assert staged_blocks(16_384, 128, H200) == 2048


def test_shares_leave_no_block_idle_and_no_row_out() -> None:
    for rows, threads, gpu in product((*range(1, 2000, 7), 99_991), (32, 1024), (H200, TITAN_RTX)):
        blocks = staged_blocks(rows, threads, gpu)
        share = -(-rows // blocks)
        assert 1 <= blocks <= gpu.threads_per_multiprocessor // threads * gpu.multiprocessors
        assert (blocks - 1) * share < rows <= blocks * share


def test_both_halves_of_the_published_pair_are_fitted() -> None:
    kernel = OF_VECTORS["atax_staged"]
    assert kernel.tiles
    launch = kernel.launch_on(TITAN_RTX, kernel.tiles.read("128x14"), problem(kernel, 16_384, 1152))
    (second,) = launch.next_launches
    assert (launch.grid, second.grid) == ((512,), (576,))
    assert launch.workspace_bytes == 4 * 16_384
