"""Computes products on the GPU by cuBLAS, or by CuPy's own kernel for integers.

cuBLAS is called through ctypes, because CuPy's functions refuse to be captured in a CUDA graph.
"""

import ctypes
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any

import cupy

from gpubench.backends.cuda import cublaslt
from gpubench.backends.cuda.gemm_types import GEMM_TYPES, OP_N, OP_T, operation_of
from gpubench.backends.cuda.launching import run_all
from gpubench.backends.functions import Prepared

DEFAULT_ALGORITHM = -1  # CUBLAS_GEMM_DEFAULT: the library's heuristic chooses the algorithm

MATH_MODE = 16
"""The math mode of cuBLAS, which combines two flags. With CUBLAS_DEFAULT_MATH, cuBLAS uses TF32
only on request. With CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, cuBLAS does not round
partial sums over K to 16 bits. By default, cuBLAS rounds these partial sums. A product of
129×260×1000 in bfloat16 had a relative error of 2e-4 on an H200 (cuBLAS 13.1)."""

call = partial(cublaslt.call, of_library="cublas")

HOPPER = 90  # first compute capability with the larger default workspace, in CuPy's notation


def gemm(dtype: str) -> Prepared:
    """Return a function for C = A·B that calls `cublasGemmEx`.

    `cublasGemmEx` lacks float8, so float8 products use the first algorithm that cuBLASLt proposes.

    cuBLAS is column-major, so it reads a row-major matrix as its transpose. Therefore, the call
    computes Cᵀ = Bᵀ·Aᵀ. A and B may be column-major.
    """
    if dtype.startswith("float8"):
        return cublaslt.gemm(dtype)
    types = GEMM_TYPES[dtype]
    one, zero = one_and_zero(types.scalar)

    def bind(a: Any, b: Any, c: Any) -> Callable[[], None]:
        (m, k), n = a.shape, b.shape[1]
        (operation_a, lda), (operation_b, ldb) = operation_of(a), operation_of(b)
        sizes = operation_b, operation_a, n, m, k
        left, right = (pointer(b), types.operand, ldb), (pointer(a), types.operand, lda)
        result, how = (pointer(c), types.result, n), (types.compute, DEFAULT_ALGORITHM)
        arguments = *sizes, one, *left, *right, zero, *result, *how
        return _bound("cublasGemmEx", arguments, (a, b, c))

    return Prepared(bind)


def gemm_batched(dtype: str) -> Prepared:
    """Return a function for batches of row-major products (`cublasGemmStridedBatchedEx`)."""
    types = GEMM_TYPES[dtype]
    one, zero = one_and_zero(types.scalar)

    def bind(a: Any, b: Any, c: Any) -> Callable[[], None]:
        (batch, m, k), n = a.shape, b.shape[2]
        left = pointer(b), types.operand, n, ctypes.c_longlong(k * n)
        right = pointer(a), types.operand, k, ctypes.c_longlong(m * k)
        result = pointer(c), types.result, n, ctypes.c_longlong(m * n)
        how = batch, types.compute, DEFAULT_ALGORITHM
        arguments = OP_N, OP_N, n, m, k, one, *left, *right, zero, *result, *how
        return _bound("cublasGemmStridedBatchedEx", arguments, (a, b, c))

    return Prepared(bind)


def gemm_grouped(dtype: str) -> Prepared:
    """Return a function for C = A·B in which each group of rows has its own B.

    The function calls `gemm` for each group. The library gets the number of rows from the host, so
    `bind` reads the offsets.
    """
    product = gemm(dtype)

    def bind(a: Any, b: Any, offsets: Any, c: Any) -> Callable[[], None]:
        parts = [
            product.bind(a[begin:end], b[group], c[begin:end])
            for group, (begin, end) in enumerate(pairwise((0, *map(int, offsets.get()))))
            if end > begin
        ]
        return partial(run_all, parts)

    return Prepared(bind)


def gemv(dtype: str) -> Prepared:
    """Return a function that computes y = A·x by cuBLAS's gemv. A is row-major."""
    return _matrix_vector(dtype, OP_T)


def gemv_t(dtype: str) -> Prepared:
    """Return a function that computes y = Aᵀ·x by cuBLAS's gemv. A is row-major."""
    return _matrix_vector(dtype, OP_N)


def atax(dtype: str) -> Prepared:
    """Return a function that computes c = Aᵀ·(A·v) by two calls of cuBLAS. A is row-major."""
    first, second = gemv(dtype), gemv_t(dtype)
    between: dict[int, Any] = {}

    def bind(a: Any, v: Any, c: Any) -> Callable[[], None]:
        rows = a.shape[0]
        if rows not in between:
            between[rows] = cupy.empty(rows, dtype)
        parts = first.bind(a, v, between[rows]), second.bind(a, between[rows], c)
        return partial(run_all, parts)

    return Prepared(bind)


def cupy_matmul(a: Any, b: Any, c: Any) -> None:
    """Compute C = A·B by `cupy.matmul`."""
    cupy.matmul(a, b, out=c)


def _matrix_vector(dtype: str, operation: int) -> Prepared:
    """Return a function that multiplies a row-major matrix A (M×N) by a vector.

    The function calls `cublasSgemv` or `cublasDgemv`. The library reads A as the transposed matrix,
    which is N×M, and applies `operation` to that matrix.
    """
    routine = {"float32": "cublasSgemv_v2", "float64": "cublasDgemv_v2"}[dtype]
    one, zero = one_and_zero(GEMM_TYPES[dtype].scalar)

    def bind(a: Any, x: Any, y: Any) -> Callable[[], None]:
        m, n = a.shape
        arguments = operation, n, m, one, pointer(a), n, pointer(x), 1, zero, pointer(y), 1
        return _bound(routine, arguments, (a, x, y))

    return Prepared(bind)


def one_and_zero(scalar: Callable[[int], Any]) -> tuple[Any, Any]:
    """Return references to alpha = 1 and beta = 0. A reference keeps its number alive."""
    return ctypes.byref(scalar(1)), ctypes.byref(scalar(0))


def _bound(function: str, arguments: tuple[Any, ...], arrays: object) -> Callable[[], None]:
    """Return a function that calls cuBLAS in the current stream, and keeps the arrays alive."""
    routine = getattr(cublaslt.library("cublas"), function)
    handle = _handle(cupy.cuda.get_current_stream().ptr)

    def multiply(_alive: object = arrays) -> None:
        cublaslt.require_success(function, routine(handle, *arguments))

    return multiply


def pointer(array: Any) -> ctypes.c_void_p:
    """Return the address of an array in device memory."""
    return ctypes.c_void_p(array.data.ptr)


@cache
def _handle(stream: int) -> ctypes.c_void_p:
    """Return a handle with `MATH_MODE`, whose calls are enqueued in a stream.

    CuPy's own handle is not used, because each product of CuPy changes that handle's stream and
    workspace.
    """
    handle = new_handle(stream, _workspace())
    call("cublasSetMathMode", handle, MATH_MODE)
    return handle


def new_handle(stream: int, workspace: Any) -> ctypes.c_void_p:
    """Return a handle with a workspace, whose calls are enqueued in a stream."""
    handle = ctypes.c_void_p()
    call("cublasCreate_v2", ctypes.byref(handle))
    call("cublasSetStream_v2", handle, ctypes.c_void_p(stream))
    # The workspace must be set after the stream, because setting the stream resets the workspace.
    call("cublasSetWorkspace_v2", handle, pointer(workspace), ctypes.c_size_t(workspace.nbytes))
    return handle


@cache
def _workspace() -> Any:
    """Return a workspace of cuBLAS's default size (cuBLAS documentation, cublasSetWorkspace).

    Without this workspace, cuBLAS would allocate memory while a graph captures the call.
    """
    is_hopper = int(cupy.cuda.Device().compute_capability) >= HOPPER
    return cupy.empty((32 if is_hopper else 4) * 2**20, "uint8")
