"""The naive product, which recurses without end at EDGE 16: a stack overflow."""

from gpubench.model import Config, CudaVariant, Launch, Problem, edges


def launch(tile: Config, problem: Problem) -> Launch:
    """EDGE×EDGE threads; the grid's x runs over columns, its y over rows."""
    edge = tile["edge"]
    return Launch(grid=(-(-problem.n // edge), -(-problem.m // edge)), block=(edge, edge))


VARIANT = CudaVariant(
    idea="recurses without end at EDGE 16: a stack overflow",
    tiles=edges(1, 32, because="EDGE×EDGE threads, and a block holds at most 1024"),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
