from gpubench.kernels.fitted_tile import SPLIT, launches, shared_bytes, why_not
from gpubench.kernels.tensor_cores import variant
from gpubench.kernels.tile_costs import Picks

VARIANT = variant(
    idea="K in parts by the blocks of a cluster, whose sums meet in each other's shared memory",
    after="wgmma_fitted",
    tiles=SPLIT.tiles(
        group=(8, 16),
        pdl=(0, 1),
        default=(
            "64x128x64/s8/k3/cluster=1x1/group=8/pdl=1",
            "128x128x64/s7/k2/cluster=1x1/group=8/pdl=1",
            "128x128x64/s7/k4/cluster=1x1/group=8/pdl=1",
            "192x192x64/s4/k4/cluster=1x1/group=8/pdl=1",
        ),
        shared_bytes=shared_bytes,
        constraint=why_not,
    ),
    launches=launches,
    auto_tiles=Picks(SPLIT),
)
