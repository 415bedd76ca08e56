"""A TILE×TILE piece of C per thread, in registers, straight from global memory."""

from gpubench.model import Config, CudaVariant, Launch, Problem, edges

THREADS = 8
"""Along each edge of the block, as in the published kernel."""


def launch(tile: Config, problem: Problem) -> Launch:
    """8×8 threads, each TILE×TILE elements of C."""
    covered = THREADS * tile["edge"]
    return Launch(
        grid=(-(-problem.n // covered), -(-problem.m // covered)), block=(THREADS, THREADS)
    )


VARIANT = CudaVariant(
    idea="TILE×TILE elements per thread in registers: reuse without shared memory, until it spills",
    tiles=edges(1, 64, because="larger ones spill beyond use and take minutes to compile"),
    launch=launch,
    reuse=lambda tile: (tile["edge"], tile["edge"]),
)
