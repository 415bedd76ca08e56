"""Wrong on purpose: naive launched with two layers of blocks that do the same work."""

from gpubench.model import Config, CudaVariant, Launch, Problem, edges


def launch(tile: Config, problem: Problem) -> Launch:
    """EDGE×EDGE threads, one element of C each, and all of it twice."""
    edge = tile["edge"]
    return Launch(grid=(-(-problem.n // edge), -(-problem.m // edge), 2), block=(edge, edge))


VARIANT = CudaVariant(
    idea="wrong: naive launched with two layers of blocks that do the same work",
    tiles=edges(1, 32, because="a block holds at most 1024 threads"),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
