"""Occupancy, compared with results of CUDA's calculator, and its general properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubench.hardware.occupancy import (
    LIMITS,
    Capability,
    Occupancy,
    occupancy,
    registers_allowed,
    waves,
)
from gpubench.model import Launch, Resources


def of(
    capability: Capability, registers: int, threads: int, static: int = 0, dynamic: int = 0
) -> Occupancy:
    resources = Resources(registers=registers, local_bytes=0, spill_bytes=0, shared_bytes=static)
    launch = Launch(grid=(1,), block=(threads,), shared_bytes=dynamic)
    resident = occupancy(capability, resources, launch)
    assert resident
    return resident


def test_blocks_are_those_of_the_toolkits_calculator() -> None:
    for capability, registers, threads, static, dynamic, blocks in (
        # cudaOccMaxActiveBlocksPerMultiprocessor of CUDA 13 computed these numbers.
        ((9, 0), 32, 256, 0, 0, 8),
        ((9, 0), 32, 256, 2048, 0, 8),
        ((9, 0), 32, 1, 8, 0, 32),
        ((9, 0), 33, 64, 0, 0, 24),
        ((9, 0), 128, 64, 0, 0, 8),
        ((9, 0), 255, 64, 0, 0, 4),
        ((9, 0), 255, 256, 0, 68_608, 1),
        ((9, 0), 32, 32, 0, 232_448, 1),
        ((9, 0), 32, 128, 0, 76_800, 3),
        ((9, 0), 32, 128, 0, 76_801, 2),
        ((9, 0), 65, 1024, 0, 0, 0),
        ((7, 5), 32, 32, 0, 0, 16),
        ((7, 5), 64, 1024, 0, 0, 1),
        ((8, 0), 32, 128, 0, 16_384, 9),
        ((8, 6), 40, 256, 0, 0, 6),
        ((8, 9), 16, 32, 0, 0, 24),
        ((12, 0), 96, 128, 0, 25_000, 3),
        ((6, 0), 168, 320, 0, 0, 1),
        ((6, 0), 172, 320, 0, 0, 0),
    ):
        resident = of(capability, registers, threads, static, dynamic).blocks
        assert resident == blocks, (capability, registers, threads, static, dynamic)


def test_what_limits_is_every_resource_that_allows_no_further_block() -> None:
    assert of((9, 0), 255, 64).limited_by == ("registers",)
    assert of((9, 0), 32, 256).limited_by == ("warps", "registers")
    assert of((9, 0), 16, 32).limited_by == ("blocks",)
    assert of((9, 0), 32, 128, 0, 76_801).limited_by == ("shared memory",)


def test_occupancy_is_a_fraction_of_the_warps_and_a_partial_warp_counts_whole() -> None:
    assert of((9, 0), 255, 64).fraction == 8 / 64
    assert of((9, 0), 32, 33).warps == 2 * of((9, 0), 32, 33).blocks
    assert of((7, 5), 32, 256).fraction == 1


def test_a_block_larger_than_a_multiprocessor_cannot_be_resident() -> None:
    too_many_threads, too_much_memory = of((9, 0), 32, 1025), of((9, 0), 32, 32, 0, 232_449)
    assert (too_many_threads.blocks, too_many_threads.fraction) == (0, 0)
    assert too_much_memory.limited_by == ("shared memory",)
    assert too_much_memory.blocks == 0


def test_shared_memory_that_is_not_used_limits_nothing_before_capability_8() -> None:
    assert "shared memory" not in of((7, 5), 32, 256).blocks_by
    assert of((8, 0), 32, 256).blocks_by["shared memory"] == 164  # the driver reserves 1 KiB


def test_a_capability_that_is_not_listed_has_no_occupancy() -> None:
    resources = Resources(registers=32, local_bytes=0, spill_bytes=0, shared_bytes=0)
    launch = Launch(grid=(1,), block=(32,))
    assert occupancy((99, 0), resources, launch) is None
    assert occupancy(None, resources, launch) is None


CAPABILITIES = st.sampled_from(sorted(LIMITS))
REGISTERS, THREADS = st.integers(1, 255), st.integers(1, 1024)
BYTES = st.integers(0, 64 * 1024)


@given(CAPABILITIES, REGISTERS, THREADS, BYTES)
def test_resident_blocks_fit_the_limits_of_a_multiprocessor(
    capability: Capability, registers: int, threads: int, shared: int
) -> None:
    limits, resident = LIMITS[capability], of(capability, registers, threads, shared)
    assert 0 <= resident.fraction <= 1
    assert resident.blocks <= limits.blocks
    assert resident.warps <= limits.warps
    assert resident.warps * 32 * registers <= limits.registers
    assert resident.blocks * (shared + limits.reserved_bytes) <= limits.shared_bytes


@given(CAPABILITIES, THREADS)
def test_registers_allowed_are_the_most_for_a_block(capability: Capability, threads: int) -> None:
    max_registers = registers_allowed(capability, threads)
    assert of(capability, max_registers, threads).blocks >= 1
    assert max_registers == 255 or of(capability, max_registers + 1, threads).blocks == 0


def test_waves_are_the_grid_over_what_the_gpu_holds() -> None:
    resident = of((9, 0), 32, 256)
    grid_waves = waves(4096, 132, resident)
    assert grid_waves
    assert (grid_waves.blocks_per_wave, grid_waves.tail_blocks) == (1056, 928)
    assert grid_waves.waves == pytest.approx(3.879, abs=1e-3)
    assert grid_waves.idle_multiprocessors == 0


def test_a_small_grid_leaves_multiprocessors_idle() -> None:
    small = waves(16, 132, of((9, 0), 255, 64))
    assert small
    assert (small.idle_multiprocessors, small.tail_blocks) == (116, 16)
    assert small.waves < 1


def test_there_are_no_waves_of_a_kernel_or_a_gpu_that_holds_nothing() -> None:
    assert waves(16, 132, of((9, 0), 65, 1024)) is None
    assert waves(16, 0, of((9, 0), 32, 256)) is None
