"""Tensor maps: how the copy engine of compute capability 9.0 is told of a matrix."""

from __future__ import annotations

import ctypes
from functools import cache

from gpubench.errors import LaunchError
from gpubench.model import ITEM_BYTES, TensorMap

DATA_TYPES = {"float32": 7, "float64": 8, "int32": 3}
"""CUtensorMapDataType (cuda.h)."""

MAP_BYTES, MAP_ALIGNMENT = 128, 64
L2_PROMOTION_128_BYTES = 2


def encode(wanted: TensorMap, address: int, dtype: str) -> ctypes.Array[ctypes.c_char]:
    """The map of a matrix in the array at `address`, as the kernel takes it by value.

    Raises LaunchError where the driver has no tensor maps, or refuses this one.
    """
    rows, columns = wanted.shape
    room = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
    skip = -ctypes.addressof(room) % MAP_ALIGNMENT
    # The innermost extent first: columns, then rows. Plain order, no swizzle, zeros outside.
    status = _driver().cuTensorMapEncodeTiled(
        ctypes.byref(room, skip),
        ctypes.c_int(DATA_TYPES[dtype]),
        ctypes.c_uint32(2),
        ctypes.c_void_p(address + wanted.offset_bytes),
        (ctypes.c_uint64 * 2)(columns, rows),
        (ctypes.c_uint64 * 1)(columns * ITEM_BYTES[dtype]),
        (ctypes.c_uint32 * 2)(wanted.box[1], wanted.box[0]),
        (ctypes.c_uint32 * 2)(1, 1),
        *(ctypes.c_int(0), ctypes.c_int(0)),
        ctypes.c_int(L2_PROMOTION_128_BYTES),
        ctypes.c_int(0),
    )
    if status:
        raise LaunchError(f"cuTensorMapEncodeTiled refused {wanted}: CUDA error {status}")
    return ctypes.create_string_buffer(room.raw[skip : skip + MAP_BYTES], MAP_BYTES)


@cache
def _driver() -> ctypes.CDLL:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuTensorMapEncodeTiled.restype = ctypes.c_int
    except (OSError, AttributeError) as error:
        raise LaunchError(f"the driver has no tensor maps: {error}") from error
    return driver
