"""Groups rows for drawing by file, by panel and by line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from operator import attrgetter
from pathlib import Path
from typing import Any

from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.hardware.architectures import EXAMPLES
from gpubench.model import Status
from gpubench.results.row import Row
from gpubench.text import clean
from gpubench.view.pictures.style import (
    DASHES,
    FAINT,
    MARKERS,
    MAX_COLOURED,
    Look,
    Looks,
    is_library,
)
from gpubench.view.row_tables import best_of, best_of_each


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """The rows of one device and one version in one file, which have one line style."""

    label: str
    """Label that distinguishes this source from other sources. The label is empty if there is only
    one source."""

    dashes: Any
    rows: tuple[Row, ...]
    copy_gbytes_per_s: float | None
    """Measured copy bandwidth of the device. The bandwidth comes from the rows, or else from
    `--bandwidth`."""

    @property
    def datasheet_gbytes_per_s(self) -> float | None:
        """Memory bandwidth of the device by the datasheet. None if `EXAMPLES` lacks the device."""
        listed = (device for device in EXAMPLES.values() if device.name == self.rows[0].device)
        return next((device.memory_bandwidth_gbytes_per_s for device in listed), None)

    def named(self, text: str) -> str:
        """Append the label of the source to a text, if there are several sources."""
        return f"{text}, {self.label}" if self.label else text


@dataclass(frozen=True, kw_only=True)
class Series:
    """The rows of one variant of one source, which are drawn as one line."""

    variant: str
    source: Source
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """Name of the variant, followed by the label of the source if there are several sources."""
        return self.source.named(self.variant)

    @property
    def best(self) -> Row:
        """The fastest row."""
        return best_of(self.rows)

    @property
    def best_by_size(self) -> list[Row]:
        """The fastest row of each size. The smallest size comes first."""
        return sorted(best_of_each(self.rows, attrgetter("numbers")).values(), key=extent)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The rows that a pair of axes shows. These rows may be compared with each other."""

    title: str
    series: tuple[Series, ...]

    @property
    def rows(self) -> list[Row]:
        """All rows of the panel."""
        return [row for line in self.series for row in line.rows]

    @cached_property
    def leading(self) -> frozenset[str]:
        """The libraries and the fastest kernels at the largest size, which are drawn in colour."""
        speeds: dict[str, float] = {}
        for line in self.series:
            row = line.best_by_size[-1]
            speed = row.gflops or 1 / (row.median_us or 1.0)
            speeds[line.variant] = max(speed, speeds.get(line.variant, 0.0))
        ordered = sorted(speeds, key=lambda variant: -speeds[variant])
        kernels = [variant for variant in ordered if not is_library(variant)][:MAX_COLOURED]
        return frozenset([*kernels, *filter(is_library, ordered)])

    def look(self, variant: str, looks: Looks) -> Look:
        """Return the look of a variant in this panel. Grey lines differ in their markers."""
        coloured = self.leading & looks.keys()
        if variant in coloured:
            return looks[variant]
        names = dict.fromkeys(line.variant for line in self.series)
        place = [name for name in names if name not in coloured].index(variant)
        return FAINT._replace(marker=MARKERS[place % len(MARKERS)])

    @property
    def peaks_gflops(self) -> dict[Source, float | None]:
        """The theoretical peak of each source."""
        return {
            source: ceiling((row for line in lines for row in line.rows), "gflops", "peak")
            for source, lines in grouped(self.series, lambda line: line.source).items()
        }


def sources(
    files: Sequence[tuple[Path, Sequence[Row]]], copy_gbytes_per_s: float | None = None
) -> list[Source]:
    """Return a source for each file, device and version. Labels name the parts that differ.

    Raises UsageError for a copy bandwidth that is not a positive, finite number.
    """
    if copy_gbytes_per_s is not None and not 0 < copy_gbytes_per_s < math.inf:
        raise UsageError(
            f"--bandwidth: {copy_gbytes_per_s:g} is not a rate; write GB/s, such as 4000"
        )
    groups: dict[tuple[str, ...], list[Row]] = {}
    stems = [path.stem for path, _ in files]
    names = {
        path: clean(path.stem if stems.count(path.stem) == 1 else str(path)) for path, _ in files
    }
    for number, (path, rows) in enumerate(files, 1):
        for row in rows:
            if row.status == Status.OK and row.median_us:
                version = f"gpubench {row.gpubench}"
                key = (row.device or "", version, names[path], f"file {number}")
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
    """Return a label for each key, with only the parts that distinguish the labels."""
    labels = [""] * len(keys)
    for values in zip(*keys, strict=True):
        if len(set(labels)) < len(keys) and len(set(values)) > 1:
            labels = [", ".join(filter(None, pair)) for pair in zip(labels, values, strict=True)]
    return labels


def panels(group: Sequence[Source], title: Callable[[Row], str]) -> list[Panel]:
    """Return a panel for each group of rows to which the function `title` gives the same title."""
    lines: dict[str, list[Series]] = {}
    for source in group:
        of_source = grouped(source.rows, lambda row: (title(row), row.variant))
        for (name, variant), rows in of_source.items():
            line = Series(variant=variant, source=source, rows=tuple(rows))
            lines.setdefault(name, []).append(line)
    return [Panel(title=name, series=tuple(series)) for name, series in lines.items()]


def titles(group: Sequence[Source], *, by_size: bool) -> Callable[[Row], str]:
    """Return a function that takes a row and returns the title of the row's panel.

    All rows of a panel have the same precision and conditions. If `by_size` is true, they also have
    the same size.
    """
    devices = {row.device for source in group for row in source.rows}
    where = f" on {devices.pop()}" if len(devices) == 1 else ""  # the legend names several devices
    sized = {(row.problem, row.size) for source in group for row in source.rows}
    counts = Counter(problem for problem, _ in sized)  # two lists may give two sizes one name

    def title(row: Row) -> str:
        """Return a title, such as `gemm 2048 float32 on NVIDIA H200, cold cache`."""
        size = row.size.replace("x", "×")
        if row.problem:
            size = row.problem if counts[row.problem] == 1 else f"{row.problem} ({size})"
        size = f" {size}" if by_size else ""
        return f"{row.op}{size} {row.compute_mode}{where}, {row.conditions}{row.special}"

    return title


def edge_of(row: Row) -> int | None:
    """Return the edge of the row's tile if the tile is a single number, or else None."""
    return int(row.tile) if row.tile.isdecimal() else None


def is_block(row: Row) -> bool:
    """Return whether a tile has several extents, and so no place on an axis of edges."""
    return bool(row.tile) and edge_of(row) is None


def extent(row: Row) -> float:
    """Return the edge of a cube or a square that is as large as the row's problem."""
    m, n, *others = row.numbers
    edges = [extent for extent in others if extent > 1] + ([m, n] if max(m, n) > 1 else [])
    return float(math.prod(edges) ** (1 / max(1, len(edges))))


def ceiling(rows: Iterable[Row], rate: str, what: str) -> float | None:
    """Return the rate to which the rows' percentages of `what` are relative (`peak` or `copy`)."""
    pairs = ((getattr(row, rate), getattr(row, f"percent_of_{what}")) for row in rows)
    return next((100 * value / percent for value, percent in pairs if value and percent), None)
