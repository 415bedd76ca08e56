"""One product of given operands: computed once, verified, not timed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpubench.backends import Backend
from gpubench.errors import DoesNotFitError, UsageError
from gpubench.measure.operands import make_reference, verifying_bytes
from gpubench.measure.verify import poison, relative_error, tolerance, why_wrong
from gpubench.model import Cache, CudaVariant, Point, Problem, Scope, Tile, Timer, Variant
from gpubench.plan.registry import choose, variants


class Computed(NamedTuple):
    """A result and how far it is off."""

    result: np.ndarray
    error: float
    """As `max_relative_error` of a sweep."""

    wrong: str | None
    """Why it is wrong, or None."""


def choose_point(backend: str, problem: Problem, name: str | None, tile: Tile | None) -> Point:
    """What to run: the variant named, or the backend's BLAS; the tile given, or one that fits.

    Raises UsageError if the variant cannot take the tile or the problem.
    """
    variant = choose(problem.op, backend, [name])[0] if name else _usual(backend, problem)
    if problem.dtype not in variant.dtypes:
        raise UsageError(f"{variant.name} has no {problem.dtype}, only {', '.join(variant.dtypes)}")
    tile = _fitting_tile(variant, tile, problem)
    return Point(
        variant=variant,
        tile=tile,
        problem=problem,
        cache=Cache.HOT,
        scope=Scope.KERNEL,
        timer=Timer.EVENTS if backend == "cuda" else Timer.HOST,
    )


def compute(backend: Backend, point: Point, inputs: tuple[np.ndarray, ...]) -> Computed:
    """Run a point on operands and hold the result against a reference in higher precision.

    Raises CompileError, LaunchError or DoesNotFitError.
    """
    problem = point.problem
    needed = backend.bytes_needed(problem, cold=False) + verifying_bytes(problem)
    free = backend.bytes_free()
    if needed > free:
        raise DoesNotFitError(f"needs {needed:,} bytes of memory, {free:,} are free")
    backend.compile([point], lambda _built: None)
    operands = backend.load(problem, inputs, cold=False)
    kernel = backend.bind(point, operands)
    poison(operands.output)
    backend.run(kernel)
    reference = make_reference(backend.xp, problem.op, *operands.inputs)
    error = relative_error(backend.xp, operands.output, reference)
    return Computed(
        result=_on_host(operands.output),
        error=error,
        wrong=why_wrong(error, tolerance(problem.dtype)),
    )


def _usual(backend: str, problem: Problem) -> Variant:
    """The backend's BLAS on all threads; the first kernel for dtypes that it lacks."""
    able = [
        one
        for one in variants()
        if (one.op, one.backend) == (problem.op, backend) and problem.dtype in one.dtypes
    ]
    return min(able, key=lambda one: (one.baseline != one.name, getattr(one, "threads", 0) != 0))


def _fitting_tile(variant: Variant, asked: Tile | None, problem: Problem) -> Tile | None:
    if variant.tiles is None:
        if asked:
            raise UsageError(f"--tile: {variant.name} has no tile to choose")
        return None

    def why_not(tile: Tile) -> str | None:
        reason = variant.tiles.refuse(tile) if variant.tiles else None
        if reason is None and isinstance(variant, CudaVariant):
            reason = variant.refuse(tile, problem)
        return reason

    tiles = (asked,) if asked else variant.tiles.default
    for tile in tiles:
        if why_not(tile) is None:
            return tile
    raise UsageError(f"--tile: {variant.name} {tiles[-1]} {why_not(tiles[-1])}")


def _on_host(array: Any) -> np.ndarray:
    """A NumPy array, from the device if it is there."""
    return np.asarray(array.get() if hasattr(array, "get") else array)
