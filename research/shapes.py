"""Products of random shapes: our kernels beside the better of cuBLAS and cuBLASLt.

    python research/shapes.py --seed 7 --count 60 --dtype bfloat16 --output shapes.csv
    python research/shapes.py --seed 1 --count 30 --every --output fit.csv
    python research/shapes.py --seed 21 --count 30 --odd 1 --output odd.csv
    python research/shapes.py --seed 51 --count 30 --small --output small.csv
    python research/shapes.py --seed 231 --count 30 --few-rows --output few_rows.csv
    python research/shapes.py --seed 331 --count 30 --some-rows --output some_rows.csv
    python research/shapes.py --seed 431 --count 16 --large --output large.csv
    python research/shapes.py --op gemm_gelu --seed 941 --count 30 --graph --output gemm_gelu.csv
    python research/shapes.py --op gemm_batched --seed 951 --count 30 --output gemm_batched.csv

Shapes are drawn with M, N and K log-uniform in 384 to 8192, in multiples of 8 (float32: 4, 8 bits:
16). With `--odd 2` they are 128 to 4096, in odd multiples of 2. The length of rows of 16-bit
elements is then no multiple of 16 bytes. With `--small` they are 16 to 384, and with `--large` 4096
to 16384. Operands that fit into the cache stay there. Every contender runs in short bursts, in
rounds of random order: cuBLAS, cuBLASLt with its fastest algorithm, and each of our kernels with
the configurations of `--tiles auto`. With `--every`, other configurations are measured too,
unless their first sample is slow. Their times show how far the model's pick is from the best
configuration, and the model's constants are fitted to these times.

With `--few-rows`, M is uniform in 1 to 64, with `--some-rows` in 65 to 383, and N and K are
log-uniform in 1024 to 16384. Shapes are drawn twice, for hot weights, which take at most half of
the L2 cache, and for cold weights. Cold launches use several sets of operands in turn, which
together exceed the cache.

With `--op`, all kernels of another operation that pick configurations are measured beside all its
library calls, with hot and with cold operands, at shapes that a library accepts. A batch has 8 to
512 products with extents of 64 to 1024. A grouped product has 8 to 64 groups of 16 to 1024 rows on
average, with N and K of 512 to 4096. With `--graph`, launches are also timed as nodes of a CUDA
graph.

Constants were fitted to the seeds 1, 2, 3, 7, 8, 9, 17, 18, 31, 32, 201, 202 and 901 in 16 bits,
204 and 304 in TF32, 602 in 8 bits, and 11 in float64 and float32. Use other seeds to judge the
model.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice
from operator import attrgetter
from pathlib import Path

import numpy as np
from common import kernel_point, parser, read_lines

from gpubench.backends import Kernel, open_backend
from gpubench.backends.rotation import OperandSets
from gpubench.engine.operands.make import make_inputs
from gpubench.errors import CompileError, LaunchError
from gpubench.grouping import grouped
from gpubench.kernels.tile_costs import DifferentPicks, Picks, ranked
from gpubench.model import (
    OPERATIONS,
    PRECISIONS,
    Cache,
    Config,
    CudaVariant,
    Launches,
    Problem,
    Timer,
    Variant,
)
from gpubench.model.operation import DEFAULT_OP, Size
from gpubench.plan.ranges import parse_sizes
from gpubench.plan.registry import of_op
from gpubench.plan.sweep import pdl_twins
from gpubench.results.provenance import source_hash

KERNELS = {
    name: variant.auto_tiles
    for name, variant in of_op("gemm").items()
    if isinstance(variant, CudaVariant) and isinstance(variant.auto_tiles, Picks | DifferentPicks)
}
"""Kernels whose configurations the model ranks."""

OTHER_KERNELS = (
    "wgmma_cluster", "wgmma_deferred", "wgmma_mixed", "wgmma_persistent",
    "dmma", "packed_panels", "splitk", "wgmma_tf32", "wgmma_tf32_wide",
    "wgmma_bytes", "wgmma_mixed_bytes", "wgmma_split",
)  # fmt: skip
"""Kernels that are measured with their default tiles."""

MULTIPLES = {"float32": 4, "int8": 16, "float8_e4m3": 16, "float8_e4m3_split": 16}
"""Maps a precision to the number that divides all extents. For other precisions, this number is
8."""

EXTENTS = (384, 8192)  # minimum and maximum of random extents
SMALL_EXTENTS = (16, 384)
LARGE_EXTENTS = (4096, 16384)
ODD_EXTENTS = (128, 4096)
BATCH_EXTENTS = (64, 1024)
BATCHES = (8, 512)  # minimum and maximum of the number of products in a batch
GROUPS, GROUP_ROWS, GROUP_EXTENTS = (8, 64), (16, 1024), (512, 4096)
MAX_GROUPS_ELEMENTS = 2**27  # maximum number of elements of all matrices of groups

FEW_ROWS, SOME_ROWS = (1, 64), (65, 383)  # minimum and maximum of M
WEIGHTS_EXTENTS = (1024, 16384)  # minimum and maximum of N and K with few or some rows
HOT_BYTES = 25 * 10**6  # maximum size of hot weights, half of the L2 cache

REFUSED = 8  # factor on the number of shapes of other operations: libraries refuse some

SAMPLE_US = 250.0  # approximate duration of a sample
ROUNDS = 9  # each contender has a sample in each round

SLOW = 1.6
"""A candidate is left out after its first sample if its time exceeds the library's time by this
factor."""

CANDIDATES = 18
"""Number of configurations that `--every` adds for each kernel. The model ranks these
configurations first."""

ALIKE = 2
"""Maximum number of candidates with the same small tile and the same number of parts of K."""


def log_uniform(draw: random.Random, smallest: int, largest: int) -> float:
    """Draw a number whose logarithm is uniform."""
    return math.exp(draw.uniform(math.log(smallest), math.log(largest)))


def random_shapes(
    seed: int,
    count: int,
    multiple: int = 8,
    *,
    odd: bool = False,
    limits: tuple[int, int] = EXTENTS,
) -> list[Size]:
    """Draw shapes with log-uniform extents.

    Extents are multiples, or odd multiples, of `multiple`.
    """
    draw = random.Random(seed)  # noqa: S311 # a sample, not a secret

    def extent() -> int:
        size = log_uniform(draw, *limits)
        if odd:
            return multiple * (int(size / multiple / 2) * 2 + 1)
        return max(multiple, round(size / multiple) * multiple)

    return [(extent(), extent(), extent()) for _ in range(count)]


def batches_of(seed: int, shapes: Iterable[Size]) -> list[Size]:
    """Append a random number of products to each shape. The number is log-uniform."""
    draw = random.Random(seed)  # noqa: S311 # a sample, not a secret
    return [(*shape, round(log_uniform(draw, *BATCHES))) for shape in shapes]


def grouped_shapes(seed: int, count: int) -> list[Size]:
    """Draw shapes of grouped products: mean number of rows, N, K, and number of groups.

    Each number is log-uniform.
    """
    draw = random.Random(seed)  # noqa: S311 # a sample, not a secret
    shapes: list[Size] = []
    while len(shapes) < count:
        m, groups = (round(log_uniform(draw, *limits)) for limits in (GROUP_ROWS, GROUPS))
        n, k = (round(log_uniform(draw, *GROUP_EXTENTS) / 8) * 8 for _ in range(2))
        if groups * n * k <= MAX_GROUPS_ELEMENTS:
            shapes.append((m, n, k, groups))
    return shapes


def rows_shapes(
    seed: int, count: int, dtype: str, cache: Cache, rows: tuple[int, int]
) -> list[Size]:
    """Draw shapes whose number of rows is between two limits.

    If `cache` is hot, the weights of each shape fit into the cache.
    """
    draw = random.Random(seed)  # noqa: S311 # a sample, not a secret
    shapes: list[Size] = []
    while len(shapes) < count:
        m = draw.randint(*rows)
        n, k = (round(log_uniform(draw, *WEIGHTS_EXTENTS) / 16) * 16 for _ in range(2))
        if cache == Cache.COLD or weights_bytes(dtype, n, k) <= HOT_BYTES:
            shapes.append((m, n, k))
    return shapes


def weights_bytes(dtype: str, n: int, k: int) -> int:
    """Return the size of B in bytes."""
    return n * k * PRECISIONS[dtype].item_bytes


CLASSES = ("small", "tall", "wide", "deep K", "large")


def shape_class(m: int, n: int, k: int) -> str:
    """Return the class of a shape. Classes differ in how multiprocessors can share the work."""
    if k >= 3 * math.sqrt(m * n):
        return "deep K"
    if m * n <= 1536**2:
        return "small"
    if m >= 3 * n:
        return "tall"
    if n >= 3 * m:
        return "wide"
    return "large"


def ranked_tiles(name: str, problem: Problem, multiprocessors: int) -> Iterator[str]:
    """Yield the configurations of a kernel.

    The configuration that is fastest by the model comes first.
    """
    picks = KERNELS[name]
    counts: Counter[tuple[int, int]] = Counter()
    for choice in ranked(picks.choices, problem, multiprocessors):
        size = choice.rows * choice.columns, choice.splits
        counts[size] += 1
        if isinstance(picks, Picks) or counts[size] <= ALIKE:
            yield str(choice)


def tolerance(problem: Problem) -> float:
    """Return the largest allowed relative difference from the result of the library.

    The library adds in another order.

    In float8, sums of terms with one sign could differ more. The operands have random signs.
    """
    precision = problem.precision
    of_sum = min(32 * math.sqrt(problem.k) * precision.sum_roundoff, 0.01)
    return 10 * precision.result_roundoff + of_sum


@dataclass(frozen=True, kw_only=True)
class Result:
    """A row of the file, with the time of a contender at a shape.

    Older files lack the last columns.
    """

    dtype: str
    m: int
    n: int
    k: int
    variant: str
    tile: str = ""
    kind: str
    """`library`, `auto` (a pick of the model), `default` (a default tile of another kernel) or
    `candidate`."""

    median_us: float
    difference: float
    """Norm of the difference from cuBLAS's result, divided by the norm of cuBLAS's result."""

    algorithm: str = ""
    launches: str = "overlapped"
    """`alone`, `overlapped` or `graph`. In a file without this column, launches overlapped."""

    cache: str = "hot"

    source_hash: str = ""
    """Hash of the kernel's files, as in the column `source_hash` of a sweep."""

    op: str = DEFAULT_OP
    extents: str = ""  # extents besides M, N and K, such as `batch=8`


@dataclass(kw_only=True)
class Contender:
    """A kernel bound to the operands of a shape."""

    variant: Variant
    tile: Config | None
    kind: str
    kernels: dict[Launches, Kernel]
    """Maps each timed kind of launches to the bound kernel."""

    difference: float = 0.0
    times_us: dict[Launches, list[float]] = field(default_factory=dict)
    launches: int = 1

    @property
    def kernel(self) -> Kernel:
        """The kernel that is bound for launches alone."""
        return self.kernels[Launches.ALONE]

    @property
    def median_us(self) -> float:
        """Median of all samples of launches alone."""
        return statistics.median(self.times_us[Launches.ALONE])

    def sample(self, limit_us: float = math.inf) -> bool:
        """Add samples of about `SAMPLE_US`. Return False if the first launches take too long."""
        if not self.times_us:
            (first,) = self.kernel.sample(4, 1)
            if first > limit_us:
                return False
            self.launches = max(3, min(self.kernel.max_launches, math.ceil(SAMPLE_US / first)))
        for launches, kernel in self.kernels.items():
            self.times_us.setdefault(launches, []).extend(kernel.sample(self.launches, 1))
        return True


Chosen = tuple[str, Variant, Config]
"""A contender before it is bound: its kind, its kernel and its configuration."""


class Bench:
    """A GPU that measures shapes.

    The operands of all shapes are made from the same random values.
    """

    def __init__(
        self,
        dtype: str,
        other_kernels: Sequence[str],
        cache: Cache = Cache.HOT,
        *,
        op: str = DEFAULT_OP,
        graph: bool = False,
    ) -> None:
        self.backend = open_backend("cuda", Timer.EVENTS)
        self.backend.warm_up()
        self.dtype, self.other_kernels, self.cache = dtype, other_kernels, cache
        self.op, self.graph = op, graph
        self.compared = np.float64 if dtype == "float64" else np.float32
        self.variants = of_op(op)
        self.kernels = [name for name, each in self.variants.items() if each.auto_tiles]
        rng = np.random.default_rng(0)
        self._drawn = rng.uniform(-1, 1, 2**22).astype(np.float32)
        self._order = random.Random(1)  # noqa: S311 # an order, not a secret

    def problem(self, shape: Size) -> Problem:
        """Return the product of a shape."""
        return Problem.of(self.op, shape, self.dtype)

    def libraries(self, problem: Problem) -> list[Variant]:
        """Return the library calls that compute a problem, the plain cuBLAS first."""
        return [
            variant
            for variant in self.variants.values()
            if variant.backend == "cuda"
            and (variant.is_blas or (variant.rival and self.op != DEFAULT_OP))
            and variant.why_not(None, problem, (9, 0)) is None
        ]

    def operands(self, problem: Problem) -> OperandSets:
        """Load operands whose elements repeat after a length that no row divides."""
        if problem.operation.make:
            made = make_inputs(problem, 1)
            return self.backend.load(problem, made, cold=self.cache == Cache.COLD)
        inputs = []
        kinds = zip(problem.input_shapes, problem.types, strict=False)
        for seed, (shape, kind) in enumerate(kinds):
            flat = np.roll(self._drawn, 12345 * seed)[: 2**22 - 3 - seed]
            if problem.precision.is_integer:
                flat = flat * 127
            inputs.append(np.resize(flat.astype(kind), shape))
        return self.backend.load(problem, inputs, cold=self.cache == Cache.COLD)

    def measure(self, shape: Size, *, every: bool) -> list[Result]:
        """Measure the times of all contenders of a shape."""
        problem = self.problem(shape)
        operands = self.operands(problem)
        libraries = self.libraries(problem)
        bound = [self.bind("library", variant, None, operands) for variant in libraries]
        contenders = [contender for contender in bound if contender]
        contenders[0].kernel.run(len(operands.sets))
        self._reference = operands.output.astype(self.compared).copy()
        for library in contenders:
            library.sample()
        limit_us = SLOW * min(contender.median_us for contender in contenders) + 3
        for kind, variant, tile in self.chosen(problem, every=every):
            contender = self.bind(kind, variant, tile, operands)
            if contender and contender.sample(limit_us if kind == "candidate" else math.inf):
                contenders.append(contender)
        for contender in contenders:
            contender.times_us.clear()
        for _ in range(ROUNDS):
            self._order.shuffle(contenders)
            for contender in contenders:
                contender.sample()
        return [
            self.result(contender, problem, launches)
            for launches in (Launches.ALONE, Launches.OVERLAPPED, Launches.GRAPH)
            for contender in contenders
            if launches in contender.kernels
        ]

    def chosen(self, problem: Problem, *, every: bool) -> Iterator[Chosen]:
        """Yield the picks. If `every` is true, also yield all other candidates."""
        picks = list(self.picks(problem))
        yield from picks
        own_tiles = {(variant.name, tile) for _, variant, tile in picks}
        for kind, variant, tile in self.candidates(problem) if every else ():
            if (variant.name, tile) not in own_tiles:
                yield kind, variant, tile

    def candidates(self, problem: Problem) -> Iterator[Chosen]:
        """Yield up to `CANDIDATES` configurations of each kernel, which the model ranks first."""
        units = self.backend.device.multiprocessors
        for variant in self.of_dtype(KERNELS):
            for text in islice(ranked_tiles(variant.name, problem, units), CANDIDATES):
                tile = variant.tiles.read(text)
                if variant.why_not(tile, problem, (9, 0)) is None:
                    yield "candidate", variant, tile

    def picks(self, problem: Problem) -> Iterator[Chosen]:
        """Yield the configurations of `--tiles auto`, and default tiles of the other kernels."""
        units = self.backend.device.multiprocessors
        tiles = [
            ("auto", variant, variant.tiles_for(problem, units))
            for variant in self.of_dtype(self.kernels)
        ]
        for variant in self.of_dtype(self.other_kernels):
            twins = pdl_twins(variant.tiles.defaults)  # they differ from others only in pdl
            defaults = (tile for tile in variant.tiles.defaults if tile not in twins)
            tiles.append(("default", variant, tuple(defaults)))
        for kind, variant, configs in tiles:
            for tile in configs:
                if variant.why_not(tile, problem, (9, 0)) is None:
                    yield kind, variant, tile

    def of_dtype(self, names: Iterable[str]) -> list[CudaVariant]:
        """Return the kernels that support the precision."""
        kernels = (self.variants[name] for name in names)
        return [x for x in kernels if isinstance(x, CudaVariant) and self.dtype in x.dtypes]

    def bind(
        self, kind: str, variant: Variant, tile: Config | None, operands: OperandSets
    ) -> Contender | None:
        """Bind a kernel, and run the kernel once on a poisoned output.

        Return None if the kernel fails, or if the result is wrong.
        """
        problem = operands.problem
        point = kernel_point(variant, tile, problem, self.cache)
        further = [Launches.GRAPH] if self.graph else []
        if isinstance(variant, CudaVariant) and variant.may_overlap(tile, problem):
            further.append(Launches.OVERLAPPED)
        try:
            kernels = {
                launches: self.backend.bind(replace(point, launches=launches), operands)
                for launches in (Launches.ALONE, *further)
            }
            operands.output.fill(-1234567 if problem.precision.is_integer else np.nan)
            kernels[Launches.ALONE].run(len(operands.sets))
        except (CompileError, LaunchError) as error:
            print(f"{variant.name} {tile} at {problem.size}: {error}", file=sys.stderr, flush=True)
            if not self.backend.usable():
                raise
            return None
        contender = Contender(variant=variant, tile=tile, kind=kind, kernels=kernels)
        if kind == "library":
            return contender
        apart = operands.output.astype(self.compared) - self._reference
        norm = self.backend.xp.linalg.norm
        contender.difference = float(norm(apart) / norm(self._reference))
        if not contender.difference <= tolerance(problem):
            print(
                f"WRONG {variant.name} {tile} {problem.size}: {contender.difference:.3g}",
                flush=True,
            )
            return None
        return contender

    def result(self, contender: Contender, problem: Problem, launches: Launches) -> Result:
        """Return the row of the file for a contender."""
        return Result(
            dtype=self.dtype,
            m=problem.m,
            n=problem.n,
            k=problem.k,
            variant=contender.variant.name,
            tile=str(contender.tile or ""),
            kind=contender.kind,
            median_us=round(statistics.median(contender.times_us[launches]), 4),
            difference=float(f"{contender.difference:.3g}"),
            algorithm=contender.kernel.routine.algorithm,
            launches=launches,
            cache=self.cache,
            source_hash=source_hash(contender.variant),
            op=self.op,
            extents=problem.operation.further_text(problem.further),
        )

    def compile(self, shapes: Sequence[Size], *, every: bool) -> int:
        """Compile the kernels of all shapes in parallel, and return their number."""
        points = {
            (variant.name, tile): kernel_point(variant, tile, problem, self.cache)
            for problem in map(self.problem, shapes)
            for _, variant, tile in self.chosen(problem, every=every)
        }
        self.backend.compile(list(points.values()), lambda _count: None)
        return len(points)


def write(results: Iterable[Result], path: Path) -> None:
    """Append rows to the file. A new file begins with the names of the columns."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        rows = csv.DictWriter(file, [field.name for field in fields(Result)])
        if new:
            rows.writeheader()
        rows.writerows(map(asdict, results))


def read(path: Path) -> list[list[Result]]:
    """Read the rows of each product of a file."""
    key = attrgetter("op", "dtype", "m", "n", "k", "extents", "cache")
    return list(grouped(read_lines(path, Result), key).values())


SUMMARY = ("shapes", "geometric mean", "won", "tenth percentile", "lowest")
"""Headings of the cells of `summary`."""


def summary(ratios: Sequence[float]) -> list[str]:
    """Return the cells that summarize ratios. A ratio of 1 or more counts as won."""
    ordered = sorted(ratios)
    tenth = ordered[(len(ordered) - 1) // 10]
    won = sum(ratio >= 1 for ratio in ordered)
    figures = (statistics.geometric_mean(ordered), tenth, ordered[0])
    mean, *low = (f"{figure:.3f}" for figure in figures)
    return [str(len(ordered)), mean, str(won), *low]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The contenders that are compared at a shape."""

    library: Result
    """The faster of cuBLAS and cuBLASLt."""

    own: Result
    """The fastest kernel with a pick of the model or a default tile."""

    overlapped: Result
    """The fastest kernel in a chain of launches. Each launch may start before the previous launch
    ends."""

    @property
    def ratio(self) -> float:
        """The library's time divided by the kernel's time."""
        return self.library.median_us / self.own.median_us

    @property
    def overlapped_ratio(self) -> float:
        """The library's time divided by the time of the fastest kernel in a chain of launches."""
        return self.library.median_us / self.overlapped.median_us

    @property
    def shape_class(self) -> str:
        """The class of the shape."""
        return shape_class(self.own.m, self.own.n, self.own.k)


def outcomes(path: Path) -> Iterator[Outcome]:
    """Yield the outcome of each product in a file."""
    yield from map(outcome, read(path))


def outcome(results: Iterable[Result], launches: Launches = Launches.ALONE) -> Outcome:
    """Return the fastest contenders of a shape.

    Times of `launches` are compared if there are any, and all times except times in a graph
    otherwise.

    Launches of libraries never overlap, so the times of libraries count both as alone and as
    overlapped.
    """
    by_time = sorted(results, key=lambda r: r.median_us)
    chained = [r for r in by_time if r.launches != Launches.GRAPH]
    by_time = [r for r in by_time if r.launches == launches] or chained
    return Outcome(
        library=next(r for r in by_time if r.kind == "library"),
        own=next(r for r in by_time if r.kind in {"auto", "default"}),
        overlapped=next(r for r in chained if r.kind in {"auto", "default"}),
    )


def main() -> None:
    """Measure the shapes that the command names or draws."""
    options = parser(__doc__)
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--dtype", default="bfloat16")
    options.add_argument("--op", default=DEFAULT_OP, choices=OPERATIONS)
    options.add_argument("--graph", action="store_true", help="also launches in a CUDA graph")
    options.add_argument("--every", action="store_true", help="all candidate configurations")
    options.add_argument("--odd", type=int, default=0, help="odd multiples of this number")
    options.add_argument("--small", action="store_true", help="extents of 16 to 384")
    options.add_argument("--large", action="store_true", help="extents of 4096 to 16384")
    options.add_argument("--few-rows", action="store_true", help="1 to 64 rows, hot and cold")
    options.add_argument("--some-rows", action="store_true", help="65 to 383 rows, hot and cold")
    options.add_argument("--shapes", help="such as 1024x1024x1024,2048x2048x2048")
    options.add_argument("--limit", type=float, default=math.inf, help="seconds")
    options.add_argument("--output", type=Path, default=Path("shapes.csv"))
    asked = options.parse_args()
    start = time.perf_counter()
    by_rows = asked.few_rows or asked.some_rows
    is_gemm = asked.op == DEFAULT_OP
    other_kernels = OTHER_KERNELS if is_gemm and not (asked.small or by_rows) else ()
    for cache in (Cache.HOT, Cache.COLD) if by_rows or not is_gemm else (Cache.HOT,):
        bench = Bench(asked.dtype, other_kernels, cache, op=asked.op, graph=asked.graph)
        shapes = shapes_of(asked, cache)
        if not is_gemm and not asked.shapes:  # only shapes that a library accepts
            shapes = [each for each in shapes if bench.libraries(bench.problem(each))]
            shapes = shapes[: asked.count]
        count = bench.compile(shapes, every=asked.every)
        print(f"{cache}: compiled {count} in {time.perf_counter() - start:.1f} s", flush=True)
        for shape in shapes:
            if time.perf_counter() - start > asked.limit:
                print("out of time", flush=True)
                break
            results = bench.measure(shape, every=asked.every)
            write(results, asked.output)
            result = outcome(results)
            in_graph = outcome(results, Launches.GRAPH).ratio
            print(
                f"{bench.problem(shape).size} library {result.library.median_us:.2f} "
                f"own {result.own.median_us:.2f} {result.ratio:.3f} "
                f"(overlapped {result.overlapped_ratio:.3f}, graph {in_graph:.3f}) "
                f"{result.library.variant} and "
                f"{result.own.variant} {result.own.tile} "
                f"({len(results)}, {time.perf_counter() - start:.0f} s)",
                flush=True,
            )


def shapes_of(asked: argparse.Namespace, cache: Cache) -> list[Size]:
    """Return the shapes that the command names or draws."""
    if asked.shapes:
        return list(parse_sizes(asked.shapes, asked.op))
    if asked.few_rows or asked.some_rows:
        rows = FEW_ROWS if asked.few_rows else SOME_ROWS
        return rows_shapes(asked.seed, asked.count, asked.dtype, cache, rows)
    if "GROUPS" in OPERATIONS[asked.op].extents:
        return grouped_shapes(asked.seed, asked.count)
    limits = EXTENTS
    if asked.odd:
        limits = ODD_EXTENTS
    elif asked.small:
        limits = SMALL_EXTENTS
    elif asked.large:
        limits = LARGE_EXTENTS
    if OPERATIONS[asked.op].batch:
        limits = BATCH_EXTENTS
    multiple = asked.odd or MULTIPLES.get(asked.dtype, 8)
    count = asked.count if asked.op == DEFAULT_OP else REFUSED * asked.count
    shapes = random_shapes(asked.seed, count, multiple, odd=asked.odd > 0, limits=limits)
    return batches_of(asked.seed, shapes) if OPERATIONS[asked.op].batch else shapes


if __name__ == "__main__":
    main()
