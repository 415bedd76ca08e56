"""packed_panels with blocks that share tiles, and with planted faults in its waits.

The tests of all kernels run it on a GPU of one multiprocessor, where one block computes all tiles.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gpubench.kernels.block_tiles import tiles_of_c
from gpubench.model import CudaVariant, Gpu, Problem
from gpubench.on_cpu.case import Case, expected
from gpubench.on_cpu.fault import KernelFaultError
from gpubench.on_cpu.run import Sanitizer, execute, run_on_cpu
from gpubench.plan.registry import choose

THREE = Gpu(multiprocessors=3, threads_per_multiprocessor=2048)

SHARED = {
    # Fifteen tiles for six blocks, two per multiprocessor: they share nine, and compute six whole.
    "64x64x64/8x8/s2": (130, 260, 130),
    # Two tiles of six steps for three blocks.
    "64x64x64/8x8/s2/k4": (64, 127, 383),
    # Four tiles of three steps for three blocks, which share all tiles. Rows of B are not aligned.
    "128x128x64/8x8/s2": (130, 250, 130),
}


def variant() -> CudaVariant:
    (packed,) = choose("gemm", "cuda", ("packed_panels",))
    assert isinstance(packed, CudaVariant)
    return packed


def case(tile: str) -> Case:
    m, n, k = SHARED[tile]
    problem = Problem(op="gemm", m=m, n=n, k=k, dtype="float32")
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


FAULTS = {
    "no barrier before a stage is filled again": (
        "__syncthreads();  // all threads", Sanitizer.THREAD, "data race",
    ),
    "no wait for another block's sums": (
        "wait_acquire(flags + other);", Sanitizer.THREAD, "data race",
    ),
    "no bytes expected": (
        "filled[stage].arrive_expect_bytes(sizeof(Scalar) * STAGE);",
        Sanitizer.ADDRESS, "an mbarrier whose phase never ends",
    ),
    "no flag set": (
        "store_release(flags + scheduler.range());",
        Sanitizer.ADDRESS, "a flag that no earlier block has set",
    ),
    "an mbarrier without initialization": (
        "filled[stage].init(1);", Sanitizer.ADDRESS, "mbarrier used before its initialization",
    ),
    "no wait for a copy": ("filled[slot.stage].wait(slot.parity);", Sanitizer.ADDRESS, ""),
}  # fmt: skip
"""Faults: the statement that is left out, the sanitizer, and its report. If the report is empty,
the result must be wrong."""

LEFT_OUT = """
#include <cstdlib>
static bool left_out(int number) {  // a variable would be shared memory here
  const char* const chosen = std::getenv("LEFT_OUT");
  return chosen && std::atoi(chosen) == number;
}
"""

CASES = {
    Sanitizer.ADDRESS: [*map(case, SHARED)],
    Sanitizer.THREAD: [case(tile) for tile in SHARED if tile.startswith("64x64")],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a program for each sanitizer, which can leave out a statement by number."""
    folder = tmp_path_factory.mktemp("stream_k")

    def run(sanitizer: Sanitizer) -> list[np.ndarray]:
        return run_on_cpu(CASES[sanitizer], sanitizer, folder / sanitizer.name, faulty())

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for sanitizer, outputs in zip(CASES, pool.map(run, CASES), strict=True):
            for each, output in zip(CASES[sanitizer], outputs, strict=True):
                np.testing.assert_array_equal(output, expected(each.problem), err_msg=each.label)
    return folder


def faulty() -> str:
    """Return the source with its faults, which may be in the inlined header of the scheduler."""
    source = variant().source
    header = source.parent.parent / "lib/sums/stream_k.cuh"
    text = source.read_text(encoding="utf-8").replace(
        '#include "../lib/sums/stream_k.cuh"',
        header.read_text(encoding="utf-8").replace('#include "..', '#include "../lib'),
    )
    for number, (statement, *_) in enumerate(FAULTS.values()):
        assert statement in text
        text = text.replace(statement, f"if (!left_out({number})) {statement}")
    return LEFT_OUT + text


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_tiles_that_blocks_share_are_right_and_clean_and_a_fault_in_their_order_is_found(
    folder: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sanitizer, finding = FAULTS[fault]
    monkeypatch.setenv("LEFT_OUT", str([*FAULTS].index(fault)))
    built = folder / sanitizer.name
    command = [str(built / name) for name in ("program", "inputs", "outputs")]
    if finding:
        with pytest.raises(KernelFaultError) as caught:
            execute(command, sanitizer)
        assert finding in caught.value.finding
    else:
        execute(command, sanitizer)
        assert np.isnan(np.fromfile(built / "outputs", np.float32)).any()
