"""Arrays of NumPy, and of CuPy without its import."""

from typing import Any

import numpy as np


def on_host(array: Any) -> Any:
    """Return an array in host memory."""
    return np.asarray(array.get() if hasattr(array, "get") else array)  # CuPy has get
