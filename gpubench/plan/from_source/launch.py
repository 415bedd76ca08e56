"""Reads a kernel's template arguments, grid and block from the launch in its source.

Expressions of C++ become trees of Python's syntax, whose `/` is a division that rounds up and whose
`//` rounds down, as in a description.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpubench.model.expression import evaluate, parse
from gpubench.model.signature import Parameter, split
from gpubench.plan.from_source.meaning import EDGE
from gpubench.plan.from_source.source import Function, SourceLaunch, code, enclosed

ROUNDS = 8  # maximum depth of constants that are defined by constants
MAX_NODES = 200  # maximum size of an expression in which the names have been replaced
ITEM_BYTES = {"float": 4, "int": 4, "double": 8, "half": 2, "__half": 2, "__nv_bfloat16": 2}

_VALUE = re.compile(
    r"\b(?:const(?:expr)?|auto|int|unsigned|size_t|u?int\d\d_t)\b[^;=(){}<>]{0,120}?\b(\w+)\s*"
    r"(?:=\s*([^;,{}]{1,120})[;,]|\{([^{};]{1,120})\})"
)
_ASSIGNED = re.compile(r"\b(\w+)\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)")
_CAST = re.compile(
    r"static_cast\s*<[^<>]*>"
    r"|\(\s*(?:unsigned|unsigned int|int|float|double|size_t|uint|long|u?int(?:32|64)_t)\s*\)"
)
_SIZE = re.compile(r"\bsizeof\s*\(\s*(\w+)\s*\)")
_SUFFIX = re.compile(r"\b(\d+)(?:\.0?)?[uUlLfF]*(?![\w.])")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[xyz]\b)?")
_ROUNDS_UP = re.compile(r"\w*(ceil_?div|div_?ceil|cdiv|div_?up|round_?up_?div)\w*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """The parts of a launch. A part is empty if it could not be read."""

    caller: str = ""
    config: str = ""  # its text between <<< and >>>
    template: Mapping[str, str] = field(default_factory=dict)  # values of the template's parameters
    arguments: Mapping[str, str] = field(default_factory=dict)  # values of the kernel's parameters
    grid: tuple[str, ...] = ()
    block: tuple[str, ...] = ()  # expressions, as a description has them
    shared: str = ""  # bytes of dynamic shared memory; `?`: they could not be read
    guess: str = ""  # the value that a name of the block was given: `T = 16`


def read_launch(
    kernel: Function,
    callers: Iterable[Function],
    arguments: Sequence[Parameter],
    axes: Mapping[str, str],
    text: str,
) -> Dimensions:
    """Return the parts of a kernel's first launch, or of the first launch that can be read.

    `arguments` are the kernel's parameters with what they get, and `axes` the names of the
    template's parameters in a tile. `text` is the source.
    """
    name = kernel.name.rpartition("::")[2]
    constants = _values(code(text))
    dimensions = [
        _read(caller, launch, kernel, arguments, axes, constants)
        for caller in callers
        for launch in caller.launches
        if launch.kernel == name and len(launch.arguments) == len(arguments)
    ]
    readable = (each for each in dimensions if each.grid and each.block)
    return next(readable, dimensions[0] if dimensions else Dimensions())


def _read(
    caller: Function,
    launch: SourceLaunch,
    kernel: Function,
    arguments: Sequence[Parameter],
    axes: Mapping[str, str],
    constants: Mapping[str, str],
) -> Dimensions:
    """Return the parts of a launch."""
    names = dict(constants)
    names |= {each.name: each.value for each in caller.template if each.value != each.name}
    names |= _values(launch.before)
    scope = Scope(names=names, types=dict.fromkeys(caller.types, "float"))
    template: dict[str, str] = {}
    symbols = {axis: axis for axis in axes.values()}
    for parameter, argument_text in zip(kernel.template, split(launch.template), strict=False):
        if argument_text in {"true", "false"}:
            template[parameter.name] = argument_text
        elif parameter.name in axes and (value := scope.number(argument_text)) is not None:
            template[parameter.name] = str(value)
            symbols[argument_text] = axes[parameter.name]
    for parameter in kernel.template[len(split(launch.template)) :]:
        if parameter.name in axes and (default := scope.number(parameter.value)) is not None:
            template[parameter.name] = str(default)
    pairs = list(zip(launch.arguments, arguments, strict=False))
    for argument_text, argument in pairs:
        if argument.value.upper() in {"M", "N", "K"}:
            symbols[_CAST.sub("", argument_text).strip()] = argument.value.upper()
    scope = replace(scope, symbols=symbols)
    passed = {each.name: scope.expression(argument_text) or "" for argument_text, each in pairs}
    grid, of_block, of_shared, *_ = *split(launch.config), "", ""
    scope, guess = scope.with_guessed_edge(_parts(of_block, launch.before))
    block = scope.expressions(_parts(of_block, launch.before))
    of_block = of_block.strip()
    members = {f"{of_block}.{axis}": part for axis, part in zip("xyz", block, strict=False)}
    of_grid = _parts(grid, launch.before)
    scope = replace(scope, block=members).with_missing_extent(of_grid)
    blocks = scope.expressions(of_grid)
    if {*blocks} != {"1"} and all(part.isdecimal() for part in blocks):
        blocks = ()  # for one size only
    return Dimensions(
        caller=caller.name,
        config=launch.config,
        template=template,
        arguments=passed,
        grid=blocks,
        block=block,
        shared="" if of_shared in {"", "0"} else scope.expression(of_shared) or "?",
        guess=guess,
    )


def edge_of_block(kernel: Function, axis: str, text: str) -> int | None:
    """Return the number by which a kernel multiplies `blockIdx.x` or `.y`, or None.

    `text` is the source, which may define the number as a constant.
    """
    index = rf"blockIdx\s*\.\s*{axis}\b"
    factors = re.findall(rf"{index}\s*\*\s*\(?\s*(\w+)|\b(\w+)\s*\)?\s*\*\s*{index}", kernel.body)
    scope = Scope(names=_values(code(text)) | _values(kernel.body))
    numbers = {scope.number(name) for pair in factors for name in pair if name}
    return numbers.pop() if len(numbers) == 1 else None


def _values(text: str) -> dict[str, str]:
    """Return the numbers that a text defines with a single value, and assigns nowhere else."""
    pairs = [(name, value or braced) for name, value, braced in _VALUE.findall(text)]
    definitions, assigned = Counter(name for name, _ in pairs), Counter(_ASSIGNED.findall(text))
    values = Counter(name for name, _ in {*pairs})
    return {
        name: value
        for name, value in pairs
        if values[name] == 1 and assigned[name] <= definitions[name]
    }


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The meanings of the names in an expression."""

    names: Mapping[str, str] = field(default_factory=dict)  # expressions of C++
    types: Mapping[str, str] = field(default_factory=dict)  # a template's types
    symbols: Mapping[str, str] = field(default_factory=dict)  # names of a description, by C++ names
    block: Mapping[str, str] = field(default_factory=dict)  # its parts, such as `block.x`

    def number(self, text: str) -> int | None:
        """Return the value of an expression that is a number, or None."""
        value = self.expression(text)
        return int(value) if value and value.isdecimal() else None

    def expression(self, text: str) -> str | None:
        """Return an expression of C++ as a description has it, or None."""
        try:
            tree = _Reader(self).visit(_tree(text, self.types))
            size = sum(1 for _ in ast.walk(tree))
            read = ast.unparse(tree).replace(" ", "") if size <= MAX_NODES else ""
            value = evaluate(read, dict.fromkeys((*self.symbols.values(), *"MNK"), 4096))
        except (ValueError, RecursionError):
            return None
        names = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
        return read if names else str(value)

    def expressions(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Return the parts of a grid or a block; () if one is unknown."""
        parts = [self.expression(text) for text in texts]
        while len(parts) > 1 and parts[-1] == "1":
            parts.pop()
        return tuple(part for part in parts if part) if all(parts) else ()

    def with_guessed_edge(self, texts: Sequence[str]) -> tuple[Scope, str]:
        """Return the scope in which the block's only name without a value has a guessed value.

        Also return the guess as text. Such a name is a variable that the program gets when it runs.
        """
        words = _words(texts)
        unknown = [word for word in words if self.expression(word) is None]
        if len(unknown) != 1 or "." in unknown[0]:
            return self, ""
        name, value = unknown[0], str(EDGE if len(texts) > 1 else EDGE**2)
        return replace(self, names={**self.names, name: value}), f"{name} = {value}"

    def with_missing_extent(self, texts: Sequence[str]) -> Scope:
        """Return the scope where the only unknown name means the extent that the kernel lacks."""
        words = _words(texts) - {*self.names, *self.symbols, *self.block}
        unknown = [word for word in words if not _ROUNDS_UP.fullmatch(word)]
        extents = {"M", "N", "K"} - {*self.symbols.values()}
        if len(unknown) == len(extents) == 1:
            return replace(self, symbols={**self.symbols, unknown[0]: extents.pop()})
        return self


def _words(texts: Iterable[str]) -> set[str]:
    """Return the names in expressions."""
    plain = (_SUFFIX.sub(r"\1", _CAST.sub("", text)) for text in texts)
    return {word for text in plain for word in _NAME.findall(text)}


def _parts(text: str, before: str) -> list[str]:
    """Return the parts of a `dim3`, or the number, that a launch names.

    `before` is the code before the launch, which may make the `dim3`.
    """
    made, members, grows = re.match(r"\s*dim3\s*[({]", text), {}, []
    if variable := re.fullmatch(r"\s*(\w+)\s*", text):
        name = variable[1]
        grows = re.findall(rf"\b{name}\.([xyz])\s*\+\+", before)  # if there is a remainder
        members = dict(re.findall(rf"\b{name}\.([xyz])\s*=([^;=]+);", before))
        pattern = rf"\bdim3\b[^;]{{0,200}}?\b{name}\s*(?:=\s*dim3\s*|=\s*)?[({{]"
        made = next(iter(reversed([*re.finditer(pattern, before)])), None)
    if members:
        text = ", ".join(members.get(axis, "1") for axis in "xyz")
    elif made:
        opening = made.end() - 1
        text, _ = enclosed(made.string, opening, "()" if made[0].endswith("(") else "{}")
    parts = zip("xyz", split(text), strict=False)
    return [f"ceil({part})" if axis in grows else part for axis, part in parts]


def _tree(text: str, types: Mapping[str, str]) -> ast.expr:
    """Return the tree of an expression of C++. Raise ValueError if Python cannot read it."""

    def item_bytes(size: re.Match[str]) -> str:
        return str(ITEM_BYTES.get(types.get(size[1], size[1]), size[0]))

    text = _SUFFIX.sub(r"\1", _CAST.sub("", _SIZE.sub(item_bytes, " ".join(text.split()))))
    return parse(re.sub(r"\b[A-Za-z_]\w*::", "", text))


class _Reader(ast.NodeTransformer):
    """Replaces names by their values, and divisions of C++ by divisions of a description."""

    def __init__(self, scope: Scope, depth: int = 0) -> None:
        self.scope, self.depth = scope, depth

    def visit_Name(self, node: ast.Name) -> ast.expr:  # a name of ast
        if symbol := self.scope.symbols.get(node.id):
            return ast.Name(symbol)
        if node.id.upper() in {"M", "N", "K"} - {*self.scope.symbols.values()}:
            return ast.Name(node.id.upper())
        if node.id not in self.scope.names or self.depth == ROUNDS:
            return node
        value = _tree(self.scope.names[node.id], self.scope.types)
        tree: ast.expr = _Reader(self.scope, self.depth + 1).visit(value)
        return tree

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        name = ast.unparse(node)
        return parse(self.scope.block.get(name) or self.scope.symbols.get(name) or name)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = getattr(node.func, "id", "")
        arguments: list[ast.expr] = [self.visit(each) for each in node.args]
        if _ROUNDS_UP.fullmatch(name) and len(arguments) == 2:  # noqa: PLR2004 # (n, d)
            return ast.BinOp(arguments[0], ast.Div(), arguments[1])
        if name in {"ceil", "ceilf"} and isinstance(part := arguments[0], ast.BinOp):
            return ast.BinOp(part.left, ast.Div(), part.right)
        raise ValueError(f"{name} is not a function that a description can call")

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        if not isinstance(node.op, ast.Div):
            return _folded(ast.BinOp(left, node.op, right))
        rest = _terms(left)
        rest.subtract(_terms(right))
        rest["1"] += 1
        others = [key for key, count in rest.items() if count and key != "1"]
        if rest["1"] == 0 and others and all(rest[each] == 1 for each in others):
            text = "+".join(others)  # (a + b - 1) // b
            return ast.BinOp(parse(text), ast.Div(), right)
        return _folded(ast.BinOp(left, ast.FloorDiv(), right))


def _folded(node: ast.expr) -> ast.expr:
    """Return an expression, as a number if it has no names."""
    try:
        return ast.Constant(evaluate(ast.unparse(node), {}))
    except ValueError:
        return node


def _terms(node: ast.expr, sign: int = 1) -> Counter[str]:
    """Return how often a sum has each of its terms, as texts. The key `1` counts its numbers."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        other = sign if isinstance(node.op, ast.Add) else -sign
        terms = _terms(node.left, sign)
        terms.update(_terms(node.right, other))
        return terms
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Counter({"1": sign * node.value})
    return Counter({ast.unparse(node): sign})
