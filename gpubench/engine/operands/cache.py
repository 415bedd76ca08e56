"""Keeps operands and references in memory between points, and from round to round."""

from collections import OrderedDict
from dataclasses import replace

import numpy as np

from gpubench.backends import Backend
from gpubench.backends.arrays import on_host
from gpubench.backends.rotation import FACTORS, OperandSets, operand_factors
from gpubench.engine.operands.make import (
    Reference,
    exceeds_range,
    make_inputs,
    reference_of_host,
    verifying_bytes,
)
from gpubench.errors import DoesNotFitError
from gpubench.model import Cache, Fill, Point, Problem, Timer


class OperandCache:
    """Makes operands and references, and keeps them on the device for later points."""

    def __init__(self, backend: Backend, seed: int) -> None:
        self._backend = backend
        self._job_seed = self.seed = seed  # seed from which operands are now made

        self._sets: OrderedDict[tuple[int, Problem, Fill, bool, bool], OperandSets] = OrderedDict()
        self._references: dict[tuple[int, Problem, Fill, int], Reference] = {}

    def use_seed(self, seed: int | None) -> None:
        """Make later operands from another seed, or from the job's seed if `seed` is None.

        Operands that were made from any other seed are dropped. The operands from the job's seed
        are always kept.
        """
        self.seed = self._job_seed if seed is None else seed
        kept = {self._job_seed, self.seed}
        self._sets = OrderedDict((key, x) for key, x in self._sets.items() if key[0] in kept)
        self._references = {key: x for key, x in self._references.items() if key[0] in kept}

    def operands(self, point: Point) -> OperandSets:
        """Return the sets of operands on which a point is measured.

        Sets that are not kept are made. Raises DoesNotFitError if the device has too little free
        memory, or if a type is too narrow for the values of `--operands index`.
        """
        problem = point.problem
        # The parent makes other operands for each launch that it times.
        cold = point.cache == Cache.COLD and point.timer != Timer.OUTSIDE
        one_set = point.variant.fixed_addresses
        key = (self.seed, problem, point.operands, cold, one_set)
        if key in self._sets:
            self._sets.move_to_end(key)
            return self._sets[key]
        needed = self._backend.bytes_needed(problem, cold=cold, one_set=one_set)
        needed += verifying_bytes(problem)
        while self._sets and 2 * needed > self._backend.bytes_free():  # keep half free
            (seed, evicted, fill, *_), _ = self._sets.popitem(last=False)
            for content in range(len(FACTORS)):
                self._references.pop((seed, evicted, fill, content), None)
        free = self._backend.bytes_free()
        if needed > free:
            hot = self._backend.bytes_needed(problem, cold=False, one_set=one_set)
            hot += verifying_bytes(problem)
            hint = f"; --cache hot needs {hot:,}" if cold and hot <= free else ""
            raise DoesNotFitError(
                f"needs {needed:,} bytes of memory, but only {free:,} are free{hint}"
            )
        inputs = make_inputs(problem, self.seed, point.operands)
        if point.operands == Fill.INDEX and exceeds_range(problem, inputs):
            raise DoesNotFitError(f"--operands index exceeds the range of {problem.dtype}")
        operands = self._backend.load(problem, inputs, cold=cold, one_set=one_set)
        if not problem.operation.is_linear:
            operands = self._with_own_values(operands, point.operands)
        self._sets[key] = operands
        return operands

    def _with_own_values(self, operands: OperandSets, fill: Fill) -> OperandSets:
        """Return operands whose first sets have different values, which later sets repeat."""
        contents = [operands.host_inputs]
        for number in range(1, min(len(operands.sets), len(FACTORS))):
            contents.append(make_inputs(operands.problem, self.seed, fill, number))
            for arrays in operands.sets[number :: len(FACTORS)]:
                for array, host in zip(arrays, contents[-1], strict=False):
                    array[...] = self._backend.xp.asarray(host.view(array.dtype))
        return replace(operands, contents=tuple(contents))

    def reference(self, point: Point, content: int = 0) -> Reference:
        """Return the reference for the first set of a point's operands.

        If the sets have different values, return the reference for the values with the index
        `content`. The reference is made from operands in host memory.
        """
        key = self.seed, point.problem, point.operands, content
        if key not in self._references:
            xp, operands = self._backend.xp, self.operands(point)
            host = operands.contents[content] if operands.contents else operands.host_inputs
            self._references[key] = reference_of_host(xp, point.problem.op, host)
        return self._references[key]

    def spoiled(self, point: Point) -> bool:
        """Return whether a kernel overwrote the point's operands or its reference."""
        operands = self.operands(point)
        for index, (*arrays, _) in enumerate(operands.sets):
            factors = operand_factors(point.problem, index)
            contents = operands.contents or (operands.host_inputs,)
            host = contents[index % len(contents)]
            for array, original, factor in zip(arrays, host, factors, strict=True):
                content = on_host(array)
                if not np.array_equal(content, (original * factor).view(content.dtype)):
                    return True
        before = self.reference(point).parts
        self._references.clear()
        after = self.reference(point).parts
        return any(bool((a != b).any()) for a, b in zip(before, after, strict=True))

    def forget(self) -> None:
        """Drop all operands and references. Operands and references are made again when needed."""
        self._sets.clear()
        self._references.clear()
