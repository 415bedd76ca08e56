"""Functions for the descriptions of library routines and CPU loops.

This module imports no library.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from gpubench.model import LAYOUTS, OPERATIONS, CallVariant, Config, Problem

MATRICES = (2, 2, 2)  # numbers of dimensions of the arrays of gemm


def refuse_ragged_bytes(_tile: Config | None, problem: Problem) -> str | None:
    """Refuse rows that `cublasLtMatmul` does not take.

    N and K must be multiples of 4 in int8, and of 16 in float8.
    """
    whole = {"int8": 4, "float8_e4m3fn": 16}.get(problem.precision.element, 1)
    if problem.n % whole or problem.k % whole:
        return (
            f"takes {problem.dtype} with N and K divisible by {whole}, not {problem.n} and "
            f"{problem.k}"
        )
    return None


def cublas(op: str, idea: str, dtypes: tuple[str, ...] = ("float32", "float64")) -> CallVariant:
    """Return the variant that calls cuBLAS, the baseline of the variants on a GPU."""

    def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
        from gpubench.backends.cuda import cublas as routines

        function: Callable[..., None] = getattr(routines, op)(dtype)
        return function

    return CallVariant(
        idea=idea,
        dtypes=dtypes,
        runs_on="cuda",
        build=build,
        layouts=tuple(LAYOUTS) if OPERATIONS[op].has_layouts else (),
        refuse=refuse_ragged_bytes,
        baseline="cublas",
    )


def torch_in_precision(dtype: str, multiply: Callable[..., None]) -> Callable[..., None]:
    """Return a function that calls `multiply`, which uses torch, with a precision's arithmetic.

    Only "tf32" uses TF32. The setting applies to the whole process, so each call sets it. Sums are
    kept in float32.
    """
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    precision = "high" if dtype == "tf32" else "highest"

    def call(*arrays: Any) -> None:
        torch.set_float32_matmul_precision(precision)
        multiply(*arrays)

    return call


def numpy_blas(op: str, *, threads: int) -> CallVariant:
    """Return the variant that calls NumPy's BLAS, the baseline of the variants on a CPU.

    `threads` is 1, or 0 for the fastest number of threads. BLAS reads a transposed view without a
    copy.
    """

    def build(_tile: Config | None, _dtype: str) -> Callable[..., None]:
        import numpy as np

        if operation.is_chain:
            return lambda a, x, y: np.matmul(a.T, np.matmul(a, x), out=y)
        if operation.first_is_transposed:
            return lambda a, x, y: np.matmul(a.T, x, out=y)
        return lambda a, b, c: np.matmul(a, b, out=c)

    operation = OPERATIONS[op]
    on = "one thread" if threads else "the fastest number of threads"
    return CallVariant(
        idea=f"NumPy's BLAS, {on}{', two calls' if operation.is_chain else ''}",
        dtypes=("float32", "float64"),
        runs_on="cpu",
        build=build,
        layouts=tuple(LAYOUTS) if operation.has_layouts else (),
        threads=threads,
        baseline="cpu_blas" if threads else "cpu_blas_parallel",
    )


def cpu_loop(
    idea: str, loop: Callable[..., None], dimensions: tuple[int, ...] = (2, 1, 1)
) -> CallVariant:
    """Return the variant of a loop that Numba compiles and that runs on one thread.

    `dimensions` has the number of dimensions of each array: by default, the loop takes a matrix and
    two vectors. A product of two matrices takes operands in any layout.
    """

    def build(_tile: Config | None, dtype: str, *, strided: bool = False) -> Callable[..., None]:
        import numba
        import numpy as np

        element = numba.from_dtype(np.dtype(dtype))
        matrix = element[:, :] if strided else element[:, ::1]
        arrays = {1: element[::1], 2: matrix, 3: element[:, :, ::1]}
        signature = tuple(arrays[dimension] for dimension in dimensions)
        return numba.njit(signature, cache=True)(loop)  # type: ignore[no-any-return]

    return CallVariant(
        idea=idea,
        runs_on="cpu",
        build=build,
        build_strided=partial(build, strided=True),
        layouts=tuple(LAYOUTS) if dimensions == MATRICES else (),
        threads=1,
        baseline="cpu_blas",
    )
