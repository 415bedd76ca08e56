"""Computes float64 products by cuBLAS's fixed-point emulation, which multiplies in int8.

The Ozaki scheme scales rows of A and columns of B to fixed point and cuts them into slices of 8
bits, whose products are exact. The functions of cuBLAS for this scheme are called through ctypes,
because CuPy does not wrap them. These functions use a handle of their own, because their workspace
and strategy must not affect the baseline. The names and numbers of constants are taken from
`cublas_api.h`.
"""

import ctypes
from typing import Any

import cupy

from gpubench.backends.cuda.cublas import DEFAULT_ALGORITHM, call, new_handle, one_and_zero, pointer
from gpubench.backends.cuda.gemm_types import COMPUTE_64F_EMULATED_FIXEDPOINT, OP_N, R_64F
from gpubench.errors import LaunchError

WORKSPACE_BYTES = 2**31
"""Bytes of the workspace for the slices and their products. The workspace takes at most a quarter
of the free memory."""


class EmulatedGemm:
    """Computes C = A·B for row-major float64 matrices.

    Raises LaunchError if cuBLAS does not emulate the product.
    """

    def __init__(self) -> None:
        free, _ = cupy.cuda.runtime.memGetInfo()
        self._workspace = cupy.empty(min(WORKSPACE_BYTES, free // 4), "uint8")
        self._handle = new_handle(cupy.cuda.get_current_stream().ptr, self._workspace)
        self._bits = cupy.zeros(1, "int32")
        self._one, self._zero = one_and_zero(ctypes.c_double)
        self._checked: set[tuple[int, int, int]] = set()  # M, N, K
        # CUBLAS_EMULATION_STRATEGY_EAGER: emulate also where emulation is not faster.
        call("cublasSetEmulationStrategy", self._handle, 2)
        where = pointer(self._bits)
        call("cublasSetFixedPointEmulationMantissaBitCountPointer", self._handle, where)

    def __call__(self, a: Any, b: Any, c: Any) -> None:
        """Enqueue the product.

        Wait for the first product of each size, and require that it was emulated.
        """
        (m, k), n = a.shape, b.shape[1]
        left, right, result = (pointer(b), R_64F, n), (pointer(a), R_64F, k), (pointer(c), R_64F, n)
        how = COMPUTE_64F_EMULATED_FIXEDPOINT, DEFAULT_ALGORITHM
        arguments = OP_N, OP_N, n, m, k, self._one, *left, *right, self._zero, *result, *how
        call("cublasGemmEx", self._handle, *arguments)
        if (m, n, k) not in self._checked and self.bits < 0:
            raise LaunchError(
                "cuBLAS computed this product in float64, and did not emulate float64"
            )
        self._checked.add((m, n, k))

    @property
    def bits(self) -> int:
        """Number of bits of the last product's fixed-point numbers. Negative if not emulated."""
        return int(self._bits.get()[0])

    @property
    def algorithm(self) -> str:
        """Name of the algorithm, which is written into the row."""
        return f"fixed point, {self.bits} bits"
