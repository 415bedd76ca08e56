"""`TileRow`, the only definition of the columns of the table of `gpubench tune --table`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from gpubench.model import LARGEST
from gpubench.results.columns import Columns, OfSize, column

_key, _time, _context = (partial(column, group) for group in ("key", "time", "context"))


@dataclass(frozen=True, kw_only=True, slots=True)
class TileRow(OfSize):
    """A row of the table: the kernel that was chosen for one problem.

    The fields are the columns of the table, in order.
    """

    problem: str | None = _context("name in the list of --sizes")
    op: str = _key("operation, such as gemm")
    m: int = _key("rows of C; for gemv, gemv_t and atax, rows of A", low=1, high=LARGEST)
    n: int = _key("columns of C; for gemv, gemv_t and atax, columns of A", low=1, high=LARGEST)
    k: int = _key("inner extent; 1 for gemv, gemv_t and atax", low=1, high=LARGEST)
    extents: str = _key("extents beyond m, n and k, joined by ;, such as batch=8", default="")
    dtype: str = _key("arithmetic, as --dtypes takes it")
    layout: str = _key("row-major, or which matrices are column-major")
    variant: str = _key("the chosen kernel; the library where it is faster")
    tile: str = _key("tile of the kernel, as --tiles takes it; empty for a library")

    median_us: float | None = _time("time per launch: median of the round medians")
    ci_low_us: float | None = _time("lower end of the 95 % interval of the time", low=-1e30)
    ci_high_us: float | None = _time("upper end of that interval")
    library: str | None = _time("the fastest library")
    library_us: float | None = _time("time per launch of that library")
    ratio: float | None = _time("time of the library over the time of the (fastest) kernel")
    ratio_low: float | None = _time("lower end of the 95 % interval of ratio, over rounds")
    ratio_high: float | None = _time("upper end of that interval")
    ties: int | None = _time("number of configurations not shown to be slower than the fastest")
    configurations: int | None = _time("number of measured configurations")
    rounds: int | None = _time("number of rounds of the choice")
    hint: str | None = _time("larger extents with which the problem is faster")

    weight: float | None = _context("how often that list has the problem")
    cache: str | None = _context("cold or hot, as --cache takes it")
    launches: str | None = _context("when a launch begins, as --launches takes it")
    device: str = _key("GPU or CPU that ran the kernel")
    source_hash: str | None = _context("hash of the variant's files and its libraries' versions")
    gpubench: str | None = _context("version of gpubench")
    started_utc: str | None = _context("when the first round of the choice started")


REQUIRED = ("op", "m", "n", "k", "dtype", "layout", "variant", "tile", "ties", "device")
_FILE = Columns(TileRow, REQUIRED, "a table of 'gpubench tune --table'")
NAMES, encode, read = _FILE.names, _FILE.encode, _FILE.read
