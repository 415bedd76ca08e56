from gpubench.kernels.block_tiles import tiles_of_c, variant
from gpubench.kernels.layouts import instance_in_layout
from gpubench.kernels.tensor_cores import DTYPES
from gpubench.model import LAYOUTS, Config, Launch, Problem, Space

MAX_SHARED_BYTES = 99 * 1024
"""Maximum of a block on compute capability 8.6 and 8.9, the lowest maximum from 8.0 on."""

MAX_THREADS = 512
"""Maximum threads of a block. 1024 threads would have 64 registers each, and spill."""


def shared_bytes(tile: Config) -> int:
    """Return the dynamic shared memory of the stages."""
    bm, bn, bk, stages = tile.numbers("BM", "BN", "BK", "stages")
    return int(stages * bk * (bm + bn) * 2)


def threads(tile: Config) -> int:
    """Return the threads of a block: a warp for WM×WN elements."""
    bm, bn, wm, wn = tile.numbers("BM", "BN", "WM", "WN")
    return int(bm // wm * (bn // wn) * 32)


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch one block per tile of C."""
    return Launch(
        grid=(tiles_of_c(tile, problem),),
        block=(threads(tile),),
        shared_bytes=shared_bytes(tile),
        kernel=instance_in_layout("mma_sync", tile, problem),
    )


def together(tile: Config) -> str | None:
    """Refuse stages that exceed shared memory, and too many threads for their registers."""
    if threads(tile) > MAX_THREADS:
        return f"{tile}: {threads(tile)} threads, over {MAX_THREADS}"
    if (needed := shared_bytes(tile)) > MAX_SHARED_BYTES:
        return f"{tile}: {needed} bytes of shared memory, over {MAX_SHARED_BYTES}"
    return None


VARIANT = variant(
    idea="tensor cores through registers: ldmatrix and mma.sync, 2048 multiply-adds each",
    after="pipelined",
    dtypes=DTYPES,
    capability=(8, 0),
    tiles=Space(
        axes={
            "BM": (64, 128),
            "BN": (128, 256),
            "BK": (64,),
            "WM": (32, 64),
            "WN": (32, 64),
            "stages": (2, 3),
        },
        block=("BM", "BN", "BK"),
        thread=("WM", "WN"),
        default=("128x256x64/64x64/s2", "128x128x64/64x64/s3", "64x128x64/32x64/s3"),
        constraint=together,
    ),
    launch=launch,
    layouts=tuple(LAYOUTS),
)
