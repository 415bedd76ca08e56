"""A way to compute a problem, and how it is launched. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gpubench.model.precision import CORE_DTYPES
from gpubench.model.problem import Problem
from gpubench.model.tile import Tile, TileSpace


@dataclass(frozen=True, kw_only=True)
class TensorMap:
    """A row-major matrix for the tensor memory accelerator (TMA) of compute capability 9.0."""

    array: int
    """Index of the kernel's array that holds it: operands, output, workspace."""

    shape: tuple[int, int]
    """Rows and columns; a row's bytes are a multiple of 16."""

    box: tuple[int, int]
    """Rows and columns of one copy, at most 256 each; outside the matrix it reads zeros."""

    offset_bytes: int = 0
    """Where it starts in the array."""

    swizzle_bytes: int = 0
    """Width of the pattern that spreads a box over the banks of shared memory: 32, 64 or 128, and a
    row of the box is at most as wide; 0: none."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A kernel launch: the grid in blocks, the block in threads, dynamic shared memory in bytes."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int = 0
    kernel: str = ""
    """The template in the variant's source; empty: the one that bears the variant's name."""

    int_arguments: tuple[int, ...] = ()
    """Further int arguments, after the extents."""

    workspace_bytes: int = 0
    """Device memory for intermediate results, passed as a pointer after the output; it holds
    garbage at first."""

    tensor_maps: tuple[TensorMap, ...] = ()
    """Passed by value after all else, as 128-byte structures."""

    pdl: bool = False
    """May start while the launch before it ends, as its kernel waits for that one itself
    (programmatic dependent launch, from compute capability 9.0)."""

    cluster: tuple[int, int, int] = (1, 1, 1)
    """Blocks of a thread block cluster (compute capability 9.0); the grid is a multiple of it."""

    next_launches: tuple[Launch, ...] = ()
    """Launches that complete the result, with the same workspace; they are timed with it."""

    @property
    def sequence(self) -> tuple[Launch, ...]:
        """This launch and those that follow."""
        return (self, *self.next_launches)

    @property
    def main(self) -> Launch:
        """The launch of the kernel that bears the variant's name, or the first if none does."""
        return next((launch for launch in self.sequence if not launch.kernel), self)

    @property
    def has_attributes(self) -> bool:
        """Whether the driver must be given more than grid, block and shared memory."""
        return self.pdl or self.cluster != (1, 1, 1)

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

    dtypes: tuple[str, ...] = CORE_DTYPES
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


@dataclass(frozen=True, kw_only=True)
class CudaVariant(Variant):
    """A CUDA C++ template beside its descriptor: `NAME.cu` holds `NAME<Scalar, tile numbers…>`.

    Signature: `(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K)`, with vectors
    `(const Scalar* A, const Scalar* x, Scalar* y, int M, int N)`. A launch with a workspace has
    `Scalar* workspace` after the output, and its further int arguments come last.
    """

    launch: Callable[[Tile, Problem], Launch]
    specialize: Callable[[Launch, Tile, Problem, Gpu], Launch] | None = None
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
        return self.specialize(launch, tile, problem, gpu) if self.specialize else launch


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
