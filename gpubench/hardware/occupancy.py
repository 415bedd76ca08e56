"""Computes how many blocks a multiprocessor holds at once, and which resources limit the number.

The limits are from the CUDA Programming Guide, "Technical Specifications per Compute Capability".
The allocation units of registers and shared memory, and the four partitions of the register file,
are from `cuda_occupancy.h` in the CUDA toolkit. The result equals the result of
`cuOccupancyMaxActiveBlocksPerMultiprocessor`.
"""

from dataclasses import dataclass

from gpubench.model import Device, Gpu, Launch, Resources

Capability = tuple[int, int]

KIB = 1024
WARP = 32  # number of threads of a warp
MAX_THREADS = 1024  # maximum number of threads of a block, in every capability
MAX_REGISTERS = 255  # maximum number of registers of a thread, in every capability from 3.5 on
REGISTER_UNIT = 256  # registers are allocated to warps in multiples of this number
MAX_PARTITIONS = 4  # partitions of the register file, each with its own warps


@dataclass(frozen=True)
class Limits:
    """The capacity of a multiprocessor of one compute capability."""

    warps: int
    blocks: int
    shared_bytes: int
    """Shared memory at the largest carveout. The driver chooses this carveout if occupancy needs
    it, unless the kernel requests another carveout."""

    block_shared_bytes: int  # largest shared memory of one block (opt-in)
    reserved_bytes: int = 1 * KIB  # shared memory that the driver reserves in each block
    shared_unit: int = 128  # shared memory is allocated in multiples of this number of bytes
    registers: int = 64 * KIB
    block_registers: int = 64 * KIB
    partitions: int = MAX_PARTITIONS  # number of parts of the register file: two in capability 6.0


_BEFORE_8 = {"reserved_bytes": 0, "shared_unit": 256}

LIMITS: dict[Capability, Limits] = {
    (5, 0): Limits(64, 32, 64 * KIB, 48 * KIB, **_BEFORE_8),
    (5, 2): Limits(64, 32, 96 * KIB, 48 * KIB, **_BEFORE_8),
    (5, 3): Limits(64, 32, 64 * KIB, 48 * KIB, **_BEFORE_8, block_registers=32 * KIB),
    (6, 0): Limits(64, 32, 64 * KIB, 48 * KIB, **_BEFORE_8, partitions=2),
    (6, 1): Limits(64, 32, 96 * KIB, 48 * KIB, **_BEFORE_8),
    (6, 2): Limits(64, 32, 64 * KIB, 48 * KIB, **_BEFORE_8, block_registers=32 * KIB),
    (7, 0): Limits(64, 32, 96 * KIB, 96 * KIB, **_BEFORE_8),
    (7, 2): Limits(64, 32, 96 * KIB, 96 * KIB, **_BEFORE_8),
    (7, 5): Limits(32, 16, 64 * KIB, 64 * KIB, **_BEFORE_8),
    (8, 0): Limits(64, 32, 164 * KIB, 163 * KIB),
    (8, 6): Limits(48, 16, 100 * KIB, 99 * KIB),
    (8, 7): Limits(48, 16, 164 * KIB, 163 * KIB),
    (8, 8): Limits(48, 16, 100 * KIB, 99 * KIB),
    (8, 9): Limits(48, 24, 100 * KIB, 99 * KIB),
    (9, 0): Limits(64, 32, 228 * KIB, 227 * KIB),
    (10, 0): Limits(64, 32, 228 * KIB, 227 * KIB),
    (10, 3): Limits(64, 32, 228 * KIB, 227 * KIB),
    (11, 0): Limits(48, 24, 228 * KIB, 227 * KIB),
    (12, 0): Limits(48, 24, 100 * KIB, 99 * KIB),
    (12, 1): Limits(48, 24, 100 * KIB, 99 * KIB),
}
"""The limits by compute capability. For a capability that is not listed, occupancy is unknown."""


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """The blocks and warps of a kernel that a multiprocessor holds at once."""

    fraction: float  # resident warps divided by the maximum, 0 to 1
    blocks: int  # 0 if the kernel cannot be launched at all
    warps: int
    max_warps: int
    limited_by: tuple[str, ...]
    """The resources that allow no further block: `warps`, `blocks`, `registers`, `shared
    memory`."""

    blocks_by: dict[str, int]
    """Number of blocks that each resource would allow if it were the only limit. Unused resources
    are left out."""


def occupancy(
    capability: Capability | None, resources: Resources, launch: Launch
) -> Occupancy | None:
    """Return the occupancy of a kernel on a GPU, or None for a capability that is not listed."""
    if capability not in LIMITS:
        return None
    limits = LIMITS[capability]
    block_warps = -(-launch.threads_per_block // WARP)
    fits = launch.threads_per_block <= MAX_THREADS
    blocks_by = {"warps": limits.warps // block_warps if fits else 0, "blocks": limits.blocks}
    if resources.registers:
        blocks_by["registers"] = _by_registers(limits, resources.registers, block_warps)
    shared_bytes = resources.shared_bytes + launch.shared_bytes
    if allocated := _round_up(shared_bytes + limits.reserved_bytes, limits.shared_unit):
        fits = shared_bytes <= limits.block_shared_bytes
        blocks_by["shared memory"] = limits.shared_bytes // allocated if fits else 0
    blocks = min(blocks_by.values())
    return Occupancy(
        fraction=blocks * block_warps / limits.warps,
        blocks=blocks,
        warps=blocks * block_warps,
        max_warps=limits.warps,
        limited_by=tuple(name for name, count in blocks_by.items() if count == blocks),
        blocks_by=blocks_by,
    )


def gpu_of(device: Device) -> Gpu | None:
    """Return the properties of a GPU that a launch may be fitted to.

    Return None for an unknown device. The number of resident threads per multiprocessor follows
    from the compute capability.
    """
    limits = LIMITS.get(device.compute_capability or (0, 0))
    if limits is None or not device.multiprocessors:
        return None
    return Gpu(
        multiprocessors=device.multiprocessors, threads_per_multiprocessor=limits.warps * WARP
    )


def registers_allowed(capability: Capability, threads_per_block: int) -> int:
    """Return the maximum number of registers per thread of a block, such as 64 for 1024 threads."""
    limits = LIMITS[capability]
    warps = _round_up(-(-threads_per_block // WARP), MAX_PARTITIONS)
    per_warp = limits.block_registers // warps // REGISTER_UNIT * REGISTER_UNIT
    return min(MAX_REGISTERS, per_warp // WARP)


def _by_registers(limits: Limits, registers: int, block_warps: int) -> int:
    """Return the number of blocks whose registers fit into a multiprocessor.

    A warp uses one partition of the register file, and a block uses all partitions.
    """
    per_warp = _round_up(registers * WARP, REGISTER_UNIT)
    # Capability 6.0 has two partitions. CUDA also refuses blocks there that do not fit into four.
    partitions = {limits.partitions, MAX_PARTITIONS}
    if per_warp * max(_round_up(block_warps, n) for n in partitions) > limits.block_registers:
        return 0
    blocks = [limits.registers // n // per_warp * n // block_warps for n in partitions]
    return max(blocks) if min(blocks) else 0


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


@dataclass(frozen=True, kw_only=True)
class Waves:
    """How a grid fills a GPU. A wave is the number of blocks that the GPU holds at once."""

    blocks: int
    multiprocessors: int
    blocks_per_wave: int
    waves: float
    """Blocks of the grid, divided by the blocks of a wave. 3.88 means three full waves and 0.88 of
    a fourth wave."""

    tail_blocks: int  # number of blocks in the last wave, or 0 if the last wave is full
    idle_multiprocessors: int  # number of multiprocessors that never get a block


def waves(blocks: int, multiprocessors: int, resident: Occupancy) -> Waves | None:
    """Return the waves of a grid, or None if the GPU is unknown or holds no block."""
    blocks_per_wave = multiprocessors * resident.blocks
    if not blocks_per_wave:
        return None
    return Waves(
        blocks=blocks,
        multiprocessors=multiprocessors,
        blocks_per_wave=blocks_per_wave,
        waves=blocks / blocks_per_wave,
        tail_blocks=blocks % blocks_per_wave,
        idle_multiprocessors=max(0, multiprocessors - blocks),
    )
