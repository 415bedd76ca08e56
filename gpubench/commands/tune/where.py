"""`--where`: an expression over a kernel's parameters, such as `stages >= 3 and BM*BN >= 16384`."""

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gpubench.errors import UsageError
from gpubench.model.expression import parse
from gpubench.text import shown, unknown

MAX_CHARACTERS = 500

MAX_DEPTH = 50
"""Maximum nesting. A deeper expression would end in a RecursionError while it is computed."""

MAX_NUMBER = 2**63
"""Maximum magnitude of an intermediate number. Larger numbers are mistakes, and take time."""

OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}

EXPECTS = "write a condition such as stages >= 3 and BM*BN >= 16384"

Value = Any
"""A number, a text or a truth value."""

Parameters = Mapping[str, Any]


class Condition:
    """A condition on configurations.

    It has comparisons, `and`, `or`, `not`, `in (1, 2)`, arithmetic, min, max and abs. Parameters
    that are text are compared with text: `cluster == "2x1"`. Nothing else of Python is accepted,
    and nothing is executed. Raises UsageError for any other text, and for an operation that the
    values do not have.
    """

    def __init__(self, text: str, axes: Collection[str], variant: str) -> None:
        self._text, self._axes, self._variant = text, axes, variant
        try:
            if len(text) > MAX_CHARACTERS:
                raise ValueError  # noqa: TRY301 # as for any other text
            self._body = parse(text.strip())
            level: list[ast.AST] = [self._body]
            for _ in range(MAX_DEPTH):
                level = [inner for node in level for inner in ast.iter_child_nodes(node)]
            if level:
                raise ValueError  # noqa: TRY301 # as for any other text
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UsageError(f"--where: '{shown(text)}' is not understood; {EXPECTS}") from error

    def __call__(self, tile: Parameters) -> bool:
        """Return whether a configuration fulfils the condition. Raises UsageError."""
        try:
            return bool(self._value(self._body, tile))
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise UsageError(f"--where: '{shown(self._text)}': {error}") from error

    def _value(self, node: ast.AST, tile: Parameters) -> Value:
        value: Value
        match node:
            case ast.Constant(value=int() | float() | str() as value):
                pass
            case ast.Name(id=name) if name in self._axes:
                value = tile[name]
            case ast.Name(id=name):
                hint = unknown("parameter", name, self._axes)
                raise UsageError(f"--where: {self._variant}: {hint}")
            case ast.BoolOp(op=op, values=values):
                every = [bool(self._value(item, tile)) for item in values]
                value = all(every) if isinstance(op, ast.And) else any(every)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                value = not self._value(operand, tile)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                value = OPERATORS[type(op)](self._number(operand, tile))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                value = OPERATORS[type(op)](self._number(left, tile), self._number(right, tile))
            case ast.Compare(left=left, ops=ops, comparators=rights):
                value = self._compare([left, *rights], ops, tile)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
                value = FUNCTIONS[name](*(self._number(item, tile) for item in args))
            case _:
                raise self._refuse(node)
        return value

    def _number(self, node: ast.AST, tile: Parameters) -> Value:
        value = self._value(node, tile)
        if not isinstance(value, int | float) or abs(value) > MAX_NUMBER:
            raise self._refuse(node)
        return value

    def _compare(self, sides: list[ast.expr], ops: list[ast.cmpop], tile: Parameters) -> bool:
        holds = True
        for left, op, right in zip(sides, ops, sides[1:], strict=False):
            value = self._value(left, tile)
            if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List):
                among = value in [self._value(item, tile) for item in right.elts]
                holds &= among == isinstance(op, ast.In)
            elif type(op) in OPERATORS:
                holds &= bool(OPERATORS[type(op)](value, self._value(right, tile)))
            else:
                raise self._refuse(right)
        return holds

    def _refuse(self, node: ast.AST) -> UsageError:
        part = shown(ast.unparse(node))
        return UsageError(f"--where: '{part}' is not understood; {EXPECTS}")
