"""Verify every hand-written kernel on the GPU at odd sizes: all variants, tiles and dtypes.

    python research/verify_kernels.py [--ops gemm,gemv] [--dtypes float32,tf32] [-o FILE]

gemm runs every legal tile. Edges above 32 are left out, because such tiles take minutes to compile.
Where a kernel has more than 32 tiles, the default tiles and an even selection of the others run. In
other products, the selection has 4 tiles. Products of a matrix and a vector run their default tiles
at every combination of seven dimensions. Each point is verified as in a sweep, and its one sample
is ignored. Exits 1 if a point is wrong or fails. Most of the time is for compiling.
"""

import itertools
import sys
from collections import Counter

from common import hashes_of, parser, save, verdict

from gpubench.backends import open_backend
from gpubench.engine.measure import trials
from gpubench.engine.measure.runner import Runner
from gpubench.engine.pool import LocalPool
from gpubench.engine.prepare import prepare
from gpubench.engine.run import all_rows
from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.model import CORE_DTYPES, DTYPES, OPERATIONS, CallVariant, Size, Timing, Variant
from gpubench.model.operation import DEFAULT_OP
from gpubench.plan.registry import variants
from gpubench.plan.sweep import Sweep
from gpubench.results.row import Row

DIMENSIONS = (1, 7, 127, 128, 129, 1000, 12345)
GEMM_SIZES = (
    *((edge, edge, edge) for edge in (1, 7, 127, 128, 129, 509, 512)),
    (33, 65, 17), (1, 1000, 3), (1000, 1, 77), (129, 260, 1000), (257, 130, 2049),
    (8, 8, 8), (16, 16, 16), (72, 72, 72), (1021, 516, 1020), (777, 1544, 264),
    (777, 1544, 272), (300, 72, 16),
)  # fmt: skip
"""M, N and K: primes, powers of two, 1, less than a tile, and rectangles. N is odd, even, or a
multiple of 4. In some sizes, N and K are multiples of 8, or K is a multiple of 16. K covers many
steps of a loop, or less than one step."""

PRODUCTS = 3
"""Number of products in a batch, and of groups."""

LARGEST_EDGE = 32
MOST_TILES = 32
MOST_TILES_OF_OTHERS = 4
QUICK = Timing(rounds=1, precision=1.0, min_samples=1, min_device_s=0.0, sample_us=1.0)


def sizes_of(op: str) -> tuple[Size, ...]:
    """Return the sizes at which the kernels of an operation are verified."""
    if OPERATIONS[op].has_k:
        further = (PRODUCTS,) * len(OPERATIONS[op].further)
        return tuple((*size, *further) for size in GEMM_SIZES)
    return tuple((m, n, 1) for m, n in itertools.product(DIMENSIONS, repeat=2))


def sweeps(op: str, dtype: str, device: str) -> list[Sweep]:
    """Return the sweeps of an operation. In products, each variant has a sweep over its tiles."""
    if OPERATIONS[op].has_k:
        return [
            Sweep(
                op=op,
                variants=(variant.name,),
                sizes=sizes_of(op),
                tiles=quick_to_compile(variant),
                dtypes=(dtype,),
                timing=QUICK,
            )
            for variant in variants()
            if (variant.op, variant.backend) == (op, device) and dtype in variant.dtypes
            if not (isinstance(variant, CallVariant) and variant.libraries)  # without rivals
        ]
    if dtype not in CORE_DTYPES:
        return []
    return [Sweep(op=op, sizes=sizes_of(op), dtypes=(dtype,), timing=QUICK)]


def quick_to_compile(variant: Variant) -> tuple[str, ...]:
    """Return the legal tiles that compile in seconds, or a selection if there are many."""
    if variant.tiles is None:
        return ()
    limit = MOST_TILES if variant.op == DEFAULT_OP else MOST_TILES_OF_OTHERS
    legal = [str(tile) for tile in variant.tiles if tile.get("edge", 0) <= LARGEST_EDGE]
    if len(legal) <= limit:
        return tuple(legal)
    defaults = map(str, variant.tiles.defaults)
    return tuple(dict.fromkeys((*defaults, *legal[:: -(-len(legal) // limit)])))


def verified(sweep: Sweep, pool: LocalPool) -> list[Row]:
    """Run a sweep, and return its rows. Raise KeyboardInterrupt if the sweep was interrupted.

    A kernel that refuses all sizes has no rows.
    """
    try:
        job = prepare(sweep, pool.device)
    except UsageError as error:
        print(f"{sweep.variants}: {error}")
        return []
    return all_rows(job, pool)


def summary(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Return the number of points by status, and the largest error, by operation and variant."""
    return {
        name: {
            **Counter(str(row.status) for row in own),
            "max_relative_error": max(row.max_relative_error or 0.0 for row in own),
        }
        for name, own in grouped(rows, lambda row: f"{row.op} {row.variant}").items()
    }


def main() -> int:
    """Verify all operations and dtypes, one after another."""
    options = parser(__doc__, "right.json")
    options.add_argument("--dtypes", default=",".join(DTYPES))
    options.add_argument("--ops", default=",".join(OPERATIONS))
    options.add_argument("--device", default="cuda")
    options.add_argument(
        "--widths", action="store_true", help="also probe how many bits the sums keep"
    )
    asked = options.parse_args()
    if asked.widths:  # a sweep probes only the sums of users' kernels
        trials.make_probes = trials.all_probes  # type: ignore[attr-defined, assignment]
    pool = LocalPool(Runner(open_backend(asked.device)))
    rows = [
        row
        for op, dtype in itertools.product(asked.ops.split(","), asked.dtypes.split(","))
        for sweep in sweeps(op, dtype, asked.device)
        for row in verified(sweep, pool)
    ]
    failed = [row for row in rows if row.status not in {"ok", "skipped"}]
    for row in failed:
        print(f"{row.status}: {row.op} {row.label}: {row.reason}")
    said = [f"{row.op} {row.label}: {row.status}" for row in failed]
    ran = {(row.op, row.variant) for row in rows if row.status == "ok"}
    kernels = hashes_of(variant for variant in variants() if (variant.op, variant.name) in ran)
    content = {"dtype": asked.dtypes, "kernels": kernels, "variants": summary(rows)}
    save(asked.output, content | {"failed": said})
    return int(not verdict(not failed, f"{len(failed)} points are wrong or failed"))


if __name__ == "__main__":
    sys.exit(main())
