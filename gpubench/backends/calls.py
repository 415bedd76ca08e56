"""A variant's function on arrays or tensors: what it is given, and what it allocates."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any


def as_tensors(package: str, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The arrays as a package's tensors in the same memory, or themselves without a package."""
    return tuple(_tensor(import_module(package), one) for one in arrays) if package else (*arrays,)


def _tensor(module: Any, array: Any) -> Any:
    if array.dtype.name == "bfloat16":  # NumPy knows it by ml_dtypes, and DLPack not from there
        return module.from_dlpack(array.view("int16")).view(module.bfloat16)
    return module.from_dlpack(array)


def allocating(count_bytes: int) -> str:
    """What a row says of a call that allocated so many bytes; empty for none."""
    return f"each call allocates memory ({count_bytes:,} bytes seen)" if count_bytes else ""


def torch() -> Any:
    """The package torch where something has imported it, or else None."""
    return sys.modules.get("torch")
