"""Reads the form of KernelBench: a file with `Model`, `get_inputs` and `get_init_inputs`."""

import ast
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from gpubench.files import files_in
from gpubench.foreign import values
from gpubench.foreign.statement import Statement, Tolerance, Workload, read_text

NAMES = {"Model", "get_inputs", "get_init_inputs"}

WEIGHTS_SEED = 42  # seed of the weights, so that `Model` and `ModelNew` have equal weights

TOLERANCES = {"float32": 1e-4, "float64": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}


def find(path: Path) -> list[Path]:
    """Return the problems at a path, which is a file or a folder of files."""
    files = files_in(path, "*.py") if path.is_dir() else [path]
    return [each for each in files if each.suffix == ".py" and _defined(each) >= NAMES]


def _defined(path: Path) -> set[str]:
    try:
        body = ast.parse(read_text(path)).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return set()
    return {each.name for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef)}


def solutions(path: Path) -> list[Path]:
    """Return the files of the folder `solutions` whose names begin with the problem's name."""
    named = re.compile(rf"{re.escape(path.stem)}(?![A-Za-z0-9])")
    return [each for each in files_in(path.parent, "solutions/*.py") if named.match(each.stem)]


def read(path: Path) -> Statement:
    """Return a file's statement. Raises ValueError for an invalid file, or OSError."""
    if lacking := NAMES - _defined(path):
        raise ValueError(f"{min(lacking)} is missing")
    return Statement("KernelBench", str(path), path.stem, (Workload("its inputs"),))


class Program:
    """Runs the code of a KernelBench problem."""

    ENTRY = "class ModelNew"
    other_types: Collection[str] | None = ()  # KernelBench compares only tensors of one type

    def __init__(self, path: Path) -> None:
        self._module = values.module_of(path, "kernelbench_problem")
        self._models: dict[bool, Any] = {}
        self._draws_on_device = values.drawing_device().type != "cpu"

    def inputs(self, number: int, seed: int) -> Sequence[Any]:
        """Return the inputs, with random values that depend on the seed.

        The GPU draws the values, unless the problem's code fails with tensors on the GPU.
        """
        del number
        import torch

        if self._draws_on_device:
            try:
                with values.drawing_device():
                    values.seed(seed)
                    return list(self._module.get_inputs())
            except torch.OutOfMemoryError:
                raise  # the CPU would draw other values than the GPU draws in other processes
            except Exception:  # a conversion of a GPU tensor to NumPy fails, for example
                self._draws_on_device = False
        values.seed(seed)
        return list(self._module.get_inputs())

    def reference(self, arguments: Sequence[Any]) -> Any:
        """Return the model's result. The model's weights are float64 if an argument is float64."""
        is_wide = any(str(getattr(each, "dtype", "")) == "torch.float64" for each in arguments)
        if is_wide not in self._models:
            made = self._made(self._module.Model)
            self._models[is_wide] = made.double() if is_wide else made
        return self._models[is_wide](*arguments)

    def _made(self, kind: Any) -> Any:
        """Return a model with the random weights that `WEIGHTS_SEED` gives."""
        values.seed(WEIGHTS_SEED)
        return kind(*self._module.get_init_inputs()).to(values.device())

    def tolerances(self, _arguments: object, result: Any) -> list[Tolerance]:
        """Return a tolerance for each result, which depends on the result's element type."""
        names = [str(each.dtype).removeprefix("torch.") for each in result]
        return [Tolerance(limit, limit) for limit in (TOLERANCES.get(name, 0.0) for name in names)]

    def solution(self, module: Any) -> Any:
        """Return the model `ModelNew` of a module, or None if the module lacks it."""
        kind = getattr(module, "ModelNew", None)
        return kind and self._made(kind)
