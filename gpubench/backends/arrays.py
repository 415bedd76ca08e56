"""Helper for arrays of NumPy and CuPy. It does not import CuPy."""

from typing import Any

import numpy as np


def on_host(array: Any) -> Any:
    """Return an array of NumPy or CuPy as a NumPy array in host memory."""
    return np.asarray(array.get() if hasattr(array, "get") else array)  # CuPy's arrays have `get`
