"""`BuildRow`, the only owner of the columns of a build file: what a compiler made of a kernel.

`gpubench explain --variants` writes such files, and `gpubench diff` compares them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from gpubench.errors import UsageError
from gpubench.model import OPERATIONS
from gpubench.results.row import MAX_HEADER, encode_csv, in_range, opened, unguarded
from gpubench.text import clean


def _column(group: str, meaning: str) -> Any:
    """Declare a column with its group and meaning. Only columns of the key are mandatory."""
    metadata = {"group": group, "meaning": meaning}
    return field(default=MISSING if group == "key" else None, metadata=metadata)


class BuildKey(NamedTuple):
    """The key of a row: a launch of a kernel, compiled for an architecture, at a size."""

    op: str
    variant: str
    tile: str
    dtype: str
    architecture: str
    launch: int
    m: int
    n: int
    k: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRow:
    """What a compiler made of one launch of a kernel: the columns of the file, in order.

    None is written as an empty field.
    """

    op: str = _column("key", "operation, such as gemm")
    variant: str = _column("key", "the kernel")
    tile: str = _column("key", "tile as --tile takes it; empty for kernels without one")
    dtype: str = _column("key", "element type")
    architecture: str = _column("key", "as --arch takes it, such as sm_90")
    launch: int = _column("key", "number of the launch among the kernel's launches, from 1")
    m: int = _column("key", "rows of C; for gemv, gemv_t and atax, rows of A")
    n: int = _column("key", "columns of C; for gemv, gemv_t and atax, columns of A")
    k: int = _column("key", "inner extent; 1 for gemv, gemv_t and atax")

    status: str | None = _column(
        "outcome",
        "ok; skipped: the architecture or the size is not for this kernel; error: it does not "
        "compile",
    )
    reason: str | None = _column("outcome", "why the status is not ok")

    kernel: str | None = _column("code", "name of the template that is launched")
    registers: int | None = _column("code", "registers per thread")
    spill_bytes: int | None = _column("code", "bytes of spill stores per thread")
    local_bytes: int | None = _column("code", "stack frame per thread: spills and local arrays")
    static_shared_bytes: int | None = _column("code", "shared memory per block that is declared")
    dynamic_shared_bytes: int | None = _column(
        "code", "shared memory per block that the launch requests"
    )
    max_threads_per_block: int | None = _column(
        "code", "threads per block that __launch_bounds__ allows; empty: no limit"
    )

    threads_per_block: int | None = _column("multiprocessor", "threads in a block")
    resident_blocks: int | None = _column(
        "multiprocessor", "blocks that a multiprocessor holds at once; 0: the launch would fail"
    )
    occupancy: float | None = _column(
        "multiprocessor", "warps that a multiprocessor holds, over its maximum, 0 to 1"
    )
    limited_by: str | None = _column(
        "multiprocessor", "what allows no further block, joined by ;; empty if occupancy is full"
    )

    gpu: str | None = _column("grid", "the example GPU whose multiprocessors count for waves")
    blocks: int | None = _column("grid", "blocks in the grid")
    waves: float | None = _column("grid", "blocks over those that the GPU holds at once")

    loop_instructions: int | None = _column(
        "loop", "instructions of an iteration; the next nine columns are parts of them"
    )
    loop_multiply_add: int | None = _column(
        "loop", "multiply-adds in the element type, or matrix instructions"
    )
    loop_float64: int | None = _column(
        "loop", "float64 arithmetic and conversions, apart from multiply-adds in float64 kernels"
    )
    loop_integer: int | None = _column("loop", "integer arithmetic, such as addresses and counters")
    loop_shared_load: int | None = _column("loop", "loads from shared memory")
    loop_shared_store: int | None = _column("loop", "stores to shared memory")
    loop_global_load: int | None = _column(
        "loop", "loads from global memory, and asynchronous copies"
    )
    loop_local: int | None = _column("loop", "loads and stores of local memory, such as spills")
    loop_barrier: int | None = _column("loop", "barriers")
    loop_other: int | None = _column("loop", "all other instructions")
    multiply_adds_per_instruction: float | None = _column(
        "loop",
        "multiply-adds of a thread per instruction; those of a matrix instruction are divided by "
        "its threads",
    )
    bank_conflicts: int | None = _column(
        "loop",
        "float32 multiply-adds that need two operands from one bank of the register file; empty "
        "without float32 multiply-adds",
    )
    load_to_use: int | None = _column(
        "loop",
        "fewest instructions from a load from shared memory to the first instruction that uses it",
    )

    compiler: str | None = _column("context", "name and version of the compiler")
    disassembler: str | None = _column(
        "context", "version of nvdisasm; empty: there was none, so nothing about the loop is known"
    )
    options: str | None = _column("context", "the kernel's own compile options, joined by a blank")
    source_hash: str | None = _column("context", "hash of the kernel's files")
    gpubench: str | None = _column("context", "version of gpubench")

    @property
    def key(self) -> BuildKey:
        """The key that identifies the row, within a file and across files."""
        return BuildKey._make(getattr(self, name) for name in BuildKey._fields)

    @property
    def compute_mode(self) -> str:
        """The element type, under the name of the column of results."""
        return self.dtype

    @property
    def size(self) -> str:
        """The size, as `--size` takes it."""
        return OPERATIONS.get(self.op, OPERATIONS["gemm"]).size(self.m, self.n, self.k)

    @property
    def label(self) -> str:
        """The row as a person names it: `shared_tile 16 float32 sm_90`."""
        words = [self.variant, self.tile, self.dtype, self.architecture]
        words += [f"launch {self.launch}"] if self.launch > 1 else []
        return " ".join(filter(None, words))


COLUMNS: tuple[Field[Any], ...] = fields(BuildRow)
NAMES = tuple(column.name for column in COLUMNS)
REQUIRED = (*BuildKey._fields, "status", "registers", "loop_instructions")
"""Columns that every file must have, and by which a build file is recognized."""

_KINDS = {column.name: str(column.type).partition(" ")[0] for column in COLUMNS}


def encode(rows: Iterable[BuildRow]) -> bytes:
    """Return the rows as the bytes of a CSV."""
    return encode_csv(NAMES, ([getattr(row, name) for name in NAMES] for row in rows))


def is_build_file(path: Path) -> bool:
    """Return whether a file has the columns of a build file. False if it is no regular file."""
    if not path.is_file():
        return False
    with opened(path) as file:
        return set(REQUIRED) <= set(next(_lines(file.readline(MAX_HEADER), ()), []))


def read(path: Path) -> list[BuildRow]:
    """Read the rows of a file, in any order of columns. Unknown columns are ignored.

    Raises UsageError for a file without rows or without a column of `REQUIRED`, for a row that is
    there twice, and for an invalid field, with its line and column.
    """
    rows: dict[BuildKey, BuildRow] = {}
    with opened(path) as file:
        lines = _lines(file.readline(MAX_HEADER), file)
        names: list[str] = next(lines, [])
        for name in REQUIRED:
            if name not in names:
                raise UsageError(f"{path}: not a build file: column '{name}' is missing")
        for number, line in enumerate(lines, 2):
            if not line:
                continue
            if len(line) != len(names):
                raise UsageError(f"{path}, line {number}: {len(line)} fields, not {len(names)}")
            texts = {name: text for name, text in zip(names, line, strict=True) if name in _KINDS}
            row = _row(texts, f"{path}, line {number}")
            if row.key in rows:
                raise UsageError(f"{path}, line {number}: {row.label} is there twice")
            rows[row.key] = row
    if not rows:
        raise UsageError(f"{path}: holds no rows")
    return list(rows.values())


def _lines(header: str, rest: Iterable[str]) -> Iterator[list[str]]:
    delimiter = max(",;\t", key=header.count)  # no column's name holds one
    return csv.reader(chain([header], rest), delimiter=delimiter)


def _row(texts: dict[str, str], place: str) -> BuildRow:
    values: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            values[name] = _value(name, text)
        except (ValueError, OverflowError):
            kind = "a number" if _KINDS[name] == "float" else "a whole number"
            message = f"'{clean(text)[:60]}' in column '{name}' is not {kind} from 0"
            raise UsageError(f"{place}: {message}") from None
    return BuildRow(**values)


def _value(name: str, text: str) -> str | int | float | None:
    """Return the value of a field. Raises ValueError for an invalid number."""
    kind, is_key = _KINDS[name], name in BuildKey._fields
    if kind == "str":
        return clean(unguarded(text)) or ("" if is_key else None)
    if not text and not is_key:
        return None
    number = in_range(float(text))
    if kind == "float":
        return number
    if not number.is_integer():
        raise ValueError(text)
    return int(number)
