"""Run each kernel a thousand times, and compare every bit of every result.

    python research/repeat_kernels.py [--dtypes int8,float8_e4m3] [--variants wgmma_bytes] [-o FILE]
    python research/repeat_kernels.py --triples --variants splitk_cluster -o triples.json
    python research/repeat_kernels.py --op gemm_batched --sizes 3x136x264x144 --dtypes bfloat16

Operands are 0, 1 and 2 at random, so sums are exact, and a right result is the rounded sum, to the
last bit. Before each launch the output is filled with NaN. This shows a kernel whose result depends
on the order of its threads, or that leaves an element unwritten. Default tiles run; sizes that a
kernel refuses are skipped. Kernels without tensor cores run only if they are named. Exits 1 if a
result differs.

With `--triples`, each named kernel runs once at each of 2,500 random sizes, with a random default
tile. M, N and K are 1 to 40 in the first 2,000 sizes. In the other 500 sizes, M and N are a
multiple of the tile's extents, or differ from a multiple by one. K is a multiple of a step or of
all stages, or differs from a multiple by one.

With `--op`, operands are those of a sweep, whose sums are not exact. Each result is therefore
compared with the first result.
"""

import itertools
import random
import sys
from collections.abc import Iterator
from typing import Any

import ml_dtypes  # noqa: F401 # bfloat16 for NumPy
import numpy as np
from common import kernel_point, parser, save

from gpubench.backends import open_backend
from gpubench.backends.arrays import on_host
from gpubench.engine.operands.make import make_inputs
from gpubench.model import (
    CORE_DTYPES,
    OPERATIONS,
    Config,
    Point,
    Problem,
    Space,
    Timer,
    Variant,
)
from gpubench.model.operation import DEFAULT_OP
from gpubench.plan.ranges import parse_sizes
from gpubench.plan.registry import choose
from gpubench.results.provenance import source_hash

SIZES = (
    (1000, 1032, 520), (1021, 509, 1019), (1021, 516, 1020), (72, 136, 8),
    (1000, 1032, 528), (1021, 1160, 1008), (72, 136, 16),
)  # fmt: skip
"""M, N and K. No tile divides these extents, and the rows of the second size are not aligned. The
last three sizes are for elements of 8 bits, whose rows have multiples of 16 elements. Sums stay
below 2¹³, so that sums of float8, which have 14 bits, are exact."""

DTYPES = "bfloat16,float16,tf32,float64,int8,float8_e4m3,float8_e4m3_split"

LARGEST_OPERAND = 2

Count = dict[str, Any]
"""A line of the file: a point or a kernel, with the numbers of right and wrong results."""

SMALL_EXTENT = 40  # the largest extent of the first triples
SMALL_TRIPLES = 2000  # number of the first triples
NEAR_TRIPLES = 500  # number of further triples, near multiples of the tile


class Products:
    """A device that computes products of whole numbers."""

    def __init__(self, device: str) -> None:
        self.backend = open_backend(device)
        self.timer = Timer.EVENTS if device.startswith("cuda") else Timer.HOST
        self._rng = np.random.default_rng(1)

    def point(self, variant: Variant, tile: Config | None, problem: Problem) -> Point | None:
        """Return the point of a tile, or None if the kernel refuses the problem."""
        if variant.why_not(tile, problem):
            return None
        return kernel_point(variant, tile, problem, timer=self.timer)

    def operands(self, problem: Problem) -> tuple[Any, Any]:
        """Load random operands. Return the operands, and the bytes of the right result.

        The second value is None if sums are not exact.
        """
        xp = self.backend.xp
        if problem.op != DEFAULT_OP:
            return self.backend.load(problem, make_inputs(problem, 1), cold=False), None
        narrow = [
            self._rng.integers(0, LARGEST_OPERAND, shape, np.int8, endpoint=True)
            for shape in problem.input_shapes
        ]
        first, second = (xp.asarray(operand).astype(np.float64) for operand in narrow)
        expected = on_host(first @ second).astype(problem.precision.result).view(np.uint8)
        inputs = [operand.astype(problem.precision.element) for operand in narrow]
        operands = self.backend.load(problem, inputs, cold=False)
        return operands, xp.asarray(expected)

    def count_wrong(self, point: Point, operands: Any, right: Any, repeats: int) -> int:
        """Run a kernel repeatedly, and return the number of results that differ in any bit."""
        kernel, wrong = self.backend.bind(point, operands), 0
        output = operands.output.view(np.uint8)
        if right is None:
            kernel.run()
            right = output.copy()
        for _ in range(repeats):
            output[...] = 0xFF
            kernel.run()
            wrong += not bool((output == right).all())
        return wrong

    def repeated(
        self, variants: list[Variant], problems: list[Problem], repeats: int
    ) -> Iterator[Count]:
        """Yield the numbers of right and wrong results of each default tile at each problem."""
        for problem in problems:
            operands, right = self.operands(problem)
            for variant in variants:
                for tile in variant.tiles.defaults if variant.tiles else (None,):
                    if point := self.point(variant, tile, problem):
                        wrong = self.count_wrong(point, operands, right, repeats)
                        counts = {"right": repeats - wrong, "wrong": wrong}
                        yield {"point": point.label} | identity(variant) | counts

    def of_triples(self, variants: list[Variant], dtypes: list[str]) -> Iterator[Count]:
        """Yield the numbers of right and wrong points of each kernel and type, over all triples.

        The labels of wrong points are included.
        """
        points: dict[tuple[str, str], list[Point]] = {}
        for variant, dtype in itertools.product(variants, dtypes):
            if dtype in variant.dtypes:
                of_triple = points[variant.name, dtype] = []
                for tile, (m, n, k) in triples(variant):
                    problem = Problem(op="gemm", m=m, n=n, k=k, dtype=dtype)
                    if point := self.point(variant, tile, problem):
                        of_triple.append(point)
        self.backend.compile(list(itertools.chain(*points.values())), lambda _count: None)
        for (_, dtype), of_triple in points.items():
            wrong = [
                point.label
                for point in of_triple
                if self.count_wrong(point, *self.operands(point.problem), repeats=1)
            ]
            counts = {"right": len(of_triple) - len(wrong), "wrong": len(wrong)}
            own = identity(of_triple[0].variant)
            yield own | {"dtype": dtype} | counts | {"wrong_points": wrong}


def identity(variant: Variant) -> Count:
    """Return the columns of a sweep's CSV that name a kernel and its sources."""
    return {"op": variant.op, "variant": variant.name, "source_hash": source_hash(variant)}


def triples(variant: Variant) -> Iterator[tuple[Config, tuple[int, int, int]]]:
    """Yield pairs of a default tile and a size. Small sizes come first."""
    draw = random.Random(1)  # noqa: S311 # a sample, not a secret
    for number in range(SMALL_TRIPLES + NEAR_TRIPLES):
        tile = draw.choice((variant.tiles or Space()).defaults)
        if number < SMALL_TRIPLES:
            m, n, k = (draw.randint(1, SMALL_EXTENT) for _ in range(3))
        else:
            rows, columns, step, stages = tile.numbers("BM", "BN", "BK", "stages")
            near = rows, columns, draw.choice((step, step * stages))
            m, n, k = (edge * draw.randint(1, 2) + draw.randint(-1, 1) for edge in near)
        yield tile, (m, n, k)


def main() -> int:
    """Run all kernels at all sizes. Return 1 if a result is wrong."""
    options = parser(__doc__, "stress.json")
    options.add_argument("--dtypes", default=DTYPES)
    options.add_argument("--variants", default="")
    options.add_argument("--repeats", type=int, default=1000)
    options.add_argument("--op", default=DEFAULT_OP, choices=OPERATIONS)
    options.add_argument("--sizes", help="instead of the sizes of this script")
    options.add_argument("--triples", action="store_true", help="many sizes, each once")
    options.add_argument("--device", default="cuda")
    arguments = options.parse_args()
    named = tuple(filter(None, arguments.variants.split(",")))
    if arguments.triples and not named:
        options.error("--triples needs --variants: kernels whose tiles have stages")
    variants = [
        variant
        for variant in choose(arguments.op, arguments.device, named)
        if named or not set(CORE_DTYPES) <= set(variant.dtypes)
    ]
    sizes = parse_sizes(arguments.sizes, arguments.op) if arguments.sizes else SIZES
    products = Products(arguments.device)
    counts: list[Count] = []
    dtypes = arguments.dtypes.split(",")
    if arguments.triples:
        counts += products.of_triples(variants, dtypes)
    else:
        for dtype in dtypes:
            of_dtype = [variant for variant in variants if dtype in variant.dtypes]
            problems = [Problem.of(arguments.op, size, dtype) for size in sizes]
            counts += products.repeated(of_dtype, problems, arguments.repeats)
    save(arguments.output, counts)
    return int(any(count["wrong"] for count in counts))


if __name__ == "__main__":
    sys.exit(main())
