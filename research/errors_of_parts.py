"""Measure errors of float32 products that are computed from bfloat16 parts, beside cuBLAS's errors.

    python research/errors_of_parts.py --seed 1001 --count 60 -o errors_of_parts.csv

M and N are log-uniform in 16 to 2048, and K in 16 to 65,536. Operands are uniform in -1 to 1,
uniform in 0 to 1, and wide: magnitudes 2^x, x uniform in -40 to 40. A row of the file has the
largest and the rms error of a result, relative to ‖row of A‖·‖column of B‖, and the largest error
in multiples of float32's own bound, K·2⁻²⁴·Σ|a·b|. The reference is cuBLAS in float64. Only the
first default tile runs, because all tiles add in the same order.
"""

import csv
import random
from collections.abc import Iterator
from typing import Any

from common import kernel_point, parser
from shapes import log_uniform

from gpubench.backends import open_backend
from gpubench.backends.arrays import on_host
from gpubench.model import PRECISIONS, Problem, Timer
from gpubench.plan.registry import of_op

EXTENTS, LONG_EXTENTS = (16, 2048), (16, 65_536)  # limits of M and N, and of K
CONTENDERS = (("cublas", "float32"), ("wgmma_parts", "bf16x6"), ("wgmma_parts", "bf16x3"))
OPERANDS = ("uniform", "positive", "wide")
EXPONENTS = 40  # wide operands have magnitudes of 2^-40 to 2^40
FLOAT32_ROUNDOFF = PRECISIONS["float32"].sum_roundoff


def values(xp: Any, kind: str, shape: tuple[int, int], seed: int) -> Any:
    """Return operands in float32."""
    rng = xp.random.RandomState(seed)
    drawn = rng.uniform(0 if kind == "positive" else -1, 1, shape)
    if kind == "wide":
        signs = xp.where(drawn < 0, -1.0, 1.0)
        drawn = signs * 2.0 ** rng.uniform(-EXPONENTS, EXPONENTS, shape)
    return drawn.astype(xp.float32)


def errors(
    backend: Any, size: tuple[int, int, int], kind: str, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield the errors of each contender at one size."""
    xp, (m, n, k) = backend.xp, size
    a, b = values(xp, kind, (m, k), seed), values(xp, kind, (k, n), seed + 1)
    exact_a, exact_b = a.astype(xp.float64), b.astype(xp.float64)
    exact = exact_a @ exact_b
    norms = xp.linalg.norm(exact_a, axis=1)[:, None] * xp.linalg.norm(exact_b, axis=0)
    bound = k * FLOAT32_ROUNDOFF * (abs(exact_a) @ abs(exact_b))
    for name, dtype in CONTENDERS:
        variant, problem = of_op("gemm")[name], Problem(op="gemm", m=m, n=n, k=k, dtype=dtype)
        tile = variant.tiles.defaults[0] if variant.tiles else None
        operands = backend.load(problem, [on_host(a), on_host(b)], cold=False)
        operands.output.fill(xp.nan)
        backend.bind(kernel_point(variant, tile, problem, timer=Timer.EVENTS), operands).run()
        apart = abs(operands.output.astype(xp.float64) - exact)
        yield {
            "m": m,
            "n": n,
            "k": k,
            "operands": kind,
            "variant": name,
            "dtype": dtype,
            "largest": f"{float((apart / norms).max()):.4g}",
            "rms": f"{float(xp.sqrt(xp.square(apart / norms).mean())):.4g}",
            "of_bound": f"{float((apart / bound).max()):.4g}",
        }


def main() -> None:
    """Measure all shapes, and save the errors."""
    options = parser(__doc__, "errors_of_parts.csv")
    options.add_argument("--seed", type=int, default=1001)
    options.add_argument("--count", type=int, default=60)
    asked = options.parse_args()
    backend = open_backend("cuda", Timer.EVENTS)
    draw = random.Random(asked.seed)  # noqa: S311 # a sample, not a secret
    rows: list[dict[str, Any]] = []
    for number in range(asked.count):
        m, n, k = (round(log_uniform(draw, *each)) for each in (EXTENTS, EXTENTS, LONG_EXTENTS))
        for kind in OPERANDS:
            rows += errors(backend, (m, n, k), kind, asked.seed + 2 * number)
        print(f"{m}x{n}x{k}: {rows[-2]['rms']} {rows[-3]['rms']}", flush=True)
    with asked.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
