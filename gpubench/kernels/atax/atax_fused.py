from dataclasses import replace

from gpubench.kernels.vectors import THREADS, sum_launch, tile_grid
from gpubench.model import ITEM_BYTES, Config, CudaVariant, Gpu, Launch, Problem

MULTIPROCESSOR_REGISTERS = 65_536
MULTIPROCESSOR_SHARED_BYTES = 227 * 1024
"""CUDA C++ Programming Guide, technical specifications, compute capability 9.0."""

OTHER_REGISTERS = 32
"""Registers of a thread besides its rows and sums: addresses, counters."""


def held_registers(tile: Config) -> int:
    """Return the registers of a thread that hold rows and sums: four for 16 bytes."""
    vectors, depth = tile.numbers("vectors", "depth")
    return 4 * vectors * (depth + 1)


def refuse_tile(tile: Config) -> str | None:
    """Refuse rows and sums that exceed a thread's registers."""
    threads = tile["threads"]
    allowed = min(255, MULTIPROCESSOR_REGISTERS // threads) - OTHER_REGISTERS // 2
    if held_registers(tile) > allowed:
        return f"holds {held_registers(tile)} registers a thread: {threads} threads have {allowed}"
    return None


def refuse(tile: Config, problem: Problem) -> str | None:
    """Refuse rows that are longer than a block can hold."""
    threads, vectors = tile.numbers("threads", "vectors")
    longest = threads * vectors * 16 // ITEM_BYTES[problem.dtype]
    if problem.n > longest:
        return f"holds rows of up to {longest} elements, not {problem.n}: take more threads"
    return None


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch one block per row. `specialize` reduces the number."""
    threads, vectors = tile.numbers("threads", "vectors")
    return Launch(
        grid=(problem.m,),
        block=(threads,),
        shared_bytes=threads * vectors * 16,
        workspace_bytes=problem.m * problem.n * ITEM_BYTES[problem.dtype],
        next_launches=(sum_launch("atax_fused_sum", problem.n, problem.m),)
        if problem.m > 1
        else (),
    )


def specialize(launch: Launch, tile: Config, problem: Problem, gpu: Gpu) -> Launch:
    """Launch the number of blocks that the GPU holds at once. Each writes its sums once."""
    threads = tile["threads"]
    resident = min(
        MULTIPROCESSOR_REGISTERS // (threads * (held_registers(tile) + OTHER_REGISTERS)),
        MULTIPROCESSOR_SHARED_BYTES // (launch.shared_bytes + 2048),
        gpu.threads_per_multiprocessor // threads,
    )
    blocks = min(problem.m, max(1, resident) * gpu.multiprocessors)
    return replace(
        launch,
        grid=(blocks,),
        workspace_bytes=blocks * problem.n * ITEM_BYTES[problem.dtype],
        next_launches=(sum_launch("atax_fused_sum", problem.n, blocks),) if blocks > 1 else (),
    )


VARIANT = CudaVariant(
    idea="one pass: a block holds a row in registers, adds up b_r, then adds b_r·A_r: A once",
    tiles=tile_grid(
        {"threads": THREADS, "vectors": range(1, 9), "depth": range(1, 9)},
        default=("256x1x4", "256x4x4", "512x2x3", "512x4x3", "512x8x1", "512x8x2", "1024x4x1"),
        refuse=refuse_tile,
    ),
    launch=launch,
    specialize=specialize,
    refuse=refuse,
    reuse=lambda _tile: (2, 2),
)
