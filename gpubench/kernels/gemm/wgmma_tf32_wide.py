from functools import partial

from gpubench.kernels.tensor_cores import from_registers, stages_bytes, tiles, variant
from gpubench.model import Config


def threads(tile: Config) -> int:
    """Return the threads of a block: a warpgroup per 64 columns."""
    return int(tile["BN"] // 64) * 128


VARIANT = variant(
    idea="192 columns per block, so fewer bytes; a thread that multiplies also fetches",
    after="wgmma_tf32",
    dtypes=("tf32",),
    tiles=tiles(
        rows=(232, 256),
        columns=(192,),
        step=32,
        stages=(3, 4),
        cluster=("1x1", "2x1"),
        group=(3, 4, 8),
        default=("256x192x32/s4/cluster=2x1/group=4", "232x192x32/s4/cluster=2x1/group=3"),
        shared_bytes=partial(stages_bytes, item_bytes=4),
    ),
    launches=from_registers(threads),
)
