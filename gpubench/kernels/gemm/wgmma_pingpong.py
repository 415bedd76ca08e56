from gpubench.kernels.fitted_tile import TURNS, turns, turns_bytes, why_not_in_turns
from gpubench.kernels.tensor_cores import variant
from gpubench.kernels.tile_costs import Picks

VARIANT = variant(
    idea="two warpgroups with tiles of their own: one stores results while the other multiplies",
    after="wgmma_fitted",
    tiles=TURNS.tiles(
        group=(4, 8, 16),
        default=(
            "104x192x64/s5/cluster=2x1/group=8",
            "128x128x64/s6/cluster=4x1/group=8",
            "96x192x64/s5/cluster=4x1/group=8",
        ),
        shared_bytes=turns_bytes,
        constraint=why_not_in_turns,
    ),
    launches=turns,
    auto_tiles=Picks(TURNS),
)
