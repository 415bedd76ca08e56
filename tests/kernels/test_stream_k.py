"""packed_panels with blocks that share tiles, and with faults planted in what they wait for.

The tests of all kernels give it a GPU of one multiprocessor, where one block does everything.
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gpubench.commands.check.cases import expected
from gpubench.kernels.block_tiles import tiles_of_c
from gpubench.model import CudaVariant, Gpu, Problem
from gpubench.on_cpu.run import Case, KernelFaultError, Sanitizer, run_on_cpu
from gpubench.plan.registry import choose

THREE = Gpu(multiprocessors=3, threads_per_multiprocessor=2048)

SHARED = {
    # Four tiles of three steps for three blocks, all of them streamed.
    "128x256x64/16x8/s2": (130, 300, 130),
    "128x128x64/8x8/s2": (130, 250, 130),  # and rows of B that are not aligned
    # Fifteen tiles for six blocks, two a multiprocessor: nine are streamed, six are taken whole.
    "64x64x64/8x8/s2": (130, 260, 130),
    # One tile of eight steps, and two of six, for three blocks.
    "128x256x64/16x8/s2/k4": (100, 200, 500),
    "64x64x64/8x8/s2/k4": (64, 127, 383),
}


def variant() -> CudaVariant:
    (found,) = choose("gemm", "cuda", ("packed_panels",))
    assert isinstance(found, CudaVariant)
    return found


def case(tile: str, dtype: str = "float32") -> Case:
    m, n, k = SHARED[tile]
    problem = Problem(op="gemm", m=m, n=n, k=k, dtype=dtype)
    return Case(variant=variant(), tile=variant().tiles.read(tile), problem=problem, gpu=THREE)


def test_blocks_share_tiles_in_every_case() -> None:
    for tile in SHARED:
        shared = case(tile)
        (streamed,) = shared.launch.main.int_arguments
        assert streamed <= tiles_of_c(shared.tile, shared.problem)
        steps = -(-shared.problem.k // shared.tile["BK"])
        blocks = shared.launch.main.blocks
        # A range that begins within a tile shares that tile with the range before it.
        assert any(streamed * steps * number // blocks % steps for number in range(blocks)), tile


@pytest.mark.slow
def test_tiles_that_blocks_share_are_right_and_clean(tmp_path: Path) -> None:
    every = [*map(case, SHARED), case("64x64x64/8x8/s2", "int32")]
    small = [case(tile) for tile in SHARED if tile.startswith("64x64")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        address = pool.submit(run_on_cpu, every, Sanitizer.ADDRESS, tmp_path / "a")
        thread = pool.submit(run_on_cpu, small, Sanitizer.THREAD, tmp_path / "t")
    for cases, outputs in ((every, address.result()), (small, thread.result())):
        for one, output in zip(cases, outputs, strict=True):
            np.testing.assert_array_equal(output, expected(one.problem), err_msg=one.label)


FAULTS = {
    "no barrier before a stage is filled again": (
        "__syncthreads();  // all threads", "// all threads", Sanitizer.THREAD, "data race",
    ),
    "no wait for another block's sums": (
        "wait_acquire(flags + other);", "", Sanitizer.THREAD, "data race",
    ),
    "too few bytes expected": (
        "arrive_expect_bytes(sizeof(Scalar) * STAGE)", "arrive_expect_bytes(STAGE)",
        Sanitizer.ADDRESS, "an mbarrier whose phase never ends",
    ),
    "no flag set": (
        "store_release(flags + scheduler.range());", ";",
        Sanitizer.ADDRESS, "a flag that no earlier block has set",
    ),
    "an mbarrier without initialization": (
        "filled[stage].init(1);", ";",
        Sanitizer.ADDRESS, "mbarrier used before its initialization",
    ),
}  # fmt: skip
"""Correct code, the faulty code that replaces it, the sanitizer, and its report."""


@pytest.mark.slow
def test_sanitizers_find_a_fault_in_the_ordering_of_copies_and_blocks(tmp_path: Path) -> None:
    shared = [case("64x64x64/8x8/s2")]
    found: dict[str, Future[list[np.ndarray]]] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, (name, (planted, instead, sanitizer, _)) in enumerate(FAULTS.items()):
            text = faulty(planted, instead)
            found[name] = pool.submit(run_on_cpu, shared, sanitizer, tmp_path / f"{number}", text)
        unwaited = pool.submit(
            run_on_cpu, shared, Sanitizer.ADDRESS, tmp_path / "unwaited",
            faulty("filled[slot.stage].wait(slot.parity);", ""),
        )  # fmt: skip
    for name, (*_, finding) in FAULTS.items():
        with pytest.raises(KernelFaultError) as caught:
            found[name].result()
        assert finding in caught.value.finding, name
    # If operands are used before they arrive, the result is wrong.
    (output,) = unwaited.result()
    assert np.isnan(output).any()


def faulty(planted: str, instead: str) -> str:
    """Return the source with a fault. The scheduler's header is inlined, as it may have it."""
    source = variant().source
    header = source.parent.parent / "lib/sums/stream_k.cuh"
    text = source.read_text(encoding="utf-8").replace(
        '#include "../lib/sums/stream_k.cuh"',
        header.read_text(encoding="utf-8").replace('#include "..', '#include "../lib'),
    )
    assert planted in text
    return text.replace(planted, instead)
