"""Computes whole numbers from expressions, such as the size of a kernel's grid from `N/64`.

An expression consists of whole numbers, names, parentheses, `+`, `-`, `*`, `/`, `//` and `%`. `/`
rounds up, so that `N/64` blocks of 64 columns cover all N columns. `//` rounds down, as `/` does in
C++ for positive numbers.
"""

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache

Expression = int | str

MAX_CHARACTERS = 200
"""Maximum number of characters in an expression. The limit keeps the parser's work and the results
small."""

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: -(-left // right),
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def evaluate(expression: Expression, names: Mapping[str, object]) -> int:
    """Return the value of an expression. `names` has the value of each name.

    Raise ValueError for an operator that is not allowed, a name without a whole number, and a
    division by zero.
    """
    if isinstance(expression, int) and not isinstance(expression, bool):
        return expression
    if not isinstance(expression, str):
        raise ValueError(f"{expression!r} is neither a number nor a text such as 'N/64'")  # noqa: TRY004 # one kind of error for a caller to report
    try:
        return value_of(parse(expression), names)
    except ZeroDivisionError:
        raise ValueError(f"'{expression}' divides by zero") from None
    except RecursionError:
        raise ValueError(f"'{expression}' is nested too deeply") from None


@lru_cache(maxsize=1000)
def parse(text: str) -> ast.expr:
    """Parse a Python expression, and suppress Python's warnings, such as the warning about `1if`.

    Raise ValueError for any other text, and for a text of more than `MAX_CHARACTERS`.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"an expression has at most {MAX_CHARACTERS} characters")
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"'{text}' is not an expression such as 'N/64'") from None


def value_of(node: ast.expr, names: Mapping[str, object]) -> int:
    """Return the value of a parsed expression.

    Raise ValueError as `evaluate` does, and ZeroDivisionError for a division by zero.
    """
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            numbers = {key: value for key, value in names.items() if isinstance(value, int)}
            if name not in numbers:
                raise ValueError(f"'{name}' is not a number here; use {', '.join(numbers)}")
            return numbers[name]
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _OPERATORS[type(sign)](value_of(left, names), value_of(right, names))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -value_of(operand, names)
    raise ValueError(
        f"'{ast.unparse(node)}': an expression has only names, numbers, + - * / // % ()"
    )
