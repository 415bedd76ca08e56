"""Makes an operation from another project's problem, and variants from its solutions.

The folder of a problem contains `problem.json` (a `Record`), `operation.py`, and the variants.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpubench.errors import CompileError
from gpubench.foreign import bound, on_host, process
from gpubench.foreign.compare import Comparison
from gpubench.foreign.process import Request, Results
from gpubench.foreign.statement import ALIGNMENT, Facts, Statement
from gpubench.model import Array, CallVariant, Compared, ListedSize, Operation
from gpubench.plan.operations import BYTES
from gpubench.process.child import runs_foreign_code

RECORD = "problem.json"
REFERENCE = "reference"
"""Name of the variant that calls the problem's own reference. The variant's file has this name."""

PRECISIONS = ("float64", "float32", "float16", "bfloat16")
"""Precisions that a problem may have. The first input or output of one of these types selects
the precision."""

Bytes = NDArray[np.uint8]


class Record(msgspec.Struct, frozen=True):
    """The content of `problem.json`, which is a problem and facts from runs of its reference."""

    statement: Statement
    device: str  # the backend's name
    facts: dict[int, Facts]


def read_record(folder: Path) -> Record:
    """Read the record in a problem's folder."""
    return msgspec.json.decode((folder / RECORD).read_bytes(), type=Record)


def dtype_of(record: Record) -> str:
    """Return the type of a problem's first floating-point input or output as its precision."""
    facts = next(iter(record.facts.values()))
    types = [part.dtype for part in (*facts.inputs, *facts.outputs)]
    return next((name for name in types if name in PRECISIONS), "float32")


def operation_in(file: str) -> Operation:
    """Return the operation for the problem whose folder contains `file`."""
    record = read_record(Path(file).parent)
    statement, unknown = record.statement, ListedSize("", ((ALIGNMENT,), (ALIGNMENT,)), 1)
    listed = [unknown] * len(statement.workloads)
    for number, facts in record.facts.items():
        shapes = (facts.input_bytes,), (facts.output_bytes,)
        name = statement.workloads[number - 1].name
        listed[number - 1] = ListedSize(name, shapes, facts.flops)
    numbers = {facts.input_bytes: number for number, facts in record.facts.items()}
    comparisons = dict[int, Comparison]()

    def asked(what: Any, number: int, kind: Any, **fields: Any) -> Any:
        request = Request(
            what, statement.form, statement.path, record.device, number, record.facts[number],
            **fields,
        )  # fmt: skip
        return process.ask_for(request, kind)

    def make(generator: np.random.Generator, shapes: Sequence[Any]) -> tuple[Bytes, ...]:
        seed = int(generator.integers(2**31))
        size = shapes[0][0]
        content = np.frombuffer(asked("inputs", numbers[size], memoryview, seed=seed), np.uint8)
        return (np.pad(content, (0, size - content.size)) if content.size < size else content,)

    def comparison(inputs: Bytes) -> tuple[Any, Callable[[Any], Compared]]:
        number, content = numbers[inputs.size], np.ascontiguousarray(inputs).data
        if number not in comparisons:
            facts = record.facts[number]
            there = bound.elements_of(facts) if runs_foreign_code() else on_host
            comparisons[number] = Comparison(facts, there)
        elements = comparisons[number].elements
        what, kind = ("results", Results) if elements is on_host else ("tensors", None)
        native, wide = asked(what, number, kind, content=content)
        right = comparisons[number].with_reference(native, wide)
        if elements is on_host:
            native = np.frombuffer(native, np.uint8)
        return native, lambda output: right(elements.tensor_of(output))

    return operation_on_bytes(
        f"{statement.name}, a problem of {statement.form}",
        comparison,
        make,
        listed,
        dtype_of(record),
    )


def operation_on_bytes(
    idea: str,
    comparison: Callable[[Any], Any],
    make: Callable[..., tuple[Bytes, ...]],
    listed: Sequence[ListedSize],
    dtype: str,
) -> Operation:
    """Return an operation whose inputs and results are arrays of bytes."""
    return Operation(
        idea=idea,
        extents=("WORKLOAD",),
        inputs=(Array("INPUTS", "WORKLOAD", BYTES),),
        output=Array("RESULTS", "WORKLOAD", BYTES),
        reference=comparison,
        comparison=comparison,
        flops="WORKLOAD",
        tolerance=1.0,
        make=make,
        listed=tuple(listed),
        dtype=dtype,
    )


def variant_in(file: str, solution: str = "", digest: str = "") -> CallVariant:
    """Return the variant that calls a solution, or the reference if `solution` is empty.

    `digest` is the digest of the solution's content, so that the description's file changes with
    the content.
    """
    record = read_record(Path(file).parent)

    def build(_tile: object, dtype: str) -> Callable[..., None]:
        return _built(file, solution, digest, dtype)

    return CallVariant(
        idea=Path(solution).name or f"the reference of {record.statement.name}",
        runs_on=record.device,
        build=build,
        dtypes=(dtype_of(record),),
        tensors="torch",
        libraries=() if solution else ("torch",),
    )


@cache
def _built(file: str, solution: str, digest: str, dtype: str) -> Callable[..., None]:
    from gpubench.foreign import solutions

    record = read_record(Path(file).parent)
    statement = record.statement
    program = process.program_of(statement.form, statement.path, record.device)
    facts = {each.input_bytes: (each, number) for number, each in record.facts.items()}
    if solution and digest_of(Path(solution)) != digest:
        raise CompileError(f"{Path(solution).name} has changed since it was described")
    clocks = bound.clocks()

    def reference(*arguments: Any) -> Any:
        return program.reference(arguments)

    function, takes_outputs = (
        solutions.load(program, Path(solution), dtype) if solution else (reference, False)
    )
    return bound.Solution(program, facts, function, takes_outputs=takes_outputs, clocks=clocks)


def digest_of(path: Path) -> str:
    """Return the digest of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
