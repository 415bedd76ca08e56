"""Products of libraries on the GPU: cuBLAS, and CuPy's own kernel for integers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
from cupy.cuda import cublas, device

from gpubench.backends.cuda import cublaslt
from gpubench.backends.cuda.gemm_types import GEMM_TYPES, OP_N, OP_T, operation_of

DEFAULT_ALGORITHM = -1
"""CUBLAS_GEMM_DEFAULT: the library's heuristic chooses the algorithm."""

MATH_MODE = 16
"""CUBLAS_DEFAULT_MATH, with TF32 only on request, and
CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: parts of a sum over K are not rounded to 16 bits.
By default they are: 129×260×1000 in bfloat16 was off by 2e-4 on an H200 (cuBLAS 13.1)."""


def gemm(dtype: str) -> Callable[..., None]:
    """Return C = A·B by `cublasGemmEx`. It lacks float8, which takes cuBLASLt's first proposal.

    cuBLAS is column-major. A row-major matrix is its transpose there, and Cᵀ = Bᵀ·Aᵀ. A and B may
    be column-major.
    """
    if dtype.startswith("float8"):
        return cublaslt.gemm(dtype)
    types = GEMM_TYPES[dtype]
    alpha, beta = types.scalar(1), types.scalar(0)
    alpha_at, beta_at = ctypes.addressof(alpha), ctypes.addressof(beta)

    def multiply(a: Any, b: Any, c: Any, _keep: Any = (alpha, beta)) -> None:
        m, k = a.shape
        n = b.shape[1]
        (operation_a, lda), (operation_b, ldb) = operation_of(a), operation_of(b)
        cublas.gemmEx(
            *(_handle(), operation_b, operation_a, n, m, k),
            *(alpha_at, b.data.ptr, types.operand, ldb),
            *(a.data.ptr, types.operand, lda),
            *(beta_at, c.data.ptr, types.result, n, types.compute, DEFAULT_ALGORITHM),
        )

    return multiply


def gemv(dtype: str) -> Callable[..., None]:
    """Return y = A·x for a row-major matrix, by `cublasSgemv` or `cublasDgemv`."""
    return _matrix_vector(dtype, OP_T)


def gemv_t(dtype: str) -> Callable[..., None]:
    """Return y = Aᵀ·x for a row-major matrix, by `cublasSgemv` or `cublasDgemv`."""
    return _matrix_vector(dtype, OP_N)


def atax(dtype: str) -> Callable[..., None]:
    """Return c = Aᵀ·(A·v) for a row-major matrix, by two calls of cuBLAS."""
    first, second = gemv(dtype), gemv_t(dtype)
    between: dict[int, Any] = {}

    def multiply(a: Any, v: Any, c: Any) -> None:
        rows = a.shape[0]
        if rows not in between:  # kept, because its allocation is not part of the product
            between[rows] = cupy.empty(rows, dtype)
        first(a, v, between[rows])
        second(a, between[rows], c)

    return multiply


def cupy_matmul(a: Any, b: Any, c: Any) -> None:
    """Compute C = A·B by `cupy.matmul`."""
    cupy.matmul(a, b, out=c)


def _matrix_vector(dtype: str, operation: int) -> Callable[..., None]:
    """Return a product with a row-major matrix. `operation` applies to its transpose, N×M."""
    routine = {"float32": cublas.sgemv, "float64": cublas.dgemv}[dtype]
    alpha, beta = np.ones(1, dtype), np.zeros(1, dtype)
    alpha_at, beta_at = alpha.ctypes.data, beta.ctypes.data

    def multiply(a: Any, x: Any, y: Any, _keep: Any = (alpha, beta)) -> None:
        m, n = a.shape
        routine(
            *(_handle(), operation, n, m),
            *(alpha_at, a.data.ptr, n, x.data.ptr, 1),
            *(beta_at, y.data.ptr, 1),
        )

    return multiply


def _handle() -> int:
    """Return CuPy's cuBLAS handle, set to the current stream and to full precision."""
    handle = int(device.get_cublas_handle())
    cublas.setStream(handle, cupy.cuda.get_current_stream().ptr)
    cublas.setMathMode(handle, MATH_MODE)
    return handle
