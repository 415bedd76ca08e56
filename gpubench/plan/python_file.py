"""Runs a user's Python file, which describes a kernel or states an operation."""

import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from gpubench.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}", re.ASCII)
NAME_RULE = "a name has at most 60 lower-case letters, digits and _, and begins with a letter"
"""The rule for names. A name becomes a C++ template, an item of `--variants` and a CSV field."""


def is_name(name: str) -> bool:
    """Whether a variant or an operation may have this name."""
    return bool(_NAME.fullmatch(name))


def loaded(path: Path, name: str, defines: str) -> Any:
    """Run a Python file, and return its module.

    Raises UsageError if the file does not define the name `defines`, or raises an exception.
    """
    module = ModuleType(name)
    module.__file__ = str(path)
    with described_by(path), recursion_kept():
        # Python's cache of bytecode is not used, because it misses a second edit within one second.
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        # This is checked before anything runs, because the folder of `--kernels` may contain other
        # scripts.
        if defines not in code.co_names:
            raise UsageError(f"{path}: defines no {defines}")
        sys.modules[name] = module  # a dataclass in the file looks up its annotations there
        exec(code, vars(module))  # noqa: S102 # descriptions are run, as the help of --kernels says
    return module


@contextmanager
def described_by(path: Path) -> Iterator[None]:
    """Turn an exception from a description's code into a UsageError with the file and the line."""
    try:
        yield
    except (KeyboardInterrupt, UsageError):
        raise
    except BaseException as error:  # a description that ends the process is broken too
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else next(reversed(lines), None)
        where = f"{path}:{line}" if line else str(path)
        what = error.msg if isinstance(error, SyntaxError) else str(error).partition("\n")[0]
        raise UsageError(f"{where}: {type(error).__name__}: {what}") from error


@contextmanager
def recursion_kept() -> Iterator[None]:
    """Restore Python's recursion limit after the block."""
    depth = sys.getrecursionlimit()
    try:
        yield
    finally:
        sys.setrecursionlimit(depth)
