"""Runs a user's Python file: the description of a kernel, or the statement of an operation."""

import importlib.util
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from gpubench.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}", re.ASCII)
NAME_RULE = "a name has at most 60 lower-case letters, digits and _, and begins with a letter"
"""The rule for names. A name becomes a C++ template, an item of `--variants` and a CSV field."""


def is_name(name: str) -> bool:
    """Whether a variant may have this name."""
    return bool(_NAME.fullmatch(name))


def loaded(path: Path, name: str, defines: str) -> Any:
    """Run a Python file that defines a name, and return its module. Raises UsageError."""
    loader = _Loader(name, str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    if spec is None:
        raise UsageError(f"{path}: not a Python file")
    with described_by(path), recursion_kept():
        # Checked before anything runs: the folder of `--kernels` may hold other scripts.
        if defines not in loader.get_code(loader.name).co_names:
            raise UsageError(f"{path}: defines no {defines}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[loader.name] = module  # where a dataclass in the file looks for its annotations
        loader.exec_module(module)
    return module


@contextmanager
def described_by(path: Path) -> Iterator[None]:
    """Turn an exception from a description's code into a UsageError with file and line."""
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
    """Restore the limit of recursion after the block."""
    depth = sys.getrecursionlimit()
    try:
        yield
    finally:
        sys.setrecursionlimit(depth)


class _Loader(SourceFileLoader):
    """Compiles the file without Python's cache of bytecode.

    That cache misses a second edit within one second, and it would write into the user's folder.
    """

    _code: CodeType | None = None

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the file, which is compiled once."""
        if self._code is None:
            path = self.get_filename(fullname)
            self._code = self.source_to_code(self.get_data(path), path)
        return self._code
