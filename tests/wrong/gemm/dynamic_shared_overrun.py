"""Wrong on purpose: shared_tile in dynamic shared memory, with rows one longer than asked for."""

from gpubench.model import ITEM_BYTES, Config, CudaVariant, Launch, Problem, edges


def launch(tile: Config, problem: Problem) -> Launch:
    """EDGE×EDGE threads, one element of C each."""
    edge = tile["edge"]
    return Launch(
        grid=(-(-problem.n // edge), -(-problem.m // edge)),
        block=(edge, edge),
        shared_bytes=2 * edge * edge * ITEM_BYTES[problem.dtype],
    )


VARIANT = CudaVariant(
    idea="wrong: shared_tile in dynamic shared memory, with rows one longer than asked for",
    tiles=edges(1, 32, because="a block holds at most 1024 threads"),
    launch=launch,
    reuse=lambda _tile: (1, 1),
)
