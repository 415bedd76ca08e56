"""The nouns of a plan: what is measured, and how. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from gpubench.operation import OPERATIONS, Operation, Shape
from gpubench.tile import Tile, TileSpace

ITEM_BYTES = {"float32": 4, "float64": 8, "int32": 4}
DTYPES = tuple(ITEM_BYTES)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One operation at one size, such as C (M×N) = A (M×K) · B (K×N), row-major, in one dtype."""

    op: str
    m: int
    n: int
    k: int = 1
    """1 for operations on a matrix and a vector."""

    dtype: str

    @property
    def operation(self) -> Operation:
        """The operation's shapes and work."""
        return OPERATIONS[self.op]

    @property
    def flops(self) -> int:
        """Floating-point (or integer) operations, a multiply-add counted as two."""
        return self.operation.flops(self.m, self.n, self.k)

    @property
    def bytes(self) -> int:
        """Bytes that must move at the least: each operand once, the result once."""
        shapes = (*self.operation.inputs(self.m, self.n, self.k), self.output_shape)
        return ITEM_BYTES[self.dtype] * sum(math.prod(shape) for shape in shapes)

    @property
    def input_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the operands, in the kernels' argument order."""
        return self.operation.inputs(self.m, self.n, self.k)

    @property
    def output_shape(self) -> Shape:
        """Shape of the result."""
        return self.operation.output(self.m, self.n, self.k)

    @property
    def terms(self) -> int:
        """Products summed for an element of the result."""
        return self.operation.terms(self.m, self.n, self.k)

    @property
    def size(self) -> str:
        """The size as `--sizes` takes it."""
        return self.operation.size(self.m, self.n, self.k)


@dataclass(frozen=True, kw_only=True)
class TensorMap:
    """A row-major matrix as the copy engine of compute capability 9.0 (TMA) is told of it."""

    array: int
    """Which of the kernel's arrays it lies in: operands, output and workspace, from 0."""

    shape: tuple[int, int]
    """Rows and columns; a row's bytes are a multiple of 16."""

    box: tuple[int, int]
    """Rows and columns of one copy, at most 256 each; past the matrix it brings zeros."""

    offset_bytes: int = 0
    """Where in the array it begins."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A kernel launch: the grid in blocks, the block in threads, dynamic shared memory in bytes."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int = 0
    kernel: str = ""
    """The template in the variant's source; empty: the one that bears the variant's name."""

    numbers: tuple[int, ...] = ()
    """Further int arguments, after the extents."""

    workspace_bytes: int = 0
    """Device memory for intermediate results, passed as a pointer after the output; it holds
    garbage at first."""

    maps: tuple[TensorMap, ...] = ()
    """Passed by value after all else, as 128-byte structures."""

    early: bool = False
    """May begin while the launch before it ends, as its kernel waits for that one itself
    (programmatic dependent launch, from compute capability 9.0)."""

    then: tuple[Launch, ...] = ()
    """Launches that complete the result, with the same workspace; they are timed with it."""

    @property
    def sequence(self) -> tuple[Launch, ...]:
        """This launch and those that follow."""
        return (self, *self.then)

    @property
    def main(self) -> Launch:
        """The launch of the kernel that bears the variant's name, or the first if none does."""
        return next((one for one in self.sequence if not one.kernel), self)

    @property
    def blocks(self) -> int:
        """Blocks in the grid."""
        return math.prod(self.grid)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The grid's x, y and z, then the block's, as CUDA's launches take them."""
        return (*(*self.grid, 1, 1)[:3], *(*self.block, 1, 1)[:3])

    @property
    def threads_per_block(self) -> int:
        """Threads in a block."""
        return math.prod(self.block)


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """What a launch may be fitted to."""

    multiprocessors: int
    threads_per_multiprocessor: int
    """Threads that can be resident at once."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to compute an operation. Its `.py` describes it; name and op come from the path."""

    idea: str
    """What it teaches, in a line."""

    dtypes: tuple[str, ...] = DTYPES
    tiles: TileSpace | None = None
    """None: the variant has no tile to choose."""

    baseline: str
    """Variant of the vendor's BLAS that it is compared with; empty: it has none."""

    default: bool = True
    """Whether a sweep that names no variants runs it."""

    after: str = ""
    """The variant it changes one thing of: its predecessor on the ladder; empty: not a step."""

    tunes: str = ""
    """The BLAS variant that this is a tuned call of: the faster of both is what others are held
    against; empty: none."""

    name: str = ""
    op: str = ""
    path: Path = field(default=Path(), compare=False)
    """The descriptor's file."""

    @property
    def backend(self) -> str:
        """`cuda` or `cpu`."""
        raise NotImplementedError

    def compute_mode(self, dtype: str) -> str:
        """Arithmetic used: the dtype's own unless a kernel says otherwise (no TF32 for float32)."""
        return dtype


@dataclass(frozen=True, kw_only=True)
class CudaVariant(Variant):
    """A CUDA C++ template beside its descriptor: `NAME.cu` holds `NAME<Scalar, tile numbers…>`.

    Signature: `(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K)`, with vectors
    `(const Scalar* A, const Scalar* x, Scalar* y, int M, int N)`. A launch with a workspace has
    `Scalar* workspace` after the output, and its further numbers come last.
    """

    launch: Callable[[Tile, Problem], Launch]
    fit: Callable[[Launch, Tile, Problem, Gpu], Launch] | None = None
    """The launch fitted to a GPU, for grids that follow the device; None: `launch` suits any."""

    capability: tuple[int, int] = (0, 0)
    """The lowest compute capability that has what the kernel needs."""

    refuse: Callable[[Tile, Problem], str | None] = lambda _tile, _problem: None
    """Why the kernel cannot take a problem with a legal tile, or None."""

    reuse: Callable[[Tile], tuple[int, int]]
    """Rows and columns of C that share one load from global memory: (1, 1) without tiling, (R, 1)
    where R elements of a vector share a load of the other."""

    baseline: str = "cublas"

    @property
    def backend(self) -> str:
        """A CUDA source runs on the CUDA backend."""
        return "cuda"

    @property
    def source(self) -> Path:
        """The CUDA C++ file."""
        return self.path.with_suffix(".cu")

    def launch_on(self, gpu: Gpu, tile: Tile, problem: Problem) -> Launch:
        """The launch on a GPU."""
        launch = self.launch(tile, problem)
        return self.fit(launch, tile, problem, gpu) if self.fit else launch


@dataclass(frozen=True, kw_only=True)
class CallVariant(Variant):
    """A function on arrays: a library's routine, or a loop compiled for the CPU."""

    runs_on: str
    """`cuda` or `cpu`."""

    build: Callable[[Tile | None, str], Callable[..., None]]
    """Tile and dtype give the function (inputs…, output) that computes into the output."""

    threads: int = 0
    """CPU threads it may use; 0: all."""

    @property
    def backend(self) -> str:
        """Where the arrays live."""
        return self.runs_on


class Cache(StrEnum):
    """What the caches hold when a launch starts."""

    COLD = "cold"
    HOT = "hot"


class Scope(StrEnum):
    """What the clock sees: the kernel alone, or allocation and copies too."""

    KERNEL = "kernel"
    END_TO_END = "end-to-end"


class Fill(StrEnum):
    """What operands hold."""

    UNIFORM = "uniform"
    """Drawn from [−1, 1], integers from [−1000, 1000]."""

    INDEX = "index"
    """Element i of the first operand is i, of the second 2·i, and so on; integers wrap."""


class Timer(StrEnum):
    """Which clock: events (time per launch in a stream), CUPTI (execution), or the host's."""

    EVENTS = "events"
    CUPTI = "cupti"
    HOST = "host"


class Status(StrEnum):
    """How a point ended; each but `ok` comes with a reason."""

    OK = "ok"
    SKIPPED = "skipped"
    WRONG = "wrong"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One thing to measure."""

    variant: Variant
    tile: Tile | None
    problem: Problem
    cache: Cache
    scope: Scope
    timer: Timer

    @property
    def label(self) -> str:
        """What a person calls it: `shared_tile 16 at 1024 float32`."""
        tile = f" {self.tile}" if self.tile else ""
        return f"{self.variant.name}{tile} at {self.problem.size} {self.problem.dtype}"
