"""Sweep kernels that cheat, on a GPU. None of them may be `ok` with a false time.

    python research/cheats.py

`tests/cheats` has these kernels. Right kernels in the same sweeps must be `ok`. Then a kernel runs
that pins its operands in the L2 cache. The time of the kernel that runs next, its neighbour, must
not change. Exit status: 0 if all bounds hold, 1 if a bound is broken.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from common import GPUBENCH, ROOT, SEED, child, parser, point, verdict

from gpubench.engine.operands.make import make_inputs
from gpubench.model import Point, Problem, Space, Status
from gpubench.plan.registry import of_op
from gpubench.results.row import Row, read

CHEATS = ROOT / "tests" / "cheats"
SIZES = "512x768x1104"
ODD = "129x131x133,255x257x259,5x7x3"
"""Sizes whose matrices end within a word, for the kernel `loads_words`."""

CHEATING = {
    "float32": ("cheat_cuda", "cheat_function", "cheat_patches"),
    "float16,bfloat16,float8_e4m3,int8": ("cheat_narrow", "cheat_parts"),
}
"""The kernels that cheat, by the element types with which they are swept."""

BESIDE = ("cublas", "cublaslt", "torch_matmul")
RIGHT = {"product", "loads_words", "pins_operands", "honest", "exact", *BESIDE}
RIGHT_AS_PRODUCTS = {("narrow_products", "float8_e4m3fn"), ("narrow_products", "int8")}
"""Kernels and types that are right: products of 8-bit elements fit into 16 bits, so nothing is
rounded."""

POSSIBLE = {"slows_neighbours"}
"""Cheats that docs/reliability.md calls possible. Rows of these cheats are printed, but not
judged."""

TIMEOUT_S = 400

PINNING = 2048
"""M, N and K of the kernel that pins its operands. The operands take 33 MB of the cache."""

NEIGHBOUR = (3200, 3200)
"""M and N of the neighbour, a product with a vector. Its matrix of 41 MB fits into the cache of
60 MB only if no operands are pinned there."""

VISITS = 5
LIMIT = 0.05
"""A time may differ from the right time by at most this fraction."""


def sweep(variants: Sequence[str], dtypes: str, *words: str) -> list[Row]:
    """Sweep kernels in some element types, and return the rows.

    Rows are also returned if the time limit was reached.
    """
    names = ("--kernels", CHEATS, "--variants", ",".join(variants), "--dtypes", dtypes)
    command = (*GPUBENCH, "sweep", "--device", "cuda", *names, *words, "--cache", "both")
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "rows.csv"
        ended = child(
            (
                "timeout",
                "--signal=INT",
                "--kill-after=30",
                TIMEOUT_S,  # SIGINT ends the sweep, which keeps its rows
                *command,
                "--rounds",
                "1",
                "-o",
                output,
            ),
            out=subprocess.DEVNULL,
            err=subprocess.PIPE,
        )
        print(*ended.err.splitlines()[-6:], sep="\n", flush=True)
        if not output.exists():
            sys.exit(f"cheats.py: the sweep ended with {ended.code}: {ended.last_line}")
        return read(output)


def bound(backend: Any, what: Point) -> Any:
    """Bind the kernel of a point to random operands, and return the bound kernel."""
    operands = backend.load(what.problem, make_inputs(what.problem, SEED), cold=False)
    return backend.bind(what, operands)


def judged(rows: Sequence[Row], honest_us: dict[tuple[str, str, str], float]) -> list[bool]:
    """Print and return whether each row is as expected.

    A kernel that cheats may be `ok` if its time is not false: `median_us`, or the time by the clock
    of another process if this time is longer, must be at least that of the right kernel of the same
    variant. `gpubench judge` never takes the shorter time. Times of right kernels are added to
    `honest_us`.
    """
    held = []
    for row in sorted(rows, key=lambda row: _name(row) not in RIGHT):
        name, what = _name(row), (row.variant, row.dtype, row.cache)
        is_right = name in RIGHT or (name, row.dtype) in RIGHT_AS_PRODUCTS
        expected = (row.status == Status.OK) == is_right
        longer_us = (row.median_us or 0.0) * max(row.clock_ratio or 1.0, 1.0)
        if is_right and longer_us:
            honest_us.setdefault(what, longer_us)
        elif longer_us:
            expected = longer_us >= (1 - LIMIT) * honest_us.get(what, 0.0)
        ratio = f", clock_ratio: {row.clock_ratio:.3f}" if row.clock_ratio else ""
        time = f"{row.median_us:.2f} µs, clock: {row.clock}{ratio}" if row.median_us else row.reason
        text = f"{name} {row.m}x{row.n}x{row.k} {row.dtype} {row.cache}: {row.status}, {time}"
        if row.kernels_run:
            text += f"; runs {row.kernels_run}"
        if name in POSSIBLE:
            print(f"possible: {text}")
        else:
            held.append(verdict(expected, text))
    return held


def _name(row: Row) -> str:
    return row.tile.rpartition("=")[2] or row.variant


STATES = {
    "alone": (False, False, True),
    "after pinned lines, no reset": (True, False, False),
    "after pinned lines and a set-aside, no reset": (True, True, False),
    "after pinned lines, reset": (True, False, True),
    "after pinned lines and a set-aside, reset": (True, True, True),
}
"""Maps a state to three steps before the neighbour runs. A kernel pins its operands, a part of the
cache is set aside for pinned operands, and the cache is reset. False means that the step is
skipped."""


def times_of_a_neighbour() -> dict[str, float]:
    """Return the median time of the neighbour in each state of `STATES`, in microseconds."""
    from cuda.bindings import driver

    from gpubench.backends.cuda.backend import CudaBackend

    backend = CudaBackend(0)
    m, n = NEIGHBOUR
    product = Problem(op="gemv", m=m, n=n, k=1, dtype="float32")
    neighbour = bound(backend, point("gemv_vectorized", "", product))
    square = Problem(op="gemm", m=PINNING, n=PINNING, k=PINNING, dtype="float32")
    pinning = bound(backend, point("cheat_cuda", "16/kernel=pins_operands", square, CHEATS))
    limit = driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
    backend.warm_up()
    times_us = {}
    for name, (pins, sets_aside, resets) in STATES.items():
        times: list[float] = []
        for _ in range(VISITS):
            backend.reset_caches()
            if sets_aside:
                driver.cuCtxSetLimit(limit, 30 * 2**20)
            if pins:
                pinning.run(2)
            if resets:
                backend.reset_caches()
            neighbour.run(3)
            times += neighbour.sample(20, 5)
        backend.reset_caches()
        times_us[name] = median(times)
    return times_us


def sweeps() -> Iterator[tuple[Sequence[str], str, Sequence[str]]]:
    """Yield the variants, the element types and the other options of each sweep."""
    for dtypes, variants in CHEATING.items():
        yield (*BESIDE, *variants), dtypes, ("--sizes", SIZES)
    yield ("cheat_cuda",), "float32", ("--tiles", "16/kernel=loads_words", "--sizes", ODD)
    functions = of_op("gemm", CHEATS)["cheat_function"].tiles or Space()
    for tile in set(functions) - set(functions.defaults):
        yield ("cheat_function",), "float32", ("--tiles", str(tile), "--sizes", SIZES)


def main() -> int:
    parser(__doc__).parse_args()
    held: list[bool] = []
    honest_us: dict[tuple[str, str, str], float] = {}
    for variants, dtypes, words in sweeps():
        held += judged(sweep(variants, dtypes, *words), honest_us)
    times_us = times_of_a_neighbour()
    for name, taken_us in times_us.items():
        print(f"a neighbour {name}: {taken_us:.2f} µs")
        if name.endswith(", reset"):
            ratio = taken_us / times_us["alone"]
            what = f"a neighbour {name}: {ratio:.3f} of alone"
            held.append(verdict(abs(ratio - 1) <= LIMIT, what))
    print(f"{sum(held)} of {len(held)} hold")
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
