"""A benchmark for matrix kernels on GPUs: tile sizes, hardware limits, cuBLAS, and change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gpubench.api import plot, read_csv, sweep, tune

__all__ = ["__version__", "plot", "read_csv", "sweep", "tune"]


def __getattr__(name: str) -> Any:
    """Load the library calls, and with them NumPy and pandas, when first used."""
    if name in {"plot", "read_csv", "sweep", "tune"}:
        from gpubench import api as library

        return getattr(library, name)
    raise AttributeError(f"module 'gpubench' has no attribute '{name}'")
