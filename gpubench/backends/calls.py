"""Calls of a variant's function: its arrays as a package's tensors, and its allocations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any


def as_tensors(package: str, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Return arrays as a package's tensors in the same memory, or unchanged without a package."""
    return (
        tuple(_tensor(import_module(package), array) for array in arrays) if package else (*arrays,)
    )


def _tensor(module: Any, array: Any) -> Any:
    if array.dtype.name == "bfloat16":  # a type of ml_dtypes, which DLPack does not transfer
        return module.from_dlpack(array.view("int16")).view(module.bfloat16)
    return module.from_dlpack(array)


def use_stream(stream: int) -> None:
    """Let torch, if it was imported, compute in a stream of CUDA."""
    if torch() and torch().cuda.is_available():
        torch().cuda.set_stream(torch().cuda.ExternalStream(stream))


def allocating(count_bytes: int) -> str:
    """Return a row's note on a call that allocated this many bytes; empty for 0."""
    return f"each call allocates memory ({count_bytes:,} bytes seen)" if count_bytes else ""


def torch() -> Any:
    """Return the package torch if it was imported, or else None."""
    return sys.modules.get("torch")
