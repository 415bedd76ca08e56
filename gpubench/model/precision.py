"""Lists the precisions, each with its element types, the type of its sum, and its rounding."""

import math
import re
from dataclasses import dataclass, replace
from functools import cache

SUM_ROUNDINGS = 8.0
"""Maximum error of a right result, as a multiple of the sum's unit roundoff."""

F64 = 2.0**-53  # unit roundoff of binary64 (IEEE 754): half the distance from 1 to the next number
F32 = 2.0**-24  # unit roundoff of binary32
F16 = 2.0**-11  # unit roundoff of binary16, and of TF32, which has the same significand
BF16 = 2.0**-8  # unit roundoff of bfloat16

F8_SUM = 2.0**-13
"""Unit roundoff of float8 sums on Hopper's tensor cores. The sums keep 13 bits after the leading
bit of the largest term, and cut off the rest (DeepSeek-AI, DeepSeek-V3 Technical Report, 3.3.2)."""


@dataclass(frozen=True, kw_only=True)
class Precision:
    """The element types and the arithmetic with which a product is computed.

    `name` is the value of `--dtypes` and the row's compute mode. Element types have NumPy's names,
    or ml_dtypes' names if NumPy lacks the type.
    """

    name: str
    element: str = ""
    """Element type of the operands. Empty means the precision's own name."""

    result: str = ""
    """Element type of the result. Empty means the operands' type."""

    accumulator: str = "float32"
    """Type in which products are summed."""

    cpp: str
    """C++ type of an operand's elements, as a kernel's template argument."""

    tensor_map_code: int
    """Number of the element type in the enumeration CUtensorMapDataType (cuda.h)."""

    sum_roundoff: float
    """Unit roundoff of the sum. 0 means that the sum is exact, modulo 2³²."""

    input_roundoff: float = 0.0
    """Unit roundoff with which operands may be rounded. 0 means that no rounding is allowed."""

    result_roundoff: float = 0.0
    """Unit roundoff of the conversion from the sum to the result. 0 means that the sum is not
    rounded."""

    column_major: tuple[str, ...] = ()
    """The matrices that are column-major for all kernels, because kernels multiply 8-bit operands
    along k."""

    rate_of: str = ""
    """The precision whose peak this precision shares, because both use the same instructions. Empty
    means the precision itself."""

    in_blas: str = ""
    """The precision that the vendor's BLAS uses instead of this precision. Empty if the BLAS has
    this precision."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "element", self.element or self.name)
        object.__setattr__(self, "result", self.result or self.element)
        object.__setattr__(self, "rate_of", self.rate_of or self.name)

    @property
    def bits(self) -> int:
        """Number of bits in an operand's element."""
        return 8 * self.item_bytes

    @property
    def item_bytes(self) -> int:
        """Number of bytes in an operand's element."""
        return bytes_of_element(self.element)

    @property
    def result_bytes(self) -> int:
        """Number of bytes in an element of the result."""
        return bytes_of_element(self.result)

    @property
    def is_integer(self) -> bool:
        """Whether the precision has integers, whose sums are exact modulo 2³²."""
        return self.sum_roundoff == 0

    @property
    def sum_bits(self) -> int:
        """Number of significant bits that a sum keeps.

        A sum that is cut off keeps one bit more than a rounded sum.

        Raises ValueError for integers, whose sums are exact.
        """
        return round(-math.log2(self.sum_roundoff)) + (self.sum_roundoff == F8_SUM)

    @property
    def tolerance(self) -> float:
        """Largest error of a right result, on the scale of `engine.judge.verify.relative_error`.

        Errors of right kernels stay below two unit roundoffs of the sum on that scale. If operands
        are rounded although this is not allowed, or one product out of 16384 is missing, the error
        is tens of unit roundoffs. If operands may be rounded, each operand adds its own roundoff.
        """
        return SUM_ROUNDINGS * self.sum_roundoff + 2 * self.input_roundoff


@cache
def bytes_of_element(element: str) -> int:
    """Return the number of bytes in an element of a type.

    The number of bits is the first number in the type's name.
    """
    return int(re.findall("[0-9]+", element)[0]) // 8


FLOAT32 = Precision(name="float32", cpp="float", tensor_map_code=7, sum_roundoff=F32)

FLOAT16 = Precision(
    name="float16", cpp="__half", tensor_map_code=6, sum_roundoff=F32, result_roundoff=F16
)

FLOAT8 = Precision(
    name="float8_e4m3",
    element="float8_e4m3fn",
    result="bfloat16",
    cpp="__nv_fp8_e4m3",
    tensor_map_code=0,
    sum_roundoff=F8_SUM,
    result_roundoff=BF16,
    column_major=("B",),
)

PRECISIONS = {
    precision.name: precision
    for precision in (
        FLOAT32,
        Precision(
            name="float64", accumulator="float64", cpp="double", tensor_map_code=8, sum_roundoff=F64
        ),
        Precision(
            name="int32", accumulator="int32", cpp="int", tensor_map_code=3, sum_roundoff=0.0
        ),
        replace(FLOAT32, name="tf32", rate_of="", tensor_map_code=11, input_roundoff=F16),
        # Sums of three or six products of bfloat16 parts. Triton and XLA use the same names. Two
        # parts have the operand's first 16 bits, and three parts have all of its bits.
        replace(FLOAT32, name="bf16x3", rate_of="", input_roundoff=BF16**2, in_blas="float32"),
        replace(FLOAT32, name="bf16x6", rate_of="", in_blas="float32"),
        FLOAT16,
        # Sums of 16 bits: accumulators of half, or COMPUTE_16F of cuBLAS.
        replace(
            FLOAT16,
            name="float16_sum16",
            rate_of="",
            accumulator="float16",
            sum_roundoff=F16,
            result_roundoff=0.0,
        ),
        Precision(
            name="bfloat16",
            cpp="__nv_bfloat16",
            tensor_map_code=9,
            sum_roundoff=F32,
            result_roundoff=BF16,
        ),
        Precision(
            name="int8",
            result="int32",
            accumulator="int32",
            cpp="signed char",
            tensor_map_code=0,
            sum_roundoff=0.0,
            column_major=("B",),
        ),
        FLOAT8,
        # Sums in two levels, the upper one in float32: cuBLASLt without fast accumulation.
        replace(FLOAT8, name="float8_e4m3_split", rate_of="float8_e4m3"),
    )
}

DTYPES = tuple(PRECISIONS)
"""The values of `--dtypes`."""

DTYPE_ALIASES = {
    "fp64": "float64",
    "double": "float64",
    "fp32": "float32",
    "float": "float32",
    "single": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3",
    "int": "int32",
}
"""Maps other names of precisions, which users may write, to the names in `PRECISIONS`."""

CPP_ALIASES = {
    **dict.fromkeys(("half", "half_t"), "__half"),
    **dict.fromkeys(("nv_bfloat16", "bf16", "bfloat16_t"), "__nv_bfloat16"),
    **dict.fromkeys(("int8_t", "char"), "signed char"),
    "int32_t": "int",
}
"""Maps other names of C++ types to the names in `PRECISIONS`."""

_VECTOR = re.compile(r"(?<=[a-z6])[24]$")  # the end of a name such as `float4`

CORE_DTYPES = ("float32", "float64", "int32")
"""The precisions that a template kernel without tensor instructions computes."""

ITEM_BYTES = {name: precision.item_bytes for name, precision in PRECISIONS.items()}
"""Number of bytes in an operand's element, for each precision."""


def element_of_cpp(cpp: str) -> str:
    """Return the element type of a C++ type in a precision's spelling: `float` for `float4`."""
    name = _VECTOR.sub("", cpp.rpartition("::")[2])
    return CPP_ALIASES.get(name, name)


def dtype_of_cpp(cpp: str) -> str | None:
    """Return the name of the first precision whose operands have this C++ type, or None."""
    element = element_of_cpp(cpp)
    return next((name for name, each in PRECISIONS.items() if each.cpp == element), None)
