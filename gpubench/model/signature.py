"""Reads a kernel's parameters from its C++ signature, and finds the values of the parameters."""

import re
import struct
from dataclasses import dataclass

from gpubench.model.operation import OPERATIONS
from gpubench.model.precision import bytes_of_element
from gpubench.model.problem import Problem
from gpubench.text import shown

_PARAMETER = re.compile(
    r"(?P<type>.+?)(?P<name>\b\w+)\s*(?P<array>\[[^][]*\])?\s*(=\s*(?P<value>.+))?"
)
_CONSTANT_EXTENTS = re.compile(r"[\])]\s*\[\s*\w")  # as in `float A[64][64]` and `float (*A)[64]`
_RESTRICT = re.compile(r"\b(__restrict__|__restrict|__grid_constant__)\b")

FORMATS = {
    **dict.fromkeys(("bool", "char", "signed char", "int8_t"), "b"),
    **dict.fromkeys(("int", "int32_t"), "i"),
    **dict.fromkeys(("unsigned", "unsigned int", "uint", "uint32_t"), "I"),
    **dict.fromkeys(("long", "long long", "int64_t", "ptrdiff_t"), "q"),
    **dict.fromkeys(("unsigned long", "unsigned long long", "size_t", "uint64_t"), "Q"),
    **dict.fromkeys(("float",), "f"),
    **dict.fromkeys(("double",), "d"),
    **dict.fromkeys(("half", "__half", "cute::half_t", "cutlass::half_t"), "e"),
    **dict.fromkeys(("nv_bfloat16", "__nv_bfloat16"), "bfloat16"),
}
"""Maps each C++ type of a number that a kernel may take by value to its format in `struct` (Linux,
64 bits). `struct` has no format for bfloat16."""

MAX_CHARACTERS = 500
"""Maximum number of characters in a parameter's text."""

ELEMENT_BYTES = {
    "float": 4,
    "double": 8,
    **dict.fromkeys(("half", "__half", "nv_bfloat16", "__nv_bfloat16"), 2),
}
"""Number of bytes in an element of each C++ type. Integer types are missing, because a pointer to
integers may point to packed elements."""

WORKSPACE = "workspace"  # value of a pointer that gets the workspace
NULL = "null"  # value of a pointer that gets a null pointer
LAUNCH = "launch"  # value of a number that gets the next int argument of the launch

TENSOR_MAP = "CUtensorMap"  # type of a parameter that gets the next tensor map of the launch
STREAM = "cudaStream_t"  # type of a parameter that gets the timed stream

_NUMBER = re.compile(r"-?\d+(\.\d*f?)?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a kernel."""

    cpp: str
    """The parameter's type, such as `const float*`."""

    name: str
    value: str
    """The value that the parameter gets: an array's name, `null`, an extent, a stride, a number, a
    product of these, or `launch`. If the signature has no value, the value is the parameter's own
    name. A pointer whose value is a number points to that number. Only host functions take such
    pointers."""

    @property
    def is_pointer(self) -> bool:
        """Whether the parameter is a pointer, such as `const float*`."""
        return self.cpp.endswith("*")

    @property
    def type_name(self) -> str:
        """The parameter's type without `const`, `*` and `&`."""
        return " ".join(re.sub(r"\bconst\b|[*&]", "", self.cpp).split()).replace("< ", "<")


def parameters(signature: str) -> tuple[Parameter, ...]:
    """Return the parameters of a text such as `(int M, float alpha=1, const float* A)`.

    The parentheses may be missing. Raise ValueError for a text that is not a parameter.
    """
    listed = []
    for text in filter(None, split(signature.strip().removeprefix("(").removesuffix(")"))):
        line = " ".join(_RESTRICT.sub(" ", text[:MAX_CHARACTERS]).split())
        if _CONSTANT_EXTENTS.search(line):
            raise ValueError(
                f"'{shown(line)}' has constant extents, so the function computes one size; "
                "write float* A, add the parameters M, N and K, and index A[row * K + k]"
            )
        match = _PARAMETER.fullmatch(line)
        if not match or len(text) > MAX_CHARACTERS:
            raise ValueError(f"'{shown(line)}' is not a parameter; write int M, or float alpha=1")
        cpp = match["type"] + ("*" if match["array"] else "")
        cpp = re.sub(r"\s*([*&])\s*(const)?", r"\1", cpp).strip()
        value = (match["value"] or match["name"]).strip()
        listed.append(Parameter(cpp=cpp, name=match["name"], value=value))
    return tuple(listed)


def split(text: str) -> list[str]:
    """Split a text at the commas that are outside all brackets, and return the parts."""
    parts, start, depth = [], 0, 0
    for mark in re.finditer(r"[(<\[{)>\]},]", text):
        depth += (mark[0] in "(<[{") - (mark[0] in ")>]}")
        if mark[0] == "," and depth == 0:
            parts.append(text[start : mark.start()])
            start = mark.end()
    return [part.strip() for part in (*parts, text[start:])]


def position_after(text: str, opening: int, brackets: str) -> int:
    """Return the position after the bracket that closes `text[opening]`, or the end of the text."""
    depth = 0
    for mark in re.compile(f"[{re.escape(brackets)}]").finditer(text, opening):
        depth += 1 if mark[0] == brackets[0] else -1
        if depth == 0:
            return mark.end()
    return len(text)


def why_unknown(parameter: Parameter, op: str, *, on_host: bool = False) -> str | None:
    """Return why a parameter's value or type cannot be used, or None if it can be used.

    With `on_host`, the parameter belongs to a host function, which also takes streams and addresses
    of numbers in host memory.
    """
    arrays = (*OPERATIONS[op].arrays, WORKSPACE)
    if parameter.value == NULL or parameter.type_name == (STREAM if on_host else TENSOR_MAP):
        return None
    if parameter.is_pointer and not (on_host and _NUMBER.fullmatch(parameter.value)):
        if array_index(parameter, op) is None:
            names = ", ".join((*arrays, NULL))
            what = f"write {parameter.name}=A, or one of {names} in place of A"
            return f"{parameter.cpp} {parameter.name}: {what}"
        nested = "an array of pointers cannot be passed; use one pointer, and row * N + column"
        is_nested = parameter.cpp.count("*") > 1
        return f"{parameter.cpp} {parameter.name}: {nested}" if is_nested else None
    if parameter.type_name not in {*FORMATS, "Scalar"}:
        return (
            f"{parameter.cpp} {parameter.name}: a {parameter.type_name} cannot be passed by value; "
            "describe a kernel of pointers and numbers (--kernel), or write such a function that "
            "calls this one"
        )
    if parameter.value != LAUNCH:
        try:
            number(parameter, Problem(op=op, m=1, n=1, k=1, dtype="float32"))
        except ValueError as error:
            return f"{parameter.cpp} {parameter.name}: {error}"
    return _why_too_large(parameter)


def _why_too_large(parameter: Parameter) -> str | None:
    """Return a message about a constant that the parameter's type cannot hold, or None."""
    if _NUMBER.fullmatch(parameter.value):
        try:
            packed(parameter, float(parameter.value.rstrip("fF")), "float")
        except (struct.error, OverflowError):
            return f"{parameter.cpp} {parameter.name}: the type cannot hold {parameter.value}"
    return None


def array_index(parameter: Parameter, op: str) -> int | None:
    """Return the index of the array that a pointer gets, or None if it gets no array.

    The arrays are the operands, the output and the workspace.
    """
    names = [name.casefold() for name in (*OPERATIONS[op].arrays, WORKSPACE)]
    name = parameter.value.casefold()
    return names.index(name) if name in names else None


def only_extent(signature: str, op: str) -> str:
    """Return the extent that a signature takes for M, N and K together, or an empty text.

    An index into a matrix needs the length of a row. So a kernel that takes one extent, no stride
    and no further number of the launch multiplies square matrices. Raise ValueError for a signature
    that cannot be read.
    """
    if not OPERATIONS[op].has_k:
        return ""
    numbers = [each.value.casefold() for each in parameters(signature) if not each.is_pointer]
    names = {factor.strip() for value in numbers for factor in value.split("*")}
    extents = {name for name in names if re.fullmatch("[mnk]|ld[abc]", name)}
    return extents.pop() if len(extents) == 1 and LAUNCH not in names else ""


def why_incomplete(signature: str, op: str) -> str:
    """Return a message on what a signature lacks to compute an operation, or an empty text.

    It may lack an array, or all extents, strides and numbers of the launch. Constants of the source
    are the only size of such a function. Tensor maps contain arrays and extents.
    """
    listed = parameters(signature)
    if not listed or any(each.type_name == TENSOR_MAP for each in listed):
        return ""
    arrays = OPERATIONS[op].arrays
    indices = {array_index(each, op) for each in listed if each.is_pointer}
    if lacking := [name for index, name in enumerate(arrays) if index not in indices]:
        return f"{op} has the array {lacking[0]}, which no parameter is; select another --op"
    names = {LAUNCH, *map(str.casefold, OPERATIONS[op].extents), "lda", "ldb", "ldc"}
    if any(names.intersection(re.findall(r"\w+", each.value.casefold())) for each in listed):
        return ""
    return (
        "its parameters have no extents, so it computes one size, which constants of the source "
        "state; add the parameters M, N and K"
    )


def why_other_element(parameter: Parameter, problem: Problem) -> str | None:
    """Return a message if a pointer's elements and its array's elements differ in size."""
    index = array_index(parameter, problem.op) if parameter.is_pointer else None
    size = ELEMENT_BYTES.get(parameter.type_name)
    if index is None or index >= len(problem.types) or size is None:
        return None
    element = problem.types[index]
    if size == bytes_of_element(element):
        return None
    return (
        f"{parameter.cpp} {parameter.name} has elements of {size} bytes, but its array in "
        f"{problem.dtype} has elements of type {element}"
    )


def number(parameter: Parameter, problem: Problem) -> float:
    """Return the value of a parameter that is not an array. Raise ValueError for unknown names."""
    numbers = {name.casefold(): extent for name, extent in problem.extents.items()}
    numbers |= problem.strides
    product: float = 1
    for factor in map(str.strip, parameter.value.split("*")):
        if factor.casefold() in numbers:
            product *= numbers[factor.casefold()]
        elif _NUMBER.fullmatch(factor):
            product *= float(factor.rstrip("fF")) if "." in factor else int(factor)
        else:
            names = ", ".join(name.upper() if len(name) == 1 else name for name in numbers)
            absent = factor.upper() in {"M", "N", "K"}
            wrong = f"{problem.op} has no {factor.upper()}: use another --op, or " if absent else ""
            raise ValueError(f"{wrong}write {parameter.name}=1, or one of {names} in place of 1")
    return product


def packed(parameter: Parameter, value: float, scalar: str) -> bytes:
    """Convert a number to the bytes of its C++ type. `Scalar` means the type `scalar`."""
    name = parameter.type_name
    form = FORMATS[scalar if name == "Scalar" else name]
    if form == "bfloat16":  # the upper half of a float; 0, 1 and -1 are exact
        return struct.pack("<f", value)[2:]
    return struct.pack(form, value if form in "fde" else int(value))
