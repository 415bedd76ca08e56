"""Finds which array, extent, stride or number each parameter of a function is.

A parameter's name is read first. If the name does not show the meaning, the indices in the kernel's
body may show it: `out[row * OC + col]` shows that OC is the number of the result's columns.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import compress, permutations

from gpubench.model import OPERATIONS
from gpubench.model.signature import FORMATS, NULL, Parameter, split, why_unknown
from gpubench.plan.description_text import UNKNOWN
from gpubench.plan.from_source.source import BLAS, Function, calls

CONSTANTS = {"alpha": "1", "beta": "0", "batch": "1", "batch_count": "1"}
"""Values of parameters with these names. With these values, C = alpha·A·B + beta·C is A·B."""

ARRAYS = (
    {"a", "lhs", "left", "in", "inp", "input", "mat", "matrix", "mat_a", "matrix_a", "src"},
    {"b", "rhs", "right", "weight", "weights", "mat_b", "matrix_b", "x", "vec", "vector"},
    {"c", "out", "output", "result", "res", "dst", "mat_c", "matrix_c", "y"},
)
"""Names of the first operand, the second operand and the result."""

VECTORS = {"x", "y", "vec", "vector"}
"""Names of vectors. In a product of matrices, the order and use of arrays shows their meaning."""

EXTENTS = {
    **dict.fromkeys(("m", "rows", "n_rows", "num_rows", "height"), "M"),
    **dict.fromkeys(("n", "cols", "n_cols", "num_cols", "columns", "width"), "N"),
    **dict.fromkeys(("k", "inner", "common", "depth"), "K"),
    **{f"{first}{x}": f"ld{x}" for first in ("ld", "ld_", "stride_") for x in "abc"},
    **{f"stride_{x}": f"ld{x[0]}" for x in ("am", "bk", "cm")},
    **dict.fromkeys(("stride_ak", "stride_bn", "stride_cn"), "1"),  # as in Triton's tutorials
}  # fmt: skip

ROWS, COLUMNS = {"row", "rows", "height", "h"}, {"col", "cols", "column", "columns", "width", "w"}
"""Words that name an extent of a matrix, as in `numARows` or `wB`."""

ALL_EXTENTS = {"M", "N", "K"}
EDGE = 16  # value of a number that is only the edge of a block

_DECORATION = re.compile(
    r"^(d|dev|device|g|gpu|h|ptr|p|mat|matrix)(_(?=\w)|(?=[abc]$))"
    r"|(_|(?<=^[abc]))(d|dev|device|g|gpu|ptr|global|ld)$"
)
_ASSIGNED = re.compile(
    r"\b(\w+)\s*(?:([+*/%-]?)=(?!=)\s*([^;{}]{0,1000})|\{\s*([^;{}=]{0,1000}))[;}]"
)
_STORED = re.compile(r"\b(\w+)\s*\[[^;{}=]{0,400}\]\s*[+-]?=(?!=)")
_UPDATED = re.compile(r"\b(\w+)\s*\[[^;{}=]{0,400}=[^;{}]{0,400}\b\1\s*\[")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_OF_BLOCK = re.compile("(?i)block|tile")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_CUTE_STRIDE = re.compile(
    r"\bd?([ABC])\s*=\s*make_(?:tensor\b[^;]*?\bmake_)?stride\s*\(\s*(Int<1>|_1\b)?"
)
_CUTLASS_GEMM = re.compile(
    r"\bdevice::Gemm\w*\s*" + r"[<,]\s*[\w:]+\s*,\s*[\w:]*?(Row|Column)Major\s*" * 3
)
_FRAGMENT = re.compile(r"\bmatrix_([ab])\b[^;{}]*?\b(row|col)_major\b")

ROWS_AND_COLUMNS = {"A": ("M", "K"), "B": ("K", "N"), "C": ("M", "N")}
"""The rows and the columns of each matrix of a product of two matrices."""

STRIDES = (
    {"A": "MK", "B": "KN", "C": "MN"},
    {"A": "K", "B": "N", "C": "N"},
    {"A": "K", "B": "K", "C": "N"},
)
"""The strides of each matrix: in any layout, row-major, and with a column-major B."""


def meanings(
    function: Function, kernels: Mapping[str, Function], op: str, *, exchanged: bool = False
) -> tuple[list[Parameter], tuple[str, ...]]:
    """Return the parameters with their values, and the column-major matrices.

    `kernels` has the kernels of the source by name. An unknown value is `?`. `exchanged` exchanges
    M and N of a kernel with layouts. Raises ValueError for a signature that cannot be read.
    """
    operation, on_host = OPERATIONS[op], not function.is_kernel
    scalar = re.compile(rf"\b(?:{'|'.join(function.types) or '(?!)'})\b")
    declared = [replace(each, cpp=scalar.sub("Scalar", each.cpp)) for each in function.parameters]
    values = {each.name: _by_name(each, op, on_host=on_host) for each in declared}
    column_major: tuple[str, ...] = ()
    if function.is_kernel and operation.has_layouts:
        column_major = _by_use(function.body, declared, values, exchanged=exchanged)
        if not column_major and "__shared__" not in function.body:  # a shared tile may be reordered
            orders = _FRAGMENT.findall(function.body)
            column_major = tuple(sorted({each.upper() for each, order in orders if order == "col"}))
    elif function.is_kernel and operation.is_product:
        names = [name for each in operation.arrays[:2] for name in values if values[name] == each]
        have_rows = [bool(_strides(function.body, each, _integers(declared))) for each in names]
        if have_rows == [False, True]:  # a product vector · matrix: its first input is the vector
            values |= dict(zip(names, (values[each] for each in reversed(names)), strict=True))
    others = {name: each for name, each in kernels.items() if each is not function}
    for launch in function.launches:  # a kernel may launch kernels, too
        with suppress(ValueError, KeyError):  # CuTe's kernels have parameters without a name
            listed, column_major = meanings(others[launch.kernel], others, op, exchanged=exchanged)
            pairs = [*zip(launch.arguments, listed, strict=False)]
            roles = {each.value: values.get(name, UNKNOWN) for name, each in pairs}
            is_same = all(roles.get(each) in {UNKNOWN, each} for each in operation.arrays)
            shown: Collection[str] = operation.arrays
            if operation.has_layouts:  # a call may exchange arrays, and extents with them
                shown = ALL_EXTENTS if is_same else ()
            for argument, parameter in pairs:
                if parameter.value in shown and argument in values:
                    values[argument] = parameter.value
                names = [name for name in _IDENTIFIER.findall(argument) if name in values]
                if [values[name] for name in names] == [UNKNOWN]:
                    values[names[0]] = parameter.value
    if on_host:
        _complete(function, declared, values)
        for part in (function, *launched(function, kernels)):
            column_major = column_major or _of_library(part, values, op)
    numbers = [each.name for each in declared if not each.is_pointer]
    extents = [name for name in numbers if name.casefold() in {*"mnk"}]
    if operation.extents == ("M", "N") and [each.casefold() for each in extents[1:]] == ["k"]:
        values |= dict(zip(extents, "MN", strict=True))  # the source's name for N is K
    return [replace(each, value=values[each.name]) for each in declared], column_major


def launched(function: Function, kernels: Mapping[str, Function]) -> list[Function]:
    """Return the kernels that a function launches."""
    return [kernels[each.kernel] for each in function.launches if each.kernel in kernels]


def reads_output(function: Function, kernels: Mapping[str, Function]) -> bool:
    """Whether a kernel, or a kernel that a host function launches, uses the old values of C."""
    for kernel in (function, *launched(function, kernels)):
        with suppress(ValueError):  # a parameter without a name
            updated = {*_UPDATED.findall(kernel.body)}
            if any(each.is_pointer and each.name in updated for each in kernel.parameters):
                return True
    return any(each.name == "beta" for each in function.parameters)


def _of_library(function: Function, values: dict[str, str], op: str) -> tuple[str, ...]:
    """Return the matrices that calls of cuBLAS or CUTLASS, or CuTe's strides, show as column-major.

    In an operation without layouts, the order of a call's arrays shows which array is the matrix,
    and `values` is updated.
    """
    operation = OPERATIONS[op]
    for arguments in calls(BLAS, function.body):
        names = [argument.strip("& ") for argument in arguments]
        arrays = [name for name in names if values.get(name) in operation.arrays]
        transposed = ["OP_N" not in name for name in names if "OP_" in name]
        if not operation.has_layouts:
            values |= dict(zip(arrays, operation.arrays, strict=False))
        elif (len(transposed), len(arrays)) == (len("AB"), len("ABC")):
            is_swapped = values[arrays[0]] == "B"  # the function computes the transposed C = B A
            flags = [*(each == is_swapped for each in transposed), not is_swapped]
            return tuple(sorted(compress((values[name] for name in arrays), flags)))
    if not operation.has_layouts:
        return ()
    if gemm := _CUTLASS_GEMM.search(function.body):
        return tuple(compress("ABC", (order == "Column" for order in gemm.groups())))
    strides = dict(_CUTE_STRIDE.findall(function.body))  # in CuTe, B has N rows
    return tuple(sorted(each for each in strides if bool(strides[each]) != (each == "B")))


def _by_name(parameter: Parameter, op: str, *, on_host: bool) -> str:
    """Return what a parameter's name means, or `?`."""
    name, before = parameter.name.casefold().strip("_"), ""
    while name != before:  # `d_A_ptr` is `a`
        name, before = _DECORATION.sub("", name), name
    values = [parameter.value, CONSTANTS.get(name, "")]
    if parameter.is_pointer and name not in CONSTANTS:
        pairs = zip(OPERATIONS[op].arrays, ARRAYS, strict=False)
        vectors = VECTORS if OPERATIONS[op].has_layouts else set()
        names = (array for array, names in pairs if name in names - vectors)
        values += [*names, NULL * (name == "bias")]
    elif not parameter.is_pointer:
        is_handle = parameter.type_name.endswith(("Handle_t", "_handle"))
        values += [EXTENTS.get(name, ""), _extent_of_matrix(parameter.name), NULL * is_handle]
    possible = (replace(parameter, value=value) for value in filter(None, values))
    legal = (each.value for each in possible if why_unknown(each, op, on_host=on_host) is None)
    value = next(legal, UNKNOWN)
    usual = (*OPERATIONS[op].arrays, *OPERATIONS[op].extents, "lda", "ldb", "ldc")
    return next((each for each in usual if each.casefold() == value.casefold()), value)


def _extent_of_matrix(name: str) -> str:
    """Return the extent that a name such as `numAColumns` or `rows_b` means, or an empty text."""
    words = {word.casefold() for word in _WORD.findall(name)}
    matrices = words & {"a", "b", "c"}
    if len(matrices) != 1 or bool(words & ROWS) == bool(words & COLUMNS):
        return ""
    return ROWS_AND_COLUMNS[matrices.pop().upper()][bool(words & COLUMNS)]


def _by_use(
    body: str, declared: list[Parameter], values: dict[str, str], *, exchanged: bool
) -> tuple[str, ...]:
    """Complete `values` by the kernel's indices; return the matrices that are column-major."""
    pointers = [each for each in declared if each.is_pointer and values[each.name] != NULL]
    _name_arrays(body, pointers, values)
    named = {values[each.name]: each.name for each in pointers}
    if not {*"ABC"} <= named.keys():
        return ()
    numbers = _integers(declared)
    apart = {role: _strides(body, named[role], numbers) for role in "ABC"}
    _name_extents(numbers, apart, values)
    extents = {name: value for name, value in values.items() if value in ALL_EXTENTS}
    values |= _in_order(extents, apart)
    if exchanged:
        values |= {name: {"M": "N", "N": "M"}.get(values[name], values[name]) for name in extents}
    return tuple(
        role for role in "ABC" if _is_column_major(body, role, named[role], apart[role], values)
    )


def _name_arrays(body: str, pointers: Sequence[Parameter], values: dict[str, str]) -> None:
    """Complete `values` for arrays. The result is written, and the operands come in their order."""
    named = {values[each.name]: each.name for each in pointers}
    if UNKNOWN not in named:
        return
    written = [each.name for each in pointers if "const" not in each.cpp]
    written = [name for name in written if name in _STORED.findall(body)] or written
    output = written[-1] if written else ""
    result = output if {*"ABC"} <= named.keys() else named.get("C", output)
    values |= {result: "C"} if result else {}
    inputs = [each.name for each in pointers if values[each.name] == UNKNOWN]
    roles = [role for role in "AB" if role not in named]
    if len(inputs) == len(roles):
        values |= dict(zip(inputs, roles, strict=True))


def _name_extents(
    numbers: Sequence[str], apart: Mapping[str, set[str]], values: dict[str, str]
) -> None:
    """Complete `values` for numbers. `apart` has the names of each array's strides."""
    for role, extent in (("C", "N"), ("A", "K")):
        unknown = [name for name in apart[role] if values[name] == UNKNOWN]
        if extent not in values.values() and len(unknown) == 1:
            values[unknown[0]] = extent
    unknown = [name for name in numbers if values[name] == UNKNOWN]
    unknown = unknown or [name for name in numbers if name.casefold() in {"batch", "batch_count"}]
    missing = [extent for extent in "MNK" if extent not in values.values()]
    if len(unknown) == len(missing) == 1:
        values[unknown[0]] = missing[0]


def _is_column_major(
    body: str, role: str, array: str, strides: set[str], values: Mapping[str, str]
) -> bool:
    """Whether the kernel's indices show that a matrix is column-major."""
    rows, columns = ROWS_AND_COLUMNS[role]
    name_by_value = {value: name for name, value in values.items()}
    if stride := name_by_value.get(f"ld{role.lower()}"):
        text = "\n".join(_indices(body, array, [stride]))
        words = filter(None, map("".join, _product(stride).findall(text)))
        below = rf"\b(?:{'|'.join(words) or '(?!)'})\s*(?:<|>=)\s*{{}}\b"
        ends = [below.format(name_by_value.get(extent)) for extent in (rows, columns)]
        is_row, is_column = (bool(re.search(each, body)) for each in ends)
        return is_column and not is_row
    extents = {values[name] for name in strides}
    return rows in extents and columns not in extents


def _in_order(extents: Mapping[str, str], apart: Mapping[str, set[str]]) -> dict[str, str]:
    """Return the extents by name, exchanged if an array's stride is not an extent of the array.

    `apart` has the names of each array's strides. A source may call the extents of A m and n, and
    the extents of B n and k. Then A and C are row-major, and B is row-major if possible.
    """
    named = tuple(extents.values())
    orders = list(permutations("MNK")) if len(extents) == len("MNK") and all(apart.values()) else []
    named_orders = [named] if {*named} == ALL_EXTENTS else []
    for strides, candidates in zip(STRIDES, (named_orders, orders, orders), strict=True):
        for order in candidates:
            values = dict(zip(extents, order, strict=True))
            if all(values.get(name, "") in strides[role] for role in apart for name in apart[role]):
                return values
    return dict(extents)


def _integers(declared: list[Parameter]) -> list[str]:
    """Return the names of the parameters that are whole numbers."""
    return [each.name for each in declared if FORMATS.get(each.type_name) in {*"iIqQ"}]


def _strides(body: str, array: str, numbers: Sequence[str]) -> set[str]:
    """Return the numbers by which an array's indices multiply, directly or through variables."""
    text, assigned = "\n".join(_indices(body, array, numbers)), assignments(body)
    copies = {name: each[0] for name, each in assigned.items() if len(each) == 1}
    names = dict(zip(numbers, numbers, strict=True))
    names |= {name: each for name, each in copies.items() if each in numbers}
    return {number for name, number in names.items() if _product(name).search(text)}


def _product(name: str) -> re.Pattern[str]:
    """Return a pattern of products with `name`. A group matches another factor that is a word."""
    space = r"[\s)(]{0,99}"
    return re.compile(rf"(\b\w++|){space}\*{space}\b{name}\b|\b{name}{space}\*{space}(\w*)")


def assignments(body: str) -> dict[str, list[str]]:
    """Return the expressions that a body assigns to each variable."""
    assigned: dict[str, list[str]] = {}
    for name, sign, text, braced in _ASSIGNED.findall(body):
        value, *others = split(f"{name} {sign} {text}" if sign else text or braced)
        for each in (f"{name}={value}", *(other for other in others if "=" in other)):
            target, _, of_target = each.partition("=")
            assigned.setdefault(target.strip(), []).append(of_target.strip())
    return assigned


def _indices(body: str, array: str, numbers: Sequence[str]) -> list[str]:
    """Return the expressions of an array's indices, and of the variables in these indices."""
    assigned = assignments(body)
    pointer = re.compile(rf"\b{array}\s*\+|&\s*{array}\s*\[")
    pointers = {name for name in assigned if any(map(pointer.search, assigned[name]))}
    names = {array, *pointers} - {*numbers}
    texts = [text for name in names for text in assigned.get(name, ())]
    texts += re.findall(rf"\b(?:{'|'.join(names)})\s*\[((?:[^][;]|\[[^][;]*\])*+)", body)
    words = {*_IDENTIFIER.findall(" ".join(texts))} - {*numbers, *names}
    return texts + [text for word in words for text in assigned.get(word, ())]


def _complete(function: Function, declared: list[Parameter], values: dict[str, str]) -> None:
    """Give a host function's unknown numbers the missing extent, or the edge of a block."""
    unknown = [name for name in _integers(declared) if values[name] == UNKNOWN]
    values |= {name: str(EDGE) for name in unknown if _OF_BLOCK.search(name)}
    unknown = [name for name in unknown if values[name] == UNKNOWN]
    missing, product = ALL_EXTENTS - {*values.values()}, r"\s*\*\s*".join(unknown)
    if len(missing) == 1 and unknown and re.search(rf"\b{product}\b", function.body):
        values |= dict.fromkeys(unknown[:-1], "1") | {unknown[-1]: missing.pop()}
