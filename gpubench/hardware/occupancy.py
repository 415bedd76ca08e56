"""Occupancy: how many blocks a multiprocessor holds at once, and what limits that. Pure.

The limits are those of the CUDA Programming Guide, "Technical Specifications per Compute
Capability"; the units in which registers and shared memory are handed out, and how warps share the
four partitions of the register file, are those of `cuda_occupancy.h` in the CUDA toolkit. The
answer is that of `cuOccupancyMaxActiveBlocksPerMultiprocessor`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpubench.model import Launch, Resources

Capability = tuple[int, int]

WARP = 32
"""Threads of a warp."""

MAX_THREADS = 1024
"""Threads a block may have, in every capability."""

MAX_REGISTERS = 255
"""Registers a thread may have, in every capability from 3.5 on."""

REGISTER_UNIT = 256
"""Registers are handed out to warps in these steps (`cuda_occupancy.h`)."""

MAX_PARTITIONS = 4
"""Parts of the register file, each with warps of its own."""

KIB = 1024


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a multiprocessor of one compute capability holds."""

    warps: int
    """Resident warps; 32 times as many threads."""

    blocks: int
    """Resident blocks."""

    shared_bytes: int
    """Shared memory, with the cache that shares its array as small as it can be.

    That is the driver's choice for a kernel which does not ask otherwise, where occupancy needs it.
    """

    block_shared_bytes: int
    """Shared memory of one block, where it asks for all it can get."""

    reserved_bytes: int = 1 * KIB
    """Shared memory that the driver takes of each block, from capability 8.0 on."""

    shared_unit: int = 128
    """Shared memory is handed out in these steps; before capability 8.0 they are 256 bytes."""

    registers: int = 64 * KIB
    block_registers: int = 64 * KIB
    partitions: int = MAX_PARTITIONS
    """Parts of the register file: two in capability 6.0."""


def _before_8(warps: int, blocks: int, shared_kib: int, block_shared_kib: int) -> Limits:
    return Limits(
        warps=warps,
        blocks=blocks,
        shared_bytes=shared_kib * KIB,
        block_shared_bytes=block_shared_kib * KIB,
        reserved_bytes=0,
        shared_unit=256,
    )


def _from_8(warps: int, blocks: int, shared_kib: int) -> Limits:
    """From capability 8.0 on a block can have all but the kibibyte that the driver takes."""
    return Limits(
        warps=warps,
        blocks=blocks,
        shared_bytes=shared_kib * KIB,
        block_shared_bytes=(shared_kib - 1) * KIB,
    )


LIMITS: dict[Capability, Limits] = {
    (5, 0): _before_8(64, 32, 64, 48),
    (5, 2): _before_8(64, 32, 96, 48),
    (5, 3): replace(_before_8(64, 32, 64, 48), block_registers=32 * KIB),
    (6, 0): replace(_before_8(64, 32, 64, 48), partitions=2),
    (6, 1): _before_8(64, 32, 96, 48),
    (6, 2): replace(_before_8(64, 32, 64, 48), block_registers=32 * KIB),
    (7, 0): _before_8(64, 32, 96, 96),
    (7, 2): _before_8(64, 32, 96, 96),
    (7, 5): _before_8(32, 16, 64, 64),
    (8, 0): _from_8(64, 32, 164),
    (8, 6): _from_8(48, 16, 100),
    (8, 7): _from_8(48, 16, 164),
    (8, 8): _from_8(48, 16, 100),
    (8, 9): _from_8(48, 24, 100),
    (9, 0): _from_8(64, 32, 228),
    (10, 0): _from_8(64, 32, 228),
    (10, 3): _from_8(64, 32, 228),
    (11, 0): _from_8(48, 24, 228),
    (12, 0): _from_8(48, 24, 100),
    (12, 1): _from_8(48, 24, 100),
}
"""By compute capability. One that is not listed has no occupancy: never a guess."""


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """What a multiprocessor holds of a kernel at once."""

    fraction: float
    """Resident warps over the most there can be, 0 to 1."""

    blocks: int
    """Resident blocks; 0 if the kernel cannot be launched at all."""

    warps: int
    """Resident warps."""

    max_warps: int
    limited_by: tuple[str, ...]
    """The resources that allow no block more: `warps`, `blocks`, `registers`, `shared memory`."""

    blocks_by: dict[str, int]
    """How many blocks each resource alone would allow; one that is not used is left out."""


def occupancy(
    capability: Capability | None, resources: Resources, launch: Launch
) -> Occupancy | None:
    """The occupancy of a kernel on a GPU; None for a capability that is not listed."""
    if capability not in LIMITS:
        return None
    limits = LIMITS[capability]
    block_warps = -(-launch.threads_per_block // WARP)
    blocks_by = {"warps": limits.warps // block_warps, "blocks": limits.blocks}
    if launch.threads_per_block > MAX_THREADS:
        blocks_by["warps"] = 0
    if resources.registers:
        blocks_by["registers"] = _by_registers(limits, resources.registers, block_warps)
    shared_bytes = resources.shared_bytes + launch.shared_bytes
    if shared_bytes + limits.reserved_bytes:
        blocks_by["shared memory"] = _by_shared_memory(limits, shared_bytes)
    blocks = min(blocks_by.values())
    return Occupancy(
        fraction=blocks * block_warps / limits.warps,
        blocks=blocks,
        warps=blocks * block_warps,
        max_warps=limits.warps,
        limited_by=tuple(name for name, count in blocks_by.items() if count == blocks),
        blocks_by=blocks_by,
    )


def registers_allowed(capability: Capability, threads_per_block: int) -> int:
    """The registers a thread can have so that one block fits: 255, or 64 with 1024 threads."""
    limits = LIMITS[capability]
    warps = _up(-(-threads_per_block // WARP), MAX_PARTITIONS)
    a_warp = limits.block_registers // warps // REGISTER_UNIT * REGISTER_UNIT
    return min(MAX_REGISTERS, a_warp // WARP)


def _by_registers(limits: Limits, registers: int, block_warps: int) -> int:
    """Each warp's registers lie in one partition, and a block's warps are dealt to all of them."""
    a_warp = _up(registers * WARP, REGISTER_UNIT)
    # CUDA refuses on capability 6.0, with its two partitions, what four of 6.1 could not hold.
    partitions = {limits.partitions, MAX_PARTITIONS}
    if any(a_warp * _up(block_warps, count) > limits.block_registers for count in partitions):
        return 0
    blocks = [limits.registers // count // a_warp * count // block_warps for count in partitions]
    return max(blocks) if min(blocks) else 0


def _by_shared_memory(limits: Limits, shared_bytes: int) -> int:
    if shared_bytes > limits.block_shared_bytes:
        return 0
    return limits.shared_bytes // _up(shared_bytes + limits.reserved_bytes, limits.shared_unit)


def _up(number: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-number // unit) * unit


@dataclass(frozen=True, kw_only=True)
class Waves:
    """How a grid fills a GPU: a wave is as many blocks as all its multiprocessors hold at once."""

    blocks: int
    """In the grid."""

    multiprocessors: int
    blocks_per_wave: int
    waves: float
    """The grid over a wave: 3.88 is three full ones and a tail of 0.88."""

    tail_blocks: int
    """Blocks of the last wave, if it is not full; 0 if it is."""

    idle_multiprocessors: int
    """Multiprocessors that never get a block."""


def waves(blocks: int, multiprocessors: int, resident: Occupancy) -> Waves | None:
    """The waves of a grid; None where the multiprocessors are not known or hold no block."""
    a_wave = multiprocessors * resident.blocks
    if not a_wave:
        return None
    return Waves(
        blocks=blocks,
        multiprocessors=multiprocessors,
        blocks_per_wave=a_wave,
        waves=blocks / a_wave,
        tail_blocks=blocks % a_wave,
        idle_multiprocessors=max(0, multiprocessors - blocks),
    )
