"""A benchmark that compares matrix kernels on GPUs with cuBLAS and with the hardware's limits."""

from typing import TYPE_CHECKING, Any

__version__ = "0.4.0"

if TYPE_CHECKING:
    from gpubench.api import diff, plot, read_csv, sweep, tune

__all__ = ["__version__", "diff", "plot", "read_csv", "sweep", "tune"]


def __getattr__(name: str) -> Any:
    """Load the library's functions, NumPy and pandas on first use."""
    if name in __all__:
        from gpubench import api as library

        return getattr(library, name)
    raise AttributeError(f"module 'gpubench' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Return the names of the library's functions, even if the functions are not loaded yet."""
    return sorted(__all__)
