"""Reads `--where`, which is a condition on a kernel's parameters, such as `stages >= 3`."""

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import Any

from gpubench.errors import UsageError
from gpubench.model.expression import parse, value_of
from gpubench.text import shown, unknown

EXPECTS = "write a condition such as stages == 3 and BM*BN >= 16384"

COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, items: value in items,
    ast.NotIn: lambda value, items: value not in items,
}

Names = Mapping[str, Any]  # the parameters of a configuration: numbers, and texts such as `2x1`


def condition(text: str, axes: Collection[str], variant: str) -> Callable[[Names], bool]:
    """Return a function that tests whether a configuration fulfils a condition.

    A condition compares expressions (`model.expression`), and may contain `and`, `or`, `not` and
    `in (1, 2)`. Parameters that are text are compared with text, as in `cluster == "2x1"`. No other
    Python code is accepted, and nothing is executed. Raises UsageError for any other text. The
    returned function raises UsageError if values cannot be compared.
    """
    try:
        body = parse(text)
    except ValueError as error:
        raise UsageError(f"--where: '{shown(text)}' is not understood; {EXPECTS}") from error
    for node in ast.walk(body):
        if isinstance(node, ast.Name) and node.id not in axes:
            raise UsageError(f"--where: {variant}: {unknown('parameter', node.id, axes)}")

    def holds(tile: Names) -> bool:
        try:
            return _holds(body, tile)
        except (ValueError, TypeError, ZeroDivisionError, RecursionError) as error:
            raise UsageError(f"--where: '{shown(text)}': {error}; {EXPECTS}") from error

    return holds


def _holds(node: ast.expr, names: Names) -> bool:
    match node:
        case ast.BoolOp(op=op, values=parts):
            every = [_holds(part, names) for part in parts]
            return all(every) if isinstance(op, ast.And) else any(every)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return not _holds(part, names)
        case ast.Compare(ops=ops) if set(map(type, ops)) <= COMPARISONS.keys():
            sides = [_compared(side, names) for side in (node.left, *node.comparators)]
            compared = zip(ops, pairwise(sides), strict=True)
            return all(COMPARISONS[type(op)](*pair) for op, pair in compared)
    raise ValueError(f"'{ast.unparse(node)}' is no comparison")


def _compared(node: ast.expr, names: Names) -> Any:
    """Return the value of one side of a comparison: a list, a text or a number."""
    match node:
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [_compared(item, names) for item in items]
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name) if isinstance(names[name], str):
            return names[name]
    return value_of(node, names)
