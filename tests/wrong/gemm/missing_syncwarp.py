"""Wrong on purpose: a warp an element, summed in shared memory without __syncwarp."""

from gpubench.model import Config, CudaVariant, Launch, Problem, edges


def launch(tile: Config, problem: Problem) -> Launch:
    """A warp an element, EDGE rows a block."""
    edge = tile["edge"]
    return Launch(grid=(problem.n, -(-problem.m // edge)), block=(32, edge))


VARIANT = CudaVariant(
    idea="wrong: a warp an element, summed in shared memory without __syncwarp",
    tiles=edges(1, 32, because="a block holds at most 1024 threads"),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
