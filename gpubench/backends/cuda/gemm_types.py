"""The types that cuBLAS uses for each precision.

The constants are taken from cublas_api.h and library_types.h.
"""

import ctypes
import struct
from typing import Any, NamedTuple

COMPUTE_16F, COMPUTE_32F, COMPUTE_64F, COMPUTE_32I, COMPUTE_32F_FAST_TF32 = 64, 68, 70, 72, 77
"""Numbers of cublasComputeType_t. COMPUTE_32F does not round float32 operands to TF32."""

COMPUTE_64F_EMULATED_FIXEDPOINT = 79

R_32F, R_64F, R_16F, R_8I, R_32I, R_16BF, R_8F_E4M3 = 0, 1, 2, 3, 10, 14, 28  # cudaDataType_t
OP_N, OP_T = 0, 1  # cublasOperation_t


class GemmTypes(NamedTuple):
    """The types with which the libraries compute a product."""

    compute: int
    operand: int
    result: int
    scale: int  # the type of alpha and beta
    scalar: Any  # the ctypes type of alpha and beta
    fast_accumulation: bool = False
    """Whether float8 sums stay in the tensor core, and are not promoted to float32 at intervals."""


def half_scalar(value: int) -> ctypes.c_uint16:
    """Return the float16 bits of a number as a 16-bit integer, because ctypes lacks float16."""
    return ctypes.c_uint16(*struct.unpack("<H", struct.pack("<e", value)))


def operation_of(matrix: Any) -> tuple[int, int]:
    """Return the operation and the leading dimension of a matrix for a library.

    The libraries are column-major and compute Cᵀ = Bᵀ·Aᵀ. The libraries read a row-major matrix as
    its transpose, so a row-major matrix needs no operation. A column-major matrix must be
    transposed.
    """
    if matrix.flags.c_contiguous:
        return OP_N, int(matrix.shape[1])
    return OP_T, int(matrix.strides[1] // matrix.itemsize)


GEMM_TYPES = {
    **dict.fromkeys(
        ("float32", "bf16x3", "bf16x6"), GemmTypes(COMPUTE_32F, R_32F, R_32F, R_32F, ctypes.c_float)
    ),
    "float64": GemmTypes(COMPUTE_64F, R_64F, R_64F, R_64F, ctypes.c_double),
    "tf32": GemmTypes(COMPUTE_32F_FAST_TF32, R_32F, R_32F, R_32F, ctypes.c_float),
    "float16": GemmTypes(COMPUTE_32F, R_16F, R_16F, R_32F, ctypes.c_float),
    "float16_sum16": GemmTypes(COMPUTE_16F, R_16F, R_16F, R_16F, half_scalar),
    "bfloat16": GemmTypes(COMPUTE_32F, R_16BF, R_16BF, R_32F, ctypes.c_float),
    "int8": GemmTypes(COMPUTE_32I, R_8I, R_32I, R_32I, ctypes.c_int32),
    "float8_e4m3": GemmTypes(
        COMPUTE_32F, R_8F_E4M3, R_16BF, R_32F, ctypes.c_float, fast_accumulation=True
    ),
    "float8_e4m3_split": GemmTypes(COMPUTE_32F, R_8F_E4M3, R_16BF, R_32F, ctypes.c_float),
}
