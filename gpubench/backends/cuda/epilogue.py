"""Finishes a product of cuBLASLt, by the library's epilogue or by another kernel."""

import ctypes
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import cupy

from gpubench.backends.cuda.compile import compile_instance
from gpubench.backends.cuda.cublaslt import PLAIN, Finish
from gpubench.backends.cuda.launching import bind_own, load_function, run_all
from gpubench.backends.functions import Prepared
from gpubench.model import PRECISIONS

EPILOGUES = {"bias": 4, "relu": 4 | 2, "gelu": 4 | 32}
"""Maps each activation to its number in cublasLtEpilogue_t, such as CUBLASLT_EPILOGUE_GELU_BIAS.
The bias is added before the activation, and GELU is the form with tanh."""

SOURCE = Path(__file__).parents[2] / "kernels" / "lib" / "epilogue" / "elementwise.cuh"
THREADS, LANES, MAX_GRID_Y = 128, 4, 65_535


def fused(act: str, has_residual: bool) -> Finish:
    """Return the epilogue with which the library computes an activation.

    The library gets a residual as its matrix C, with beta = 1.
    """
    return Finish(epilogue=EPILOGUES[act], adds_matrix=has_residual)


def before_pass(dtype: str) -> Finish:
    """Return what the library does with a product that another kernel finishes.

    The library stores the sums without rounding them.
    """
    precision = PRECISIONS[dtype]
    return PLAIN if precision.result == precision.accumulator else Finish(stores_sums=True)


def with_pass(act: str, dtype: str, product: Prepared) -> Prepared:
    """Return a product that another kernel finishes.

    The product takes A, B, the bias, the residual if there is one, and C.
    """
    between: dict[tuple[int, ...], Any] = {}

    def bind(a: Any, b: Any, bias: Any, *others: Any) -> Callable[[], None]:
        *residual, c = others
        sums = c
        if before_pass(dtype).stores_sums:
            if c.shape not in between:
                between[c.shape] = cupy.empty(c.shape, PRECISIONS[dtype].accumulator)
            sums = between[c.shape]
        rows, columns = c.shape
        lanes = 1 if columns % LANES else LANES
        multiply = product.bind(a, b, sums)
        finish = bind_own(
            _elementwise(act, bool(residual), dtype, lanes),
            (-(-columns // (lanes * THREADS)), min(rows, MAX_GRID_Y)),
            THREADS,
            sums,
            bias,
            *(residual or [bias]),
            c,  # without a residual, the kernel does not read the argument before C
            ctypes.c_int(rows),
            ctypes.c_int(columns),
        )
        return partial(run_all, (multiply, finish))

    return Prepared(bind)


@cache
def _elementwise(act: str, has_residual: bool, dtype: str, lanes: int) -> Any:
    arguments = PRECISIONS[dtype].cpp, act.capitalize(), str(has_residual).lower(), lanes
    expression = f"elementwise<{', '.join(map(str, arguments))}>"
    architecture = f"sm_{cupy.cuda.Device().compute_capability}"
    return load_function(compile_instance(SOURCE, expression, architecture))
