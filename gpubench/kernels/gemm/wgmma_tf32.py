from functools import partial

from gpubench.kernels.tensor_cores import from_registers, stages_bytes, tiles, variant
from gpubench.model import Config


def threads(tile: Config) -> int:
    """Return the threads of a block: a warpgroup per 64 columns, and one that fetches."""
    return int(tile["BN"] // 64 + 1) * 128


VARIANT = variant(
    idea="TF32: operands change places, and columns of B come from registers without transposing",
    after="wgmma_cluster",
    dtypes=("tf32",),
    tiles=tiles(
        rows=(128, 256),
        columns=(64, 128),
        step=32,
        stages=(4, 8),
        cluster=("1x1", "1x2", "2x1"),
        group=(8, 16),
        pdl=(0, 1),
        default=(
            "256x128x32/s4/cluster=1x2/group=8/pdl=0",
            "256x128x32/s4/cluster=1x1/group=8/pdl=0",
            "256x128x32/s4/cluster=1x1/group=8/pdl=1",
            "128x64x32/s8/cluster=1x1/group=8/pdl=0",
            "128x64x32/s8/cluster=1x1/group=8/pdl=1",
        ),
        shared_bytes=partial(stages_bytes, item_bytes=4),
    ),
    launches=from_registers(threads),
)
