"""Reads the two sides of a comparison, pools their points, and checks their machines."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from pathlib import Path

from gpubench.commands.diff.findings import Key, PooledPoint
from gpubench.errors import UsageError
from gpubench.hardware.architectures import EXAMPLES
from gpubench.model import CPU_TIMERS, Status
from gpubench.plan.registry import baselines
from gpubench.results.row import Row, read
from gpubench.stats.intervals import known_median

COLUMNS = (
    "status", "reason", "median_us", "min_us", "round_medians_us", "sm_mhz",
    "gbytes_per_s", "percent_of_peak_at_clock", "percent_of_copy",
    "device", "device_uuid", "driver", "cuda", "cupy", "library", "source_hash", "code_hash",
    "gpubench", "started_utc",
)  # fmt: skip
"""Columns that are read from a result file, in addition to the columns of the key."""

COPY_EFFICIENCY = 0.88
"""Bandwidth of a copy divided by the datasheet's bandwidth (4,222 of 4,800 GB/s on an H200)."""

MACHINE = {"device": "", "driver": "driver ", "cuda": "CUDA "}
"""Columns that must be equal on both sides, and the words before their values in messages."""

MIN_EQUAL = 2
"""Two files count as the same measurements if they share at least this number of times, and all
shared times are equal."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison: the rows of one file, or of several sweeps of one build."""

    files: Mapping[Path, Sequence[Row]]
    name: str = ""
    """Name of the side in messages, such as `base.csv`, or `base-1.csv and 4 more`."""

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The rows of all files."""
        return tuple(chain.from_iterable(self.files.values()))

    @cached_property
    def pooled(self) -> dict[Key, PooledPoint]:
        """The data of each point on this side, pooled from all files of the side."""
        points: dict[Key, dict[int, list[Row]]] = {}
        for number, rows in enumerate(self.files.values()):
            for row in rows:
                points.setdefault(row.key, {}).setdefault(number, []).append(row)
        return {key: _pool(of_files) for key, of_files in points.items()}

    def filtered(self, keep: Callable[[Row], bool]) -> Side:
        """Return the side with only the rows for which `keep` is true."""
        return replace(
            self, files={path: list(filter(keep, rows)) for path, rows in self.files.items()}
        )


def read_side(paths: Sequence[Path]) -> Side:
    """Read the files of a side. Raises UsageError for a file that cannot be used."""
    files: dict[Path, list[Row]] = {}
    for path in paths:
        if os.path.realpath(path) in map(os.path.realpath, files):
            raise UsageError(f"{path} is named twice on one side, so its rounds would count twice")
        files[path] = read(path, COLUMNS)
    return make_side(files)


def make_side(rows_by_file: Mapping[Path, Sequence[Row]]) -> Side:
    """Return the side with these rows. Raises UsageError for a row that cannot be used."""
    files: dict[Path, list[Row]] = {}
    for path, rows in rows_by_file.items():
        # A configuration that a race eliminated may have fewer rounds than on the other side.
        files[path] = [row for row in rows if row.status != Status.ELIMINATED]
        if not files[path]:
            raise UsageError(f"{path}: has no points")
        for row in files[path]:
            _check(row, path)
    _require_one_build(files)
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return Side(files=files, name=f"{next(iter(files))}{more}")


def _check(row: Row, path: Path) -> None:
    if row.status not in set(Status):
        raise UsageError(
            f"{path}: {row.label}: '{row.status or ''}' in column 'status' is none of "
            f"{', '.join(Status)}"
        )
    if row.status == Status.OK and not row.median_us:
        raise UsageError(
            f"{path}: {row.label}: 'status' is ok, but 'median_us' is not a positive time"
        )


def _require_one_build(files: Mapping[Path, Sequence[Row]]) -> None:
    """Raise UsageError if a kernel's rows come from different sources."""
    first: dict[tuple[str, str], tuple[str, Path]] = {}
    for path, rows in files.items():
        for row in rows:
            if not row.source_hash:
                continue
            source, first_path = first.setdefault((row.op, row.variant), (row.source_hash, path))
            if row.source_hash != source:
                raise UsageError(
                    f"{path}: the source of {row.variant} is not that of {first_path} (source_hash "
                    f"{row.source_hash}, not {source}); the files of one side must be of one build"
                )


def require_own_measurements(base: Side, new: Side) -> None:
    """Raise UsageError if two files hold the same measurements, even under other names."""
    times = [
        (path, {row.key: row.round_medians_us or [row.median_us] for row in rows if row.median_us})
        for path, rows in chain(base.files.items(), new.files.items())
    ]
    for (path, own), (other_path, other) in combinations(times, 2):
        shared = own.keys() & other.keys()
        number = sum(len(own[key]) for key in shared)
        if number >= MIN_EQUAL and all(own[key] == other[key] for key in shared):
            raise UsageError(
                f"{path}: holds the same measurements as {other_path}; each file must be a sweep "
                "of its own"
            )


def _pool(of_files: Mapping[int, Sequence[Row]]) -> PooledPoint:
    """Pool the rows of a point.

    `of_files` maps the index of each file to the point's rows in this file. A file has one row of
    the point, or one row for each round.
    """
    rows = list(chain.from_iterable(of_files.values()))
    lost = next((row for row in rows if row.status != Status.OK), None)
    sweeps = {
        file: timed
        for file, of_file in of_files.items()
        if (timed := [row for row in of_file if row.status == Status.OK])
    }
    timed = list(chain.from_iterable(sweeps.values()))
    clocks = [row.sm_mhz for row in timed if row.sm_mhz]
    on_cpu = rows[0].timer in CPU_TIMERS
    shortest = [[row.min_us for row in sweep if row.min_us] for sweep in sweeps.values()]
    started = [min(row.started_utc or "" for row in sweep) for sweep in sweeps.values()]
    return PooledPoint(
        sweeps_us=tuple(
            tuple(time for row in sweep for time in row.round_medians_us or [row.median_us or 0.0])
            for sweep in sweeps.values()
        ),
        files=tuple(sweeps),
        lost=_why_lost(lost) if lost else "",
        clock_mhz=statistics.median(clocks) if clocks and len(clocks) == len(timed) else None,
        percent_of_peak=known_median(row.percent_of_peak_at_clock for row in timed),
        percent_of_copy=known_median(row.percent_of_copy for row in timed)
        or _percent_of_copy(timed),
        gbytes_per_s=known_median(row.gbytes_per_s for row in timed),
        gpus=gpus_of(timed),
        on_cpu=on_cpu,
        is_blas=is_blas(rows[0]),
        library=rows[0].library or "",
        code=_code_of(timed),
        shortest_us=tuple(map(min, shortest)) if on_cpu and all(shortest) else (),
        started=tuple(started) if all(started) else (),
    )


def _percent_of_copy(rows: Sequence[Row]) -> float | None:
    """Return the bandwidth of a point, as a percentage of the estimated bandwidth of a copy.

    Return None if no row has a bandwidth, or if the device is not among `EXAMPLES`.
    """
    bandwidths = {device.name: device.memory_bandwidth_gbytes_per_s for device in EXAMPLES.values()}
    rate = known_median(row.gbytes_per_s for row in rows)
    bandwidth = bandwidths.get(rows[0].device or "") if rows else None
    return 100 * rate / (COPY_EFFICIENCY * bandwidth) if rate and bandwidth else None


def _why_lost(row: Row) -> str:
    reason = row.reason or "no reason given"
    return reason if row.status == Status.SKIPPED else f"{row.status}: {reason}"


def _code_of(rows: Iterable[Row]) -> str:
    """Return the hashes of the code that all rows ran.

    Return an empty text if the rows ran different code, or if a hash is not known.
    """
    hashes = {(row.source_hash, row.code_hash) for row in rows}
    source, compiled = hashes.pop() if len(hashes) == 1 else (None, None)
    return f"{source} {compiled}" if source and compiled else ""


def gpus_of(rows: Iterable[Row]) -> frozenset[str]:
    """Return the UUIDs of the rows' GPUs, or an empty set if a row does not name its GPU."""
    uuids = {row.device_uuid or "" for row in rows}
    return frozenset(";".join(uuids).split(";")) if uuids and "" not in uuids else frozenset()


def is_blas(row: Row) -> bool:
    """Return whether the row times the vendor's library, whose code is the same in every build."""
    return row.variant in baselines()


def require_same_machine(base: Side, new: Side) -> None:
    """Raise UsageError if files come from different GPUs, drivers or CUDA versions."""
    values: dict[str, tuple[str, Path]] = {}
    for path, rows in chain(base.files.items(), new.files.items()):
        for column, words in MACHINE.items():
            for value in dict.fromkeys(getattr(row, column) for row in rows):
                if value is None:
                    continue
                first, first_path = values.setdefault(column, (value, path))
                if value != first:
                    raise UsageError(
                        f"{first_path} was measured on {words}{first}, {path} on {words}{value}: "
                        "their times do not show a change of the build; "
                        "--ignore-device compares them nevertheless"
                    )
