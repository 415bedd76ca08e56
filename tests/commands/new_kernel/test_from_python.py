"""`new-kernel --from FILE.py`: functions on arrays, and functions that launch GPU kernels."""

from pathlib import Path

import pytest

from gpubench.commands.new_kernel.run import describe_source
from gpubench.errors import UsageError
from gpubench.model import CallVariant
from gpubench.plan.registry import of_op

NUMPY = """
import numpy as np

def filled(a):
    return a

def product(a, b):
    return a @ b

def into(a, b, c):
    c[:] = a @ b

def half(a, b):
    return a @ b / 2
"""
TRITON = """
import torch
import triton

@triton.autotune(configs=[], key=[])
@triton.jit
def kernel(a, b, c):
    pass

def matmul(a, b, activation=""):
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device)
    kernel[(1,)](a, b, c)
    return c
"""
NUMBA = """
from numba import cuda

@cuda.jit
def kernel(a, b, c):
    pass
"""


def described(folder: Path, text: str, entry: str = "") -> CallVariant:
    (folder / "theirs.py").write_text(text)
    describe_source("mine", "gemm", folder / "theirs.py", folder / "own", kernel=entry, force=True)
    variant = of_op("gemm", folder / "own")["mine"]
    assert isinstance(variant, CallVariant)
    assert variant.source.resolve() == folder / "theirs.py"
    return variant


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "returns", "said"),
    [
        ("", True, "complete: its results at 32 and 13x7x5 are right on the CPU."),
        ("into", False, "complete: its results at 32 and 13x7x5 are right on the CPU."),
        ("half", True, "Not proved: exact probe at 32: 1,024 of 1,024 results are wrong"),
        ("filled", False, "Not proved: failed while running: TypeError"),
    ],
)
def test_a_function_on_arrays_is_complete_if_its_results_are_right(
    entry: str, returns: bool, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    variant = described(tmp_path, NUMPY, entry)
    assert (variant.runs_on, variant.returns, variant.tensors) == ("cpu", returns, "")
    assert said in capsys.readouterr().out


def test_a_value_that_an_inner_function_returns_is_no_result(tmp_path: Path) -> None:
    printer = "def show(a, b):\n    def inner():\n        return 1\n    print(inner())\n\n"
    variant = described(tmp_path, printer + NUMPY)
    assert 'runpy.run_path(str(FILE))["product"]' in variant.path.read_text()


def test_the_function_that_launches_a_triton_kernel_is_not_proved_without_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    variant = described(tmp_path, TRITON)
    assert (variant.runs_on, variant.returns, variant.tensors) == ("cuda", True, "torch")
    assert variant.libraries == ("torch", "triton")
    assert "Not proved: the function needs a GPU; sweep it on a GPU." in capsys.readouterr().out


def test_a_function_that_launches_a_numba_kernel_takes_arrays(tmp_path: Path) -> None:
    launcher = "\ndef run(a, b, c):\n    kernel[(1,), (1,)](a, b, c)\n"
    variant = described(tmp_path, NUMBA + launcher)
    assert (variant.runs_on, variant.returns, variant.tensors) == ("cuda", False, "")
    assert variant.libraries == ("numba",)


@pytest.mark.parametrize(
    ("text", "entry", "message"),
    [
        (
            NUMBA,
            "",
            r"theirs.py has no function that takes \(A, B, C\), or .*, and launches kernel",
        ),
        (NUMBA, "kernel", "theirs.py has no function that takes"),
        ("x = 1", "", "theirs.py has no function that takes"),
        (f"{NUMPY}\nVARIANT = 1", "", "theirs.py is a description already: use theirs --kernels /"),
        (NUMPY, "products", "--kernel: unknown function 'products'"),
        ("def f(:", "", r"theirs.py, line 1 cannot be read: invalid syntax"),
        ("\0", "", "theirs.py cannot be read: "),
        (f"x = {'-' * 20_000}1", "", "theirs.py cannot be read: it is nested too deeply"),
    ],
)
def test_a_file_without_such_a_function_is_refused(
    text: str, entry: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        described(tmp_path, text, entry)
    assert not (tmp_path / "own").exists()


def test_a_file_does_not_replace_itself(tmp_path: Path) -> None:
    (tmp_path / "gemm").mkdir()
    source = tmp_path / "gemm" / "mine.py"
    source.write_text(NUMPY)
    with pytest.raises(UsageError, match="is the file to describe"):
        describe_source("mine", "gemm", source, tmp_path, force=True)
    assert source.read_text() == NUMPY
