"""A kernel's parameters as its C++ declares them, and what each is given."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass

from gpubench.model.operation import OPERATIONS
from gpubench.model.problem import Problem

_PARAMETER = re.compile(
    r"(?P<type>.+?)(?P<name>\b\w+)\s*(?P<array>\[\s*\])?\s*(=\s*(?P<value>.+))?"
)
_RESTRICT = re.compile(r"\b(__restrict__|__restrict|__grid_constant__)\b")

FORMATS = {
    **dict.fromkeys(("bool", "char", "signed char", "int8_t"), "b"),
    **dict.fromkeys(("int", "int32_t"), "i"),
    **dict.fromkeys(("unsigned", "unsigned int", "uint", "uint32_t"), "I"),
    **dict.fromkeys(("long", "long long", "int64_t", "ptrdiff_t"), "q"),
    **dict.fromkeys(("unsigned long", "unsigned long long", "size_t", "uint64_t"), "Q"),
    **dict.fromkeys(("float",), "f"),
    **dict.fromkeys(("double",), "d"),
    **dict.fromkeys(("half", "__half"), "e"),
    **dict.fromkeys(("nv_bfloat16", "__nv_bfloat16"), "bfloat16"),
}
"""The numbers that a kernel may take by value, as `struct` writes them (Linux, 64 bits)."""

WORKSPACE = "workspace"

LAUNCH = "launch"
"""The value of a parameter that is given the next of the launch's int arguments."""

TENSOR_MAP = "CUtensorMap"
"""The type of a parameter that is given the next of the launch's tensor maps."""

_NUMBER = re.compile(r"-?\d+(\.\d*f?)?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a kernel."""

    cpp: str
    """Its type, such as `const float*`."""

    name: str
    value: str
    """What it is given: an array's name, an extent, a stride, a number, a product of those, or
    `launch`. Its own name where the signature says nothing."""

    @property
    def is_pointer(self) -> bool:
        """Whether it takes an array."""
        return self.cpp.endswith("*")

    @property
    def type_name(self) -> str:
        """The type without pointer and `const`."""
        return re.sub(r"\bconst\b|[*&]", "", self.cpp).strip()


def parameters(signature: str) -> tuple[Parameter, ...]:
    """Read `int M, float alpha=1, const float* A`, with or without parentheses around it.

    Raises ValueError for what is no parameter.
    """
    found = []
    for text in filter(None, split(signature.strip().removeprefix("(").removesuffix(")"))):
        match = _PARAMETER.fullmatch(" ".join(_RESTRICT.sub(" ", text).split()))
        if not match:
            raise ValueError(f"'{text}' is not a parameter; write int M, or float alpha=1")
        cpp = match["type"] + ("*" if match["array"] else "")
        cpp = re.sub(r"\s*([*&])\s*(const)?", r"\1", cpp).strip()
        value = (match["value"] or match["name"]).strip()
        found.append(Parameter(cpp=cpp, name=match["name"], value=value))
    return tuple(found)


def split(text: str) -> list[str]:
    """The parts between commas that no bracket encloses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "(<[{") - (letter in ")>]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def why_unknown(parameter: Parameter, op: str) -> str | None:
    """Why nobody can say what a parameter is given, or None."""
    arrays = (*OPERATIONS[op].arrays, WORKSPACE)
    if parameter.is_pointer:
        if array_index(parameter, op) is None:
            what = f"write {parameter.name}=A, or which of {', '.join(arrays)} it is"
            return f"{parameter.cpp} {parameter.name}: {what}"
        return None
    if parameter.type_name == TENSOR_MAP:
        return None
    if parameter.value != LAUNCH:
        try:
            number(parameter, Problem(op=op, m=1, n=1, k=1, dtype="float32"))
        except ValueError as error:
            return f"{parameter.cpp} {parameter.name}: {error}"
    if parameter.type_name not in {*FORMATS, "Scalar"}:
        return f"{parameter.cpp} {parameter.name}: no type of a number that is known"
    return None


def array_index(parameter: Parameter, op: str) -> int | None:
    """Which of the kernel's arrays (operands, output, workspace) a pointer is given, or None."""
    known = [name.casefold() for name in (*OPERATIONS[op].arrays, WORKSPACE)]
    name = parameter.value.casefold()
    return known.index(name) if name in known else None


def number(parameter: Parameter, problem: Problem) -> float:
    """What a parameter that is no array is given. Raises ValueError for an unknown name."""
    extents = {"m": problem.m, "n": problem.n}
    if problem.operation.has_k:
        extents["k"] = problem.k
    known = extents | problem.strides
    factors: list[float] = []
    for factor in map(str.strip, parameter.value.split("*")):
        if factor.casefold() in known:
            factors.append(known[factor.casefold()])
        elif _NUMBER.fullmatch(factor):
            factors.append(float(factor.rstrip("fF")) if "." in factor else int(factor))
        else:
            names = ", ".join(name.upper() if len(name) == 1 else name for name in known)
            raise ValueError(f"write {parameter.name}=1, or which of {names} it is")
    return math.prod(factors)


def packed(parameter: Parameter, value: float, scalar: str) -> bytes:
    """A number in the bytes of its C++ type; `Scalar` is the type `scalar`."""
    name = parameter.type_name
    form = FORMATS[scalar if name == "Scalar" else name]
    if form == "bfloat16":  # the upper half of a float; 0, 1 and -1 are exact
        return struct.pack("<f", value)[2:]
    return struct.pack(form, value if form in "fde" else int(value))
