"""Writes a wrapper that takes arrays, for a host function that takes structures of matrices.

An example of such a function is `MatMul(Matrix A, Matrix B, Matrix C)`.
"""

import re
import string
from collections.abc import Iterator
from pathlib import Path

from gpubench.model.signature import Parameter, parameters
from gpubench.plan.from_source.meaning import COLUMNS, ROWS, ROWS_AND_COLUMNS
from gpubench.plan.from_source.source import Function, code, functions, last

STRIDES = {"stride", "pitch", "ld"}
"""Names of members that hold the distance between two rows of a matrix."""

SPACE = "on_arrays"

_STRUCTURE = r"\bstruct\s*+(\w*+)\s*+\{{([^{{}}]*+)\}}\s*+({name})?\s*+;"
_LETTERS = f"{string.ascii_letters}{string.digits}_"


def function_on_arrays(source: Path, text: str, name: str, path: Path) -> tuple[Path, str] | None:
    """Write a source `path` with a wrapper that takes arrays. Return `path` and the wrapper's name.

    The wrapper calls the host function `name`, or the first function that launches the kernel
    `name`. Return None if `source` has no such function that takes A, B and C as structures.
    """
    plain = code(text)
    for function in functions(text):
        is_named = function.name == name or re.search(rf"\b{last(name)}\b", function.body)
        if function.is_kernel or not function.launches_kernels or not is_named:
            continue
        try:
            body = "\n".join(_body(function, plain))
        except (LookupError, ValueError):  # the parameters are not three structures of matrices
            continue
        element = _pointer(_members(function.parameters[0].type_name, plain)).type_name
        path.write_text(
            f'#include "{source.resolve()}"\n'
            f"namespace {SPACE} {{\n"
            f"void {last(function.name)}(const {element}* A, const {element}* B, {element}* C, "
            f"int M, int N, int K) {{\n{body}\n  ::{function.name}(a, b, c);\n}}\n}}\n",
            encoding="utf-8",
        )
        return path, f"{SPACE}::{last(function.name)}"
    return None


def _body(function: Function, plain: str) -> Iterator[str]:
    """Yield the wrapper's lines, which fill the structures of A, B and C.

    Raises LookupError or ValueError if the function's parameters are not three structures of
    matrices.
    """
    for matrix, parameter in zip("ABC", function.parameters, strict=True):
        rows, columns = ROWS_AND_COLUMNS[matrix]
        name, members = matrix.lower(), _members(parameter.type_name, plain)
        pointer = _pointer(members)
        yield f"  {parameter.type_name} {name}{{}};"
        yield f"  {name}.{pointer.name} = const_cast<{pointer.type_name}*>({matrix});"
        for member in members:
            if member is not pointer:
                is_row = member.name.casefold() in ROWS
                if not is_row and member.name.casefold() not in COLUMNS | STRIDES:
                    raise LookupError(member.name)
                yield f"  {name}.{member.name} = {rows if is_row else columns};"


def _pointer(members: tuple[Parameter, ...]) -> Parameter:
    (pointer,) = (each for each in members if each.is_pointer)
    return pointer


def _members(name: str, plain: str) -> tuple[Parameter, ...]:
    """Return the members of a structure. Raises LookupError if the source does not define it."""
    for tag, inside, alias in re.findall(_STRUCTURE.format(name=re.escape(name)), plain):
        if name in {tag, alias}:
            return parameters(", ".join(_declared(inside)))
    raise LookupError(name)


def _declared(members: str) -> Iterator[str]:
    """Yield one declaration per member of a structure. `int a, b;` declares two members."""
    for declaration in filter(None, map(str.strip, members.split(";"))):
        first, *others = map(str.strip, declaration.split(","))
        kind = first.rstrip(_LETTERS).rstrip("* \t\n")
        for each in (first[len(kind) :], *others):
            name = each.strip("* \t\n")
            if name.isidentifier():
                yield f"{kind} {'*' * each.count('*')}{name}"
