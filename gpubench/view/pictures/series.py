"""Rows sorted for drawing: which file a row is from, which panel and which line it belongs to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

from gpubench.model import Status
from gpubench.results.row import Row
from gpubench.view.pictures.style import DASHES, require_drawable
from gpubench.view.tables import best_of

Key = TypeVar("Key")
Item = TypeVar("Item")

ROUNDING = 1e-9
"""100 · t / t in floating point, in percent."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """The measured rows of one device and version in one file: one line style of a picture."""

    label: str
    """What tells it from the other sources; empty if it is the only one."""

    dashes: Any
    rows: tuple[Row, ...]
    copy_gbytes_per_s: float | None
    """Measured copy bandwidth of the device, from the rows or as the user gave it."""

    def named(self, text: str) -> str:
        """The text, and the source if there are several."""
        return f"{text}, {self.label}" if self.label else text


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a picture: a variant of a source."""

    variant: str
    source: Source
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """The variant, and its source if there are several."""
        return self.source.named(self.variant)

    @property
    def best(self) -> Row:
        """The fastest row."""
        return best_of(self.rows)

    @property
    def best_by_size(self) -> list[Row]:
        """The fastest row of each size, smallest first."""
        sizes = grouped(self.rows, lambda row: (row.m, row.n, row.k))
        return sorted(map(best_of, sizes.values()), key=extent)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What shares a pair of axes: rows that may be compared with each other."""

    title: str
    series: tuple[Series, ...]

    @property
    def rows(self) -> list[Row]:
        """All rows of the panel."""
        return [row for line in self.series for row in line.rows]

    @property
    def peaks_gflops(self) -> dict[Source, float | None]:
        """The theoretical peak of each source."""
        of_sources = grouped(self.series, lambda line: line.source)
        return {
            source: ceiling((row for line in lines for row in line.rows), "gflops", "peak")
            for source, lines in of_sources.items()
        }


def sources(
    files: Sequence[tuple[Path, Sequence[Row]]], copy_gbytes_per_s: float | None = None
) -> list[Source]:
    """The measured rows by file, device and version, labelled by whatever of these differs."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    stems = [path.stem for path, _ in files]
    stem_of = {path: path.stem if stems.count(path.stem) == 1 else str(path) for path, _ in files}
    for number, (path, rows) in enumerate(files, 1):
        for row in rows:
            if row.status == Status.OK and row.median_us:
                version = f"gpubench {row.gpubench}"
                key = (row.device or "", version, stem_of[path], f"file {number}")
                groups.setdefault(key, []).append(row)
    return [
        Source(
            label=label,
            dashes=dashes,
            rows=tuple(rows),
            copy_gbytes_per_s=ceiling(rows, "gbytes_per_s", "copy") or copy_gbytes_per_s,
        )
        for label, dashes, rows in zip(_labels(list(groups)), cycle(DASHES), groups.values())
    ]


def _labels(keys: Sequence[tuple[str, ...]]) -> list[str]:
    """Device, version, file and number, each only if the labels would be alike without it."""
    labels = [""] * len(keys)
    for values in zip(*keys, strict=True):
        if len(set(labels)) < len(keys) and len(set(values)) > 1:
            labels = [", ".join(filter(None, pair)) for pair in zip(labels, values, strict=True)]
    return labels


def panels(of: Sequence[Source], *, by_size: bool) -> list[Panel]:
    """A panel for each precision, cache, state, scope and clock; for each size too, if `by_size`.

    Where sources share panels, only those: the others would show one source and compare nothing.
    Raises UsageError where they are too many.
    """
    devices = list(dict.fromkeys(row.device or "" for source in of for row in source.rows))
    where = f" on {devices[0]}" if len(devices) == 1 else ""  # the legend names several

    def title(row: Row) -> str:
        """`gemm 2048 float32 on NVIDIA H200, cold cache`."""
        size = f" {row.size.replace('x', '×')}" if by_size else ""
        scope = "" if row.scope == "kernel" else f", {row.scope}"
        clock = ", cupti" if row.timer == "cupti" else ""
        state = "" if row.state == "burst" else f", {row.state}"
        return f"{row.op}{size} {row.compute_mode}{where}, {row.cache} cache{state}{scope}{clock}"

    groups: dict[str, list[Series]] = {}
    for source in of:
        of_lines = grouped(source.rows, lambda row: (title(row), row.variant))
        for (name, variant), rows in of_lines.items():
            line = Series(variant=variant, source=source, rows=tuple(rows))
            groups.setdefault(name, []).append(line)
    found = [Panel(title=name, series=tuple(lines)) for name, lines in groups.items()]
    found = [panel for panel in found if len({line.source for line in panel.series}) > 1] or found
    require_drawable(len(found), sum(len(panel.series) for panel in found))
    return found


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


def ceiling(rows: Iterable[Row], rate: str, what: str) -> float | None:
    """The rate (a column) that the percentages of `peak` or `copy` in the rows refer to."""
    pairs = ((getattr(row, rate), getattr(row, f"percent_of_{what}")) for row in rows)
    return next((100 * value / percent for value, percent in pairs if value and percent), None)


def is_baseline(row: Row) -> bool:
    """Whether the row is the BLAS that its file's `percent_of_blas` refers to."""
    return row.percent_of_blas is not None and abs(row.percent_of_blas - 100) < ROUNDING


def libraries(rows: Iterable[Row]) -> set[str]:
    """The variants that are the BLAS of some problem: cuBLAS here may be cuBLASLt there."""
    return {row.variant for row in rows if is_baseline(row)}
