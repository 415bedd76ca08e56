"""Run every kernel of the ladder under compute-sanitizer, at sizes that no tile divides.

    python research/sanitize.py memcheck bfloat16 -o memcheck_bfloat16.json
    python research/sanitize.py racecheck tf32 --variants wgmma_tf32_cluster --sizes 200x272x1040
    python research/sanitize.py memcheck bfloat16 --op gemm_gelu --variants wgmma_epilogue

Needs a GPU and `compute-sanitizer` (CUDA toolkit). It sweeps the kernels whose first dtype is the
named dtype, one after another, over every legal block tile. A kernel with many tiles runs only its
default tiles. The exit status is 1 if the tool reports an error or a point is wrong, and 2 if a
sweep could not begin. memcheck finds accesses outside allocations, racecheck finds races in shared
memory, and synccheck finds illegal uses of barriers.
"""

import subprocess
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from common import GPUBENCH, Ended, child, hashes_of, parser, save

from gpubench.model import OPERATIONS, Config, CudaVariant
from gpubench.model.operation import DEFAULT_OP
from gpubench.plan.registry import choose
from gpubench.results.row import Row, read

SIZES = ("129x261x77", "130x260x68", "136x264x72", "136x264x144")
"""M, N and K. The first N is odd and the second N is a multiple of 4, because B is loaded in two
ways. In the last two sizes, N and K are multiples of 8 and the last K is a multiple of 16, because
tensor maps of 16-bit and 8-bit elements require that."""

MOST_TILES = 64
"""A kernel with more legal tiles runs only the default tiles. A tile takes a third of a second."""

SLOW = "racecheck"
"""Name of the slow tool. racecheck takes 4.5 s per point, so only default tiles run, at the first
two sizes. racecheck does not check copies by tensor maps."""


def chosen(op: str, dtype: str, names: Sequence[str] | None) -> list[CudaVariant]:
    """Return the kernels of block tiles whose first dtype is `dtype`, or those among `names`."""
    return [
        kernel
        for kernel in choose(op, "cuda", ())
        if isinstance(kernel, CudaVariant) and kernel.tiles and "BK" in kernel.tiles.axes
        if kernel.dtypes[0] == dtype and (names is None or kernel.name in names)
    ]


def tiles_of(kernel: CudaVariant, most_tiles: int) -> Sequence[Config]:
    """Return a kernel's legal tiles, or its default tiles if there are more than `most_tiles`."""
    legal = list(islice(kernel.tiles, most_tiles + 1))
    return legal if len(legal) <= most_tiles else kernel.tiles.defaults


def swept(asked: Namespace, kernel: CudaVariant) -> tuple[Ended, list[Row] | None]:
    """Sweep a kernel under a tool. Return `None` instead of rows if the sweep did not begin."""
    is_slow = asked.tool == SLOW
    options = {
        "op": asked.op,
        "variants": kernel.name,
        "tiles": ",".join(map(str, tiles_of(kernel, 0 if is_slow else MOST_TILES))),
        "sizes": asked.sizes or ",".join(SIZES[:2] if is_slow else SIZES),
        "dtypes": asked.dtype,
        "rounds": "1",
        "budget": "1",
    }
    # The worker that measures is a child process. Errors of API calls are not reported, because
    # cuda-bindings requests every function of the driver, even if it is missing.
    tool = f"compute-sanitizer --tool {asked.tool} --target-processes all --report-api-errors no"
    words = [word for name, text in options.items() for word in (f"--{name}", text)]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "rows.csv"
        command = (*tool.split(), "--error-exitcode", "3", *GPUBENCH, "sweep", *words)
        ended = child((*command, "--output", output), err=subprocess.PIPE)
        if ended.code:
            print(ended.out[-4000:], ended.err[-4000:])
        if not output.exists():
            return ended, None
        return ended, [row for row in read(output) if row.status != "skipped"]


def main() -> int:
    """Sweep the kernels under a tool.

    Save the tool's summary, and the number of points by status.
    """
    options = parser(__doc__, "sanitize.json")
    options.add_argument("tool", choices=("memcheck", SLOW, "synccheck"))
    options.add_argument("dtype")
    options.add_argument("--op", default=DEFAULT_OP, choices=OPERATIONS)
    options.add_argument("--variants", help="only these kernels, such as splitk_cluster")
    options.add_argument("--sizes", help="instead of the sizes of this script")
    asked = options.parse_args()
    names = asked.variants.split(",") if asked.variants else None
    kernels = chosen(asked.op, asked.dtype, names)
    points: dict[str, Counter[str | None]] = {}
    codes, summary = [], []
    for kernel in kernels:
        ended, rows = swept(asked, kernel)
        if rows is None:
            return 2
        codes.append(ended.code)
        summary += [line.strip() for line in ended.out.splitlines() if "SUMMARY" in line]
        points |= {kernel.name: Counter(row.status for row in rows)} if rows else {}
    what = {"tool": asked.tool, "dtype": asked.dtype, "exit": next(filter(None, codes), 0)}
    ran = hashes_of(kernel for kernel in kernels if kernel.name in points)
    save(asked.output, what | {"kernels": ran, "summary": summary, "points": points})
    return int(any(codes) or {status for of in points.values() for status in of} != {"ok"})


if __name__ == "__main__":
    sys.exit(main())
