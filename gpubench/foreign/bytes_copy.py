"""Defines a problem that copies bytes. Its run compiles the CuPy kernels that all problems need.

The arrays of each problem are bytes (`operation.py`), so CuPy compiles the same kernels for all
problems. The files of this operation are written by gpubench, so no foreign code runs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpubench.backends.arrays import on_host
from gpubench.cache import OWN, keep, user_cache
from gpubench.errors import UsageError
from gpubench.foreign.operation import operation_on_bytes
from gpubench.foreign.statement import ALIGNMENT
from gpubench.model import (
    Cache,
    CallVariant,
    Compared,
    ListedSize,
    Operation,
    Point,
    Problem,
    Scope,
    Timer,
)
from gpubench.plan.descriptor import load

OP, NAME = "gpubench_copy_of_bytes", "copy"
COUNT = 2**10 * ALIGNMENT


def points(device: str) -> list[Point]:
    """Return the points whose kernels copy bytes on `cuda` or `cpu`.

    Raises UsageError if the user's cache cannot be written.
    """
    folder = user_cache(OWN) / OP
    module = __name__
    texts = {
        "operation.py": f"from {module} import operation\n\nOPERATION = operation()\n",
        f"{NAME}.py": f"from {module} import variant\n\nVARIANT = variant({device!r})\n",
    }
    if not all(keep(folder / name, text.encode()) for name, text in texts.items()):
        raise UsageError(f"{folder}: the user's cache cannot be written")
    return [
        Point(
            variant=load(folder / f"{NAME}.py", OP),
            tile=None,
            problem=Problem.of(OP, (1, 1, 1, 1), "float32"),
            cache=cache,
            scope=Scope.KERNEL,
            timer=Timer.EVENTS,
        )
        for cache in (Cache.COLD, Cache.HOT)  # many operand sets need other kernels than one set
    ]


def operation() -> Operation:
    """Return the operation that copies bytes."""
    listed = ListedSize("a copy of bytes", ((COUNT,), (COUNT,)), 1)
    return operation_on_bytes("the bytes themselves", _comparison, _make, [listed], "float32")


def _make(generator: np.random.Generator, shapes: Sequence[Any]) -> tuple[Any, ...]:
    return (generator.integers(0, 255, shapes[0], np.uint8),)


def _comparison(inputs: Any) -> tuple[Any, Callable[[Any], Compared]]:
    def compare(output: Any) -> Compared:
        is_right = np.array_equal(on_host(output), inputs)
        return Compared(
            "" if is_right else "the output is no copy of the input", float(not is_right), 0.0, 0.0
        )

    return inputs, compare


def variant(device: str) -> CallVariant:
    """Return the variant whose function copies bytes."""

    def build(_tile: object, _dtype: str) -> Callable[..., None]:
        def copy(inputs: Any, outputs: Any) -> None:
            outputs[...] = inputs

        return copy

    return CallVariant(idea="a copy", runs_on=device, build=build, dtypes=("float32",))
