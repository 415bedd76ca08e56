"""Wrong on purpose: naive that rounds A's elements to 16 significant bits."""

from gpubench.model import Config, CudaVariant, Launch, Problem, edges


def launch(tile: Config, problem: Problem) -> Launch:
    """EDGE×EDGE threads, one element of C each."""
    edge = tile["edge"]
    return Launch(grid=(-(-problem.n // edge), -(-problem.m // edge)), block=(edge, edge))


VARIANT = CudaVariant(
    idea="wrong: naive that rounds A's elements to 16 significant bits",
    tiles=edges(1, 32, because="a block holds at most 1024 threads"),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
