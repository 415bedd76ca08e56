"""`Row`, the only owner of the CSV: columns, types, units, reading and writing."""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from gpubench.errors import UsageError
from gpubench.model import LARGEST, OPERATIONS, PointKey, Timing
from gpubench.results.output import Output
from gpubench.text import clean

if TYPE_CHECKING:
    import pandas as pd


def _column(group: str, meaning: str) -> Any:
    """Declare a column with its group and meaning. Only columns of the key are mandatory."""
    metadata = {"group": group, "meaning": meaning}
    return field(default=MISSING if group == "key" else None, metadata=metadata)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One point of a sweep: the columns of the CSV, in order. None is written as an empty field.

    Text is one printable line (`clean`), also if it came from a compiler or a file.
    """

    op: str = _column("key", "operation, such as gemm")
    variant: str = _column("key", "kernel or library routine")
    backend: str = _column("key", "cuda or cpu")
    tile: str = _column("key", "tile as --tiles takes it; empty for variants without one")
    dtype: str = _column("key", "element type")
    compute_mode: str = _column(
        "key",
        "arithmetic, as --dtypes takes it; float32: no TF32; float8_e4m3: sums of 14 bits",
    )
    layout: str = _column("key", "row-major, or which matrices are column-major")
    m: int = _column("key", "rows of C; for gemv, gemv_t and atax, rows of A")
    n: int = _column("key", "columns of C; for gemv, gemv_t and atax, columns of A")
    k: int = _column("key", "inner extent; 1 for gemv, gemv_t and atax")
    operands: str = _column(
        "key",
        "values of the operands: uniform (random), index (0, 1, 2, …), normal, integers, zeros, "
        "ones or low-entropy",
    )
    cache: str = _column("key", "cold: operands were not in the last-level cache; hot: they may be")
    state: str = _column(
        "key",
        "burst: samples follow a short warm-up; sustained: they follow a second of launches "
        "without a pause",
    )
    scope: str = _column("key", "kernel: device work only; end-to-end: allocation and copies too")
    timer: str = _column("key", "events: time per launch in a stream; cupti: execution; host: CPU")

    status: str | None = _column("outcome", "ok, skipped, wrong, error, or eliminated (by tune)")
    reason: str | None = _column(
        "outcome", "why the status is not ok, or what failed before it was ok"
    )
    max_relative_error: float | None = _column(
        "outcome",
        "largest |C − reference| over ‖row of A‖·‖column of B‖ + √K·|reference|; 0 if exact; "
        "for atax the divisor includes the errors that A·v may have",
    )

    median_us: float | None = _column("time", "time per launch: median of the round medians")
    q1_us: float | None = _column("time", "first quartile (median over rounds)")
    q3_us: float | None = _column("time", "third quartile (median over rounds)")
    min_us: float | None = _column("time", "fastest sample")
    max_us: float | None = _column("time", "slowest sample")
    ci_low_us: float | None = _column(
        "time", "95 % interval of the time, from the scatter of the rounds; empty below 3 rounds"
    )
    ci_high_us: float | None = _column("time", "its upper end")
    precision_goal: float | None = _column(
        "time", "largest half-width of that interval, over the median, that --precision asks for"
    )
    samples: int | None = _column("time", "samples in all rounds")
    launches_per_sample: int | None = _column("time", "launches timed together as one sample")
    rounds: int | None = _column("time", "rounds in which the point was measured")
    round_medians_us: str | None = _column("time", "median of each round, joined by ;")
    outliers_tukey: int | None = _column("time", "samples beyond 1.5 interquartile ranges, kept")
    outliers_mad: int | None = _column("time", "samples beyond 3.5 scaled MADs, kept")
    stop_reason: str | None = _column("time", "why sampling stopped in the last round")
    device_s: float | None = _column("time", "sum of all samples, in seconds")
    overhead_us: float | None = _column(
        "time", "time of a sample beyond its launches, which was subtracted from it (timer events)"
    )

    gflops: float | None = _column("rates", "10⁹ operations a second; a multiply-add counts 2")
    gbytes_per_s: float | None = _column("rates", "10⁹ bytes a second, each operand moved once")
    percent_of_peak: float | None = _column(
        "rates",
        "of the theoretical peak at the nominal clock; on a CPU, of the highest measured rate of "
        "multiply-adds in registers on all threads",
    )
    peak_gflops: float | None = _column("rates", "the peak that percent_of_peak refers to")
    percent_of_peak_at_clock: float | None = _column(
        "rates", "of the theoretical peak at the clock seen while sampling, sm_mhz"
    )
    percent_of_blas: float | None = _column(
        "rates", "speed relative to the BLAS of the same backend, threads and dtype in this sweep"
    )
    percent_of_copy: float | None = _column(
        "rates",
        "gbytes_per_s relative to a copy in the device's memory (bytes read and written), measured "
        "in this sweep; for gemv, gemv_t and atax, and on a CPU",
    )

    algorithm: str | None = _column(
        "why", "a library's algorithms in all rounds, and whether a measurement chose them"
    )
    notes: str | None = _column(
        "why",
        "what the result held if the kernel reads it; what a call does beside computing",
    )
    registers: int | None = _column("why", "registers per thread")
    local_bytes: int | None = _column("why", "stack frame per thread: spills and local arrays")
    spill_bytes: int | None = _column("why", "bytes of spill stores per thread")
    shared_bytes: int | None = _column("why", "shared memory per block, static and dynamic")
    threads_per_block: int | None = _column("why", "threads in a block")
    blocks: int | None = _column("why", "blocks in the grid")
    occupancy: float | None = _column(
        "why", "warps of this kernel that a multiprocessor holds, over its maximum, 0 to 1"
    )
    arithmetic_intensity: float | None = _column("why", "operations per byte that must be moved")
    cgma: float | None = _column("why", "operations per element the kernel loads or stores")

    pair_library: str | None = _column(
        "pairs",
        "library, with its tile, that was visited in turns with this kernel at the power limit",
    )
    pair_ratio: float | None = _column(
        "pairs", "speed relative to that library: geometric mean of the ratios of neighbours"
    )
    pair_ratio_low: float | None = _column("pairs", "95 % interval of that ratio")
    pair_ratio_high: float | None = _column("pairs", "its upper end")
    pairs: int | None = _column("pairs", "number of pairs of neighbouring visits")
    pair_joules: float | None = _column(
        "pairs", "energy of a launch of this kernel in these visits, of the whole GPU"
    )
    pair_library_joules: float | None = _column("pairs", "the same for the library")

    sm_mhz: float | None = _column(
        "clocks", "multiprocessor clock while sampling: cycles over time, read in the stream"
    )
    nvml_sm_mhz: float | None = _column("clocks", "multiprocessor clock after the point, by NVML")
    memory_mhz: float | None = _column("clocks", "memory clock after the point, by NVML")
    temperature_c: float | None = _column("clocks", "hottest of before and after the point")
    power_w: float | None = _column("clocks", "highest of before and after the point")
    joules: float | None = _column(
        "clocks", "energy of a launch, of the whole GPU, by NVML's counter; state sustained"
    )
    pj_per_operation: float | None = _column("clocks", "that energy over the operations: 10⁻¹² J")
    throttle: str | None = _column(
        "clocks", "what limited the clock before or after the point, joined by ;"
    )

    cpu_threads: int | None = _column(
        "host", "threads on a CPU; the fastest number, where a variant leaves it open"
    )
    cpu_cores: int | None = _column(
        "host",
        "physical cores for the process, as the system shows them; this column and the next three "
        "are filled on Linux, for a CPU and end to end",
    )
    cpu_mhz: float | None = _column("host", "mean clock of the CPUs (median over rounds)")
    steal_percent: float | None = _column(
        "host", "CPU time that the hypervisor gave to others (median over rounds)"
    )
    other_load: float | None = _column(
        "host", "CPUs that other processes kept busy (median over rounds)"
    )

    device: str | None = _column("context", "GPU or CPU that ran it")
    device_uuid: str | None = _column(
        "context",
        "UUID of the GPU, as nvidia-smi -L prints it",
    )
    slot: str | None = _column(
        "context", "address on the PCI bus; for a CPU shared through Dask, the name of the worker"
    )
    percent_of_devices: float | None = _column(
        "context",
        "in a sweep shared among devices: speed of the row's device relative to the median device, "
        "at the points that several devices measured",
    )
    compute_capability: str | None = _column("context", "of the GPU")
    driver: str | None = _column("context", "version of the GPU driver")
    cuda: str | None = _column("context", "CUDA version the driver supports")
    cupy: str | None = _column("context", "version of CuPy")
    nvrtc: str | None = _column("context", "version of NVRTC, which compiles the kernels")
    library: str | None = _column("context", "the BLAS of percent_of_blas")
    environment: str | None = _column(
        "context",
        "environment variables that change what libraries compute or how fast, joined by ;; "
        "gpubench removed them for the measuring process",
    )
    source_hash: str | None = _column(
        "context", "hash of the variant's files and the versions of its libraries"
    )
    gpubench: str | None = _column("context", "version of gpubench")
    tree_hash: str | None = _column(
        "context", "hash of all files of the gpubench package that measured"
    )
    commit: str | None = _column(
        "context", "git commit of that package, + if its files had changed; empty if not in git"
    )
    problem: str | None = _column(
        "context", "name of the problem in the list of --sizes; equal problems are joined by +"
    )
    weight: float | None = _column("context", "how often that list has the problem")
    options: str | None = _column("context", "the options of the sweep, as flags")
    seed: int | None = _column("context", "seed of the operands and of the order")
    host: str | None = _column("context", "name of the machine")
    started_utc: str | None = _column("context", "when the point's first round started")

    def __post_init__(self) -> None:
        for name in _TEXT_COLUMNS:
            text = getattr(self, name)
            if text and not text.isprintable():
                object.__setattr__(self, name, clean(text))

    @property
    def key(self) -> PointKey:
        """The key that identifies the point, within a file and across files."""
        return PointKey._make(_KEY_OF(self))

    @property
    def problem_key(self) -> tuple[str | int, ...]:
        """The key without variant and tile: rows with equal values may be compared."""
        return tuple(getattr(self, name) for name in PROBLEM_KEY)

    @property
    def label(self) -> str:
        """The point as a person names it: `shared_tile 16 at 1024 float32`."""
        return " ".join(filter(None, (self.variant, self.tile, "at", self.size, self.dtype)))

    @property
    def special_operands(self) -> str:
        """Layout and values of the operands, where they are not the default, for a title."""
        layout = "" if self.layout == "row-major" else f", {self.layout}"
        return layout + ("" if self.operands == "uniform" else f", operands {self.operands}")

    @property
    def half_interval(self) -> float | None:
        """Distance from the median to the farther end of its interval, over the median."""
        if not self.median_us or self.ci_low_us is None or self.ci_high_us is None:
            return None
        half_us = max(self.ci_high_us - self.median_us, self.median_us - self.ci_low_us)
        return half_us / self.median_us

    @property
    def missed_precision(self) -> bool:
        """Whether the interval is wider than `--precision` asks for."""
        goal = Timing().precision if self.precision_goal is None else self.precision_goal
        return self.half_interval is not None and self.half_interval > goal

    @property
    def unstable(self) -> bool:
        """Whether rounds disagree. Then no ratio, verdict or claim may rest on the time."""
        medians = [float(text) for text in (self.round_medians_us or "").split(";") if text]
        return bool(medians) and max(medians) > STABLE * min(medians)

    @property
    def size(self) -> str:
        """The size, as `--sizes` takes it."""
        return OPERATIONS.get(self.op, OPERATIONS["gemm"]).size(self.m, self.n, self.k)


COLUMNS: tuple[Field[Any], ...] = fields(Row)
NAMES = tuple(column.name for column in COLUMNS)
KEY = PointKey._fields
_KEY_OF = attrgetter(*KEY)
PROBLEM_KEY = tuple(name for name in KEY if name not in {"variant", "tile"})
REQUIRED = (*KEY, "status", "median_us", "round_medians_us")
"""Columns that every file must have. Versions of gpubench differ in the other columns."""

STABLE = 1.1
"""Rounds agree while their largest median is at most this many times the smallest."""

MAX_ROWS, MAX_BYTES = 200_000, 2**27
"""Limits of a file that `diff`, `plot` and `report` read within a gigabyte of memory."""

MAX_HEADER = 2**16
"""Maximum number of characters of the first line."""

_FORMULA = re.compile(r"'*(?:[=+@]|-(?!\Z))")
"""The beginning of a text that a spreadsheet would compute, or that an apostrophe guards."""


def write(rows: Iterable[Row], path: Path) -> None:
    """Write a file, and replace what was there. Raises UsageError if it cannot be written."""
    Output(path, overwrite=True).write(encode(rows))


def encode(rows: Iterable[Row]) -> bytes:
    """Return the rows as the bytes of a CSV."""
    return encode_csv(NAMES, ([getattr(row, name) for name in NAMES] for row in rows))


def encode_csv(names: Sequence[str], lines: Iterable[Iterable[object]]) -> bytes:
    """Return a CSV whose text is safe in terminals and spreadsheets."""
    text = io.StringIO(newline="")
    out = csv.writer(text, lineterminator="\n")
    out.writerow(names)
    out.writerows(map(_field, line) for line in lines)
    return text.getvalue().encode()


def _field(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = clean(value)
    return f"'{text}" if _FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """Return the text that `_field` guarded."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def read(path: Path, columns: Collection[str] = NAMES) -> list[Row]:
    """Read the rows of a file, also after pandas or a spreadsheet rewrote it.

    Columns may stand in any order. Columns that are not `REQUIRED` may be missing, as in files of
    other versions; unknown columns are ignored. Fields may be separated by commas, semicolons or
    tabs, but the decimal sign is a point. `*.gz` is decompressed. `columns` are those that the
    caller needs beside the key: a large file is read faster without the others.

    Raises UsageError for a file of more than `MAX_ROWS` rows, and for an invalid field, with its
    line and column.
    """
    with opened(path) as file:
        header = file.readline(MAX_HEADER)
        delimiter = max(",;\t", key=header.count)  # no column's name holds one
        lines = csv.reader(chain([header], file), delimiter=delimiter)
        names = next(lines, [])
        for name in REQUIRED:
            if name not in names:
                raise UsageError(
                    f"{path}: not a CSV of this gpubench (docs/csv.md has its schema): "
                    f"column '{name}' is missing"
                )
        wanted = set(NAMES) & {*KEY, *columns}
        parsers = [(at, name, _PARSERS[name]) for at, name in enumerate(names) if name in wanted]
        rows = []
        for line in lines:
            if len(line) != len(names):
                if not line:  # an empty line
                    continue
                _refuse_length(f"{path}, line {lines.line_num}", line, names)
            try:
                rows.append(_row({name: parse(line[at]) for at, name, parse in parsers}))
            except ValueError:
                texts = {name: line[at] for at, name, _ in parsers}
                raise _misfit(f"{path}, line {lines.line_num}", texts) from None
        return rows


@contextmanager
def opened(path: Path) -> Iterator[IO[str]]:
    """Open a CSV as text; `*.gz` is decompressed.

    Raises UsageError for a file of more than `MAX_BYTES` or `MAX_ROWS` before any line is read, and
    if the block finds that the text is not a CSV.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES or content.count(b"\n") > MAX_ROWS + 1:
            raise UsageError(
                f"{path}: more than {MAX_ROWS:,} rows, or {MAX_BYTES // 2**20} MiB; "
                "split it, such as by size"
            )
        yield io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline="")
    except (UnicodeDecodeError, csv.Error, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path}: not a gpubench CSV: {error}") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _row(values: dict[str, Any]) -> Row:
    """Make a row of values from the parsers, 15 times as fast as `Row(**values)`.

    The parsers have cleaned the text already.
    """
    row = object.__new__(Row)
    for name, put in _SLOTS.items():
        put(row, values.get(name))
    return row


def _refuse_length(place: str, line: Sequence[str], names: Sequence[str]) -> NoReturn:
    if len(line) > len(names):
        raise UsageError(f"{place}: more fields than columns")
    raise UsageError(f"{place}: the line ends before column '{names[len(line)]}'")


def _misfit(place: str, texts: Mapping[str, str]) -> UsageError:
    """Return an error that names the column with an invalid text."""
    for name, text in texts.items():
        try:
            _PARSERS[name](text)
        except ValueError:
            break
    low, high = _RANGES[name]
    what = {"round_medians_us": "a list of numbers joined by ;, each", "tile": "a tile"}.get(
        name, "a number" if _KINDS[name] is float else "a whole number"
    )
    return UsageError(
        f"{place}: '{text[:60]}' in column '{name}' is not {what} from {low:g} to {high:g}"
    )


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """Return the rows as pandas would read them from the CSV."""
    import pandas as pd

    return pd.DataFrame(
        [[getattr(row, name) for name in NAMES] for row in rows], columns=list(NAMES)
    )


def rows(table: pd.DataFrame) -> list[Row]:
    """Return the rows of a frame with the CSV's columns, in any order.

    Other columns are ignored. Raises UsageError if a column of `REQUIRED` is missing.
    """
    for name in REQUIRED:
        if name not in table.columns:
            raise UsageError(f"not a gpubench frame: column '{name}' is missing")
    names = [name for name in NAMES if name in table.columns]
    read_rows = []
    for number, line in enumerate(table[names].itertuples(index=False, name=None), 1):
        texts = dict(zip(names, map(_text, names, line), strict=True))
        try:
            read_rows.append(_row({name: _PARSERS[name](text) for name, text in texts.items()}))
        except ValueError:
            raise _misfit(f"the frame's row {number}", texts) from None
    return read_rows


def _text(name: str, value: Any) -> str:
    """Return a frame's value as the text of the CSV.

    A column of pandas with a missing value holds NaN, and floats instead of integers.
    """
    if value is None or value != value:  # noqa: PLR0124 - NaN alone differs from itself
        return ""
    return str(_field(value) if _KINDS[name] is str else value)


_KINDS: dict[str, type] = {
    column.name: {"str": str, "int": int, "float": float}[str(column.type).partition(" ")[0]]
    for column in COLUMNS
}
_TEXT_COLUMNS = tuple(name for name, kind in _KINDS.items() if kind is str)

MIN_VALUE, MAX_VALUE = 1e-30, 1e30
"""Smallest and largest magnitude of a measured number but 0. Products of a few stay finite."""

_RANGES = {
    **dict.fromkeys(NAMES, (0.0, MAX_VALUE)),
    **dict.fromkeys(("m", "n", "k", "tile"), (1, LARGEST)),
    **dict.fromkeys(("ci_low_us", "overhead_us", "temperature_c"), (-MAX_VALUE, MAX_VALUE)),
    "max_relative_error": (0.0, math.inf),  # of a result that is infinite
}
"""Lowest and highest number of a column."""


def in_range(number: float, low: float = 0.0, high: float = MAX_VALUE) -> float:
    """Return the number. Raises ValueError for NaN, and outside the range."""
    if low <= number <= high and (not number or abs(number) >= MIN_VALUE):
        return number
    raise ValueError(f"{number} is not a number from {low:g} to {high:g}")


def _tile(text: str) -> str:
    """Read `16` or `16.0`: pandas makes edges floats if some fields are empty."""
    if re.fullmatch(r"\d+(\.\d*(e[+-]\d+)?)?", text):
        return str(in_range(_whole(text), *_RANGES["tile"]))
    return unguarded(text)


def _whole(text: str) -> int:
    """Read `1024`, or `1024.0` and `1.024e+03` as pandas and spreadsheets write it."""
    try:
        return int(text)
    except ValueError:
        number = in_range(float(text), -MAX_VALUE)
        if not number.is_integer():
            raise
        return int(number)


def _rounds(text: str) -> str:
    """Check numbers joined by `;`, and return them unchanged."""
    for number in text.split(";"):
        in_range(float(number), MIN_VALUE)
    return text


def _parser(name: str) -> Callable[[str], Any]:
    """Return the function that reads a field of a column. An empty field is None.

    The function raises ValueError for an invalid field.
    """
    kind, is_key = _KINDS[name], name in KEY
    if kind is str:
        of_text = {"tile": _tile, "round_medians_us": _rounds}.get(name, unguarded)
        missing = _MISSING if name == "tile" or not is_key else {""}

        def cleaned(text: str) -> str | None:
            return (clean(of_text(text)) if text not in missing else "") or ("" if is_key else None)

        return lru_cache(_SHARED)(cleaned)
    low, high = _RANGES[name]
    convert = _whole if kind is int else float

    def number(text: str) -> float | None:
        if not is_key and text in _MISSING:
            return None
        return in_range(convert(text), low, high)

    return lru_cache(_SHARED)(number) if kind is int else number


_MISSING = {"", "nan", "NaN", "NAN"}
"""pandas may write a missing number as NaN."""

_SHARED = 1000
"""Number of distinct texts or whole numbers of a column that all rows share."""

_SLOTS = {name: getattr(Row, name).__set__ for name in NAMES}
_PARSERS = {name: _parser(name) for name in NAMES}
