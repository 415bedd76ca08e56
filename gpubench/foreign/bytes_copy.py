"""A copy of bytes as a problem: its launches need the kernels of CuPy that each problem needs.

The arrays of a problem are bytes (`operation.py`), so CuPy compiles the same kernels for all
problems. The folder of this operation is gpubench's, and no foreign code runs there.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpubench.cache import OWN, keep, user_cache
from gpubench.errors import UsageError
from gpubench.foreign.statement import ALIGNMENT
from gpubench.model import (
    Array,
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
from gpubench.plan.operations import BYTES

OP, NAME = "gpubench_copy_of_bytes", "copy"
COUNT = 2**10 * ALIGNMENT


def points(device: str) -> list[Point]:
    """Return copies of bytes on `cuda` or `cpu`.

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
        for cache in (Cache.COLD, Cache.HOT)  # many sets of operands, or one: other kernels
    ]


def operation() -> Operation:
    """Return the operation."""
    return Operation(
        idea="the bytes themselves",
        extents=("NUMBER",),
        inputs=(Array("INPUTS", "NUMBER", BYTES),),
        output=Array("RESULTS", "NUMBER", BYTES),
        reference=_comparison,
        comparison=_comparison,
        flops="NUMBER",
        tolerance=1.0,
        make=_make,
        listed=(ListedSize("a copy of bytes", ((COUNT,), (COUNT,)), 1),),
        dtype="float32",
    )


def _make(generator: np.random.Generator, shapes: Sequence[Any]) -> tuple[Any, ...]:
    return (generator.integers(0, 255, shapes[0], np.uint8),)


def _comparison(inputs: Any) -> tuple[Any, Callable[[Any], Compared]]:
    def compare(output: Any) -> Compared:
        content = output.get() if hasattr(output, "get") else output  # CuPy has get
        is_right = np.array_equal(content, inputs)
        return Compared("" if is_right else "it is no copy", float(not is_right), 0.0, 0.0)

    return inputs, compare


def variant(device: str) -> CallVariant:
    """Return the function that copies."""

    def build(_tile: object, _dtype: str) -> Callable[..., None]:
        def copy(inputs: Any, outputs: Any) -> None:
            outputs[...] = inputs

        return copy

    return CallVariant(idea="a copy", runs_on=device, build=build, dtypes=("float32",))
