"""`BuildRow`, the only definition of the columns of build files.

A build file describes compiled kernels.

`gpubench build` writes such files, and `gpubench diff` compares them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gpubench.errors import UsageError
from gpubench.model import LARGEST
from gpubench.results.columns import Columns, OfSize, column


class BuildKey(NamedTuple):
    """The key of a row: a launch of a compiled kernel, the architecture and the size."""

    op: str
    variant: str
    tile: str
    dtype: str
    architecture: str
    launch: int
    m: int
    n: int
    k: int
    extents: str = ""


_key, _outcome, _code, _multiprocessor, _grid, _loop, _accesses, _context = (
    partial(column, group)
    for group in ("key", "outcome", "code", "multiprocessor", "grid", "loop", "accesses", "context")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRow(OfSize):
    """A row of a build file, which describes one launch of a compiled kernel.

    The fields are the columns of the file, in order.

    None is written as an empty field.
    """

    op: str = _key("operation, such as gemm")
    variant: str = _key("the kernel")
    tile: str = _key("tile as --tiles takes it; empty for kernels without one")
    dtype: str = _key("element type")
    architecture: str = _key("GPU architecture, such as sm_90")
    launch: int = _key("number of the launch among the kernel's launches, from 1", low=1)
    m: int = _key("rows of C; for gemv, gemv_t and atax, rows of A", low=1, high=LARGEST)
    n: int = _key("columns of C; for gemv, gemv_t and atax, columns of A", low=1, high=LARGEST)
    k: int = _key("inner extent; 1 for gemv, gemv_t and atax", low=1, high=LARGEST)
    extents: str = _key("extents beyond m, n and k, joined by ;, such as batch=8", default="")

    status: str | None = _outcome(
        "ok; skipped: not for this architecture or size; error: does not compile"
    )
    reason: str | None = _outcome("why the status is not ok")

    kernel: str | None = _code("name of the template that is launched")
    registers: int | None = _code("registers per thread")
    spill_bytes: int | None = _code("bytes of spill stores per thread")
    local_bytes: int | None = _code("stack frame per thread: spills and local arrays")
    static_shared_bytes: int | None = _code("shared memory per block that is declared")
    dynamic_shared_bytes: int | None = _code("shared memory per block that the launch requests")
    max_threads_per_block: int | None = _code("thread limit of __launch_bounds__, if known")

    threads_per_block: int | None = _multiprocessor("threads in a block")
    resident_blocks: int | None = _multiprocessor(
        "blocks that a multiprocessor holds; 0: the launch would fail"
    )
    occupancy: float | None = _multiprocessor(
        "warps that a multiprocessor holds, over its maximum, 0 to 1"
    )
    limited_by: str | None = _multiprocessor("resources that allow no further block, joined by ;")

    gpu: str | None = _grid("the example GPU whose multiprocessors count for waves")
    blocks: int | None = _grid("blocks in the grid")
    waves: float | None = _grid("blocks in the grid over blocks that the GPU holds at once")

    loop_instructions: int | None = _loop("instructions of an iteration")
    loop_float64: int | None = _loop(
        "in float64 kernels without multiply-adds: float64 arithmetic and conversions"
    )
    multiply_adds_per_instruction: float | None = _loop("multiply-adds of a thread per instruction")

    sectors_per_request: float | None = _accesses("sectors of 32 bytes per request of a warp")
    sectors_over_least: float | None = _accesses("sectors over the minimum for these bytes")
    bank_conflict_ways: float | None = _accesses(
        "wavefronts over their number without bank conflicts"
    )
    uncoalesced_lines: str | None = _accesses(
        "source lines with needless sectors and the factor, joined by ;"
    )
    bank_conflict_lines: str | None = _accesses(
        "source lines with bank conflicts and the ways, joined by ;"
    )
    not_analysed: str | None = _accesses("what was not analysed, joined by ;")

    compiler: str | None = _context("name and version of the compiler")
    disassembler: str | None = _context("version of nvdisasm; empty: no inner loop was analysed")
    recorder: str | None = _context("version of g++; empty: no accesses were analysed")
    options: str | None = _context("the kernel's own compile options, joined by a blank")
    source_hash: str | None = _context("hash of the kernel's files")
    gpubench: str | None = _context("version of gpubench")

    @property
    def key(self) -> BuildKey:
        """The key that identifies the row, within a file and across files."""
        return BuildKey._make(getattr(self, name) for name in BuildKey._fields)

    @property
    def compute_mode(self) -> str:
        """The element type. The rows of a sweep have a column with this name."""
        return self.dtype

    @property
    def label(self) -> str:
        """The name of the row that users see, such as `shared_tile 16 float32 sm_90`."""
        words = [self.variant, self.tile, self.dtype, self.architecture]
        words += [f"launch {self.launch}"] if self.launch > 1 else []
        return " ".join(filter(None, words))


REQUIRED = (*BuildKey._fields[:-1], "status", "registers", "loop_instructions")
"""Columns that every build file must have. A file with these columns is recognized as a build file.
Files of older versions lack `extents`, the last column of the key."""

_FILE = Columns(BuildRow, REQUIRED, "a build file")
COLUMNS, NAMES = _FILE.fields, _FILE.names
encode, is_build_file = _FILE.encode, _FILE.are_in


def read(path: Path) -> list[BuildRow]:
    """Read the rows of a build file, in the forms that `Columns.read` accepts.

    Raises UsageError for a file without rows or without a column of `REQUIRED`, for a row that
    occurs twice, and for an invalid field. The message about a field names the line and the column.
    """
    rows = _FILE.read(path)
    if not rows:
        raise UsageError(f"{path}: has no rows")
    repeated = next((key for key, n in Counter(row.key for row in rows).items() if n > 1), None)
    if repeated:
        label = next(row.label for row in rows if row.key == repeated)
        raise UsageError(f"{path}: {label} occurs twice")
    return rows
