"""A point becomes a measurement: prepare, estimate, verify, time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from datetime import UTC, datetime

from gpubench.backends import Backend, Kernel, Operands
from gpubench.errors import CompileError, DoesNotFitError, LaunchError
from gpubench.measure.operands import Reference, make_inputs, make_reference, verifying_bytes
from gpubench.measure.sampling import collect
from gpubench.measure.verify import poison, relative_error, tolerance, why_wrong
from gpubench.model import Cache, Measurement, Point, Problem, Status, Timing

PROBES = (64, 16, 4)
"""A slow launch is foreseen by launches on 1/64, 1/16, 1/4 of the rows."""

HOPELESS = 4.0
"""A probe that foresees this many times the limit is believed; a nearer one is repeated larger."""

MEMORY_SHARE = 0.5
"""Operands of earlier problems are kept while they fill no more than this of the free memory."""


class Runner:
    """Measures points on a backend, keeping operands and verdicts between rounds."""

    def __init__(self, backend: Backend, timing: Timing, seed: int) -> None:
        self._backend = backend
        self._timing = timing
        self._seed = seed
        self._loaded: OrderedDict[tuple[Problem, bool], tuple[Operands, Reference]] = OrderedDict()
        self._verified: dict[Point, float] = {}

    def measure(self, point: Point) -> Measurement:
        """Measure a point once; what goes wrong becomes its status and reason."""
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        result = Measurement(point=point, status=Status.OK, started_utc=started)
        try:
            operands, reference = self._operands(point)
            kernel = self._backend.bind(point, operands)
            result = replace(result, resources=kernel.resources, launch=kernel.launch)
            if point not in self._verified:
                if reason := self._too_slow(point, operands):
                    return replace(result, status=Status.SKIPPED, reason=reason)
                error = self._error(kernel, operands, reference)
                result = replace(result, max_relative_error=error)
                if reason := why_wrong(error, tolerance(point.problem.dtype, point.problem.k)):
                    return replace(result, status=Status.WRONG, reason=reason)
                self._verified[point] = error
            series = collect(
                lambda launches, count: self._backend.sample(kernel, launches, count),
                self._timing,
                kernel.most_launches,
            )
            return replace(result, series=series, max_relative_error=self._verified[point])
        except DoesNotFitError as error:
            return replace(result, status=Status.SKIPPED, reason=str(error))
        except (CompileError, LaunchError) as error:
            return replace(result, status=Status.ERROR, reason=str(error))

    def _operands(self, point: Point) -> tuple[Operands, Reference]:
        """The operands of a point's problem, loaded now or in an earlier round."""
        problem, cold = point.problem, point.cache == Cache.COLD
        key = (problem, cold)
        if key in self._loaded:
            self._loaded.move_to_end(key)
            return self._loaded[key]
        needed = self._backend.bytes_needed(problem, cold=cold) + verifying_bytes(problem)
        while self._loaded and needed > MEMORY_SHARE * self._backend.bytes_free():
            self._loaded.popitem(last=False)
        free = self._backend.bytes_free()
        if needed > free:
            raise DoesNotFitError(f"needs {needed:,} bytes of memory, {free:,} are free")
        inputs = make_inputs(problem, self._seed)
        operands = self._backend.load(problem, inputs, cold=cold)
        self._loaded[key] = operands, make_reference(self._backend.xp, *operands.inputs)
        return self._loaded[key]

    def _too_slow(self, point: Point, operands: Operands) -> str | None:
        """Why a launch would pass the limit, foreseen from launches on fewer rows."""
        limit_s, m = self._timing.launch_limit_s, point.problem.m
        estimate_s = 0.0
        for share in PROBES:
            rows = -(-m // share)
            part = self._backend.bind(point, operands, rows=rows)
            estimate_s = min(self._backend.sample(part, 1, 1)) * m / rows / 1e6
            if estimate_s > limit_s:  # a first launch may include loading: look again
                estimate_s = min(self._backend.sample(part, 1, 1)) * m / rows / 1e6
            if estimate_s <= limit_s:
                return None
            if estimate_s > HOPELESS * limit_s:
                break
        return f"estimated {estimate_s:.3g} s a launch, over the limit of {limit_s:g} s"

    def _error(self, kernel: Kernel, operands: Operands, reference: Reference) -> float:
        poison(operands.output)
        self._backend.run(kernel)
        return relative_error(self._backend.xp, operands.output, reference)
