from gpubench.kernels.fitted_tile import WHOLE, launches, shared_bytes, why_not
from gpubench.kernels.tensor_cores import variant
from gpubench.kernels.tile_costs import Picks

VARIANT = variant(
    idea="rows by 8 or columns by 16: tiles come out even; a block each, and launches overlap",
    after="wgmma_mixed",
    tiles=WHOLE.tiles(
        group=(8, 16),
        pdl=(0, 1),
        default=(
            "64x64x64/s8/cluster=1x1/group=8/pdl=1",
            "64x128x64/s8/cluster=1x1/group=8/pdl=1",
            "128x128x64/s7/cluster=1x1/group=8/pdl=1",
            "192x192x64/s4/cluster=1x1/group=8/pdl=1",
        ),
        shared_bytes=shared_bytes,
        constraint=why_not,
    ),
    launches=launches,
    auto_tiles=Picks(WHOLE),
)
