"""cuBLASLt with its algorithm chosen by measuring, not by its heuristic alone.

Called through ctypes, as CuPy wraps cuBLASLt only for its own use. Names and numbers are those of
`cublasLt.h`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy
from cupy.cuda import device

from gpubench.backends.cuda.gemm_types import GEMM_TYPES
from gpubench.errors import LaunchError

MAX_ALGORITHMS = 32
"""Asked of the heuristic, which returns those it rates best, the best first."""

WORKSPACE_BYTES = 64 * 2**20
"""NVIDIA recommends 32 MiB for Hopper; splitting K may use more."""

TRIALS = 3
"""Timed launches of each algorithm, after one that warms it up; the shortest counts."""

MAX_WORKSPACE_BYTES = 1
"""cublasLtMatmulPreferenceAttributes_t."""

Arrays = tuple[Any, Any, Any]


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t: an algorithm that the library proposes."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True, kw_only=True)
class _Product:
    """A product of one shape, for the library."""

    descriptor: ctypes.c_void_p
    layouts: tuple[ctypes.c_void_p, ...]
    """Of the library's A, B and C."""

    alpha: Any
    beta: Any
    workspace: Any


def gemm(dtype: str) -> Callable[..., None]:
    """C = A·B for row-major matrices, each shape tuned at its first call."""
    tuned: dict[tuple[int, int, int], tuple[_Product, _Heuristic]] = {}
    workspace: list[Any] = []

    def multiply(a: Any, b: Any, c: Any) -> None:
        shape = (*a.shape, b.shape[1])
        if shape not in tuned:
            workspace[:] = workspace or [cupy.empty(WORKSPACE_BYTES, "uint8")]
            product = _product(dtype, shape, workspace[0])
            tuned[shape] = (product, _fastest(product, (a, b, c)))
        _multiply(*tuned[shape], (a, b, c))

    return multiply


def _product(dtype: str, shape: tuple[int, int, int], workspace: Any) -> _Product:
    m, k, n = shape
    types = GEMM_TYPES[dtype]
    return _Product(
        descriptor=_created(
            "cublasLtMatmulDescCreate", ctypes.c_int(types.compute), ctypes.c_int(types.scale)
        ),
        # cuBLAS is column-major: a row-major matrix is its transpose there, and Cᵀ = Bᵀ·Aᵀ.
        layouts=tuple(
            _created(
                "cublasLtMatrixLayoutCreate",
                ctypes.c_int(kind),
                *(ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)),
            )
            for kind, rows, columns in (
                (types.operand, n, k),
                (types.operand, k, m),
                (types.result, n, m),
            )
        ),
        alpha=types.scalar(1),
        beta=types.scalar(0),
        workspace=workspace,
    )


def _fastest(product: _Product, arrays: Arrays) -> _Heuristic:
    """The fastest of the algorithms that the heuristic proposes, on these arrays."""
    proposals = (_Heuristic * MAX_ALGORITHMS)()
    found = ctypes.c_int()
    _call(
        "cublasLtMatmulAlgoGetHeuristic",
        *(_handle(), product.descriptor, *product.layouts, product.layouts[-1], _preference()),
        *(ctypes.c_int(MAX_ALGORITHMS), proposals, ctypes.byref(found)),
    )
    times: list[tuple[float, int]] = []
    for index in range(found.value):
        if proposals[index].status == 0:
            try:
                times.append((_time_ms(product, proposals[index], arrays), index))
            except LaunchError:  # the library may propose what it cannot run
                continue
    if not times:
        raise LaunchError(f"cuBLASLt has no algorithm for {[array.shape for array in arrays]}")
    return _Heuristic.from_buffer_copy(proposals[min(times)[1]])


def _time_ms(product: _Product, proposal: _Heuristic, arrays: Arrays) -> float:
    """The time of the shortest of `TRIALS` launches, in milliseconds."""
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    _multiply(product, proposal, arrays)
    times = []
    for _ in range(TRIALS):
        start.record()
        _multiply(product, proposal, arrays)
        stop.record()
        stop.synchronize()
        times.append(float(cupy.cuda.get_elapsed_time(start, stop)))
    return min(times)


def _multiply(product: _Product, chosen: _Heuristic, arrays: Arrays) -> None:
    a, b, c = (ctypes.c_void_p(array.data.ptr) for array in arrays)
    left, right, result = product.layouts
    _call(
        "cublasLtMatmul",
        *(_handle(), product.descriptor),
        *(ctypes.byref(product.alpha), b, left, a, right),
        *(ctypes.byref(product.beta), c, result, c, result),
        *(chosen.algorithm, ctypes.c_void_p(product.workspace.data.ptr)),
        ctypes.c_size_t(WORKSPACE_BYTES),
        ctypes.c_void_p(cupy.cuda.get_current_stream().ptr),
    )


@cache
def _preference() -> ctypes.c_void_p:
    """How much workspace an algorithm may use."""
    preference = _created("cublasLtMatmulPreferenceCreate")
    limit = ctypes.c_size_t(WORKSPACE_BYTES)
    _call(
        "cublasLtMatmulPreferenceSetAttribute",
        *(preference, ctypes.c_int(MAX_WORKSPACE_BYTES)),
        *(ctypes.byref(limit), ctypes.c_size_t(ctypes.sizeof(limit))),
    )
    return preference


def _handle() -> ctypes.c_void_p:
    """A cuBLAS handle is valid for cuBLASLt too (cuBLAS documentation, cublasLtHandle_t)."""
    return ctypes.c_void_p(device.get_cublas_handle())


def _created(function: str, *arguments: Any) -> ctypes.c_void_p:
    """The object that one of the library's Create functions makes."""
    created = ctypes.c_void_p()
    _call(function, ctypes.byref(created), *arguments)
    return created


def _call(function: str, *arguments: Any) -> None:
    if status := getattr(_library(), function)(*arguments):
        raise LaunchError(f"{function}: status {status} (cublasStatus_t)")


@cache
def _library() -> ctypes.CDLL:
    """The library, as cuBLAS has loaded it."""
    device.get_cublas_handle()
    for major in (13, 12):
        try:
            return ctypes.CDLL(f"libcublasLt.so.{major}")
        except OSError:
            continue
    raise LaunchError("cuBLAS is installed without libcublasLt")
