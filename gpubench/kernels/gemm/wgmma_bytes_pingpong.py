from gpubench.kernels.fitted_tile import (
    BYTES_TURNS,
    refuse_turns,
    turns,
    turns_bytes,
    why_not_in_turns,
)
from gpubench.kernels.tensor_cores import variant
from gpubench.kernels.tile_costs import Picks

VARIANT = variant(
    idea="two warpgroups with tiles of 8 bits of their own: one stores while the other multiplies",
    after="wgmma_bytes_cluster",
    dtypes=BYTES_TURNS.dtypes,
    tiles=BYTES_TURNS.tiles(
        group=(8, 16),
        default=(
            "128x128x128/s6/cluster=2x1/group=8",
            "96x64x128/s8/cluster=2x4/group=8",
        ),
        shared_bytes=turns_bytes,
        constraint=why_not_in_turns,
    ),
    launches=turns,
    refuse=refuse_turns,
    auto_tiles=Picks(BYTES_TURNS),
)
