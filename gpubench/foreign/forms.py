"""Lists the forms of problems, and finds out which form a file or folder has."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from gpubench.errors import UsageError
from gpubench.foreign import gpu_mode, kernelbench, sol_execbench
from gpubench.foreign.statement import Program, Statement
from gpubench.rewording import reworded
from gpubench.text import clean

FORMS: dict[str, ModuleType] = {
    "SOL-ExecBench": sol_execbench,
    "gpu-mode": gpu_mode,
    "KernelBench": kernelbench,
}

NAMES = ("SOL-ExecBench", "FlashInfer-Trace", "gpu-mode", "KernelBench")
"""Names of the forms in messages. `sol_execbench` also reads the form of FlashInfer-Trace."""

PLACES = {
    "SOL-ExecBench": "solution*.json (of FlashInfer-Trace: solutions/**/*.json)",
    "gpu-mode": "submission*.py or solutions/**/*.py",
    "KernelBench": "solutions/{stem}*.py",
}
"""Maps each form to a pattern for the paths of solutions, relative to the problem's folder."""

MAX_MESSAGE = 300  # maximum number of characters of a message about a problem
MAX_DEPTH = 4  # number of levels of folders in which problems are looked for


def find(path: Path) -> list[tuple[str, Path]]:
    """Return the form and the file of each problem in a file, or in a folder with subfolders.

    Raises UsageError for a file that cannot be read.
    """
    try:
        return list(_found(path.absolute(), MAX_DEPTH))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {_first_line(error)}") from error


def _found(path: Path, depth: int) -> Iterator[tuple[str, Path]]:
    here = [(name, file) for name, form in FORMS.items() for file in form.find(path)]
    yield from here
    if not here and depth and path.is_dir():
        for each in sorted(path.iterdir()):
            if each.is_dir() and each.name[0] != ".":
                yield from _found(each, depth - 1)


def read(form: str, path: Path) -> Statement:
    """Return the statement of a problem. Raises UsageError, which names the file and the fault."""
    try:
        statement: Statement = FORMS[form].read(path)
    except (OSError, ValueError, LookupError, RecursionError, msgspec.MsgspecError) as error:
        at = f"{path}: {form}"
        if isinstance(error, msgspec.ValidationError):
            raise UsageError(f"{at}{clean(reworded(error))[:MAX_MESSAGE]}") from error
        raise UsageError(f"{at}: {_first_line(error)}") from error
    if not statement.workloads:
        raise UsageError(f"{path}: {form}: the problem has no workload")
    return statement


def solutions(form: str, path: Path) -> list[Path]:
    """Return the solutions that lie beside a problem."""
    paths: list[Path] = FORMS[form].solutions(path)
    return paths


def place_of_solutions(form: str, path: Path) -> str:
    """Return the pattern for the paths at which a problem's solutions are found."""
    return PLACES[form].format(stem=path.stem)


def is_model(path: Path) -> bool:
    """Whether a path is a Python file that states a problem, not a file with kernels."""
    try:
        return path.suffix == ".py" and bool(kernelbench.find(path))
    except (OSError, ValueError):
        return False


def program(form: str, path: Path) -> Program:
    """Run the code of a problem, and return its functions. The code may raise any exception."""
    made: Any = FORMS[form].Program(path)
    return made  # type: ignore[no-any-return]


def _first_line(error: Exception) -> str:
    return clean(str(getattr(error, "strerror", None) or error)).partition("\n")[0][:MAX_MESSAGE]
