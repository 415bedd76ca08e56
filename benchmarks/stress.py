"""Run each kernel a thousand times, and compare every bit of every result.

    python benchmarks/stress.py [--dtypes int8,float8_e4m3] [--variants wgmma_bytes] [-o FILE]

Operands are 0, 1 and 2 at random, so sums are exact, and a right result is the rounded sum, to the
last bit. Before each launch the output is filled with NaN. This shows a kernel whose result depends
on the order of its threads, or that leaves an element unwritten. Default tiles run; sizes that a
kernel refuses are skipped. Kernels without tensor cores run only if they are named. Exits 1 if a
result differs.
"""

import argparse
import sys
from pathlib import Path

import ml_dtypes  # noqa: F401 # bfloat16 for NumPy
import numpy as np
from shared import save

from gpubench.backends import open_backend
from gpubench.model import CORE_DTYPES, Cache, Point, Problem, Scope, Timer, Variant
from gpubench.plan.registry import choose

SIZES = (
    *((1000, 1032, 520), (1021, 509, 1019), (1021, 516, 1020), (72, 136, 8)),
    *((1000, 1032, 528), (1021, 1160, 1008), (72, 136, 16)),
)
"""M, N and K. No tile divides them, and the rows of the second are not aligned. The last three are
for operands of 8 bits, whose rows are multiples of 16. Sums stay below 2¹³, so that float8, which
sums with 14 bits, is exact."""

DTYPES = "bfloat16,float16,tf32,float64,int8,float8_e4m3,float8_e4m3_split"

LARGEST_OPERAND = 2


def points(variant: Variant, problem: Problem, timer: Timer) -> list[Point]:
    """Return a point for each default tile that takes the problem."""
    tiles = variant.tiles.defaults if variant.tiles else (None,)
    return [
        Point(
            variant=variant,
            tile=tile,
            problem=problem,
            cache=Cache.HOT,
            scope=Scope.KERNEL,
            timer=timer,
        )
        for tile in tiles
        if variant.why_not(tile, problem) is None
    ]


def main() -> int:
    """Run all kernels at all sizes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dtypes", default=DTYPES)
    parser.add_argument("--variants", default="")
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("-o", "--output", type=Path, default=Path("stress.json"))
    arguments = parser.parse_args()
    backend = open_backend(arguments.device)
    timer = Timer.EVENTS if arguments.device.startswith("cuda") else Timer.HOST
    named = tuple(filter(None, arguments.variants.split(",")))
    variants = [
        variant
        for variant in choose("gemm", arguments.device, named)
        if named or not set(CORE_DTYPES) <= set(variant.dtypes)
    ]
    rng = np.random.default_rng(1)
    counts = []
    for dtype in arguments.dtypes.split(","):
        for m, n, k in SIZES:
            problem = Problem(op="gemm", m=m, n=n, k=k, dtype=dtype)
            wide = [
                rng.integers(0, LARGEST_OPERAND, shape, endpoint=True).astype(np.float64)
                for shape in problem.input_shapes
            ]
            expected = (wide[0] @ wide[1]).astype(problem.precision.result).view(np.uint8)
            inputs = [operand.astype(problem.precision.element) for operand in wide]
            operands = backend.load(problem, inputs, cold=False)
            output, right = operands.output.view(np.uint8), backend.xp.asarray(expected)
            for variant in variants:
                for point in points(variant, problem, timer) if dtype in variant.dtypes else ():
                    kernel = backend.bind(point, operands)
                    wrong = 0
                    for _ in range(arguments.repeats):
                        output[...] = 0xFF
                        kernel.run()
                        wrong += not bool((output == right).all())
                    right_count = arguments.repeats - wrong
                    counts.append({"point": point.label, "right": right_count, "wrong": wrong})
    save(arguments.output, counts)
    return int(any(count["wrong"] for count in counts))


if __name__ == "__main__":
    sys.exit(main())
