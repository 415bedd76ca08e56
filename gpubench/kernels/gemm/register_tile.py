from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="TILE×TILE elements per thread in registers: reuse without shared memory, until it spills",
    tiles=edges(
        *(1, 64),
        because="larger ones spill beyond use and take minutes to compile",
        default=(1, 2, 4, 8, 16),  # 16 spills already, and 32 takes 3 s to compile
    ),
    grid=("N/(8*edge)", "M/(8*edge)"),
    block=(8, 8),  # as in the published kernel
    reuse=lambda tile: (tile["edge"], tile["edge"]),
)
