"""Finds which array, extent, stride or number each parameter of a function is.

A parameter's name is read first. Where the name does not show it, the body of a kernel shows by
which extent an array's rows are apart: `out[row * OC + col]` makes OC the columns of the result.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpubench.model import OPERATIONS
from gpubench.model.signature import NULL, Parameter, split, why_unknown
from gpubench.plan.from_source.source import BLAS, Function, calls, enclosed

CONSTANTS = {"alpha": "1", "beta": "0", "batch": "1", "batch_count": "1"}
"""Values of parameters with these names, so that C = alpha·A·B + beta·C is A·B."""

UNKNOWN = "?"

ARRAYS = (
    {"a", "lhs", "left", "in", "inp", "input", "mat", "matrix", "mat_a", "matrix_a", "src"},
    {"b", "rhs", "right", "weight", "weights", "mat_b", "matrix_b", "x", "vec", "vector"},
    {"c", "out", "output", "result", "res", "dst", "mat_c", "matrix_c", "y"},
)
"""Names of the first operand, the second operand and the result."""

EXTENTS = {
    **dict.fromkeys(("m", "rows", "n_rows", "num_rows", "height"), "M"),
    **dict.fromkeys(("n", "cols", "n_cols", "num_cols", "columns", "width"), "N"),
    **dict.fromkeys(("k", "inner", "common", "depth"), "K"),
    **{f"{first}{x}": f"ld{x}" for first in ("ld", "ld_", "stride_") for x in "abc"},
}  # fmt: skip

ROWS, COLUMNS = {"row", "rows", "height", "h"}, {"col", "cols", "column", "columns", "width", "w"}
"""Words that name an extent of a matrix, as in `numARows` or `wB`."""

ALL_EXTENTS = {"M", "N", "K"}
EDGE = 16  # value of a number that only decides the block: its edge

_DECORATION = re.compile(
    r"^(d|dev|device|g|gpu|h|ptr|p|mat|matrix)_(?=\w)|_(d|dev|device|g|gpu|ptr|global|ld)$"
)
_ASSIGNED = re.compile(r"\b(\w+)\s*(?:[+*/%-]?=(?!=)|\{)\s*([^;{}]*)[;}]")
_NUMBERS = {
    "int", "unsigned", "unsigned int", "uint", "size_t", "long", "int64_t", "int32_t",
    "uint32_t", "uint64_t", "unsigned long", "long long",
}  # fmt: skip


_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_CUTE_STRIDE = re.compile(
    r"\bd?([ABC])\s*=\s*make_(?:tensor\b[^;]*?\bmake_)?stride\s*\(\s*(Int<1>|_1\b)?"
)
_CUTLASS_GEMM = re.compile(
    r"\bdevice::Gemm\w*\s*" + r"[<,]\s*[\w:]+\s*,\s*[\w:]*?(Row|Column)Major\s*" * 3
)

_FRAGMENT = re.compile(r"\bmatrix_([ab])\b[^;{}]*?\b(row|col)_major\b")

ROWS_AND_COLUMNS = {"A": "MK", "B": "KN", "C": "MN"}
"""The rows and the columns of each matrix of a product of two matrices."""


def meanings(
    function: Function, kernels: Mapping[str, Function], op: str
) -> tuple[list[Parameter], tuple[str, ...]]:
    """Return the parameters with their values, and the column-major matrices.

    `kernels` has the kernels of the source by name. What is not known is `?`. Raises ValueError for
    a signature that cannot be read.
    """
    on_host = not function.is_kernel
    scalar = re.compile(rf"\b(?:{'|'.join(function.types) or '(?!)'})\b")
    declared = [replace(each, cpp=scalar.sub("Scalar", each.cpp)) for each in function.parameters]
    values = {each.name: _by_name(each, op, on_host=on_host) for each in declared}
    column_major: tuple[str, ...] = ()
    if OPERATIONS[op].has_layouts and function.is_kernel:
        in_place = "__shared__" not in function.body  # no copy of a tile in another order
        orders = dict(_FRAGMENT.findall(function.body) if in_place else ())
        by_fragments = tuple(each.upper() for each in "ab" if orders.get(each) == "col")
        column_major = _by_use(function, declared, values) or by_fragments
    elif OPERATIONS[op].is_product and function.is_kernel:
        _exchange_vector(function, declared, values, op)
    others = {name: each for name, each in kernels.items() if each is not function}
    for launch in function.launches:  # a kernel may launch itself
        if kernel := others.get(launch.kernel):
            try:
                listed, column_major = meanings(kernel, others, op)
            except ValueError:  # a parameter without a name, as those of CuTe's kernels
                continue
            for argument, parameter in zip(launch.arguments, listed, strict=False):
                if parameter.value in OPERATIONS[op].arrays and not OPERATIONS[op].has_layouts:
                    values |= {argument: parameter.value} if argument in values else {}
                _from_argument(argument, parameter.value, values)
    if on_host:
        _complete(function, declared, values)
        launched = (kernels[each.kernel] for each in function.launches if each.kernel in kernels)
        for part in (function, *launched):
            column_major = column_major or _of_library(part, values, op)
    if OPERATIONS[op].extents == ("M", "N"):
        _without_k(declared, values)
    return [replace(each, value=values[each.name]) for each in declared], column_major


def reads_output(function: Function, kernels: Mapping[str, Function], op: str) -> bool:
    """Whether a kernel, or a kernel that a host function launches, computes C from what C holds."""
    if any(each.name == "beta" for each in function.parameters):
        return True
    launched = (kernels[each.kernel] for each in function.launches if each.kernel in kernels)
    for kernel in (function, *launched):
        try:
            listed, _ = meanings(kernel, kernels, op)
        except ValueError:  # a parameter without a name
            continue
        for each in listed:
            if each.value == OPERATIONS[op].arrays[-1]:
                element = re.compile(rf"\b{each.name}\s*\[")
                sides = (text.partition("=")[::2] for text in re.split("[;{}]", kernel.body))
                if any(all(map(element.search, both)) for both in sides):
                    return True
    return False


def _of_library(function: Function, values: dict[str, str], op: str) -> tuple[str, ...]:
    """Return the operands that calls of cuBLAS or CUTLASS, or CuTe's strides, take column-major.

    In an operation without layouts, the order of a call's arrays shows which array is the matrix.
    """
    for arguments in calls(BLAS, function.body):
        names = [argument.strip("& ") for argument in arguments]
        arrays = [name for name in names if values.get(name) in OPERATIONS[op].arrays]
        transposed = ["OP_N" not in name for name in names if "OP_" in name]
        if not OPERATIONS[op].has_layouts:
            values |= dict(zip(arrays, OPERATIONS[op].arrays, strict=False))
        elif len(transposed) == 2 and len(arrays) == len("ABC"):  # noqa: PLR2004 # A and B
            is_swapped = values[arrays[0]] == "B"  # it computes the transposed C = B A
            flags = [*(each == is_swapped for each in transposed), not is_swapped]
            return tuple(
                sorted(values[name] for name, flag in zip(arrays, flags, strict=True) if flag)
            )
    if not OPERATIONS[op].has_layouts:
        return ()
    if gemm := _CUTLASS_GEMM.search(function.body):
        return tuple(
            each for each, order in zip("ABC", gemm.groups(), strict=True) if order == "Column"
        )
    strides = dict(_CUTE_STRIDE.findall(function.body))  # B has N rows there
    return tuple(each for each in strides if bool(strides[each]) != (each == "B"))


def _plain(name: str) -> str:
    """Return a name in lower case, without the parts for the array's place: `d_A_ptr` is `a`."""
    name, before = name.casefold().strip("_"), ""
    while name != before:
        name, before = _DECORATION.sub("", name), name
    return name


def _by_name(parameter: Parameter, op: str, *, on_host: bool) -> str:
    """Return what a parameter's name means, or `?`."""
    name = _plain(parameter.name)
    arrays = OPERATIONS[op].arrays
    values = [parameter.value, CONSTANTS.get(name, "")]
    if parameter.is_pointer and name not in CONSTANTS:
        values += [array for array, names in zip(arrays, ARRAYS, strict=False) if name in names]
        values += [NULL] if name == "bias" else []
    elif not parameter.is_pointer:
        values += [EXTENTS.get(name, ""), _extent_of_matrix(parameter.name)]
        is_handle = parameter.type_name.endswith(("Handle_t", "_handle"))
        values += [NULL] if is_handle else []
    for value in filter(None, values):
        if why_unknown(replace(parameter, value=value), op, on_host=on_host) is None:
            return value
    return UNKNOWN


def _extent_of_matrix(name: str) -> str:
    """Return the extent that a name such as `numAColumns` or `rows_b` means, or an empty text."""
    words = {word.casefold() for word in _WORD.findall(name)}
    matrices = words & {"a", "b", "c"}
    if len(matrices) != 1 or bool(words & ROWS) == bool(words & COLUMNS):
        return ""
    return ROWS_AND_COLUMNS[matrices.pop().upper()][bool(words & COLUMNS)]


def _by_use(
    kernel: Function, declared: Sequence[Parameter], values: dict[str, str]
) -> tuple[str, ...]:
    """Fill in what the kernel's indices show; return the operands that are column-major."""
    pointers = [each for each in declared if each.is_pointer and values[each.name] != NULL]
    numbers = [each.name for each in declared if each.type_name in _NUMBERS]
    written = [each.name for each in pointers if _is_written(kernel.body, each)]
    named = {values[each.name]: each.name for each in pointers}
    if UNKNOWN in named:
        result = named.get("C") or next(iter(reversed(written)), None)
        inputs = [each.name for each in pointers if each.name != result]
        of_inputs = zip(inputs, ("A", "B"), strict=False) if len(inputs) == len("AB") else ()
        roles = dict(of_inputs) | ({result: "C"} if result else {})
        for name, role in roles.items():
            values[name] = role if values[name] == UNKNOWN else values[name]
        named = {values[each.name]: each.name for each in pointers}
    if not {"A", "B", "C"} <= named.keys():
        return ()
    apart = {role: _strides(kernel.body, named[role], numbers) for role in "ABC"}
    name_by_value = {value: name for name, value in values.items()}
    for role, extent in (("C", "N"), ("A", "K")):
        open_names = [name for name in apart[role] if values[name] == UNKNOWN]
        if extent not in name_by_value and len(open_names) == 1:
            values[open_names[0]] = extent
            name_by_value[extent] = open_names[0]
    left = [name for name in numbers if values[name] == UNKNOWN]
    missing = [extent for extent in "MNK" if extent not in name_by_value]
    if len(left) == len(missing) == 1:
        values[left[0]] = missing[0]
    by_columns = []
    for role, extents_of in ROWS_AND_COLUMNS.items():
        rows, columns = list(extents_of)
        extents = {values[name] for name in apart[role]}
        if stride := name_by_value.get(f"ld{role.lower()}"):
            if _counts_columns(kernel.body, named[role], stride, name_by_value, role):
                by_columns.append(role)
        elif rows in extents and columns not in extents:
            by_columns.append(role)
    return tuple(by_columns)


def _counts_columns(
    body: str, array: str, stride: str, name_by_value: Mapping[str, str], role: str
) -> bool:
    """Whether an array's stride is multiplied by an index below the number of its columns."""
    rows, columns = (name_by_value.get(extent) for extent in ROWS_AND_COLUMNS[role])
    factor = re.compile(
        rf"\b(\w+)\s*\)*\s*\*\s*\(*\s*{stride}\b|\b{stride}\s*\)*\s*\*\s*\(*\s*(\w+)"
    )
    indices = {
        name
        for text in _indices(body, array, [stride])
        for names in factor.findall(text)
        for name in filter(None, names)
    }

    def is_below(extent: str | None) -> bool:
        return any(re.search(rf"\b{index}\s*(?:<|>=)\s*{extent}\b", body) for index in indices)

    return is_below(columns) and not is_below(rows)


def _exchange_vector(
    kernel: Function, declared: Sequence[Parameter], values: dict[str, str], op: str
) -> None:
    """Exchange the two inputs if only the second one has rows, as in a product vector · matrix."""
    matrix, vector = OPERATIONS[op].arrays[:2]
    numbers = [each.name for each in declared if each.type_name in _NUMBERS]
    named = {value: name for name, value in values.items()}
    if {matrix, vector} <= named.keys():
        first, second = (_strides(kernel.body, named[each], numbers) for each in (matrix, vector))
        if second and not first:
            values |= {named[matrix]: vector, named[vector]: matrix}


def _without_k(declared: Sequence[Parameter], values: dict[str, str]) -> None:
    """Name the extents of a matrix M and N where the source calls them M and K, or N and K."""
    numbers = [each.name for each in declared if not each.is_pointer]
    extents = [name for name in numbers if name.casefold() in {"m", "n", "k"}]
    if len(extents) == len("MN") and extents[1].casefold() == "k":
        values |= dict(zip(extents, "MN", strict=True))


def _is_written(body: str, parameter: Parameter) -> bool:
    """Whether a kernel stores into an array, or at least may."""
    element = rf"\b{parameter.name}\s*\["
    stores = re.search(element + r"[^;]*?\]\s*\)?\s*[+*-]?=(?!=)", body)
    return "const" not in parameter.cpp and bool(stores or not re.search(element, body))


def _strides(body: str, array: str, numbers: Sequence[str]) -> list[str]:
    """Return the numbers that an array's indices multiply, directly or through variables."""
    texts, assigned = _indices(body, array, numbers), _assigned(body)

    def multiplies(name: str) -> bool:
        factor = re.compile(rf"\*\s*\(*\s*{name}\b|\b{name}\s*\)*\s*\*")
        return any(map(factor.search, texts))

    copies = {name: [key for key, each in assigned.items() if each == [name]] for name in numbers}
    return [name for name in numbers if any(map(multiplies, (name, *copies[name])))]


def _assigned(body: str) -> dict[str, list[str]]:
    """Return the expressions that a body assigns to each variable."""
    assigned: dict[str, list[str]] = {}
    for name, text in _ASSIGNED.findall(body):
        value, *others = split(text)
        for each, _, of_each in ((name, "", value), *(other.partition("=") for other in others)):
            assigned.setdefault(each.strip(), []).append(of_each.strip())
    return assigned


def _indices(body: str, array: str, numbers: Sequence[str]) -> list[str]:
    """Return the expressions that index an array, and the expressions of variables in an index."""
    assigned = _assigned(body)
    texts, names = [], {array}
    for name, values in assigned.items():
        for value in values:
            if name not in numbers and re.search(rf"\b{array}\s*\+|&\s*{array}\s*\[", value):
                names.add(name)
                texts.append(value)
    for name in names:
        texts += assigned.get(name, [])
        texts += [
            enclosed(body, match.start(), "[]")[0] for match in re.finditer(rf"\b{name}\s*\[", body)
        ]
    inside = {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text)}
    for name in (inside & assigned.keys()) - {*numbers, *names}:
        texts += assigned[name]
    return texts


def _from_argument(argument: str, value: str, values: dict[str, str]) -> None:
    """Give the parameters that a launch passes on the meaning of the kernel's parameter."""
    names = [name for name in re.findall(r"[A-Za-z_]\w*", argument) if name in values]
    unknown = [name for name in names if values[name] == UNKNOWN]
    if value == UNKNOWN or not unknown:
        return
    is_product = re.fullmatch(r"[\w\s*().]+", argument) is not None
    if len(names) == 1 or (is_product and len(unknown) == len(names)):
        for name in unknown[:-1]:
            values[name] = "1"
        values[unknown[-1]] = value


def _complete(function: Function, declared: Sequence[Parameter], values: dict[str, str]) -> None:
    """Give a host function's last numbers the extent that is left, or the edge of a block."""
    numbers = [each.name for each in declared if each.type_name in _NUMBERS]
    left = [name for name in numbers if values[name] == UNKNOWN]
    edges = [name for name in left if "block" in name.casefold()]
    for name in edges:
        values[name] = str(EDGE)
    left = [name for name in left if name not in edges]
    missing = [extent for extent in "MNK" if extent not in values.values()]
    if len(missing) == 1 and left and {"M", "N", "K"} & {*values.values()}:
        product = re.search(r"\b" + r"\s*\*\s*".join(left) + r"\b", function.body)
        if product:
            for name in left[:-1]:
                values[name] = "1"
            values[left[-1]] = missing[0]
