"""Tiles of A and B staged through shared memory, one element of C per thread."""

from gpubench.model import Config, CudaVariant, Launch, Problem, edges


def launch(tile: Config, problem: Problem) -> Launch:
    """TILE×TILE threads, one element of C each."""
    edge = tile["edge"]
    return Launch(grid=(-(-problem.n // edge), -(-problem.m // edge)), block=(edge, edge))


VARIANT = CudaVariant(
    idea="tiles of A and B in shared memory: each load from global memory is used TILE times",
    after="naive",
    tiles=edges(1, 32, because="TILE×TILE threads, and a block holds at most 1024"),
    launch=launch,
    reuse=lambda tile: (tile["edge"], tile["edge"]),
)
