"""Rows sorted for drawing: which file a row is from, which panel and which line it belongs to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

from gpubench.model import Status
from gpubench.row import Row
from gpubench.view.pictures.style import DASHES
from gpubench.view.tables import best_of

Key = TypeVar("Key")
Item = TypeVar("Item")

ROUNDING = 1e-9
"""100 · t / t in floating point, in percent."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The measured rows of one device and version in one file: one line style of a picture."""

    label: str
    """What tells it from the other sources; empty if it is the only one."""

    dashes: Any
    """Its line style."""

    rows: tuple[Row, ...]

    copy_gbytes_per_s: float | None = None
    """Measured copy bandwidth of the device, from the rows or as the user gave it."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a picture: a variant of a source."""

    variant: str
    source: Source
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """The variant, and its source if there are several."""
        return f"{self.variant}, {self.source.label}" if self.source.label else self.variant

    @property
    def best(self) -> Row:
        """The fastest row."""
        return best_of(self.rows)

    @property
    def best_by_size(self) -> list[Row]:
        """The fastest row of each size, smallest first."""
        sizes = grouped(self.rows, lambda row: (row.m, row.n, row.k))
        return sorted((best_of(rows) for rows in sizes.values()), key=extent)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What shares a pair of axes: rows that may be compared with each other."""

    title: str
    series: tuple[Series, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows of the panel."""
        return tuple(row for line in self.series for row in line.rows)


def sources(
    files: Sequence[tuple[Path, Sequence[Row]]], copy_gbytes_per_s: float | None = None
) -> list[Source]:
    """The measured rows by file, device and version, labelled by whatever of these differs."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for number, (path, rows) in enumerate(files, 1):
        for row in rows:
            if row.status == Status.OK and row.median_us:
                version = f"gpubench {row.gpubench}"
                key = (row.device or "", version, path.stem, f"file {number}")
                groups.setdefault(key, []).append(row)
    return [
        Source(
            label=label,
            dashes=dashes,
            rows=tuple(rows),
            copy_gbytes_per_s=_copy_gbytes_per_s(rows) or copy_gbytes_per_s,
        )
        for label, dashes, rows in zip(_labels(list(groups)), cycle(DASHES), groups.values())
    ]


def _labels(keys: Sequence[tuple[str, ...]]) -> list[str]:
    """Device, version, file name and number, each only if the labels would be alike without it."""
    labels = [""] * len(keys)
    for values in zip(*keys, strict=True):
        if len(set(labels)) < len(keys) and len(set(values)) > 1:
            labels = [
                f"{label}, {value}" if label else value
                for label, value in zip(labels, values, strict=True)
            ]
    return labels


def panels(of: Sequence[Source], *, by_size: bool) -> list[Panel]:
    """A panel for each dtype, cache state, scope and clock; for each size too, if `by_size`.

    Where sources share panels, only those: the others would show one source and compare nothing.
    """

    def key(row: Row) -> tuple[object, ...]:
        clock = "cupti" if row.timer == "cupti" else ""
        size = (row.m, row.n, row.k) if by_size else ()
        return row.op, row.dtype, row.cache, row.scope, clock, size

    groups: dict[tuple[object, ...], list[Series]] = {}
    for source in of:
        for name, of_panel in grouped(source.rows, key).items():
            for variant, rows in grouped(of_panel, lambda row: row.variant).items():
                line = Series(variant=variant, source=source, rows=tuple(rows))
                groups.setdefault(name, []).append(line)
    shared = {
        name: lines
        for name, lines in groups.items()
        if len({line.source.label for line in lines}) > 1
    }
    devices = list(dict.fromkeys(row.device or "" for source in of for row in source.rows))
    return [
        Panel(title=_title(lines[0].rows[0], devices, by_size=by_size), series=tuple(lines))
        for lines in (shared or groups).values()
    ]


def _title(row: Row, devices: Sequence[str], *, by_size: bool) -> str:
    """`gemm 2048 float32 on NVIDIA H200, cold cache`; the legend names several devices."""
    size = f" {row.size.replace('x', '×')}" if by_size else ""
    where = f" on {devices[0]}" if len(devices) == 1 else ""
    scope = "" if row.scope == "kernel" else f", {row.scope}"
    clock = ", cupti" if row.timer == "cupti" else ""
    return f"{row.op}{size} {row.dtype}{where}, {row.cache} cache{scope}{clock}"


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Items by key, in the order in which the keys first appear."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def edge_of(row: Row) -> int | None:
    """The edge of a tile given by one number."""
    return int(row.tile) if row.tile.isdecimal() else None


def extent(row: Row) -> float:
    """The edge of the cube, or square, with as many multiply-adds: N where all edges are N."""
    return math.cbrt(row.m * row.n * row.k) if row.k > 1 else math.sqrt(row.m * row.n)


def peak_gflops(rows: Iterable[Row]) -> float | None:
    """The theoretical peak that the rows' `percent_of_peak` refers to."""
    for row in rows:
        if row.gflops and row.percent_of_peak:
            return 100 * row.gflops / row.percent_of_peak
    return None


def _copy_gbytes_per_s(rows: Iterable[Row]) -> float | None:
    """The measured bandwidth that the rows' `percent_of_copy` refers to."""
    for row in rows:
        if row.gbytes_per_s and row.percent_of_copy:
            return 100 * row.gbytes_per_s / row.percent_of_copy
    return None


def is_baseline(row: Row) -> bool:
    """Whether the row is the BLAS that its file's `percent_of_blas` refers to."""
    return row.percent_of_blas is not None and abs(row.percent_of_blas - 100) < ROUNDING
