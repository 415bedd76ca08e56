"""Fixed-point emulation: float64 products that cuBLAS computes from int8 products.

The Ozaki scheme scales rows of A and columns of B to fixed point and cuts them into slices of 8
bits, whose products are exact. CuPy does not wrap the functions, so they are called through ctypes.
They have a handle of their own, because their workspace and strategy must not affect the baseline.
Names and numbers come from `cublas_api.h`.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import cupy
from cupy.cuda import device

from gpubench.backends.cuda.cublas import DEFAULT_ALGORITHM
from gpubench.backends.cuda.gemm_types import COMPUTE_64F_EMULATED_FIXEDPOINT, OP_N, R_64F
from gpubench.errors import LaunchError

EAGER = 2
"""cublasEmulationStrategy_t: emulate whenever it is possible, not only when it is faster."""

WORKSPACE_BYTES = 2**31
"""Workspace for the slices and their products; at most a quarter of the free memory."""


class EmulatedGemm:
    """C = A·B for row-major float64 matrices. Raises LaunchError if cuBLAS does not emulate."""

    def __init__(self) -> None:
        free, _ = cupy.cuda.runtime.memGetInfo()
        self._workspace = cupy.empty(min(WORKSPACE_BYTES, free // 4), "uint8")
        self._bits = cupy.zeros(1, "int32")
        self._handle = ctypes.c_void_p()
        self._one, self._zero = ctypes.c_double(1), ctypes.c_double(0)
        self._checked = False
        _call("cublasCreate_v2", ctypes.byref(self._handle))
        _call("cublasSetStream_v2", self._handle, _pointer(cupy.cuda.get_current_stream().ptr))
        # After the stream is set, because that resets the workspace.
        workspace = _pointer(self._workspace.data.ptr)
        _call(
            "cublasSetWorkspace_v2",
            *(self._handle, workspace, ctypes.c_size_t(self._workspace.nbytes)),
        )
        _call("cublasSetEmulationStrategy", self._handle, ctypes.c_int(EAGER))
        _call(
            "cublasSetFixedPointEmulationMantissaBitCountPointer",
            *(self._handle, _pointer(self._bits.data.ptr)),
        )

    def __call__(self, a: Any, b: Any, c: Any) -> None:
        """Enqueue the product. Wait for the first product, and require that it was emulated."""
        m, k = a.shape
        n = b.shape[1]
        extents = (ctypes.c_int(extent) for extent in (n, m, k))
        _call(
            "cublasGemmEx",
            *(self._handle, ctypes.c_int(OP_N), ctypes.c_int(OP_N), *extents),
            *(ctypes.byref(self._one), *_matrix(b, n), *_matrix(a, k)),
            *(ctypes.byref(self._zero), *_matrix(c, n)),
            *(ctypes.c_int(COMPUTE_64F_EMULATED_FIXEDPOINT), ctypes.c_int(DEFAULT_ALGORITHM)),
        )
        if not self._checked and self.bits < 0:
            raise LaunchError("cuBLAS computes this in float64 itself: it emulates nothing here")
        self._checked = True

    @property
    def bits(self) -> int:
        """Bits of the fixed-point numbers of the last product; negative if it was not emulated."""
        return int(self._bits.get()[0])

    @property
    def algorithm(self) -> str:
        """The text for the row."""
        return f"fixed point, {self.bits} bits"


def _matrix(array: Any, leading: int) -> tuple[Any, ...]:
    return _pointer(array.data.ptr), ctypes.c_int(R_64F), ctypes.c_int(leading)


def _pointer(address: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(address)


def _call(function: str, *arguments: Any) -> None:
    try:
        routine = getattr(_library(), function)
    except AttributeError as error:
        raise LaunchError(f"this cuBLAS has no {function}: 13.1 and newer emulate") from error
    if status := routine(*arguments):
        raise LaunchError(f"{function}: status {status} (cublasStatus_t)")


@cache
def _library() -> ctypes.CDLL:
    """Return the library that CuPy has loaded."""
    device.get_cublas_handle()
    try:
        return ctypes.CDLL("libcublas.so.13")
    except OSError as error:
        raise LaunchError("emulation needs cuBLAS 13.1 or newer") from error
