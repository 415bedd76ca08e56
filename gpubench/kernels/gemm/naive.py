from gpubench.kernels.layouts import square_blocks
from gpubench.model import LAYOUTS, CudaVariant, edges

VARIANT = CudaVariant(
    idea="one thread per element of C, neighbours in one row: coalesced loads, no reuse",
    after="naive_uncoalesced",
    tiles=edges(1, 32, because="EDGE×EDGE threads, and a block holds at most 1024"),
    launch=square_blocks("naive"),
    layouts=tuple(LAYOUTS),
    reuse=lambda _tile: (1, 1),
)
