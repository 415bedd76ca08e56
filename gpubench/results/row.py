"""`Row`, which alone defines the columns of a sweep's CSV: names, types, units and meanings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench.files import Output
from gpubench.model import LARGEST, PointKey, Timing
from gpubench.results.columns import MAX_VALUE, Columns, OfSize, as_field, column
from gpubench.text import clean

if TYPE_CHECKING:
    import pandas as pd


_key, _outcome, _time, _rates, _why, _pairs, _clocks, _host, _context = (
    partial(column, group)
    for group in ("key", "outcome", "time", "rates", "why", "pairs", "clocks", "host", "context")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PointRow(OfSize):
    """A row that describes a point. The fields are the columns of the point's key, in order."""

    op: str = _key("operation, such as gemm")
    variant: str = _key("kernel or library routine")
    backend: str = _key("cuda or cpu")
    tile: str = _key("tile as --tiles takes it; empty for variants without one")
    dtype: str = _key("element type")
    compute_mode: str = _key("arithmetic, as --dtypes takes it; float32 has no TF32")
    layout: str = _key("row-major, or which matrices are column-major")
    m: int = _key("rows of C; for gemv, gemv_t and atax, rows of A", low=1, high=LARGEST)
    n: int = _key("columns of C; for gemv, gemv_t and atax, columns of A", low=1, high=LARGEST)
    k: int = _key("inner extent; 1 for gemv, gemv_t and atax", low=1, high=LARGEST)
    extents: str = _key("extents beyond m, n and k, joined by ;, such as batch=8", default="")
    operands: str = _key("values of the operands, as --operands takes them")
    cache: str = _key("cold: operands were not in the last-level cache; hot: they may be")
    launches: str = _key("when a launch begins, as --launches takes it")
    state: str = _key("burst: after a short warm-up; sustained: after a second of launches")
    scope: str = _key("kernel: device work only; end-to-end: allocation and copies too")
    timer: str = _key(
        "events: per launch in a stream; cupti: execution; host: CPU; outside: parent"
    )

    @property
    def key(self) -> PointKey:
        """The key that identifies the point, within a file and across files."""
        return PointKey._make(_KEY_OF(self))


@dataclass(frozen=True, kw_only=True, slots=True)
class Row(PointRow):
    """A row of a sweep's CSV, which describes one point. The fields are the columns, in order.

    None is written as an empty field.

    Each text is one printable line (`clean`), even if it came from a compiler or a file.
    """

    status: str | None = _outcome("ok, skipped, wrong, error, or eliminated (by tune)")
    reason: str | None = _outcome("why the status is not ok, or what failed before it was ok")
    max_relative_error: float | None = _outcome(
        "largest |C − reference| over ‖row of A‖·‖column of B‖ + √K·|reference|; 0 if exact",
        high=math.inf,
    )
    error_max_bits: float | None = _outcome(
        "−log₂ of the largest |C − reference|, scaled as max_relative_error; empty if exact"
    )
    error_rms_bits: float | None = _outcome(
        "−log₂ of the root mean square of the errors, scaled as max_relative_error"
    )

    median_us: float | None = _time("time per launch: median of the round medians")
    min_us: float | None = _time("time per launch in the fastest sample")
    ci_low_us: float | None = _time(
        "lower end of the 95 % interval of the time, from 3 rounds on", low=-MAX_VALUE
    )
    ci_high_us: float | None = _time("upper end of the 95 % interval of the time")
    precision_goal: float | None = _time("--precision: largest half-width over the median")
    samples: int | None = _time("number of samples in all rounds")
    launches_per_sample: int | None = _time(
        "number of launches that are timed together as one sample"
    )
    rounds: int | None = _time("number of rounds in which the point was measured")
    round_medians_us: tuple[float, ...] = _time("median of each round, joined by ;", default=())
    stop_reason: str | None = _time("why sampling stopped in the last round")
    overhead_us: float | None = _time(
        "time that is subtracted from each sample (timers events and outside)", low=-MAX_VALUE
    )
    host_us: float | None = _time("time until a launch's call returns (timer events)")
    first_call_s: float | None = _time(
        "time of a function's first calls, which may compile or tune; not in other times"
    )

    clock: str | None = _time(
        "parent: a process without the kernel confirms the time to 5 %; own: no such process can "
        "confirm the time of a GPU's function (see notes); child: otherwise"
    )
    clock_ratio: float | None = _time("time by the parent's clock over the reported time (median)")

    gflops: float | None = _rates("10⁹ operations a second; a multiply-add counts as 2")
    gbytes_per_s: float | None = _rates("10⁹ bytes a second, each operand moved once")
    percent_of_peak: float | None = _rates("percentage of peak_gflops, at the nominal clock")
    peak_gflops: float | None = _rates("theoretical peak rate; on a CPU, the highest measured rate")
    percent_of_peak_at_clock: float | None = _rates("percentage of the theoretical peak at sm_mhz")
    percent_of_blas: float | None = _rates(
        "percentage of the speed of this sweep's BLAS, with equal dtype and threads"
    )
    percent_of_copy: float | None = _rates("percentage of a copy's rate, measured in this sweep")

    algorithm: str | None = _why("a library's algorithms, and whether a measurement chose them")
    kernels_run: str | None = _why("names and counts of the kernels of a launch, or why unknown")
    notes: str | None = _why("what a call does beside computing, such as allocating memory")
    registers: int | None = _why("registers per thread")
    local_bytes: int | None = _why("stack frame per thread: spills and local arrays")
    spill_bytes: int | None = _why("bytes of spill stores per thread")
    shared_bytes: int | None = _why("shared memory per block, static and dynamic")
    workspace_bytes: int | None = _why("device memory for what a launch keeps between its kernels")
    threads_per_block: int | None = _why("threads in a block")
    blocks: int | None = _why("blocks in the grid")
    occupancy: float | None = _why("warps that a multiprocessor holds, over its maximum, 0 to 1")
    arithmetic_intensity: float | None = _why("operations per byte that must be moved")
    cgma: float | None = _why("operations per element that the kernel loads or stores")

    pair_library: str | None = _pairs(
        "library that ran in turns with the kernel, at the power limit"
    )
    pair_ratio: float | None = _pairs(
        "speed relative to pair_library: geometric mean over pairs of visits"
    )
    pair_ratio_low: float | None = _pairs(
        "lower end of the 95 % interval of pair_ratio, over processes"
    )
    pair_ratio_high: float | None = _pairs("upper end of the 95 % interval of pair_ratio")
    pairs: int | None = _pairs("number of pairs of neighbouring visits")
    pair_joules: float | None = _pairs("energy of a launch in these visits, of the whole GPU")
    pair_library_joules: float | None = _pairs("energy of a launch of pair_library in these visits")

    sm_mhz: float | None = _clocks("multiprocessor clock while sampling, read in the stream")
    nvml_sm_mhz: float | None = _clocks("multiprocessor clock after the point, by NVML")
    memory_mhz: float | None = _clocks("memory clock after the point, by NVML")
    temperature_c: float | None = _clocks(
        "temperature before or after the point, whichever is higher", low=-MAX_VALUE
    )
    power_w: float | None = _clocks("power before or after the point, whichever is higher")
    joules: float | None = _clocks("energy of a launch, of the whole GPU, if sustained")
    pj_per_operation: float | None = _clocks("joules per operation, in 10⁻¹² J")
    throttle: str | None = _clocks("what limited the clock before or after the point, joined by ;")

    cpu_threads: int | None = _host("number of threads on a CPU; by default the fastest number")

    device: str | None = _context("GPU or CPU that ran the point")
    device_uuid: str | None = _context("UUID of the GPU, as nvidia-smi -L prints it")
    slot: str | None = _context("address on the PCI bus; for a CPU, the name of its Dask worker")
    percent_of_devices: float | None = _context(
        "with --on: speed as a percentage of the median device's speed"
    )
    compute_capability: str | None = _context("compute capability of the GPU")
    driver: str | None = _context("version of the GPU driver")
    cuda: str | None = _context("CUDA version that the driver supports")
    cupy: str | None = _context("version of CuPy")
    nvrtc: str | None = _context("version of NVRTC, which compiles the kernels")
    library: str | None = _context("BLAS that percent_of_blas compares with")
    environment: str | None = _context("environment variables that change libraries, joined by ;")
    source_hash: str | None = _context("hash of the variant's files and its libraries' versions")
    code_hash: str | None = _context("hash of the compiled code, if gpubench compiled it")
    gpubench: str | None = _context("version of gpubench")
    tree_hash: str | None = _context("hash of all files of the gpubench package that measured")
    commit: str | None = _context("git commit of gpubench, + if its files differed; empty: no git")
    problem: str | None = _context("name in the list of --sizes; equal problems are joined by +")
    weight: float | None = _context("how often the list of --sizes has the problem")
    options: str | None = _context("the options of the sweep, as flags")
    seed: int | None = _context("seed of the operands, and of the order of the points")
    round_seeds: str | None = _context("for your own kernel: seeds of the rounds, joined by ;")
    host: str | None = _context("name of the machine")
    started_utc: str | None = _context("when the point's first round started")

    def __post_init__(self) -> None:
        for name in _TEXT_COLUMNS:
            text = getattr(self, name)
            if text and not text.isprintable():
                object.__setattr__(self, name, clean(text))

    @property
    def problem_key(self) -> tuple[str | int, ...]:
        """The key without variant and tile. Rows with equal problem keys may be compared."""
        return tuple(getattr(self, name) for name in PROBLEM_KEY)

    @property
    def kernel(self) -> str:
        """The variant and its tile, such as `shared_tile 16`."""
        return f"{self.variant} {self.tile}".strip()

    @property
    def label(self) -> str:
        """The name of the point that users see, such as `shared_tile 16 at 1024 float32`."""
        precision = self.compute_mode or self.dtype
        return " ".join(filter(None, (self.variant, self.tile, "at", self.size, precision)))

    @property
    def conditions(self) -> str:
        """Text for a title, with the cache state and any state, scope or timer that is unusual."""
        usual = {"", "burst", "kernel", "events", "host", "outside"}
        named = [value for value in (self.state, self.scope, self.timer) if value not in usual]
        return ", ".join([f"{self.cache} cache", *named])

    @property
    def special(self) -> str:
        """Text for a title, with the launches, layout and operands that are not the default."""
        usual = {"", "alone", "row-major", "uniform"}
        named = {"launches ": self.launches, "": self.layout, "operands ": self.operands}
        return "".join(f", {what}{text}" for what, text in named.items() if text not in usual)

    @property
    def half_interval(self) -> float | None:
        """Distance from the median to the farther end of the interval, divided by the median."""
        if not self.median_us or self.ci_low_us is None or self.ci_high_us is None:
            return None
        half_us = max(self.ci_high_us - self.median_us, self.median_us - self.ci_low_us)
        return half_us / self.median_us

    @property
    def missed_precision(self) -> bool:
        """Whether the interval is wider than `--precision` allows."""
        goal = Timing().precision if self.precision_goal is None else self.precision_goal
        return self.half_interval is not None and self.half_interval > goal

    @property
    def unstable(self) -> bool:
        """Whether rounds disagree. The row's time is then not comparable with other times."""
        medians = self.round_medians_us
        return bool(medians) and max(medians) > STABLE * min(medians)


KEY = PointKey._fields
_KEY_OF = attrgetter(*KEY)
PROBLEM_KEY = tuple(name for name in KEY if name not in {"variant", "tile"})
REQUIRED = (*KEY[:-1], "status", "median_us", "round_medians_us")
"""Columns that every file must have. Versions of gpubench differ in the other columns, such as
`extents`, the last column of the key."""

_FILE = Columns(Row, REQUIRED, "a CSV of a sweep (docs/files.md has its schema)")
COLUMNS, NAMES = _FILE.fields, _FILE.names
encode, read, rows = _FILE.encode, _FILE.read, _FILE.rows_of

STABLE = 1.1
"""Rounds agree if the largest round median divided by the smallest is at most this value."""


def objects(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return the rows as objects for JSON. A missing or infinite value becomes None."""

    def finite(value: object) -> object:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return [{name: finite(as_field(getattr(row, name))) for name in NAMES} for row in rows]


def write(rows: Iterable[Row], path: Path) -> None:
    """Write the rows into a file, and replace an existing file. Raises UsageError."""
    Output(path, overwrite=True).write(encode(rows))


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """Return a frame with the rows. pandas would read the same frame from the CSV."""
    import pandas as pd

    lines = [tuple(map(as_field, values)) for values in map(attrgetter(*NAMES), rows)]
    return pd.DataFrame(lines, columns=list(NAMES))


_TEXT_COLUMNS = tuple(each.name for each in COLUMNS if str(each.type).startswith("str"))
