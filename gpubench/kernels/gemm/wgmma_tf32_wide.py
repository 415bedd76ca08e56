"""`wgmma_tf32` with 192 columns per block and three warpgroups, which all multiply."""

from gpubench.kernels.tensor_cores import from_registers, stages_that_fit, variant
from gpubench.model import Config, Space


def threads(tile: Config) -> int:
    """Return the threads of a block: a warpgroup per 64 columns."""
    return int(tile["BN"] // 64) * 128


VARIANT = variant(
    idea="192 columns per block, so fewer bytes; a thread that multiplies also fetches",
    after="wgmma_tf32",
    dtypes=("tf32",),
    tiles=Space(
        axes={
            "BM": (232, 256),
            "BN": (192,),
            "BK": (32,),
            "stages": (3, 4),
            "cluster": ("1x1", "2x1"),
            "group": (3, 4, 8),
        },
        block=("BM", "BN", "BK"),
        default=("256x192x32/s4/cluster=2x1/group=4", "232x192x32/s4/cluster=2x1/group=3"),
        constraint=stages_that_fit(4),
    ),
    launches=from_registers(threads),
)
