"""jax.numpy.matmul. JAX computes in a stream of its own, so use `--launches waited`."""

import os
from collections.abc import Callable

from gpubench.model import CallVariant, Config


def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
    """Return the function of A and B, which returns their product."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX takes most memory else
    import jax

    return jax.jit(lambda a, b: jax.numpy.matmul(a, b, precision="highest"))


VARIANT = CallVariant(
    idea="jax.numpy.matmul",
    runs_on="cuda",
    dtypes=("float32",),
    build=build,
    returns=True,
    tensors="jax.numpy",
    libraries=("jax",),
)
