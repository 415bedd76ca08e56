"""What CuPy raises, as gpubench's own errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpubench.errors import DoesNotFitError, LaunchError, first_line


@contextmanager
def faults() -> Iterator[None]:
    """Within it, DoesNotFitError for too little memory, LaunchError for any other fault."""
    try:
        yield
    except MemoryError as error:
        raise DoesNotFitError(f"out of device memory: {error}") from error
    except RuntimeError as error:  # CUDA's runtime, driver and cuBLAS errors derive from it
        raise LaunchError(first_line(error)) from error
