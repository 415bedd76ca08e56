"""`Row`, the one owner of the CSV: columns, types, units; reading, writing, merging rounds."""

from __future__ import annotations

import csv
import os
import statistics
import types
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, get_args, get_type_hints

import gpubench
from gpubench.analyze.metrics import arithmetic_intensity, cgma, gbytes_per_s, gflops, percent
from gpubench.analyze.peaks import peak_gflops
from gpubench.errors import UsageError
from gpubench.model import CudaVariant, Device, Measurement, Status

if TYPE_CHECKING:
    import pandas as pd


def _column(group: str, meaning: str) -> Any:
    """A column with its group and meaning; key columns must be given, others may be missing."""
    metadata = {"group": group, "meaning": meaning}
    return field(default=MISSING if group == "key" else None, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One point of a sweep: the columns of the CSV, in order. None is written as an empty field."""

    op: str = _column("key", "operation, such as gemm")
    variant: str = _column("key", "kernel or library routine")
    backend: str = _column("key", "cuda or cpu")
    tile: str = _column("key", "tile as --tiles takes it; empty for variants without one")
    dtype: str = _column("key", "element type")
    compute_mode: str = _column("key", "arithmetic used; float32 means without TF32")
    m: int = _column("key", "rows of C")
    n: int = _column("key", "columns of C")
    k: int = _column("key", "inner extent")
    cache: str = _column("key", "cold: operands were not in the last-level cache; hot: they may be")
    scope: str = _column("key", "kernel: device work only; end-to-end: allocation and copies too")
    timer: str = _column("key", "events: time per launch in a stream; cupti: execution; host: CPU")

    status: str | None = _column("outcome", "ok, skipped, wrong or error")
    reason: str | None = _column("outcome", "why the status is not ok")
    max_relative_error: float | None = _column(
        "outcome", "largest |C − reference| over ‖row of A‖·‖column of B‖; 0 for exact integers"
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
    samples: int | None = _column("time", "samples in all rounds")
    launches_per_sample: int | None = _column("time", "launches timed together as one sample")
    rounds: int | None = _column("time", "rounds in which the point was measured")
    round_medians_us: str | None = _column("time", "median of each round, joined by ;")
    outliers_tukey: int | None = _column("time", "samples beyond 1.5 interquartile ranges, kept")
    outliers_mad: int | None = _column("time", "samples beyond 3.5 scaled MADs, kept")
    stop_reason: str | None = _column("time", "why sampling stopped in the last round")
    device_s: float | None = _column("time", "sum of all samples, in seconds")

    gflops: float | None = _column("rates", "10⁹ operations a second; a multiply-add counts 2")
    gbytes_per_s: float | None = _column("rates", "10⁹ bytes a second, each operand moved once")
    percent_of_peak: float | None = _column("rates", "of the theoretical peak at nominal clock")
    percent_of_peak_at_clock: float | None = _column(
        "rates", "of the theoretical peak at the clock seen while sampling, sm_mhz"
    )
    percent_of_blas: float | None = _column(
        "rates", "speed relative to the BLAS of the same backend, threads and dtype in this sweep"
    )

    registers: int | None = _column("why", "registers per thread")
    local_bytes: int | None = _column("why", "stack frame per thread: spills and local arrays")
    shared_bytes: int | None = _column("why", "shared memory per block, static and dynamic")
    threads_per_block: int | None = _column("why", "threads in a block")
    blocks: int | None = _column("why", "blocks in the grid")
    arithmetic_intensity: float | None = _column("why", "operations per byte that must move")
    cgma: float | None = _column("why", "operations per element the kernel loads or stores")

    sm_mhz: float | None = _column(
        "clocks", "multiprocessor clock while sampling: cycles over time, read in the stream"
    )
    nvml_sm_mhz: float | None = _column("clocks", "multiprocessor clock after the point, by NVML")
    memory_mhz: float | None = _column("clocks", "memory clock after the point, by NVML")
    temperature_c: float | None = _column("clocks", "hottest of before and after the point")
    power_w: float | None = _column("clocks", "highest of before and after the point")
    throttle: str | None = _column(
        "clocks", "what held the clock down before or after the point, joined by ;"
    )

    device: str | None = _column("context", "GPU or CPU that ran it")
    compute_capability: str | None = _column("context", "of the GPU")
    driver: str | None = _column("context", "version of the GPU driver")
    cuda: str | None = _column("context", "CUDA version the driver supports")
    cupy: str | None = _column("context", "version of CuPy")
    library: str | None = _column("context", "BLAS that percent_of_blas refers to")
    source_hash: str | None = _column("context", "of the variant's files")
    gpubench: str | None = _column("context", "version of gpubench")
    started_utc: str | None = _column("context", "when the point's first round began")

    @property
    def key(self) -> tuple[str | int, ...]:
        """What identifies the point, within a file and across files."""
        return tuple(getattr(self, name) for name in KEY)

    @property
    def label(self) -> str:
        """What a person calls the point: `shared_tile 16 at 1024 float32`."""
        return " ".join(filter(None, (self.variant, self.tile, "at", self.size, self.dtype)))

    @property
    def size(self) -> str:
        """The size as `--sizes` takes it."""
        square = self.m == self.n == self.k
        return str(self.m) if square else f"{self.m}x{self.n}x{self.k}"


COLUMNS: tuple[Field[Any], ...] = fields(Row)
NAMES = tuple(column.name for column in COLUMNS)
KEY = tuple(column.name for column in COLUMNS if column.metadata["group"] == "key")


def row(measurement: Measurement, device: Device, source_hash: str) -> Row:
    """The row of a measurement of one round."""
    point, series = measurement.point, measurement.series
    problem, variant, launch = point.problem, point.variant, measurement.launch
    before, after = measurement.before, measurement.after
    mode = variant.compute_mode(problem.dtype)
    rate = gflops(problem, series.median_us) if series else None
    resources = measurement.resources
    reuse = variant.reuse(point.tile) if isinstance(variant, CudaVariant) and point.tile else None
    return Row(
        op=problem.op,
        variant=variant.name,
        backend=variant.backend,
        tile=str(point.tile or ""),
        dtype=problem.dtype,
        compute_mode=mode,
        m=problem.m,
        n=problem.n,
        k=problem.k,
        cache=point.cache,
        scope=point.scope,
        timer=point.timer,
        status=measurement.status,
        reason=measurement.reason or None,
        max_relative_error=measurement.max_relative_error,
        **(asdict(series) if series else {}),
        rounds=1 if series else None,
        round_medians_us=repr(series.median_us) if series else None,
        gflops=rate,
        gbytes_per_s=gbytes_per_s(problem, series.median_us) if series else None,
        percent_of_peak=percent(rate, peak_gflops(device, mode)),
        registers=resources.registers if resources else None,
        local_bytes=resources.local_bytes if resources else None,
        shared_bytes=resources.shared_bytes + launch.shared_bytes if resources and launch else None,
        threads_per_block=launch.threads_per_block if launch else None,
        blocks=launch.blocks if launch else None,
        arithmetic_intensity=arithmetic_intensity(problem),
        cgma=cgma(problem, reuse) if reuse else None,
        percent_of_peak_at_clock=percent(
            rate, after.sm_mhz and peak_gflops(device, mode, after.sm_mhz)
        ),
        sm_mhz=after.sm_mhz,
        nvml_sm_mhz=after.nvml_sm_mhz,
        memory_mhz=after.memory_mhz,
        temperature_c=_highest(before.temperature_c, after.temperature_c),
        power_w=_highest(before.power_w, after.power_w),
        throttle=";".join(dict.fromkeys((*before.throttle, *after.throttle))) or None,
        device=device.name,
        compute_capability=".".join(map(str, device.compute_capability or ())) or None,
        driver=device.versions.get("driver"),
        cuda=device.versions.get("cuda"),
        cupy=device.versions.get("cupy"),
        library=device.versions.get("blas"),
        source_hash=source_hash,
        gpubench=gpubench.__version__,
        started_utc=measurement.started_utc or None,
    )


def _highest(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


def merge_rounds(rows: Sequence[Row]) -> Row:
    """One row for a point from its rows of single rounds, oldest first.

    A round that failed decides: its row stands as it is.
    """
    for one in rows:
        if one.status != Status.OK:
            return one
    first, last = rows[0], rows[-1]
    if len(rows) == 1:
        return first
    medians = _values(rows, "median_us")
    median_us = statistics.median(medians)
    faster = medians[0] / median_us  # the first round's rates, scaled to the median
    # Rounds differ by more than the samples within one do (clocks, placement): the interval is the
    # wider of the two. With few rounds, theirs is their whole range.
    return replace(
        last,
        median_us=median_us,
        q1_us=_middle(rows, "q1_us"),
        q3_us=_middle(rows, "q3_us"),
        min_us=min(_values(rows, "min_us")),
        max_us=max(_values(rows, "max_us")),
        ci_low_us=min(statistics.median(_values(rows, "ci_low_us")), *medians),
        ci_high_us=max(statistics.median(_values(rows, "ci_high_us")), *medians),
        samples=sum(one.samples or 0 for one in rows),
        rounds=len(rows),
        round_medians_us=";".join(one.round_medians_us or "" for one in rows),
        outliers_tukey=sum(one.outliers_tukey or 0 for one in rows),
        outliers_mad=sum(one.outliers_mad or 0 for one in rows),
        device_s=sum(_values(rows, "device_s")),
        gflops=_scaled(first.gflops, faster),
        gbytes_per_s=_scaled(first.gbytes_per_s, faster),
        percent_of_peak=_scaled(first.percent_of_peak, faster),
        percent_of_peak_at_clock=_middle(rows, "percent_of_peak_at_clock"),
        sm_mhz=_middle(rows, "sm_mhz"),
        nvml_sm_mhz=_middle(rows, "nvml_sm_mhz"),
        memory_mhz=_middle(rows, "memory_mhz"),
        temperature_c=_highest(*_values(rows, "temperature_c")),
        power_w=_highest(*_values(rows, "power_w")),
        throttle=";".join(
            dict.fromkeys(r for one in rows if one.throttle for r in one.throttle.split(";"))
        )
        or None,
        max_relative_error=first.max_relative_error,
        started_utc=first.started_utc,
    )


def _values(rows: Sequence[Row], name: str) -> list[float]:
    return [value for one in rows if (value := getattr(one, name)) is not None]


def _middle(rows: Sequence[Row], name: str) -> float | None:
    values = _values(rows, name)
    return float(statistics.median(values)) if values else None


def _scaled(rate: float | None, factor: float) -> float | None:
    return None if rate is None else rate * factor


def with_blas(rows: Sequence[Row], baselines: dict[str, str]) -> list[Row]:
    """The rows with `percent_of_blas`, where the variant's baseline was measured in them too.

    `baselines` maps a variant to the name of its baseline.
    """
    times = {
        (one.variant, _problem_key(one)): one.median_us for one in rows if one.status == Status.OK
    }
    return [
        replace(
            one,
            percent_of_blas=percent(
                times.get((baselines.get(one.variant, ""), _problem_key(one))), one.median_us
            ),
        )
        for one in rows
    ]


def _problem_key(one: Row) -> tuple[object, ...]:
    """All of the key but variant and tile: rows that may be compared with each other."""
    return tuple(getattr(one, name) for name in KEY if name not in {"variant", "tile"})


class ResultFile:
    """A sweep's CSV in the making.

    Rows are appended to `NAME.csv.partial`, one a point and round, each on disk before the next is
    measured. `finish` writes `NAME.csv`, one row a point, and removes the partial file.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = path
        self._overwrite = overwrite
        self._partial = path.with_name(f"{path.name}.partial")
        self._file: IO[str] | None = None

    def open(self) -> None:
        """Begin. Raises UsageError if the file exists already, or cannot be written."""
        for path in (self.path, self._partial):
            if path.exists() and not self._overwrite:
                raise UsageError(f"--output: {path} exists; --force overwrites it")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.is_dir():
                raise UsageError(f"--output: {self.path} is a folder; name a file in it")
            self._file = self._partial.open("w", newline="", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--output: cannot write {self.path}: {error.strerror}") from error
        self._csv = csv.writer(self._file, lineterminator="\n")
        self._csv.writerow(NAMES)

    def add(self, one: Row) -> None:
        """Append a row of one round; it is on disk when this returns."""
        if self._file is None:
            raise ValueError("the file is not open")
        self._csv.writerow(_fields(one))
        self._file.flush()
        os.fsync(self._file.fileno())

    def finish(self, rows: Iterable[Row]) -> None:
        """Write the final rows in the partial file's place."""
        if self._file is None:
            raise ValueError("the file is not open")
        self._file.close()
        write(rows, self.path)
        self._partial.unlink()


def write(rows: Iterable[Row], path: Path) -> None:
    """Write a whole file, or leave what was there: a temporary file takes its place at the end."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(NAMES)
            lines.writerows(_fields(one) for one in rows)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _fields(one: Row) -> list[object]:
    return ["" if (value := getattr(one, name)) is None else value for name in NAMES]


def read(path: Path) -> list[Row]:
    """The rows of a file, in any column order.

    Raises UsageError naming the line and column that does not fit.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.DictReader(file)
            names = lines.fieldnames or ()
            for name in NAMES:
                if name not in names:
                    raise UsageError(f"{path}: not a gpubench CSV: column '{name}' is missing")
            return [_parse(line, path, lines.line_num) for line in lines]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: not a gpubench CSV: {error}") from error


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """The rows as pandas would read them from the CSV."""
    import pandas as pd

    return pd.DataFrame(
        [[getattr(one, name) for name in NAMES] for one in rows], columns=list(NAMES)
    )


def _parse(line: dict[str, str | None], path: Path, number: int) -> Row:
    values: dict[str, Any] = {}
    for name, kind in _KINDS.items():
        text = line[name]
        if text is None:
            raise UsageError(f"{path}, line {number}: the line ends before column '{name}'")
        if text == "" and name not in KEY:
            continue
        try:
            values[name] = kind(text)
        except ValueError:
            raise UsageError(
                f"{path}, line {number}: '{text[:60]}' in column '{name}' is no {kind.__name__}"
            ) from None
    return Row(**values)


def _kinds() -> dict[str, type]:
    """Each column's type without its None."""
    hints = get_type_hints(Row)
    return {
        name: next(kind for kind in get_args(hint) if kind is not types.NoneType)
        if get_args(hint)
        else hint
        for name, hint in hints.items()
        if name in NAMES
    }


_KINDS = _kinds()
