"""Reads the form of gpu-mode's reference kernels: a `task.yml` with a `reference.py` beside it."""

import ast
import re
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Any

from gpubench.errors import UsageError
from gpubench.files import files_in
from gpubench.foreign import values
from gpubench.foreign.statement import MAX_WORKLOADS, Statement, Tolerance, Workload, read_text

_SECTION = re.compile(r"^(\w+):")
_WORDS = {"true": "True", "false": "False", "null": "None"}
_WORD = re.compile(r'("[^"\n]*")|\b(true|false|null)\b')

CHECKS = {"verbose_allclose": (1e-5, 1e-8), "verbose_allequal": (0.0, 0.0)}
"""Maps functions of a task's `utils.py` that compare results to their default tolerances, first the
relative and then the absolute tolerance."""

Arguments = dict[str, Any]


def find(path: Path) -> list[Path]:
    """Return a list with the `task.yml` at a path, or an empty list.

    The path is the file itself or the folder of the file.
    """
    file = path / "task.yml" if path.is_dir() else path
    return [file] if file.name == "task.yml" and file.is_file() else []


def solutions(path: Path) -> list[Path]:
    """Return the submissions that lie beside a task."""
    return files_in(path.parent, "submission*.py", "solutions/**/*.py")


def _read(path: Path) -> tuple[list[Arguments], dict[str, Path]]:
    """Return the arguments of all tests and benchmarks, and the task's files by name.

    In all published tasks, each item is one line, such as `- {"m": 64, "seed": 1}`.
    """
    section, listed, files = "", list[Arguments](), dict[str, Path]()
    for line in read_text(path).splitlines():
        if heading := _SECTION.match(line):
            section = heading[1]
        item = line.strip()
        if section not in {"tests", "benchmarks", "files"} or not item.startswith("- "):
            continue
        try:
            text = _WORD.sub(lambda word: word[1] or _WORDS[word[2]], item[2:].strip())
            value = ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
            raise ValueError(f"cannot read '{item[:80]}'") from error
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise ValueError(f"'{item[:80]}' does not name its values")
        if section == "files":
            files[str(value.get("name"))] = path.parent / str(value.get("source"))
        elif value not in listed:
            listed.append(value)
    return listed[:MAX_WORKLOADS], {"reference.py": path.parent / "reference.py", **files}


def read(path: Path) -> Statement:
    """Return the statement of a task. Raises ValueError for an invalid file, or OSError."""
    listed, files = _read(path)
    names = [" ".join(f"{k}={v}" for k, v in each.items() if k != "seed") for each in listed]
    names = [name or "its inputs" for name in names]
    title = path.resolve().parent.name
    sources = tuple(str(each) for each in files.values() if each.is_file())
    return Statement("gpu-mode", str(path), title, tuple(map(Workload, names)), sources)


class Program:
    """Runs the code of a gpu-mode task."""

    ENTRY = "function custom_kernel"
    other_types: Collection[str] | None = None  # gpu-mode's check subtracts tensors of all types

    def __init__(self, path: Path) -> None:
        self._listed, files = _read(path)
        self._seen: list[Tolerance] = []
        for name, file in files.items():
            if file.is_file() and name not in {"eval.py", "submission.py", "reference.py"}:
                module = values.module_of(file, Path(name).stem)
                for check in CHECKS.keys() & vars(module).keys():
                    setattr(module, check, self._watched(check, getattr(module, check)))
        self._module = values.module_of(files["reference.py"], "reference")
        sys.path.append(str(path.parent))

    def _watched(self, name: str, check: Any) -> Any:
        """Return a function that records the tolerances of `check`, and then calls `check`."""
        names = signature(check)

        def compare(*arguments: Any, **named: Any) -> Any:
            relative, absolute = CHECKS[name]
            with suppress(TypeError):
                bound = names.bind(*arguments, **named)
                bound.apply_defaults()
                relative = bound.arguments.get("rtol", relative)
                absolute = bound.arguments.get("atol", absolute)
            self._seen.append(Tolerance(float(absolute), float(relative)))
            return check(*arguments, **named)

        return compare

    def inputs(self, number: int, seed: int) -> Sequence[Any]:
        """Return the single argument `data`, with random values that depend on the seed."""
        values.seed(seed)
        generate, stated = self._module.generate_input, self._listed[number - 1]
        replaced = {"seed": seed} if "seed" in signature(generate).parameters else {}
        return [generate(**stated | replaced)]

    def reference(self, arguments: Sequence[Any]) -> Any:
        """Call the task's reference, and return its result."""
        return self._module.ref_kernel(*arguments)

    def tolerances(self, arguments: Any, result: Sequence[Any]) -> list[Tolerance]:
        """Return the tolerances that the task's own check uses.

        Raises UsageError if the check uses no tolerance.
        """
        self._seen.clear()
        output = result[0] if len(result) == 1 else tuple(result)
        self._module.check_implementation(*arguments, output)
        if not self._seen:
            raise UsageError("check_implementation compares by rules other than a tolerance")
        if len(self._seen) == len(result):
            return list(self._seen)
        return [min(self._seen, key=lambda each: (each.relative, each.absolute))] * len(result)

    def solution(self, module: Any) -> Any:
        """Return the function `custom_kernel` of a module, or None if the module lacks it."""
        return getattr(module, "custom_kernel", None)
