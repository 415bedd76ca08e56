"""A user states an operation in a folder. An error in a statement is one line."""

from pathlib import Path

import pytest

from gpubench.errors import UsageError
from gpubench.model import OPERATIONS, Problem
from gpubench.model.operation import size_text
from gpubench.plan.operations import operation_named
from gpubench.plan.ranges import parse_sizes
from gpubench.plan.registry import of_op

pytestmark = pytest.mark.usefixtures("only_ours_afterwards")

EXAMPLES = Path(__file__).parents[2] / "examples" / "operations"

STATEMENT = """from gpubench.model import Array, Operation

OPERATION = Operation(
    idea="batched product",
    extents=("BATCH", "M", "N", "K"),
    inputs=(Array("A", "BATCH M K"), Array("B", "BATCH K N")),
    output=Array("C", "BATCH M N"),
    reference=lambda _, a, b: a @ b,
    flops="2*BATCH*M*N*K",
    linear_in=("A", "B"),
)
"""


def stated(folder: Path, text: str, name: str) -> Path:
    (folder / name).mkdir()
    (folder / name / "operation.py").write_text(text)
    return folder


def test_the_operation_of_a_folder_is_found_with_its_kernels() -> None:
    assert operation_named("softmax", EXAMPLES) == "softmax"
    assert operation_named(None, EXAMPLES / "softmax") == "softmax"
    kernels = of_op("softmax", EXAMPLES)
    assert {"softmax_rows", "softmax_pairs", "softmax_kept", "softmax_numpy"} <= set(kernels)
    assert "operation" not in kernels
    assert not OPERATIONS["softmax"].is_linear


def test_further_extents_precede_the_others_in_sizes_and_stand_in_a_column(tmp_path: Path) -> None:
    op = operation_named("products", stated(tmp_path, STATEMENT, "products"))
    (size,) = parse_sizes("8x64x32x16", op)
    problem = Problem.of(op, size, "float32")
    assert (problem.m, problem.n, problem.k, problem.further) == (64, 32, 16, (8,))
    assert problem.shapes == ((8, 64, 16), (8, 16, 32), (8, 64, 32))
    assert problem.flops == 2 * 8 * 64 * 32 * 16
    assert problem.operation.further_text(problem.further) == "batch=8"
    assert problem.size == "8x64x32x16" == size_text("an operation of another machine", size)
    assert not problem.operation.is_product  # its operands have three dimensions
    with pytest.raises(UsageError, match=r"a size of products is 1024, 320x640x320x640 \(BATCHxM"):
        parse_sizes("8x64x32", op)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"BATCH M K"', '"BATCH M L"', "A: 'L' is not a number here; use BATCH, M, N, K"),
        ("2*BATCH", "2.5*BATCH", "flops: "),
        ('linear_in=("A", "B")', 'linear_in=("C",)', "linear_in: unknown operand 'C'"),
        ('Array("B"', 'Array("A"', "two arrays, or two extents, have the same name"),
        (
            "OPERATION = Operation(",
            "OPERATION = dict(",
            "OPERATION['idea'] is of type str, not Operation",
        ),
        ('idea="batched product",', "", "missing 1 required keyword-only argument: 'idea'"),
    ],
)
def test_an_error_in_a_statement_is_one_line(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert old in STATEMENT
    folder = stated(tmp_path, STATEMENT.replace(old, new), "mistaken")
    with pytest.raises(UsageError) as raised:
        operation_named("mistaken", folder)
    message = str(raised.value)
    assert str(folder / "mistaken" / "operation.py") in message
    assert why in message
    assert "\n" not in message


def test_a_name_of_gpubench_and_an_unknown_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gpubench has an operation 'gemm' already"):
        operation_named("gemm", stated(tmp_path, STATEMENT, "gemm"))
    with pytest.raises(UsageError, match="unknown operation 'gemn'; did you mean 'gemm'"):
        operation_named("gemn", None)
