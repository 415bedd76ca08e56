"""Defines variants, the ways to compute a problem."""

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
from gpubench.model.expression import MAX_CHARACTERS, Expression
from gpubench.model.launch import Gpu, Launch, PlainLaunch
from gpubench.model.operation import LARGEST, OPERATIONS
from gpubench.model.precision import CORE_DTYPES, PRECISIONS
from gpubench.model.problem import LAYOUTS, Problem, layout_text
from gpubench.model.signature import (
    WORKSPACE,
    Parameter,
    only_extent,
    parameters,
    why_other_element,
)
from gpubench.model.sources import include_folders, whole_source

Sample = Callable[[Callable[..., None], int], float]
"""Takes (function of inputs and output, number of launches) and returns microseconds per launch."""

_FILE = re.compile(r"[^-].*\.(cu|cpp|cc|o|a|so)")

MAX_GRID_Y = 65_535
"""Largest y or z dimension of a grid (CUDA C++ Programming Guide, technical specifications)."""

PORTABLE_CLUSTER = 8
"""Maximum number of blocks in a cluster on every GPU that has clusters."""

LARGE_CLUSTERS = ((9, 0), (10, 0))
"""Compute capabilities that are known to have clusters of 16 blocks."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to compute an operation.

    The `.py` file of a variant describes the variant. The file's path determines `name` and `op`.
    """

    idea: str
    """What the kernel teaches, in one line of text."""

    dtypes: tuple[str, ...] = CORE_DTYPES
    tiles: Space | None = None
    """The space of the variant's tiles. None if there is no tile to choose."""

    auto_tiles: Callable[[Problem, int], tuple[str, ...]] | None = None
    """Takes (problem, number of multiprocessors) and returns the tiles of `--tiles auto`, the best
    tile first. None means the default tiles."""

    baseline: str = ""
    """Name of the BLAS variant that the kernel is compared with. Empty means no comparison."""

    default: bool = True
    """Whether a sweep that names no variants runs this variant."""

    after: str = ""
    """The previous step of the ladder, which this variant changes in one way. Empty if the variant
    is not a step."""

    rival: bool = False
    """Whether the variant calls a rival library, which `compare-cublas --rivals` includes."""

    tunes: str = ""
    """The BLAS variant that this variant calls with a tuned algorithm. The faster of the two
    variants is the baseline. Empty if this variant is not a tuned call."""

    capability: tuple[int, int] = (0, 0)
    """The lowest compute capability that the kernel runs on."""

    refuse: Callable[[Any, Problem], str | None] = lambda _tile, _problem: None
    """Takes (legal tile, problem) and returns why the variant cannot take both, or None. If the
    variant has no tiles, the tile is None for a function, and `Config()` for a kernel."""

    reuse: Callable[[Config], tuple[int, int]] | None = None
    """Takes a tile and returns how many rows and columns of C share one load from global memory.
    These are (1, 1) without tiling, and (R, 1) if R elements of a vector share a load of the other
    vector. None means that the numbers are not known."""

    libraries: tuple[str, ...] = ()
    """Packages that the function imports, such as `torch`. The function's code depends on the
    versions of these packages."""

    file: str = ""
    """The file of the variant's code, relative to the descriptor. Empty means the usual file of
    this kind of variant."""

    column_major: tuple[str, ...] = ()
    """The matrices that the kernel requires in column-major order, such as `("B",)`."""

    layouts: tuple[str, ...] = ()
    """The values of `--layouts` that the kernel takes besides its own layout, such as `("nn",
    "nt")`."""

    reads_output: bool = False
    """Whether the kernel reads the output before writing it. The output then holds zeros at
    first."""

    fixed_addresses: bool = False
    """Whether the kernel keeps the addresses of its arguments, as in a tensor map. The kernel is
    then launched only at the point's own size, and all operands are copied to these addresses
    before the clock starts."""

    name: str = ""
    op: str = ""
    path: Path = field(default=Path(), compare=False)
    """The file that describes the variant."""

    @property
    def backend(self) -> str:
        """Name of the backend that runs the variant, such as `cuda` or `cpu`."""
        raise NotImplementedError

    @property
    def is_blas(self) -> bool:
        """Whether the variant calls the vendor's BLAS, as a baseline or with a tuned algorithm."""
        return self.name == self.baseline or self.tunes != ""

    def may_overlap(self, tile: Config | None, problem: Problem) -> bool:  # noqa: ARG002 # see CudaVariant
        """Whether a launch may begin before the previous launch has ended."""
        return True

    @property
    def source(self) -> Path:
        """The file that contains the variant's code."""
        return self.path.parent / self.file if self.file else self.path

    @property
    def sources(self) -> tuple[Path, ...]:
        """Every file that the variant's code depends on, the descriptor first."""
        return tuple(dict.fromkeys((self.path, self.source)))

    def own_layout(self, dtype: str) -> tuple[str, ...]:
        """Return the matrices that are column-major in a sweep without `--layouts`."""
        return self.column_major or PRECISIONS[dtype].column_major

    def tiles_for(self, problem: Problem, multiprocessors: int) -> tuple[Config, ...]:
        """Return the tiles that `--tiles auto` picks for a problem, the best tile first."""
        if self.tiles is None:
            return ()
        texts = self.auto_tiles(problem, multiprocessors) if self.auto_tiles else ()
        return tuple(map(self.tiles.read, texts)) or self.tiles.defaults

    def why_not(
        self, tile: Config | None, problem: Problem, capability: tuple[int, int] | None = None
    ) -> str | None:
        """Return why the variant cannot compute a problem with a tile, or None.

        `capability` is the GPU's compute capability. None means that the capability is not checked.
        """
        if capability is not None and self.capability > capability:
            needs, has = (".".join(map(str, pair)) for pair in (self.capability, capability))
            return f"needs compute capability {needs}, and this GPU has {has}"
        if problem.dtype not in self.dtypes:
            return f"has no {problem.dtype}, only {', '.join(self.dtypes)}"
        own = self.own_layout(problem.dtype)
        if problem.column_major not in (own, *(LAYOUTS[name] for name in self.layouts)):
            return f"takes its operands {layout_text(own)} only, not {problem.layout}"
        if missing := [name for name in self.libraries if not _is_installed(name)]:
            # No command installs a module by its name: on PyPI the name may be another project's.
            return f"needs {' and '.join(missing)}, which Python does not find"
        if tile is not None and self.tiles is not None and (reason := self.tiles.why_not(tile)):
            return reason
        return self.refuse(tile, problem)


@cache
def _is_installed(package: str) -> bool:
    return find_spec(package) is not None


def _missing(*_: object) -> Any:
    """Raise NotImplementedError in place of a function that a description leaves out."""
    raise NotImplementedError


def _filled(text: str, tile: Config | None, dtype: str) -> str:
    """Replace names in braces by the tile's parameters and the C++ type of an element.

    Raise ValueError for other braces.
    """
    arguments = {
        name: Config([(name, value)]).arguments for name, value in (tile.items() if tile else ())
    }
    try:
        return text.format(scalar=PRECISIONS[dtype].cpp, **arguments)
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        names = ", ".join(("scalar", *arguments))
        raise ValueError(f"'{text[:MAX_CHARACTERS]}': braces hold only {names}") from error


@dataclass(frozen=True, kw_only=True)
class SourceVariant(Variant):
    """A variant whose code is a CUDA C++ file, by default `NAME.cu` beside its descriptor."""

    compile_options: tuple[str, ...] = ()
    """Further options of the compiler, with the tile's parameters in braces: `-DBM={BM}`. Paths
    of include folders, and of files to link to a host function, are relative to the descriptor."""

    baseline: str = "cublas"

    signature: str = ""

    @property
    def only_extent(self) -> str:
        """The only extent that the signature takes for M, N and K, or an empty text.

        The text is also empty if a launch passes further numbers, because these may be extents.
        """
        return only_extent(self.signature, self.op)

    def why_not(
        self, tile: Config | None, problem: Problem, capability: tuple[int, int] | None = None
    ) -> str | None:
        """Also refuse a problem whose extents or elements the signature does not take."""
        reasons = (why_other_element(each, problem) for each in parameters(self.signature))
        if reason := next(filter(None, reasons), None):
            return reason
        if len({problem.m, problem.n, problem.k}) > 1 and self.only_extent:
            return f"the signature takes one extent, {self.only_extent}: only square matrices"
        return super().why_not(tile, problem, capability)

    @property
    def source(self) -> Path:
        """The path of the CUDA C++ file or of the library."""
        return self.path.parent / (self.file or f"{self.path.stem}.cu")

    @property
    def sources(self) -> tuple[Path, ...]:
        """The descriptor, the source, the linked files, and the files that these files include."""
        options = self._with_paths()
        linked = (Path(option) for option in options if _FILE.fullmatch(option))
        folders = include_folders(options)
        files = (each for file in (self.source, *linked) for each in whole_source(file, folders))
        return tuple(dict.fromkeys((self.path, *files)))

    def options(self, tile: Config | None, dtype: str) -> tuple[str, ...]:
        """Return the compile options for a tile and a dtype."""
        return tuple(_filled(option, tile, dtype) for option in self._with_paths())

    def _with_paths(self) -> tuple[str, ...]:
        """Return the compile options, with the descriptor's folder before relative paths."""
        here = self.path.parent
        options = []
        for option in self.compile_options:
            if folder := re.fullmatch(r"(-I|-L|--include-path=)(.+)", option):
                options.append(f"{folder[1]}{here / folder[2]}")
            else:
                options.append(str(here / option) if _FILE.fullmatch(option) else option)
        return tuple(options)


def _why_not_launched(launch: Launch, capability: tuple[int, int] | None) -> str | None:
    """Return why CUDA cannot launch the grid, or None."""
    blocks = "×".join(map(str, launch.grid))
    if any(extent > MAX_GRID_Y for extent in launch.grid[1:]):
        return f"a grid of {blocks} blocks: the maximum in y and z is {MAX_GRID_Y}"
    if min(launch.dimensions) < 1 or launch.grid[0] > LARGEST:
        threads = "×".join(map(str, launch.block))
        return f"a grid of {blocks} blocks of {threads} threads cannot be launched"
    cluster = math.prod(launch.cluster)
    if cluster > PORTABLE_CLUSTER and capability not in {None, *LARGE_CLUSTERS}:
        return f"a cluster of {cluster} blocks: this GPU allows only {PORTABLE_CLUSTER}"
    return None


@dataclass(frozen=True, kw_only=True)
class CudaVariant(SourceVariant):
    """A CUDA C++ template beside its descriptor: `NAME.cu` holds `NAME<Scalar, tile numbers…>`.

    The template's signature is `(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int
    K)`, and for vectors `(const Scalar* A, const Scalar* x, Scalar* y, int M, int N)`. A workspace
    follows the output, and further int arguments come last. `kernel` and `signature` describe
    kernels with another name or signature.
    """

    backend = "cuda"

    kernel: str = ""
    """The kernel's name in C++, with the tile's parameters in braces, such as `sgemm<{BM}, {BN}>`.
    `{scalar}` is the type of an element. Empty means the template of the class docstring."""

    signature: str = ""
    """The kernel's parameters as in the source, `int M, float alpha=1, const float* A, float* C`.

    A name means an array (A, B, C; A, x, y; workspace), an extent (M, N, K) or a stride (lda, ldb,
    ldc), in any case. `= 1` passes a constant, `= null` a null pointer, `= A` or `= M*N` gives the
    meaning of another name, and `= launch` passes the next of the launch's int arguments. A
    `CUtensorMap` gets the next of the launch's tensor maps. Empty means the signature of the class
    docstring."""

    grid: Expression | tuple[Expression, ...] = ()
    """Number of blocks in x, y and z, as expressions of `model.expression` such as `("N/64",
    "M/64")`, where `/` rounds up. The names are M, N, K and the tile's parameters. Empty means that
    `launch` gives the grid."""

    block: Expression | tuple[Expression, ...] = ()
    """Number of threads of a block in x, y and z, like `grid`: `256`, `("edge", "edge")`."""

    shared_bytes: Expression = 0
    """Number of bytes of dynamic shared memory, as an expression like in `grid`."""

    launch: Callable[[Config, Problem], Launch] = field(default=_missing)
    """Takes (tile, problem) and returns a launch that `grid` and `block` cannot describe."""

    specialize: Callable[[Launch, Config, Problem, Gpu], Launch] | None = None
    """Takes (launch, tile, problem, GPU) and returns the launch that fits the GPU. None means that
    `launch` suits any GPU."""

    tiles: Space = Space()  # noqa: RUF009 # frozen
    """The space of the kernel's tiles. `Space()` is for a kernel without tile parameters."""

    compiler: str = ""
    """`nvcc` means that nvcc compiles the source. Empty means NVRTC, or nvcc if NVRTC cannot
    compile the source."""

    architecture_suffix: str = ""
    """Suffix of the architecture, such as the `a` of `sm_90a`, for instructions that only one
    compute capability has."""

    def __post_init__(self) -> None:
        if self.grid != () and (self.launch is _missing or isinstance(self.launch, PlainLaunch)):
            expressions = (
                tuple(each) if isinstance(each, tuple | list) else (each,)
                for each in (self.grid, self.block, self.shared_bytes)
            )
            object.__setattr__(self, "launch", PlainLaunch(*expressions))

    def options(self, tile: Config | None, dtype: str) -> tuple[str, ...]:
        """Return the compile options for a tile and a dtype.

        The first option names the compiler if the description chooses a compiler.
        """
        chosen = (f"--compiler={self.compiler}",) if self.compiler else ()
        return (*chosen, *super().options(tile, dtype))

    def instance(self, tile: Config, dtype: str, kernel: str = "") -> str:
        """Return the C++ name of a tile's kernel, such as `shared_tile<float, 16>`.

        `kernel` is the kernel of the launch, which may be another template or instance. A variant's
        signature becomes a cast to the function's type, so that the compiler refuses another
        signature.
        """
        scalar = PRECISIONS[dtype].cpp
        if "<" in kernel:
            return _filled(kernel, tile, dtype)
        if kernel or not self.kernel:
            arguments = ", ".join(filter(None, (scalar, tile.arguments)))
            return f"{kernel or self.name}<{arguments}>"
        name = _filled(self.kernel, tile, dtype)
        if not self.signature:
            return name
        types = ", ".join(parameter.cpp for parameter in parameters(self.signature))
        types = re.sub(r"\bScalar\b", scalar, types)
        return f"static_cast<void (*)({types})>({name})"

    def compilation(
        self, tile: Config, dtype: str, architecture: str, kernel: str = ""
    ) -> tuple[Path, str, str, tuple[str, ...]]:
        """Return the source, the kernel's name, the architecture and the compiler's options."""
        instance, options = self.instance(tile, dtype, kernel), self.options(tile, dtype)
        return self.source, instance, self.architecture(architecture), options

    def parameters(self, launch: Launch, *, workspace: bool = False) -> tuple[Parameter, ...]:
        """Return the parameters of a launch's kernel, with or without a workspace.

        Raise ValueError for a signature that cannot be read.
        """
        if self.signature and not launch.kernel:
            return parameters(self.signature)
        operation = OPERATIONS[self.op]
        *operands, output = operation.arrays
        texts = [*(f"const Scalar* {name}" for name in operands), f"Scalar* {output}"]
        if workspace and launch.takes_workspace:
            texts.append(f"Scalar* {WORKSPACE}")
        texts += [f"int {extent}" for extent in operation.extents]
        texts += ["int i=launch"] * len(launch.int_arguments)
        texts += ["CUtensorMap map"] * len(launch.tensor_maps)
        return parameters(", ".join(texts))

    def why_not(
        self, tile: Config | None, problem: Problem, capability: tuple[int, int] | None = None
    ) -> str | None:
        """Also refuse a GPU of another architecture, and a grid that CUDA cannot launch."""
        if reason := super().why_not(tile, problem, capability):
            return reason
        if self.architecture_suffix and capability not in {None, self.capability}:
            return f"runs on compute capability {'.'.join(map(str, self.capability))} only"
        launches = self.launch(tile, problem).sequence if tile is not None else ()
        reasons = (_why_not_launched(launch, capability) for launch in launches)
        return next(filter(None, reasons), None)

    def architecture(self, name: str) -> str:
        """Return an architecture such as `sm_90`, with the suffix that the variant needs."""
        return name if name[-1].isalpha() else name + self.architecture_suffix

    def may_overlap(self, tile: Config | None, problem: Problem) -> bool:
        """Whether the first kernel of a launch has programmatic dependent launch."""
        return tile is not None and self.launch(tile, problem).pdl

    def launch_on(self, gpu: Gpu, tile: Config, problem: Problem) -> Launch:
        """Return the launch for a problem, fitted to a GPU."""
        launch = self.launch(tile, problem)
        return self.specialize(launch, tile, problem, gpu) if self.specialize else launch


@dataclass(frozen=True, kw_only=True)
class BrokenVariant(Variant):
    """A file that cannot be used. The points of such a file are skipped. `idea` states why."""

    runs_on: str = ""
    dtypes: tuple[str, ...] = tuple(PRECISIONS)

    @property
    def backend(self) -> str:
        """Name of the sweep's backend, because the file itself names no backend."""
        return self.runs_on

    def why_not(self, *_: object) -> str:
        """Return the reason why the file cannot be used."""
        return self.idea


@dataclass(frozen=True, kw_only=True)
class CallVariant(Variant):
    """A variant that calls a function on arrays, such as a library's routine or a CPU loop."""

    runs_on: str
    """Name of the backend that runs the function, such as `cuda` or `cpu`."""

    build: Callable[[Config | None, str], Callable[..., None]]
    """Takes (tile, dtype) and returns a function (inputs…, output) that writes into the output.
    After a call, the row takes `resources` and `algorithm` from the function's attributes."""

    build_strided: Callable[[Config | None, str], Callable[..., None]] | None = None
    """Takes (tile, dtype) and returns the function for operands in a layout that is not the
    variant's own. None if the function that `build` returns takes any strides."""

    tensors: str = ""
    """The package whose `from_dlpack` makes the function's arguments, such as `torch`. Empty means
    that the function takes arrays of CuPy or NumPy."""

    returns: bool = False
    """Whether the function takes only the inputs, and returns the result. Each launch then also
    copies the result into the output."""

    tune: Callable[[Problem, bool, Sample, int], tuple[Callable[..., None], str]] | None = None
    """Takes (problem, whether operands are cold, a `Sample`, maximum number of launches per
    sample). Returns the function that calls a library's fastest algorithm, and how this algorithm
    was chosen. None means that `build` returns the only algorithm."""

    threads: int = 0
    """Number of CPU threads that the function may use, at most one for each CPU. 0 means the
    fastest number, which is measured."""

    @property
    def backend(self) -> str:
        """Name of the backend that holds the arrays."""
        return self.runs_on


@dataclass(frozen=True, kw_only=True)
class HostVariant(SourceVariant, CallVariant):
    """A host function of a CUDA C++ file that launches kernels, or a C function of a library.

    nvcc compiles the file to a shared library. A prebuilt `.so` is loaded as it is. A C function
    that computes on the CPU has `runs_on="cpu"`.
    """

    entry: str
    """The function's name in C++, with the tile's parameters in braces: `run<{scalar}, {BM}>`."""

    signature: str
    """The function's parameters, as in `CudaVariant`. `const float* alpha=1` passes the address of
    a number in host memory, and a `cudaStream_t` gets the stream that is timed."""

    waits: bool = False
    """Whether a call waits for the GPU, as `cudaMemcpy` does. The rows then have `waited`
    launches."""

    runs_on: str = "cuda"
    build: Callable[[Config | None, str], Callable[..., None]] = _missing

    def function(self, tile: Config | None, dtype: str) -> str:
        """Return the C++ name of a tile's function, such as `run<float, 16>`."""
        return _filled(self.entry, tile, dtype)

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the function's parameters. Raise ValueError if the signature cannot be read."""
        return parameters(self.signature)
