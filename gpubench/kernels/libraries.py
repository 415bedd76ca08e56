"""What the descriptors of library routines and of CPU loops share. Loads no library by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpubench.model import CallVariant, Config, Problem

Build = Callable[[Config | None, str], Callable[..., None]]
"""Tile and dtype give the function of operands and output."""


def refuse_ragged_bytes(_tile: Config | None, problem: Problem) -> str | None:
    """Rows of int8 must be whole words of 4 bytes, of float8 16 (`cublasLtMatmul`)."""
    whole = {"int8": 4, "float8_e4m3fn": 16}.get(problem.precision.element, 1)
    if problem.n % whole or problem.k % whole:
        return (
            f"takes {problem.dtype} with N and K divisible by {whole}, not {problem.n} and "
            f"{problem.k}"
        )
    return None


def cublas(op: str, idea: str, dtypes: tuple[str, ...] = ("float32", "float64")) -> CallVariant:
    """Call cuBLAS for an operation: the baseline of the GPU's variants."""

    def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
        from gpubench.backends.cuda import cublas as routines

        function: Callable[..., None] = getattr(routines, op)(dtype)
        return function

    return CallVariant(
        idea=idea,
        dtypes=dtypes,
        runs_on="cuda",
        build=build,
        refuse=refuse_ragged_bytes,
        baseline="cublas",
    )


def torch_in_precision(dtype: str, multiply: Callable[..., None]) -> Callable[..., None]:
    """A function of torch with the arithmetic of a precision: TF32 only where it is asked for.

    The setting is the process', so each call makes it; sums are kept in float32.
    """
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    precision = "high" if dtype == "tf32" else "highest"

    def call(*arrays: Any) -> None:
        torch.set_float32_matmul_precision(precision)
        multiply(*arrays)

    return call


def numpy_blas(build: Build, *, threads: int, calls: str = "") -> CallVariant:
    """NumPy's BLAS on one thread, or the best number (0): the baseline of the CPU's variants."""
    idea = ("NumPy's BLAS", "one thread" if threads else "the fastest number of threads", calls)
    return CallVariant(
        idea=", ".join(filter(None, idea)),
        dtypes=("float32", "float64"),
        runs_on="cpu",
        build=build,
        threads=threads,
        baseline="cpu_blas" if threads else "cpu_blas_parallel",
    )


def cpu_loop(
    idea: str, loop: Callable[[Any], Callable[..., None]], dimensions: tuple[int, ...]
) -> CallVariant:
    """A loop on one thread, compiled by Numba.

    `loop(zero)` gives the Python function of C-contiguous arrays that have so many dimensions each;
    `zero` is the dtype's.
    """

    def build(_tile: Config | None, dtype: str) -> Callable[..., None]:
        import numba
        import numpy as np

        element = numba.from_dtype(np.dtype(dtype))
        arrays = {1: element[::1], 2: element[:, ::1]}
        signature = tuple(arrays[dimension] for dimension in dimensions)
        function = loop(np.dtype(dtype).type(0))
        return numba.njit(signature, cache=True)(function)  # type: ignore[no-any-return]

    return CallVariant(idea=idea, runs_on="cpu", build=build, threads=1, baseline="cpu_blas")
