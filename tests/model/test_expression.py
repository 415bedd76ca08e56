"""Expressions, such as 'N/edge', state the grid and the block of a kernel without Python code."""

import pytest

from gpubench.model.expression import MAX_CHARACTERS, evaluate

NAMES = {"M": 100, "N": 70, "K": 30, "BM": 64, "TM": 8, "cluster": "2x1"}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (256, 256),
        ("256", 256),
        ("N/64", 2),
        ("N//64", 1),
        ("M/BM*(N/64)", 4),
        ("M / BM * N", 140),
        ("-N/64", -1),
        ("M-N+K", 60),
        ("(M+BM-1)//BM", 2),
        ("0", 0),
        ("N%64", 6),
    ],
)
def test_division_rounds_up_and_double_division_down(expression: int | str, value: int) -> None:
    assert evaluate(expression, NAMES) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "N/",
        "N N",
        "n/64",
        "X",
        "cluster",
        "N/0",
        "N//(M-M)",
        "2**9",
        "1.5",
        "N<M",
        "print()",
        "M.real",
        "M[0]",
        "[M]",
        "'M'",
        "True",
        "~M",
        "lambda: M",
        "M if M else N",
        "(" * 150 + "M",
        "M+" * MAX_CHARACTERS + "M",
        "M\0",
        "9" * 150 + "🚀",
    ],
)
def test_nothing_but_whole_numbers_comes_from_an_expression(expression: str) -> None:
    with pytest.raises(ValueError, match=r"expression|not a number|divides by zero"):
        evaluate(expression, NAMES)
