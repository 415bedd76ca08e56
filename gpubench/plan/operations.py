"""Adds the operations that users state in `DIR/<op>/operation.py`, where `--kernels` names DIR.

The file states how kernels are judged, so its author is trusted, and the file runs in this process.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from gpubench.errors import UsageError
from gpubench.model import DEFAULT_OP, OPERATIONS, PRECISIONS, Operation
from gpubench.model.operation import stated
from gpubench.plan.python_file import NAME_RULE, described_by, is_name, loaded
from gpubench.text import shown, unknown

OPERATION_FILE = "operation.py"

BYTES = "uint8"  # element type of an array that holds several tensors


def operation_named(op: str | None, kernels: Path | None, default: str = DEFAULT_OP) -> str:
    """Add the operations of the user's folder `kernels`, and return the name of an operation.

    If `op` is None, return the operation that the folder itself states, or else the default
    operation. Raises UsageError for an unknown name, and for a file that cannot be used.
    """
    if kernels is not None:
        folder = kernels.absolute()
        with suppress(OSError):
            for path in sorted((*folder.glob(OPERATION_FILE), *folder.glob(f"*/{OPERATION_FILE}"))):
                add_operation(path)
        if op is None and (folder / OPERATION_FILE).is_file():
            op = folder.name
    name = default if op is None else op
    if name not in OPERATIONS:
        if names := OPERATIONS.named_by(name):
            raise UsageError(
                f"--op: {name} states several operations: {', '.join(names)}; name one of them"
            )
        raise UsageError(f"--op: {unknown('operation', name, OPERATIONS)}")
    return name


def add_operation(path: Path) -> None:
    """Add the operation that a file states. Raises UsageError for a file that cannot be used."""
    try:
        facts = path.stat()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    for name, operation in _load(path, (facts.st_mtime_ns, facts.st_size, facts.st_ino)).items():
        try:
            OPERATIONS.add(name, operation, path)
        except ValueError as error:
            raise UsageError(f"{path}: gpubench has {error} already; rename yours") from error


@cache
def _load(path: Path, _as_of: tuple[int, ...]) -> dict[str, Operation]:
    module = loaded(path, f"gpubench_operations.{path.parent.name}", "OPERATION")
    operations = stated(module.OPERATION, path)
    for name, operation in operations.items():
        if not isinstance(name, str) or not is_name(name):
            raise UsageError(f"{path}: '{shown(str(name))}' cannot name an operation: {NAME_RULE}")
        if not isinstance(operation, Operation):
            which = f"[{name!r}]" if isinstance(module.OPERATION, dict) else ""
            kind = type(operation).__name__
            raise UsageError(f"{path}: OPERATION{which} is of type {kind}, not Operation")
        with described_by(path):
            for fault in faults(operation):
                raise UsageError(f"{path}: OPERATION: {fault}")
    return operations


def faults(operation: Operation) -> Iterator[str]:
    """Yield a sentence about each fault in the statement of an operation."""
    names = dict.fromkeys(operation.extents, 1 if operation.listed else 2)
    arrays = (*operation.inputs, operation.output)
    if not names or not all(map(str.isidentifier, names)):
        yield "extents must be a tuple of names, such as ('ROWS', 'COLS')"
    if len(set(operation.arrays)) < len(arrays) or len(names) < len(operation.extents):
        yield "two arrays, or two extents, have the same name"
    for array in arrays:
        try:
            if math.prod(operation.shape(array, names)) < 1 or not array.dimensions:
                yield f"{array.name}: the shape '{array.shape}' has no element"
        except ValueError as error:
            yield f"{array.name}: {error}"
        if array.dtype and array.dtype not in {*PRECISIONS, BYTES}:
            yield f"{array.name}: {unknown('dtype', array.dtype, PRECISIONS)}"
    try:
        operation.work(names)
    except ValueError as error:
        yield f"flops: {error}"
    operands = {array.name for array in operation.inputs}
    for field in ("linear_in", "added"):
        for name in set(getattr(operation, field)) - operands:
            yield f"{field}: {unknown('operand', name, operands)}"
    if set(operation.added) & {array.name for array in operation.inputs[:2]}:
        yield "added: the first two operands are the factors"
