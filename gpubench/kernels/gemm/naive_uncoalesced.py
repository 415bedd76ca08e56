from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="one thread per element of C, neighbours in different rows: every load uncoalesced",
    tiles=edges(1, 32, because="EDGE×EDGE threads, and a block holds at most 1024"),
    grid=("M/edge", "N/edge"),
    block=("edge", "edge"),
    reuse=lambda _tile: (1, 1),
)
