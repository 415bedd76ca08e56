"""Functions for arrays of NumPy and CuPy. This module does not import CuPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

NEW_VALUES = 2**12  # number of different elements from which `new_elements` chooses


def on_host(array: Any) -> Any:
    """Return an array of NumPy or CuPy as a NumPy array in host memory."""
    return np.asarray(array.get() if hasattr(array, "get") else array)  # CuPy's arrays have `get`


def new_elements(values: NDArray[Any], seed: int, places: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Return the elements of an operand that have the indices `places`.

    Each element is one of the `NEW_VALUES` elements of `values`. The kernel `new_elements` of
    cuda/stream.cu computes the same elements.
    """
    mixed = places.astype(np.uint64) ^ np.uint64(seed)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):  # the finalizer of MurmurHash3
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(factor)
    chosen: NDArray[Any] = values[mixed >> np.uint64(65 - NEW_VALUES.bit_length())]
    return chosen
