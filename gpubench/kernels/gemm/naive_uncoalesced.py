"""One thread per element; a warp walks down a column of C."""

from gpubench.model import Config, CudaVariant, Launch, Problem, edges


def launch(tile: Config, problem: Problem) -> Launch:
    """EDGE×EDGE threads; the grid's x runs over rows, its y over columns."""
    edge = tile["edge"]
    return Launch(grid=(-(-problem.m // edge), -(-problem.n // edge)), block=(edge, edge))


VARIANT = CudaVariant(
    idea="one thread per element of C, neighbours in different rows: every load uncoalesced",
    tiles=edges(1, 32, because="EDGE×EDGE threads, and a block holds at most 1024"),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
