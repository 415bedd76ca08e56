from collections.abc import Callable
from functools import partial

from gpubench.kernels.gemm import cpu_tile
from gpubench.model import CallVariant, Config


def build(tile: Config | None, dtype: str, *, strided: bool = False) -> Callable[..., None]:
    """Return `cpu_tile` with its outer loop divided among threads."""
    return cpu_tile.build(tile, dtype, parallel=True, strided=strided)


VARIANT = CallVariant(
    idea="cpu_tile on the fastest number of threads",
    tiles=cpu_tile.VARIANT.tiles,
    runs_on="cpu",
    build=build,
    build_strided=partial(build, strided=True),
    layouts=cpu_tile.VARIANT.layouts,
    baseline="cpu_blas_parallel",
    default=False,
)
