"""The naive product, which spins for a minute at EDGE 16."""

from gpubench.model import Config, CudaVariant, Launch, Problem, edges


def launch(tile: Config, problem: Problem) -> Launch:
    """EDGE×EDGE threads; the grid's x runs over columns, its y over rows."""
    edge = tile["edge"]
    return Launch(grid=(-(-problem.n // edge), -(-problem.m // edge)), block=(edge, edge))


VARIANT = CudaVariant(
    idea="spins for a minute at EDGE 16, and not for ever: the GPU may be shared",
    tiles=edges(1, 32, because="EDGE×EDGE threads, and a block holds at most 1024"),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
