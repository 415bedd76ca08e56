"""cuBLASLt with its algorithm chosen by measuring, not by its heuristic alone.

Called through ctypes: CuPy wraps cuBLASLt for its own use only. Names and numbers are those of
`cublasLt.h`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy
from cupy.cuda import device

from gpubench.errors import LaunchError

MAX_ALGORITHMS = 32
"""Asked of the heuristic; it answers with those it thinks best, the best first."""

WORKSPACE_BYTES = 64 * 2**20
"""What NVIDIA recommends for Hopper is 32 MiB; splitting K may want more."""

TRIALS = 3
"""Launches of each algorithm, after one to warm it up; its time is the shortest."""

COMPUTE_32F, COMPUTE_64F = 68, 70
"""cublasComputeType_t: float32 without TF32, and float64."""

R_32F, R_64F = 0, 1
"""cudaDataType_t."""

MAX_WORKSPACE_BYTES = 1
"""cublasLtMatmulPreferenceAttributes_t."""

KINDS = {"float32": (COMPUTE_32F, R_32F), "float64": (COMPUTE_64F, R_64F)}

Shape = tuple[int, int, int]


class _Answer(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """A product of one shape: descriptors, and the algorithm that was fastest."""

    descriptor: ctypes.c_void_p
    layouts: tuple[ctypes.c_void_p, ...]
    answer: _Answer


def gemm(dtype: str) -> Callable[..., None]:
    """C = A·B for row-major matrices, each shape tuned at its first call."""
    plans: dict[Shape, _Plan] = {}
    scratch: list[Any] = []

    def multiply(a: Any, b: Any, c: Any) -> None:
        shape = (*a.shape, b.shape[1])
        if not scratch:
            scratch.append(cupy.empty(WORKSPACE_BYTES, "uint8"))
        if shape not in plans:
            plans[shape] = _tuned(dtype, shape, (a, b, c), scratch[0])
        _multiply(plans[shape], dtype, (a, b, c), scratch[0])

    return multiply


def _tuned(dtype: str, shape: Shape, arrays: tuple[Any, Any, Any], scratch: Any) -> _Plan:
    """The fastest of the algorithms that the heuristic proposes, on these arrays."""
    m, k, n = shape
    compute, kind = KINDS[dtype]
    library = _library()
    descriptor = _made("cublasLtMatmulDescCreate", ctypes.c_int(compute), ctypes.c_int(kind))
    # cuBLAS is column-major: a row-major matrix is its transpose there, and Cᵀ = Bᵀ·Aᵀ.
    layouts = tuple(
        _made(
            "cublasLtMatrixLayoutCreate",
            ctypes.c_int(kind),
            *(ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)),
        )
        for rows, columns in ((n, k), (k, m), (n, m))
    )
    answers = (_Answer * MAX_ALGORITHMS)()
    found = ctypes.c_int()
    with _preference() as preference:
        _checked(
            library.cublasLtMatmulAlgoGetHeuristic(
                *(_handle(), descriptor, *layouts, layouts[-1], preference),
                *(ctypes.c_int(MAX_ALGORITHMS), answers, ctypes.byref(found)),
            )
        )
    times: list[tuple[float, int]] = []
    for index in range(found.value):
        if answers[index].status == 0:
            plan = _Plan(descriptor=descriptor, layouts=layouts, answer=answers[index])
            try:
                times.append((_time(plan, dtype, arrays, scratch), index))
            except LaunchError:  # a proposal that does not run is none
                continue
    if not times:
        raise LaunchError(f"cuBLASLt has no algorithm for {m}x{n}x{k} {dtype}")
    best = _Answer.from_buffer_copy(answers[min(times)[1]])
    return _Plan(descriptor=descriptor, layouts=layouts, answer=best)


def _time(plan: _Plan, dtype: str, arrays: tuple[Any, Any, Any], scratch: Any) -> float:
    """The shortest of some launches, in milliseconds."""
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    _multiply(plan, dtype, arrays, scratch)
    times = []
    for _ in range(TRIALS):
        begin.record()
        _multiply(plan, dtype, arrays, scratch)
        end.record()
        end.synchronize()
        times.append(float(cupy.cuda.get_elapsed_time(begin, end)))
    return min(times)


def _multiply(plan: _Plan, dtype: str, arrays: tuple[Any, Any, Any], scratch: Any) -> None:
    a, b, c = arrays
    scalar = ctypes.c_float if dtype == "float32" else ctypes.c_double
    left, right, result = plan.layouts
    output = ctypes.c_void_p(c.data.ptr)
    _checked(
        _library().cublasLtMatmul(
            *(_handle(), plan.descriptor, ctypes.byref(scalar(1))),
            *(ctypes.c_void_p(b.data.ptr), left, ctypes.c_void_p(a.data.ptr), right),
            *(ctypes.byref(scalar(0)), output, result, output, result),
            *(plan.answer.algorithm, ctypes.c_void_p(scratch.data.ptr)),
            *(ctypes.c_size_t(WORKSPACE_BYTES), _stream()),
        )
    )


def _handle() -> ctypes.c_void_p:
    """A cuBLAS handle is one of cuBLASLt too (cuBLAS documentation, cublasLtHandle_t)."""
    return ctypes.c_void_p(device.get_cublas_handle())


def _stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)


@contextmanager
def _preference() -> Iterator[ctypes.c_void_p]:
    """How much workspace an algorithm may use."""
    limit = ctypes.c_size_t(WORKSPACE_BYTES)
    with ExitStack() as stack:
        preference = _made("cublasLtMatmulPreferenceCreate")
        stack.callback(_library().cublasLtMatmulPreferenceDestroy, preference)
        _checked(
            _library().cublasLtMatmulPreferenceSetAttribute(
                *(preference, ctypes.c_int(MAX_WORKSPACE_BYTES), ctypes.byref(limit)),
                ctypes.c_size_t(ctypes.sizeof(limit)),
            )
        )
        yield preference


def _made(function: str, *arguments: Any) -> ctypes.c_void_p:
    """The object that one of the library's Create functions makes."""
    made = ctypes.c_void_p()
    _checked(getattr(_library(), function)(ctypes.byref(made), *arguments))
    return made


def _checked(status: int) -> None:
    if status:
        raise LaunchError(f"cuBLASLt: status {status} (cublasStatus_t)")


@cache
def _library() -> ctypes.CDLL:
    """The library, as cuBLAS has loaded it."""
    device.get_cublas_handle()
    for major in (13, 12):
        try:
            return ctypes.CDLL(f"libcublasLt.so.{major}")
        except OSError:
            continue
    raise LaunchError("libcublasLt is not there, though cuBLAS is")
