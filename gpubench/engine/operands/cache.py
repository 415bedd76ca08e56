"""Keeps operands on the device, and their references, between points and between rounds."""

from collections import OrderedDict

import numpy as np

from gpubench.backends import Backend
from gpubench.backends.rotation import OperandSets, operand_factors
from gpubench.engine.operands.make import (
    Reference,
    make_inputs,
    make_reference,
    verifying_bytes,
    widened,
)
from gpubench.errors import DoesNotFitError
from gpubench.model import Cache, Fill, Point, Problem


class OperandCache:
    """The operands and references in the device's memory."""

    def __init__(self, backend: Backend, seed: int) -> None:
        self._backend = backend
        self._job_seed = self.seed = seed
        """The seed of the operands of the point that is measured now."""

        self._sets: OrderedDict[tuple[int, Problem, Fill, bool, bool], OperandSets] = OrderedDict()
        self._references: dict[tuple[int, Problem, Fill], Reference] = {}

    def use_seed(self, seed: int | None) -> None:
        """Draw operands from another seed; None means the job's. Drop those of further seeds."""
        self.seed = self._job_seed if seed is None else seed
        kept = {self._job_seed, self.seed}
        self._sets = OrderedDict((key, x) for key, x in self._sets.items() if key[0] in kept)
        self._references = {key: x for key, x in self._references.items() if key[0] in kept}

    def operands(self, point: Point) -> OperandSets:
        """Return the operands of a point's problem, in the sets that its cache state requires.

        Raises DoesNotFitError.
        """
        problem, cold = point.problem, point.cache == Cache.COLD
        one_set = point.variant.fixed_addresses
        key = (self.seed, problem, point.operands, cold, one_set)
        if key in self._sets:
            self._sets.move_to_end(key)
            return self._sets[key]
        needed = self._backend.bytes_needed(problem, cold=cold, one_set=one_set)
        needed += verifying_bytes(problem)
        while self._sets and 2 * needed > self._backend.bytes_free():  # kept: at most half
            (seed, evicted, fill, *_), _ = self._sets.popitem(last=False)
            self._references.pop((seed, evicted, fill), None)
        free = self._backend.bytes_free()
        if needed > free:
            raise DoesNotFitError(f"needs {needed:,} bytes of memory, {free:,} are free")
        inputs = make_inputs(problem, self.seed, point.operands)
        self._sets[key] = self._backend.load(problem, inputs, cold=cold, one_set=one_set)
        return self._sets[key]

    def reference(self, point: Point) -> Reference:
        """Return the reference for the first set, made from the operands in host memory."""
        key = self.seed, point.problem, point.operands
        if key not in self._references:
            xp = self._backend.xp
            inputs = (widened(array) for array in self.operands(point).host_inputs)
            self._references[key] = make_reference(xp, point.problem.op, *map(xp.asarray, inputs))
        return self._references[key]

    def spoiled(self, point: Point) -> bool:
        """Return whether a kernel overwrote the point's operands or its reference."""
        operands = self.operands(point)
        for index, (*arrays, _) in enumerate(operands.sets):
            factors = operand_factors(point.problem, index)
            for array, original, factor in zip(arrays, operands.host_inputs, factors, strict=True):
                content = array.get() if hasattr(array, "get") else array  # CuPy has get
                if not np.array_equal(content, (original * factor).view(content.dtype)):
                    return True
        before = self.reference(point).parts
        self._references.clear()
        after = self.reference(point).parts
        return any(bool((a != b).any()) for a, b in zip(before, after, strict=True))

    def forget(self) -> None:
        """Drop all operands and references. They are made again when needed."""
        self._sets.clear()
        self._references.clear()
