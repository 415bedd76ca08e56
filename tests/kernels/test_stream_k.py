"""packed_panels where blocks stay and share tiles, and what goes wrong if they do not wait.

The tests of all kernels give it a GPU of one multiprocessor, where one block does everything.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases import expected
from on_cpu import Case, KernelFaultError, Sanitizer, run_on_cpu

from gpubench.model import CudaVariant, Gpu, Problem, Tile
from gpubench.plan.registry import choose

THREE = Gpu(multiprocessors=3, threads_per_multiprocessor=2048)

SHARED = {
    # Four tiles of three steps for three blocks, all dealt by steps.
    "128x256x64/16x8/s2": (130, 300, 130),
    "128x128x64/8x8/s2": (130, 250, 130),  # and rows of B that are not aligned
    # Fifteen tiles for six blocks, two a multiprocessor: nine are dealt, six are taken whole.
    "64x64x64/8x8/s2": (130, 260, 130),
    # One tile of eight steps, and two of six, for three blocks.
    "128x256x64/16x8/s2/k4": (100, 200, 500),
    "64x64x64/8x8/s2/k4": (64, 127, 383),
}


def variant() -> CudaVariant:
    (one,) = choose("gemm", "cuda", ("packed_panels",))
    assert isinstance(one, CudaVariant)
    return one


def case(tile: str, dtype: str = "float32") -> Case:
    m, n, k = SHARED[tile]
    problem = Problem(op="gemm", m=m, n=n, k=k, dtype=dtype)
    return Case(variant=variant(), tile=Tile.parse(tile), problem=problem, gpu=THREE)


@pytest.mark.parametrize("tile", SHARED)
def test_the_cases_are_ones_where_blocks_share_tiles(tile: str) -> None:
    one = case(tile)
    (streamed,) = one.launch.main.int_arguments
    steps = -(-one.problem.k // one.tile.block[2])
    blocks = one.launch.main.blocks
    # A share that begins amid a tile shares it with the one before.
    assert any(streamed * steps * share // blocks % steps for share in range(blocks))


def test_tiles_that_blocks_share_are_right_and_clean(tmp_path: Path) -> None:
    every = [*map(case, SHARED), case("64x64x64/8x8/s2", "int32")]
    for one, output in zip(
        every, run_on_cpu(every, Sanitizer.ADDRESS, tmp_path / "a"), strict=True
    ):
        np.testing.assert_array_equal(output, expected(one.problem), err_msg=one.label)
    small = [case(tile) for tile in SHARED if tile.startswith("64x64")]
    for one, output in zip(small, run_on_cpu(small, Sanitizer.THREAD, tmp_path / "t"), strict=True):
        np.testing.assert_array_equal(output, expected(one.problem), err_msg=one.label)


@pytest.mark.parametrize(
    ("planted", "instead", "sanitizer", "finding"),
    [
        ("__syncthreads();  // all are", "// all are", Sanitizer.THREAD, "data race"),
        ("await(flags + other);", "", Sanitizer.THREAD, "data race"),
        (
            "announce(sizeof(Scalar) * STAGE)",
            "announce(STAGE)",
            Sanitizer.ADDRESS,
            "copies that never arrive",
        ),
        (
            "raise(flags + deal.share());",
            ";",
            Sanitizer.ADDRESS,
            "a flag that no block before this one raised",
        ),
        (
            "return gridDim.x - 1 - blockIdx.x;",
            "return blockIdx.x;",
            Sanitizer.ADDRESS,
            "a flag that no block before this one raised",
        ),
        (
            "arrived[stage].start(1);",
            ";",
            Sanitizer.ADDRESS,
            "barrier for copies used before its start",
        ),
    ],
    ids=["no_barrier", "no_waiting", "too_few_bytes", "no_flag", "waits_for_later", "no_start"],
)
def test_a_fault_in_what_orders_copies_and_blocks_is_caught(
    tmp_path: Path, planted: str, instead: str, sanitizer: Sanitizer, finding: str
) -> None:
    with pytest.raises(KernelFaultError) as caught:
        run_on_cpu([case("64x64x64/8x8/s2")], sanitizer, tmp_path / "run", faulty(planted, instead))
    assert finding in caught.value.finding


def test_operands_used_before_they_arrived_show_in_the_result(tmp_path: Path) -> None:
    one = case("64x64x64/8x8/s2")
    text = faulty("arrived[stage].await(parity);", "")
    (output,) = run_on_cpu([one], Sanitizer.ADDRESS, tmp_path / "run", text)
    assert np.isnan(output).any()


def faulty(planted: str, instead: str) -> str:
    """The source with a fault in it."""
    text = variant().source.read_text(encoding="utf-8")
    assert planted in text
    return text.replace(planted, instead)
