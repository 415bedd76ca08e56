"""Launches a user's kernel in the child, so that the parent can judge the kernel."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from gpubench.backends import Backend, Kernel
from gpubench.backends.arrays import on_host
from gpubench.backends.rotation import Rotation, SetPolicy, bytes_of_sets, in_sets, set_size
from gpubench.engine.judge.probe import (
    AnyProbe,
    all_probes,
    inputs_of,
    make_full_probe,
    require_exact,
)
from gpubench.engine.judge.probe_size import at_probe, probe_problem, unusual_problem
from gpubench.engine.judge.verdict import WrongError
from gpubench.engine.judge.verify import poison, require_right_on
from gpubench.engine.measure.keeper import outputs_in, read_elements, read_lines
from gpubench.engine.operands.cache import OperandCache
from gpubench.engine.operands.make import make_inputs, make_new_values, random_fill
from gpubench.engine.operands.shared import shared_bytes
from gpubench.errors import (
    ChildLostError,
    CompileError,
    DoesNotFitError,
    LacksMemoryError,
    LaunchError,
    first_line,
)
from gpubench.model import Cache, Point, Problem

MIN_ROWS = 1024  # `row_digests` takes the first rows of an A that has at least this number of rows


class _New(NamedTuple):
    """Copies of a point's operands, and the kernel that is bound to the copies.

    All copies of one operand are overwritten with random values, which a seed determines.
    """

    memory: Any
    """Memory of all copies of the overwritten operand. Each copy begins `set_size` elements after
    the previous copy."""

    values: Any  # the operand's elements are drawn from these values
    outputs: Any  # the outputs of all sets, one after the other
    kernel: Kernel


@contextmanager
def or_lost() -> Iterator[None]:
    """Raise LacksMemoryError or ChildLostError if a launch in the block fails."""
    try:
        yield
    except DoesNotFitError as error:
        raise LacksMemoryError(str(error)) from error
    except (CompileError, LaunchError) as error:
        raise ChildLostError(str(error)) from error


class Examiner:
    """Launches a point's kernel as the parent requests, and returns what the kernel computed."""

    def __init__(
        self,
        backend: Backend,
        operand_cache: OperandCache,
        on_best_threads: Callable[[Point, Kernel], Kernel],
    ) -> None:
        self._backend, self._operand_cache = backend, operand_cache
        self._on_best_threads = on_best_threads
        self._new: _New | None = None
        self._release: Callable[[int], None] | None = None  # begins prepared launches
        self._kernel: Kernel | None = None  # the kernel, bound to the timed operands
        self._outputs: Any = None  # outputs in memory of another process

    def forget(self) -> None:
        """Drop the operands of the previous point."""
        self._new = self._kernel = self._release = self._outputs = None

    @or_lost()
    def probe_outputs(self, point: Point) -> list[bytes]:
        """Launch on the operands of the point's probes, and return each result as bytes.

        The elements of a result are stored row after row. Raises ChildLostError if a result cannot
        be computed.
        """
        problem = probe_problem(point, self._backend.device.compute_capability)
        probes = all_probes(problem, self._operand_cache.seed)
        return [on_host(self._output_of(point, probe)).tobytes() for probe in probes]

    @or_lost()
    def result_on(self, point: Point, seed: int) -> bytes:
        """Launch on operands of a seed. Return the result as bytes. Raises ChildLostError."""
        inputs = make_inputs(point.problem, seed, random_fill(point.operands))
        content: bytes = on_host(next(self.outputs(point, point.problem, inputs))).tobytes()
        return content

    @or_lost()
    def repeat(self, point: Point, launches: int) -> float | None:
        """Launch on the point's operands, so that another process can time the launches.

        Return microseconds per launch, as `Kernel.run` does. Raises ChildLostError.
        """
        if self._kernel is None:  # bind once: binding thousands of sets takes longer than launching
            kernel = self._backend.bind(point, self._operand_cache.operands(point))
            self._kernel = self._on_best_threads(point, kernel)
        return self._kernel.run(launches)

    def open_outputs(self, problem: Problem, handle: bytes, launches: int) -> str:
        """Let launches on new operands write into memory of another process.

        Return the reason if the other memory cannot be opened, or else an empty text.
        """
        self._new = self._outputs = None
        if self._backend.ipc is None:
            return "no memory of another process can be opened"
        try:
            self._outputs = self._backend.ipc.open(handle, shared_bytes(problem, launches)[1])
        except LaunchError as error:
            return first_line(error)
        return ""

    @or_lost()
    def put_new_operands(
        self, point: Point, launches: int, position: int, count: int, in_queue: bool
    ) -> bool:
        """Prepare launches on new copies of A or B, and fill the outputs with poison.

        `position` is 0 for A and 1 for B. Launches use the `count` copies of this operand in turns.
        Return whether `launch_on_new_operands` can begin the launches (`Backend.hold`). Raises
        ChildLostError.
        """
        if sum(bytes_of_sets(point.problem, count)) > self._backend.bytes_free():
            return False
        if self._new is None or len(self._new.outputs) != count:
            self._new = self._copies(point, count, position)
        memory, values, outputs, kernel = self._new
        poison(outputs, reads_output=point.variant.reads_output)
        self._release = self._backend.hold(memory, values, kernel, launches, in_queue=in_queue)
        return self._release is not None

    def _copies(self, point: Point, count: int, position: int) -> _New:
        """Return copies of the first set. All copies of the operand at `position` are in one block.

        If the cache is hot, all copies share the other operands.
        """
        operands, xp = self._operand_cache.operands(point), self._backend.xp
        *inputs, output = operands.sets[0]
        old, is_hot = inputs[position], point.cache == Cache.HOT
        memory = xp.empty((count, set_size(old.shape, old.itemsize)), old.dtype)
        new = in_sets(memory, old.shape, point.problem.by_columns[position])
        new[...] = old
        shared = self._outputs
        if shared is None:
            shared = xp.empty(shared_bytes(point.problem, count)[1], np.uint8)
        outputs = outputs_in(shared, point.problem, output.dtype)[:count]

        def shared_or_copied(array: Any) -> Any:
            return array if is_hot else array.copy(order="K")

        sets = tuple(
            (*(copy if at == position else shared_or_copied(x) for at, x in enumerate(inputs)), out)
            for copy, out in zip(new, outputs, strict=True)
        )
        policy, rotation = SetPolicy(count=count, flush=False), Rotation(count)
        copies = replace(operands, sets=sets, policy=policy, rotation=rotation)
        kernel = self._backend.bind(at_probe(point, point.problem), copies)
        kernel = self._on_best_threads(point, kernel)
        kernel.run(count)  # the call may compile, or choose an algorithm for these arrays
        values = make_new_values(point.problem, self._operand_cache.seed, point.operands)
        return _New(memory.ravel(), xp.asarray(values.view(old.dtype)), outputs, kernel)

    @or_lost()
    def launch_on_new_operands(self, seed: int) -> None:
        """Begin prepared launches (`put_new_operands`), and wait. Raises ChildLostError."""
        if self._release:
            self._release(seed)

    def read_results(self, copies: Sequence[int], rows: Sequence[int], position: int) -> bytes:
        """Return the rows or columns that the parent has chosen from results (`read_lines`)."""
        return read_lines(self._new.outputs, copies, rows, position) if self._new else b""

    def read_elements(self, copy: int, positions: Sequence[int]) -> bytes:
        """Return the elements that the parent has chosen from a result (`keeper.read_elements`)."""
        return read_elements(self._new.outputs, copy, positions) if self._new else b""

    @or_lost()
    def row_digests(
        self, point: Point, rows: int, seed: int, launches: int
    ) -> list[tuple[str, str]]:
        """Launch on `rows` rows, and return digests of each launch's first row and whole result.

        The first rows of A, and all of B, are equal for every number of rows up to the larger of
        `MIN_ROWS` and the point's number of rows. Raises ChildLostError.
        """
        problem = replace(point.problem, m=rows)
        tallest = replace(point.problem, m=max(MIN_ROWS, point.problem.m))
        made = zip(make_inputs(tallest, seed), problem.input_shapes, strict=True)
        inputs = [array[: shape[0]] for array, shape in made]
        digests = []
        for output in self.outputs(point, problem, inputs, launches):
            result = np.ascontiguousarray(on_host(output))
            of_row, of_all = (blake2b(part.tobytes()).hexdigest() for part in (result[:1], result))
            digests.append((of_row, of_all))
        return digests

    def at_unusual_size(self, point: Point) -> str:
        """Launch at prime extents, and return a note. The note is empty if the result is right.

        The launch may end the process.
        """
        problem = unusual_problem(point, self._backend.device.compute_capability)
        if problem is None:
            return ""
        try:
            if problem.operation.is_product:
                probe = make_full_probe(problem, self._operand_cache.seed)
                require_exact(probe, self._backend.xp, self._output_of(point, probe))
            else:
                inputs = make_inputs(problem, self._operand_cache.seed)
                output = next(self.outputs(point, problem, inputs))
                require_right_on(self._backend.xp, problem, inputs, output)
        except WrongError:
            return (
                f"right at this size; wrong at {problem.size}: the kernel does not check its bounds"
            )
        except (CompileError, LaunchError, DoesNotFitError) as error:
            return f"right at this size; at {problem.size}: {first_line(error)}"
        return ""

    def outputs(
        self, point: Point, problem: Problem, inputs: Sequence[Any], launches: int = 1
    ) -> Iterator[Any]:
        """Launch the point's kernel on the operands of a problem, and yield each result."""
        operands = self._backend.load(problem, inputs, cold=False)
        kernel = self._backend.bind(at_probe(point, problem), operands)
        for _ in range(launches):
            poison(operands.output, reads_output=point.variant.reads_output)
            kernel.run()
            yield operands.output

    def _output_of(self, point: Point, probe: AnyProbe) -> Any:
        return next(self.outputs(point, probe.problem, inputs_of(probe)))
