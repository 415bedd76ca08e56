"""`Row`, the one owner of the CSV: columns, types, units; reading and writing."""

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
    """A column with its group and meaning; key columns must be given, others may be missing."""
    metadata = {"group": group, "meaning": meaning}
    return field(default=MISSING if group == "key" else None, metadata=metadata)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One point of a sweep: the columns of the CSV, in order. None is written as an empty field.

    Text is one printable line (`clean`), wherever it came from: a compiler's message, a file.
    """

    op: str = _column("key", "operation, such as gemm")
    variant: str = _column("key", "kernel or library routine")
    backend: str = _column("key", "cuda or cpu")
    tile: str = _column("key", "tile as --tiles takes it; empty for variants without one")
    dtype: str = _column("key", "element type")
    compute_mode: str = _column(
        "key",
        "arithmetic used, as --dtypes takes it; float32: no TF32; float8_e4m3: sums of 14 bits",
    )
    layout: str = _column("key", "row-major, or which matrices are column-major")
    m: int = _column("key", "rows of C; for gemv, gemv_t and atax, rows of A")
    n: int = _column("key", "columns of C; for gemv, gemv_t and atax, columns of A")
    k: int = _column("key", "inner extent; 1 for gemv, gemv_t and atax")
    operands: str = _column("key", "what operands hold: uniform (random) or index (0, 1, 2, …)")
    cache: str = _column("key", "cold: operands were not in the last-level cache; hot: they may be")
    state: str = _column(
        "key",
        "burst: samples follow a short warm-up; sustained: a second of launches, no pause; of a "
        "fleet: alone, or together",
    )
    scope: str = _column("key", "kernel: device work only; end-to-end: allocation and copies too")
    timer: str = _column("key", "events: time per launch in a stream; cupti: execution; host: CPU")

    status: str | None = _column("outcome", "ok, skipped, wrong, error, or eliminated by tune")
    reason: str | None = _column("outcome", "why it is not ok, or what went wrong before it was")
    max_relative_error: float | None = _column(
        "outcome",
        "largest |C − reference| over ‖row of A‖·‖column of B‖ + √K·|reference|; 0 if exact; "
        "for atax the errors that A·v may have are in the divisor too",
    )

    median_us: float | None = _column("time", "time per launch: median of the round medians")
    q1_us: float | None = _column("time", "first quartile (median over rounds)")
    q3_us: float | None = _column("time", "third quartile (median over rounds)")
    min_us: float | None = _column("time", "fastest sample")
    max_us: float | None = _column("time", "slowest sample")
    ci_low_us: float | None = _column(
        "time", "95 % interval of the median: within a round or between rounds, the wider"
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
        "time", "what was subtracted from each sample: its time beyond the launches (timer events)"
    )

    gflops: float | None = _column("rates", "10⁹ operations a second; a multiply-add counts 2")
    gbytes_per_s: float | None = _column("rates", "10⁹ bytes a second, each operand moved once")
    percent_of_peak: float | None = _column(
        "rates",
        "of the theoretical peak at nominal clock; on a CPU of the rate of multiply-adds in "
        "registers on all its threads, the highest measured on such a CPU",
    )
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
        "why", "which of a library's algorithms ran, and whether measuring chose it; of all rounds"
    )
    notes: str | None = _column(
        "why", "what the result held if the kernel reads it; what a call does beside computing"
    )
    registers: int | None = _column("why", "registers per thread")
    local_bytes: int | None = _column("why", "stack frame per thread: spills and local arrays")
    spill_bytes: int | None = _column("why", "bytes of spill stores per thread")
    shared_bytes: int | None = _column("why", "shared memory per block, static and dynamic")
    threads_per_block: int | None = _column("why", "threads in a block")
    blocks: int | None = _column("why", "blocks in the grid")
    occupancy: float | None = _column(
        "why", "warps a multiprocessor can hold of this kernel over the most it can hold, 0 to 1"
    )
    arithmetic_intensity: float | None = _column("why", "operations per byte that must move")
    cgma: float | None = _column("why", "operations per element the kernel loads or stores")

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
        "clocks", "what held the clock down before or after the point, joined by ;"
    )

    cpu_threads: int | None = _column(
        "host", "threads allowed on a CPU; of a variant that leaves it open, the fastest number"
    )
    cpu_cores: int | None = _column(
        "host",
        "physical cores for the process, as the system shows them; this and the next three are of "
        "rows of a CPU and end-to-end rows, on Linux",
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
        "which GPU of its kind, as nvidia-smi -L has it; of rounds on several, joined by ;",
    )
    slot: str | None = _column(
        "context", "its address on the PCI bus; of a CPU shared through Dask the worker's name"
    )
    percent_of_devices: float | None = _column(
        "context",
        "of a sweep shared among devices: speed of the row's device relative to the median one, at "
        "the points that several measured",
    )
    compute_capability: str | None = _column("context", "of the GPU")
    driver: str | None = _column("context", "version of the GPU driver")
    cuda: str | None = _column("context", "CUDA version the driver supports")
    cupy: str | None = _column("context", "version of CuPy")
    nvrtc: str | None = _column("context", "version of NVRTC, which compiles the kernels")
    library: str | None = _column("context", "BLAS that percent_of_blas refers to")
    environment: str | None = _column(
        "context",
        "variables that change what libraries compute or how fast, as they were set before "
        "gpubench removed them for the measuring process, joined by ;",
    )
    source_hash: str | None = _column("context", "of the variant's files and libraries")
    gpubench: str | None = _column("context", "version of gpubench")
    tree_hash: str | None = _column("context", "of all files of the package that measured")
    commit: str | None = _column(
        "context", "git commit of that package, + if its files had changed; empty if not in git"
    )
    options: str | None = _column("context", "what the sweep was started with, as flags")
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
        """What identifies the point, within a file and across files."""
        return PointKey._make(_KEY_OF(self))

    @property
    def problem_key(self) -> tuple[str | int, ...]:
        """The key without variant and tile: rows that agree in it may be compared."""
        return tuple(getattr(self, name) for name in PROBLEM_KEY)

    @property
    def label(self) -> str:
        """What a person calls the point: `shared_tile 16 at 1024 float32`."""
        return " ".join(filter(None, (self.variant, self.tile, "at", self.size, self.dtype)))

    @property
    def half_interval(self) -> float | None:
        """How far the interval of the median reaches to its farther end, as a fraction of it."""
        if not self.median_us or self.ci_low_us is None or self.ci_high_us is None:
            return None
        half_us = max(self.ci_high_us - self.median_us, self.median_us - self.ci_low_us)
        return half_us / self.median_us

    @property
    def missed_precision(self) -> bool:
        """Whether the interval is wider than `--precision` asked."""
        goal = Timing().precision if self.precision_goal is None else self.precision_goal
        return self.half_interval is not None and self.half_interval > goal

    @property
    def unstable(self) -> bool:
        """Whether rounds disagree: then no ratio, verdict or claim may rest on the time."""
        medians = [float(text) for text in (self.round_medians_us or "").split(";") if text]
        return bool(medians) and max(medians) > STABLE * min(medians)

    @property
    def size(self) -> str:
        """The size as `--sizes` takes it."""
        return OPERATIONS.get(self.op, OPERATIONS["gemm"]).size(self.m, self.n, self.k)


COLUMNS: tuple[Field[Any], ...] = fields(Row)
NAMES = tuple(column.name for column in COLUMNS)
KEY = PointKey._fields
_KEY_OF = attrgetter(*KEY)
PROBLEM_KEY = tuple(name for name in KEY if name not in {"variant", "tile"})
REQUIRED = (*KEY, "status", "median_us", "round_medians_us")
"""What no file can do without. Other columns came with a version of gpubench, or will."""

STABLE = 1.1
"""Rounds agree while their largest median is at most this many times the smallest."""

MAX_ROWS, MAX_BYTES = 200_000, 2**27
"""Of a file: what `diff`, `plot` and `report` read within a gigabyte of memory."""

MAX_HEADER = 2**16
"""Characters read as the first line, which every CSV has."""

_FORMULA = re.compile(r"'*[=+\-@]")
"""How a text begins that a spreadsheet would compute, or that an apostrophe already guards."""


def write(rows: Iterable[Row], path: Path) -> None:
    """Write a whole file over what was there. Raises UsageError if it cannot be written."""
    Output(path, overwrite=True).write(encode(rows))


def encode(rows: Iterable[Row]) -> bytes:
    """The rows as the CSV's bytes."""
    return encode_csv(NAMES, ([getattr(row, name) for name in NAMES] for row in rows))


def encode_csv(names: Sequence[str], lines: Iterable[Iterable[object]]) -> bytes:
    """A CSV whose text no terminal obeys and no spreadsheet computes."""
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
    """The text that `_field` wrote."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def read(path: Path, columns: Collection[str] = NAMES) -> list[Row]:
    """The rows of a file, in any column order, also after pandas or a spreadsheet rewrote it.

    Columns that are not `REQUIRED` may be missing, as in files of other versions, and unknown ones
    are passed over. Fields may be separated by commas, semicolons or tabs, but the decimal sign is
    a point. `*.gz` is decompressed. `columns` are those that the caller needs beside the key: a
    large file is read faster without the others. Raises UsageError for a file of more than
    `MAX_ROWS` rows, and naming the line and column that does not fit.
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
        found = []
        for line in lines:
            if len(line) != len(names):
                if not line:  # an empty line
                    continue
                _refuse_length(f"{path}, line {lines.line_num}", line, names)
            try:
                found.append(_row({name: parse(line[at]) for at, name, parse in parsers}))
            except ValueError:
                texts = {name: line[at] for at, name, _ in parsers}
                raise _misfit(f"{path}, line {lines.line_num}", texts) from None
        return found


@contextmanager
def opened(path: Path) -> Iterator[IO[str]]:
    """The text of a CSV, `*.gz` decompressed.

    Raises UsageError for one of more than `MAX_BYTES` or `MAX_ROWS` lines before any is read, and
    for what the block finds to be no CSV.
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
    """`Row(**values)` of values that the parsers made, whose text is clean: 15 times as fast."""
    row = object.__new__(Row)
    for name, put in _SLOTS.items():
        put(row, values.get(name))
    return row


def _refuse_length(place: str, line: Sequence[str], names: Sequence[str]) -> NoReturn:
    if len(line) > len(names):
        raise UsageError(f"{place}: more fields than columns")
    raise UsageError(f"{place}: the line ends before column '{names[len(line)]}'")


def _misfit(place: str, texts: Mapping[str, str]) -> UsageError:
    """What says which column does not take its text."""
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
    """The rows as pandas would read them from the CSV."""
    import pandas as pd

    return pd.DataFrame(
        [[getattr(row, name) for name in NAMES] for row in rows], columns=list(NAMES)
    )


def rows(of: pd.DataFrame) -> list[Row]:
    """The rows of a frame that has the CSV's columns, in any order; others are passed over.

    Raises UsageError naming the one of `REQUIRED` that is missing.
    """
    for name in REQUIRED:
        if name not in of.columns:
            raise UsageError(f"not a gpubench frame: column '{name}' is missing")
    names = [name for name in NAMES if name in of.columns]
    found = []
    for number, line in enumerate(of[names].itertuples(index=False, name=None), 1):
        texts = dict(zip(names, map(_text, names, line), strict=True))
        try:
            found.append(_row({name: _PARSERS[name](text) for name, text in texts.items()}))
        except ValueError:
            raise _misfit(f"the frame's row {number}", texts) from None
    return found


def _text(name: str, value: Any) -> str:
    """A value of a frame as the CSV has it: pandas has NaN, and floats where integers are few."""
    if value is None or value != value:  # noqa: PLR0124 - NaN alone differs from itself
        return ""
    return str(_field(value) if _KINDS[name] is str else value)


_KINDS: dict[str, type] = {
    column.name: {"str": str, "int": int, "float": float}[str(column.type).partition(" ")[0]]
    for column in COLUMNS
}
_TEXT_COLUMNS = tuple(name for name, kind in _KINDS.items() if kind is str)

LEAST, MOST = 1e-30, 1e30
"""Of what is measured, the magnitude of any number but 0: products of a few stay finite."""

_RANGES = {
    **dict.fromkeys(NAMES, (0.0, MOST)),
    **dict.fromkeys(("m", "n", "k", "tile"), (1, LARGEST)),
    **dict.fromkeys(("ci_low_us", "overhead_us", "temperature_c"), (-MOST, MOST)),
    "max_relative_error": (0.0, math.inf),  # of a result that is infinite
}
"""Lowest and highest number of a column."""


def in_range(number: float, low: float = 0.0, high: float = MOST) -> float:
    """The number. Raises ValueError for NaN, and where no figure can be."""
    if low <= number <= high and (not number or abs(number) >= LEAST):
        return number
    raise ValueError(f"{number} is not a number from {low:g} to {high:g}")


def _tile(text: str) -> str:
    """`16`; also `16.0`: with empty fields among them, edges are floats to pandas."""
    if re.fullmatch(r"\d+(\.\d*(e[+-]\d+)?)?", text):
        return str(in_range(_whole(text), *_RANGES["tile"]))
    return unguarded(text)


def _whole(text: str) -> int:
    """`1024`; also `1024.0` and `1.024e+03`, as pandas and spreadsheets write it."""
    try:
        return int(text)
    except ValueError:
        number = in_range(float(text), -MOST)
        if not number.is_integer():
            raise
        return int(number)


def _rounds(text: str) -> str:
    """Numbers joined by `;`, as they stand."""
    for number in text.split(";"):
        in_range(float(number), LEAST)
    return text


def _parser(name: str) -> Callable[[str], Any]:
    """What reads a field of the column: its value, None where it is empty; raises ValueError."""
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
"""So many texts and whole numbers of a column are parsed and stored once, for all rows."""

_SLOTS = {name: getattr(Row, name).__set__ for name in NAMES}
_PARSERS = {name: _parser(name) for name in NAMES}
