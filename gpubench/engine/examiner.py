"""Launches that the parent requests to judge a user's kernel, made in the child."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpubench.backends import Backend, Kernel
from gpubench.backends.rotation import OperandSets
from gpubench.engine.judge.independence import copies_of_first_set
from gpubench.engine.judge.probe import (
    AnyProbe,
    all_probes,
    at_probe,
    inputs_of,
    make_full_probe,
    probe_problem,
    require_exact,
    unusual_problem,
)
from gpubench.engine.judge.verdict import WrongError
from gpubench.engine.judge.verify import on_host, poison, take_rows
from gpubench.engine.operand_cache import OperandCache
from gpubench.engine.operands import make_new_first
from gpubench.errors import (
    ChildLostError,
    CompileError,
    DoesNotFitError,
    LaunchError,
    first_line,
)
from gpubench.model import Point


class Examiner:
    """Launches a point's kernel as the parent requests, and returns what it computed."""

    def __init__(
        self,
        backend: Backend,
        operand_cache: OperandCache,
        on_best_threads: Callable[[Point, Kernel], Kernel],
    ) -> None:
        self._backend, self._operand_cache, self._on_best_threads = (
            backend,
            operand_cache,
            on_best_threads,
        )
        self._new: tuple[OperandSets, Kernel] | None = None
        """Copies of operands that the parent overwrites, and the kernel on them."""

        self._kernel: Kernel | None = None
        """The kernel on the operands that were timed."""

    def forget(self) -> None:
        """Drop the operands of the point before."""
        self._new = self._kernel = None

    def probe_outputs(self, point: Point) -> list[Any]:
        """Return the results on the operands of the point's probes, for another process to judge.

        Raises ChildLostError for a result that cannot be computed.
        """
        problem = probe_problem(point, self._backend.device.compute_capability)
        probes = all_probes(problem, self._operand_cache.seed)
        try:
            return [on_host(self._output_of(point, probe)) for probe in probes]
        except (CompileError, LaunchError) as error:
            raise ChildLostError(str(error)) from error

    def repeat(self, point: Point, launches: int) -> float | None:
        """Launch on the point's operands, for another process to time.

        Return microseconds per launch, as `Kernel.run`. Raises ChildLostError.
        """
        try:
            if self._kernel is None:  # to bind thousands of sets takes longer than to launch
                kernel = self._backend.bind(point, self._operand_cache.operands(point))
                self._kernel = self._on_best_threads(point, kernel)
            return self._kernel.run(launches)
        except (CompileError, LaunchError, DoesNotFitError) as error:
            raise ChildLostError(str(error)) from error

    def put_new_operands(self, point: Point, seeds: Sequence[int]) -> None:
        """Overwrite A in copies of the point's operands, one for each seed; poison the outputs.

        Raises ChildLostError.
        """
        try:
            if self._new is None:
                copies = copies_of_first_set(self._operand_cache.operands(point), len(seeds))
                kernel = self._backend.bind(at_probe(point, point.problem), copies)
                self._new = copies, self._on_best_threads(point, kernel)
            copies, _ = self._new
            for (first, *_, output), seed in zip(copies.sets, seeds, strict=True):
                new = make_new_first(point.problem, seed, point.operands)
                first[...] = self._backend.xp.asarray(new.view(first.dtype))
                poison(output, reads_output=point.variant.reads_output)
        except (CompileError, LaunchError, DoesNotFitError) as error:
            raise ChildLostError(str(error)) from error

    def launch_on_new_operands(self) -> None:
        """Launch once on each of the copies of `put_new_operands`. Raises ChildLostError."""
        try:
            if self._new:
                copies, kernel = self._new
                kernel.run(len(copies.sets))
        except LaunchError as error:
            raise ChildLostError(str(error)) from error

    def read_rows(self, index: int, rows: Sequence[int]) -> Any:
        """Return rows of a result of `launch_on_new_operands`, in host memory."""
        return on_host(take_rows(self._new[0].sets[index][-1], rows)) if self._new else np.empty(0)

    def at_unusual_size(self, point: Point) -> str:
        """Launch at prime extents, and return a note; it is empty if the result is right.

        The launch may end the process.
        """
        problem = unusual_problem(point, self._backend.device.compute_capability)
        if problem is None:
            return ""
        try:
            probe = make_full_probe(problem, self._operand_cache.seed)
            require_exact(probe, self._backend.xp, self._output_of(point, probe))
        except WrongError:
            return f"right at this size; wrong at {problem.size}: it does not check its bounds"
        except (CompileError, LaunchError, DoesNotFitError) as error:
            return f"right at this size; at {problem.size}: {first_line(error)}"
        return ""

    def _output_of(self, point: Point, probe: AnyProbe) -> Any:
        """Return the result on a probe's operands, after one launch."""
        operands = self._backend.load(probe.problem, inputs_of(probe), cold=False)
        poison(operands.output, reads_output=point.variant.reads_output)
        self._backend.bind(at_probe(point, probe.problem), operands).run()
        return operands.output
