"""Reads a kernel's template arguments, grid and block from the launch in its source.

Expressions in C++ become expressions of a description. In a description, `/` is a division that
rounds up, and `//` rounds down.
"""

import ast
import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain

from gpubench.model.expression import evaluate, parse
from gpubench.model.signature import Parameter, split
from gpubench.plan.description_text import UNKNOWN, Launch
from gpubench.plan.from_source.meaning import ALL_EXTENTS, EDGE, assignments
from gpubench.plan.from_source.source import Function, SourceLaunch, code, enclosed, last

ROUNDS = 8  # maximum depth of constants that are defined by constants
ITEM_BYTES = {"float": 4, "int": 4, "double": 8, "half": 2, "__half": 2, "__nv_bfloat16": 2}

_DECLARED = re.compile(
    r"\b(?:const(?:expr)?|auto|int|unsigned|size_t|u?int\d\d_t)\b[^;=(){}<>]{0,120}?\b(\w+)\s*[={]"
)
_ALSO_DECLARED = re.compile(r",\s*(\w+)\s*=(?!=)")  # `BN` of `const int BM = 64, BN = 32;`
_CAST = re.compile(
    r"static_cast\s*<[^<>]*>"
    r"|\(\s*(?:unsigned|unsigned int|int|float|double|size_t|uint|long|u?int(?:32|64)_t)\s*\)"
)
_SIZE = re.compile(r"\bsizeof\s*\(\s*(\w+)\s*\)")
_SUFFIX = re.compile(r"\b(\d+)(?:\.0?)?[uUlLfF]*(?![\w.])")
_NAME = re.compile(r"\b(?:[A-Za-z_]\w*::)*([A-Za-z_]\w*(?:\.[xyz]\b)?)")
_ROUNDS_UP = re.compile(r"\w*(ceil_?div|div_?ceil|cdiv|div_?up|round_?up_?div)\w*", re.IGNORECASE)

Names = dict[str, str]  # values by names


@dataclass(frozen=True, kw_only=True)
class ReadLaunch(Launch):
    """A launch, with the values that it passes, as far as they could be read."""

    template: Names = field(default_factory=dict)  # values of the template's parameters
    arguments: Names = field(default_factory=dict)  # values of the kernel's parameters


def read_launch(
    kernel: Function, callers: Iterable[Function], declared: list[Parameter], axes: Names, text: str
) -> ReadLaunch:
    """Return the parts of a kernel's first launch, or of the first launch that can be read.

    `declared` has the kernel's parameters with their values. `axes` has the axis of a tile for
    each template parameter. `text` is the source.
    """
    constants, dimensions = _values(code(text)), []
    for caller in callers:
        defaults = {each.name: each.value for each in caller.template if each.value != each.name}
        defaults |= dict.fromkeys(caller.types, "float")
        for launch in caller.launches:
            if launch.kernel == last(kernel.name) and len(launch.arguments) == len(declared):
                names = constants | defaults | _values(launch.before)
                dimensions.append(_read(launch, kernel, declared, axes, names))
    readable = (each for each in dimensions if each.grid and each.block)
    return next(readable, dimensions[0] if dimensions else ReadLaunch())


def _read(
    launch: SourceLaunch, kernel: Function, declared: list[Parameter], axes: Names, names: Names
) -> ReadLaunch:
    """Return the parts of a launch. `names` has the values of names at the launch."""
    scope = Scope(names=names)
    template: dict[str, str] = {}
    symbols = {axis: axis for axis in axes.values()}
    texts = chain(launch.template, (each.value for each in kernel.template[len(launch.template) :]))
    for parameter, text in zip(kernel.template, texts, strict=False):
        if text in {"true", "false"}:
            template[parameter.name] = text
        elif parameter.name in axes and (value := scope.expression(text)).isdecimal():
            template[parameter.name] = value
            symbols[text] = axes[parameter.name]
    scope.symbols.update(symbols)
    pairs = list(zip(launch.arguments, declared, strict=True))
    for text, argument in pairs:
        if (extent := argument.value.upper()) in ALL_EXTENTS:
            scope.symbols[_CAST.sub("", text).strip()] = extent
    passed = {argument.name: scope.expression(text) for text, argument in pairs}
    of_grid, of_block, shared, *_ = *launch.config, "", ""
    parts, guess = _parts(of_block, launch.before), ""
    unread = [word for word in _words(parts) if word in names and not scope.expression(word)]
    block = scope.expressions(parts)
    if not block and len(unread) == 1:  # the program gets this number when it runs
        names[unread[0]] = str(EDGE if len(parts) > 1 else EDGE**2)
        guess = f"{unread[0]} = {names[unread[0]]}"
        block = scope.expressions(parts)
    names |= {f"{of_block}.{axis}": part for axis, part in zip("xyz", parts, strict=False)}
    parts = _parts(of_grid, launch.before)
    words = _words(parts) - {*names, *scope.symbols}
    unread = [word for word in words if not _ROUNDS_UP.fullmatch(word)]
    missing = ALL_EXTENTS - {*scope.symbols.values()}
    if len(unread) == len(missing) == 1:  # the unknown name must be the missing extent
        scope.symbols[unread[0]] = missing.pop()
    grid = scope.expressions(parts)
    if {*grid} != {"1"} and all(part.isdecimal() for part in grid):
        grid = ()  # this grid is for one size only
    shared = "" if shared in {"", "0"} else scope.expression(shared) or UNKNOWN
    return ReadLaunch(
        caller=launch.caller, config=" ".join(", ".join(launch.config).split()), template=template,
        arguments=passed, grid=grid, block=block, shared=shared, guess=guess,
    )  # fmt: skip


def _words(parts: Iterable[str]) -> set[str]:
    """Return the names in expressions."""
    return {word for part in parts for word in _NAME.findall(_plain(part))}


def edge_of_block(kernel: Function, axis: str, axes: Names, text: str) -> str:
    """Return the number or the axis of a tile by which a kernel multiplies `blockIdx.x` or `.y`.

    Of several numbers, return the largest if it is a multiple of the others, which count vectors.
    Otherwise return an empty text for several factors, and for none. `text` is the source, which
    may define the number as a constant. `axes` has the axis of a tile for each template parameter.
    """
    index = _index(kernel, f"blockIdx.{axis}")
    factor = rf"{index}\s*\*\s*\(?\s*(\w+)|\b(\w+)\s*\)?\s*\*\s*{index}"
    edges = _found(factor, kernel, axes, text)
    if edges and all(edge.isdecimal() for edge in edges):
        largest = max(map(int, edges))
        edges = {str(largest)} if not any(largest % int(edge) for edge in edges) else edges
    return edges.pop() if len(edges) == 1 else ""


def elements_per_thread(kernel: Function, axis: str, text: str) -> int:
    """Return the number by which a kernel multiplies `threadIdx.x` or `.y`.

    Return 0 if there is no such number, or more than one. `text` is the source.
    """
    index = _index(kernel, f"threadIdx.{axis}")
    factors = _found(rf"{index}\s*\*\s*(\w+)", kernel, {}, text)
    numbers = {int(each) for each in factors if each.isdecimal()}
    return numbers.pop() if len(numbers) == 1 else 0


def _found(pattern: str, kernel: Function, axes: Names, text: str) -> set[str]:
    """Return what a pattern's groups find in a kernel, as expressions of a description."""
    scope = Scope(names=_values(code(text)) | _values(kernel.body), symbols=axes)
    return {scope.expression("".join(each)) for each in re.findall(pattern, kernel.body)}


def is_alone(kernel: Function, axis: str, sizes: Iterable[str]) -> bool:
    """Whether `blockIdx.x` or `.y` is the index of a row or a column, and not of a tile.

    Such an index is a subscript, or a factor or a summand in a subscript, and only extents and
    strides multiply it. `sizes` has the parameters that are extents and strides.
    """
    index, body = _index(kernel, f"blockIdx.{axis}"), kernel.body
    before, after = rf"\b(\w+)\s*\)?\s*\*\s*{index}", rf"{index}\s*\)?\s*\*\s*\(?\s*(\w+)"
    factors = {*re.findall(before, body), *re.findall(after, body)}
    part = rf"[/%]\s*{index}|{index}\s*\)?\s*[/%]|[(,]\s*{index}\s*,|,\s*{index}\s*\)"
    is_used = factors or re.search(rf"[\[+]\s*{index}\s*\]", body)
    return bool(is_used) and not re.search(part, body) and factors <= {*sizes}


def is_crossed(kernel: Function) -> bool:
    """Whether a kernel adds `threadIdx.y` to a multiple of `blockIdx.x`, or `.x` to one of `.y`."""
    for block, thread in ("xy", "yx"):
        index, offset = (_index(kernel, f"blockIdx.{block}"), _index(kernel, f"threadIdx.{thread}"))
        multiple = rf"(?:\w+\s*\*\s*{index}|{index}\s*\*\s*\w+)"
        if re.search(
            rf"{multiple}\s*\)?\s*\+\s*{offset}|{offset}\s*\+\s*\(?\s*{multiple}", kernel.body
        ):
            return True
    return False


def _index(kernel: Function, name: str) -> str:
    """Return a pattern of an index such as `blockIdx.x`, and of the variables that copy it."""
    index = name.replace(".", r"\s*\.\s*") + r"\b"
    values = assignments(kernel.body).items()
    names = (name for name, each in values if re.fullmatch(index, each[0]))
    return rf"(?:{'|'.join((index, *names))})\b"


def bound_of_block(kernel: Function, axes: Names, text: str) -> str:
    """Return the number of threads that `__launch_bounds__` states, or an empty text.

    `axes` has the axis of a tile for each template parameter.
    """
    used = {name: axis for name, axis in axes.items() if name in _NAME.findall(kernel.bounds)}
    bound = Scope(names=_values(code(text)), symbols=used).expression(split(kernel.bounds)[0])
    return bound if bound != "0" else ""


def _values(text: str) -> dict[str, str]:
    """Return the names of numbers to which a text assigns a single value, with this value."""
    declared = {*_DECLARED.findall(text), *_ALSO_DECLARED.findall(text)}
    pairs = ((name, each) for name, each in assignments(text).items() if name in declared)
    return {name: each[0] for name, each in pairs if len({*each}) == 1}


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The meanings of the names in an expression."""

    names: Names = field(default_factory=dict)  # expressions in C++, by C++ names
    symbols: Names = field(default_factory=dict)  # names of a description, by C++ names

    def expression(self, text: str) -> str:
        """Return an expression in C++ as an expression of a description, or an empty text."""
        try:
            tree = deepcopy(parse(self._expanded(text).replace("/", "//")))
            read = ast.unparse(_Calls().visit(tree)).replace(" ", "")
            value = evaluate(read, dict.fromkeys((*self.symbols.values(), *"MNK"), 4096))
        except (ValueError, RecursionError):
            return ""
        return read if _NAME.search(read) else str(value)

    def expressions(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Return the extents of a grid or a block; () if an extent is unknown."""
        parts = [self.expression(text) for text in texts]
        while len(parts) > 1 and parts[-1] == "1":
            parts.pop()
        return tuple(parts) if all(parts) else ()

    def _expanded(self, text: str, depth: int = 0) -> str:
        """Return an expression with its names replaced by their meanings."""

        def meaning(name: re.Match[str]) -> str:
            symbol = self.symbols.get(name[1], name[1].upper())
            if name[1] in self.symbols or symbol in ALL_EXTENTS - {*self.symbols.values()}:
                return symbol
            value = self.names.get(name[1]) if depth < ROUNDS else None
            value = value and self._expanded(value, depth + 1)
            return name[1] if value is None else value if value.isalnum() else f"({value})"

        def item_bytes(size: re.Match[str]) -> str:
            return str(ITEM_BYTES.get(self.names.get(size[1], size[1]), size[0]))

        return _NAME.sub(meaning, _plain(_SIZE.sub(item_bytes, " ".join(text.split()))))


def _plain(text: str) -> str:
    """Return an expression without casts and without the suffixes of its numbers."""
    return _SUFFIX.sub(r"\1", _CAST.sub("", text))


def _parts(text: str, before: str) -> list[str]:
    """Return the extents of the `dim3` that a launch names, or the text itself for a number.

    `before` is the code before the launch, which may define the `dim3`.
    """
    name, parts = re.escape(text), [text]
    if text.startswith("dim3"):
        name, before = "_", f"dim3 _ = {text}"
    made = [*re.finditer(rf"\bdim3\b[^;]{{0,200}}?\b{name}\s*=?\s*(?:dim3\s*)?[({{]", before)]
    if members := dict(re.findall(rf"\b{name}\.([xyz])\s*=([^;=]+);", before)):
        parts = [members.get(axis, "1") for axis in "xyz"]
    elif made:
        brackets = "()" if made[-1][0].endswith("(") else "{}"
        parts = split(enclosed(before, made[-1].end() - 1, brackets)[0])
    grows = re.findall(rf"\b{name}\.([xyz])\s*\+\+", before)  # for a remainder: grid.x++
    pairs = zip("xyz", parts, strict=False)
    return [f"ceil({part})" if axis in grows else part for axis, part in pairs]


class _Calls(ast.NodeTransformer):
    """Replaces calls of functions that divide and round up by `/`, which also rounds up."""

    def visit_Call(self, node: ast.Call) -> ast.expr:  # a name that ast prescribes
        name, arguments = ast.unparse(node.func), node.args
        match arguments:
            case [ast.BinOp(left, ast.FloorDiv(), right)] if name in {"ceil", "ceilf"}:
                arguments = [left, right]
            case _ if not _ROUNDS_UP.fullmatch(name):
                raise ValueError(f"{name} is not a function that a description can call")
        numerator, divisor = map(self.visit, arguments)
        return ast.BinOp(numerator, ast.Div(), divisor)
