"""A way to compute a problem, and how it is launched. Standard library only."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpubench.model.config import Config, Space
from gpubench.model.operation import OPERATIONS
from gpubench.model.precision import CORE_DTYPES, PRECISIONS
from gpubench.model.problem import Problem
from gpubench.model.signature import WORKSPACE, Parameter, parameters
from gpubench.model.sources import include_folders, whole_source

Sample = Callable[[Callable[..., None], int], float]
"""(function of inputs and output, launches) → its time in microseconds per launch."""

MAX_GRID_Y = 65_535
"""CUDA C++ Programming Guide, technical specifications: largest y dimension of a grid."""


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

    l2_promotion_bytes: int = 128
    """What the L2 cache fetches at once at the least: 64, 128 or 256; 0: what the copy asks for."""


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
    tiles: Space | None = None
    """None: the variant has no tile to choose."""

    baseline: str
    """Variant of the vendor's BLAS that it is compared with; empty: it has none."""

    default: bool = True
    """Whether a sweep that names no variants runs it."""

    after: str = ""
    """The variant it changes one thing of: its predecessor on the ladder; empty: not a step."""

    rival: bool = False
    """Whether it is what a program would use in place of a kernel of one's own: `compare-cublas
    --rivals` takes it in."""

    tunes: str = ""
    """The BLAS variant that this is a tuned call of: the faster of both is what others are held
    against; empty: none."""

    capability: tuple[int, int] = (0, 0)
    """The lowest compute capability that has what it needs."""

    refuse: Callable[[Any, Problem], str | None] = lambda _tile, _problem: None
    """Why it cannot take a problem with a legal tile (None without tiles to choose), or None."""

    reuse: Callable[[Config], tuple[int, int]] | None = None
    """Rows and columns of C that share one load from global memory: (1, 1) without tiling, (R, 1)
    where R elements of a vector share a load of the other; None: not known."""

    libraries: tuple[str, ...] = ()
    """Packages that it imports, and whose versions decide its code, such as `torch`."""

    file: str = ""
    """The file of its code, relative to the descriptor; empty: as the kind of variant has it."""

    column_major: tuple[str, ...] = ()
    """The matrices that it takes column by column, such as `("B",)`: they are laid out so before
    anything is timed, and the row's layout says it."""

    reads_output: bool = False
    """Whether it reads the result before it writes it, as `beta * C` does: then that holds zeros at
    first, and not NaN."""

    name: str = ""
    op: str = ""
    path: Path = field(default=Path(), compare=False)
    """The descriptor's file."""

    @property
    def backend(self) -> str:
        """Name of the backend it runs on, such as `cuda` or `cpu`."""
        raise NotImplementedError

    @property
    def source(self) -> Path:
        """The file of its code."""
        return self.path.parent / self.file if self.file else self.path

    @property
    def sources(self) -> tuple[Path, ...]:
        """Every file that decides its code, the descriptor first."""
        return tuple(dict.fromkeys((self.path, self.source)))

    def why_not(
        self, tile: Config | None, problem: Problem, capability: tuple[int, int] | None = None
    ) -> str | None:
        """Why it cannot compute a problem with a tile, or None.

        `capability` is the GPU's compute capability; None leaves it open.
        """
        if capability is not None and self.capability > capability:
            needs, has = (".".join(map(str, one)) for one in (self.capability, capability))
            return f"needs compute capability {needs}, and this GPU has {has}"
        if problem.dtype not in self.dtypes:
            return f"has no {problem.dtype}, only {', '.join(self.dtypes)}"
        if missing := [name for name in self.libraries if not _is_installed(name)]:
            return f"needs {' and '.join(missing)}: pip install {' '.join(missing)}"
        if tile is not None and self.tiles is not None and (reason := self.tiles.why_not(tile)):
            return reason
        return self.refuse(tile, problem)


@cache
def _is_installed(package: str) -> bool:
    return find_spec(package) is not None


@dataclass(frozen=True, kw_only=True)
class CudaVariant(Variant):
    """A CUDA C++ template beside its descriptor: `NAME.cu` holds `NAME<Scalar, tile numbers…>`.

    Signature: `(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K)`, with vectors
    `(const Scalar* A, const Scalar* x, Scalar* y, int M, int N)`. A launch with a workspace has
    `Scalar* workspace` after the output, and its further int arguments come last. A kernel with
    another name or signature says so by `kernel` and `signature`.
    """

    kernel: str = ""
    """The kernel as C++ names it, with the tile's parameters in braces: `sgemm<{BM}, {BN}>`, where
    `{scalar}` is the type of an element; empty: as above."""

    signature: str = ""
    """Its parameters as in the source, `int M, float alpha=1, const float* A, float* C`. A name is
    an array (A, B, C; A, x, y; workspace), an extent (M, N, K) or a stride (lda, ldb, ldc), in any
    case; `= 1` gives a constant, `= A` or `= M*N` what another name means, and `= launch` the next
    of the launch's int arguments. A `CUtensorMap` is the next of its tensor maps. Empty: as above.
    """

    launch: Callable[[Config, Problem], Launch]
    specialize: Callable[[Launch, Config, Problem, Gpu], Launch] | None = None
    """The launch fitted to a GPU, for grids that follow the device; None: `launch` suits any."""

    tiles: Space = field()

    auto_tiles: Callable[[Problem, int], tuple[str, ...]] | None = None
    """The tiles of `--tiles auto` for a problem and a number of multiprocessors, as users write
    them, the best first; None: the default tiles."""

    compile_options: tuple[str, ...] = ()
    """Further options of NVRTC, such as `--use_fast_math`, with the tile's parameters in braces:
    `-DBM={BM}`. An include folder, `-Iinclude`, is relative to the descriptor."""

    architecture_suffix: str = ""
    """`a` for the features of one architecture only (`sm_90a`); it runs on no other capability."""

    baseline: str = "cublas"

    @property
    def backend(self) -> str:
        """A CUDA source runs on the CUDA backend."""
        return "cuda"

    @property
    def source(self) -> Path:
        """The CUDA C++ file."""
        return self.path.parent / (self.file or f"{self.path.stem}.cu")

    @property
    def sources(self) -> tuple[Path, ...]:
        """The descriptor, the CUDA C++ file and what that includes."""
        folders = include_folders(self._options)
        return (self.path, *whole_source(self.source, folders))

    @property
    def _options(self) -> tuple[str, ...]:
        """The compile options, include folders relative to the descriptor."""
        here = self.path.parent
        return tuple(
            re.sub(r"^(-I|--include-path=)(.+)", lambda folder: f"-I{here / folder[2]}", option)
            for option in self.compile_options
        )

    def options(self, tile: Config, dtype: str) -> tuple[str, ...]:
        """The compile options of an instance."""
        return tuple(self._filled(option, tile, dtype) for option in self._options)

    def instance(self, tile: Config, dtype: str, kernel: str = "") -> str:
        """The kernel of a tile as C++ names it: `shared_tile<float, 16>`.

        `kernel` names another template of the source. With a signature of its own the name has the
        function's type, so that the compiler refuses another one.
        """
        scalar = PRECISIONS[dtype].cpp
        if kernel or not self.kernel:
            return f"{kernel or self.name}<{scalar}, {tile.arguments}>"
        name = self._filled(self.kernel, tile, dtype)
        if not self.signature:
            return name
        types = ", ".join(parameter.cpp for parameter in parameters(self.signature))
        types = re.sub(r"\bScalar\b", scalar, types)
        return f"static_cast<void (*)({types})>({name})"

    def parameters(self, launch: Launch, *, workspace: bool = False) -> tuple[Parameter, ...]:
        """The parameters of a launch's kernel, with or without a workspace.

        Raises ValueError for a signature that cannot be read.
        """
        if self.signature and not launch.kernel:
            return parameters(self.signature)
        operation = OPERATIONS[self.op]
        *operands, output = operation.arrays
        return parameters(
            ", ".join(
                (
                    *(f"const Scalar* {name}" for name in operands),
                    *(f"Scalar* {name}" for name in (output, *([WORKSPACE] * workspace))),
                    *(f"int {extent}" for extent in ("M", "N", "K")[: 2 + operation.has_k]),
                    *("int i=launch" for _ in launch.int_arguments),
                    *("CUtensorMap map" for _ in launch.tensor_maps),
                )
            )
        )

    def _filled(self, text: str, tile: Config, dtype: str) -> str:
        """A text with the tile's parameters, and the type of an element, in place of braces."""
        arguments = {name: Config([(name, value)], ()).arguments for name, value in tile.items()}
        return text.format(scalar=PRECISIONS[dtype].cpp, **arguments)

    def why_not(
        self, tile: Config | None, problem: Problem, capability: tuple[int, int] | None = None
    ) -> str | None:
        """Those of every variant; another architecture; a grid beyond what the driver takes."""
        if reason := super().why_not(tile, problem, capability):
            return reason
        if self.architecture_suffix and capability not in {None, self.capability}:
            return f"runs on compute capability {'.'.join(map(str, self.capability))} only"
        for launch in self.launch(tile, problem).sequence if tile else ():
            if any(blocks > MAX_GRID_Y for blocks in launch.grid[1:]):
                blocks = "×".join(map(str, launch.grid))
                return f"a grid of {blocks} blocks: at most {MAX_GRID_Y} in y"
        return None

    def tiles_for(self, problem: Problem, multiprocessors: int) -> tuple[Config, ...]:
        """Return the tiles that suit a problem, the best first: those of `--tiles auto`."""
        texts = self.auto_tiles(problem, multiprocessors) if self.auto_tiles else ()
        return tuple(map(self.tiles.read, texts)) or self.tiles.defaults

    def architecture(self, name: str) -> str:
        """An architecture such as `sm_90` with the suffix it needs."""
        return name if name[-1].isalpha() else name + self.architecture_suffix

    def launch_on(self, gpu: Gpu, tile: Config, problem: Problem) -> Launch:
        """The launch on a GPU."""
        launch = self.launch(tile, problem)
        return self.specialize(launch, tile, problem, gpu) if self.specialize else launch


@dataclass(frozen=True, kw_only=True)
class BrokenVariant(Variant):
    """A file that cannot be used; `idea` says why, and its points are skipped for that."""

    runs_on: str = ""
    baseline: str = ""
    dtypes: tuple[str, ...] = tuple(PRECISIONS)

    @property
    def backend(self) -> str:
        """Not known: that of the sweep."""
        return self.runs_on

    def why_not(self, *_: object) -> str:
        """What is wrong with the file."""
        return self.idea


@dataclass(frozen=True, kw_only=True)
class CallVariant(Variant):
    """A function on arrays: a library's routine, or a loop compiled for the CPU."""

    runs_on: str
    """The backend, such as `cuda` or `cpu`."""

    build: Callable[[Config | None, str], Callable[..., None]]
    """Tile and dtype give the function (inputs…, output) that computes into the output. What it has
    as `resources` and `algorithm` goes into the row, read after it ran."""

    tensors: str = ""
    """The package whose `from_dlpack` makes its arguments, such as `torch`; empty: it takes the
    backend's arrays, CuPy's or NumPy's. They are made once, before anything is timed."""

    tune: Callable[[Problem, bool, Sample, int], tuple[Callable[..., None], str]] | None = None
    """For a library with several algorithms: the function by the fastest of them, and which it is.

    Takes the problem, whether operands are cold, what times a function, and the most launches that
    it times at once. None: `build` gives the only one."""

    threads: int = 0
    """CPU threads it may use; 0: as many as serve it best, which is measured."""

    @property
    def backend(self) -> str:
        """Where the arrays live."""
        return self.runs_on
