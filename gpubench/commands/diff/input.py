"""What a comparison reads: files of either side, their points, and whether they may be compared."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from gpubench.commands.diff.verdicts import Side
from gpubench.errors import UsageError
from gpubench.model import PointKey, Status, Timer
from gpubench.plan.ranges import parse_names, parse_sizes
from gpubench.plan.registry import unknown
from gpubench.row import Row, read

Key = PointKey

MACHINE = {"device": "", "driver": "driver ", "cuda": "CUDA "}
"""Columns in which both sides must agree, and what a message puts before their values."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One side of a comparison: the rows of one file, or of several sweeps of one build."""

    rows: tuple[Row, ...]
    files: tuple[Path, ...]
    """The file of each row."""

    names: str = ""
    """`base.csv`, or `base-1.csv and 4 more`."""

    @cached_property
    def points(self) -> dict[Key, list[Row]]:
        """The rows of each point, in the order of the files."""
        points: dict[Key, list[Row]] = {}
        for one in self.rows:
            points.setdefault(one.key, []).append(one)
        return points

    @cached_property
    def sides(self) -> dict[Key, Side]:
        """What this side knows of each point: the rounds of all its files, pooled."""
        files: dict[Key, list[Path]] = {}
        for one, path in zip(self.rows, self.files, strict=True):
            files.setdefault(one.key, []).append(path)
        return {key: pooled(rows, files[key]) for key, rows in self.points.items()}

    def chosen(self, keep: Callable[[Row], bool]) -> Table:
        """The side with some of its rows."""
        pairs = [pair for pair in zip(self.rows, self.files, strict=True) if keep(pair[0])]
        return replace(
            self, rows=tuple(row for row, _ in pairs), files=tuple(path for _, path in pairs)
        )

    def with_rows(self, rows: Iterable[Row], source: str, *, instead: bool) -> Table:
        """The side with fresh rows, beside what it knows of their points or instead of it."""
        fresh = tuple(rows)
        keys = {one.key for one in fresh}
        kept = self.chosen(lambda one: not (instead and one.key in keys))
        return replace(
            self, rows=kept.rows + fresh, files=kept.files + (Path(source),) * len(fresh)
        )


def read_table(paths: Sequence[Path]) -> Table:
    """The rows of a side's files.

    Raises UsageError for a file that cannot be used, and for one that is given twice: its rounds
    would count as evidence twice.
    """
    rows: list[Row] = []
    files: list[Path] = []
    for number, path in enumerate(paths):
        if real(path) in {real(other) for other in paths[:number]}:
            raise UsageError(f"{path} is given twice on one side; its rounds would count twice")
        of_file = read(path)
        if not of_file:
            raise UsageError(f"{path}: holds no points")
        for one in of_file:
            _check(one, path)
        rows += of_file
        files += [path] * len(of_file)
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return Table(rows=tuple(rows), files=tuple(files), names=f"{paths[0]}{more}")


def real(path: Path) -> str:
    """Where a path leads. Links in a circle lead nowhere, and opening it will say so."""
    return os.path.realpath(path)


def _check(one: Row, path: Path) -> None:
    if one.status not in set(Status):
        known = ", ".join(Status)
        raise UsageError(
            f"{path}: {one.label}: '{one.status or ''}' in column 'status'; it is one of {known}"
        )
    if one.status != Status.OK:
        return
    for column, times in (("median_us", [one.median_us]), ("round_medians_us", _rounds(one, path))):
        if not all(time_us and 0 < time_us < math.inf for time_us in times):
            raise UsageError(
                f"{path}: {one.label}: a point that is ok has positive times in '{column}'"
            )


def _rounds(one: Row, path: Path | None = None) -> list[float]:
    """The round medians of a row; the median itself where none are kept."""
    text = one.round_medians_us or repr(one.median_us)
    try:
        return [float(part) for part in text.split(";")]
    except ValueError:
        raise UsageError(
            f"{path}: {one.label}: '{text[:60]}' in column 'round_medians_us' is no list of "
            "numbers joined by ;"
        ) from None


def pooled(rows: Sequence[Row], files: Sequence[Path]) -> Side:
    """What rows of one point say together: a failure decides, else all rounds count."""
    on_cpu = rows[0].timer == Timer.HOST
    for one in rows:
        if one.status in {Status.WRONG, Status.ERROR}:
            return Side(status=Status(one.status), reason=one.reason or "", on_cpu=on_cpu)
    timed = [pair for pair in zip(rows, files, strict=True) if pair[0].status == Status.OK]
    if not timed:
        return Side(status=Status.SKIPPED, reason=rows[0].reason or "skipped", on_cpu=on_cpu)
    sweeps: dict[Path, list[float]] = {}
    for one, path in timed:  # a partial file has a row for each round
        sweeps.setdefault(path, []).extend(_rounds(one))
    cycles = [time_us * one.sm_mhz for one, _ in timed if one.sm_mhz for time_us in _rounds(one)]
    return Side(
        sweeps_us=tuple(map(tuple, sweeps.values())),
        # A row keeps one clock for all its rounds.
        cycles=tuple(cycles) if all(one.sm_mhz for one, _ in timed) else (),
        gpus=gpus_of(one for one, _ in timed),
        on_cpu=on_cpu,
    )


def gpus_of(rows: Iterable[Row]) -> frozenset[str]:
    """UUIDs of the GPUs that measured the rows; empty where not all of them say."""
    named = [(one.device_uuid or "").split(";") for one in rows]
    return frozenset(chain.from_iterable(named)) if all(map(all, named)) else frozenset()


def check_machines(base: Table, new: Table) -> None:
    """Raise UsageError, naming both, where files come from different GPUs, drivers or CUDA."""
    seen: dict[str, tuple[str, str]] = {}
    for table in (base, new):
        for one, path in zip(table.rows, table.files, strict=True):
            for column in MACHINE:
                value = getattr(one, column)
                if value is None:
                    continue
                first, where = seen.setdefault(column, (value, str(path)))
                if value != first:
                    raise UsageError(
                        f"{where} was measured on {_machine(column, first)}, {path} on "
                        f"{_machine(column, value)}: their times say nothing about a change; "
                        "--ignore-device compares them all the same"
                    )


def _machine(column: str, value: str) -> str:
    return f"{MACHINE[column]}{value}"


Size = tuple[str, int, int, int]
"""Operation, M, N and K."""


def _size(one: Row) -> Size:
    return one.op, one.m, one.n, one.k


def _sizes_of(item: str, ops: set[str], flag: str) -> set[Size]:
    """What an item of a list means as sizes of any of the operations it can be a size of."""
    sizes: set[Size] = set()
    for number, op in enumerate(sorted(ops), start=1):
        try:
            sizes |= {(op, *size) for size in parse_sizes(item, op, flag)}
        except UsageError:
            if number == len(ops) and not sizes:
                raise
    return sizes


def selection(only: str | None, exclude: str | None, rows: Iterable[Row]) -> Callable[[Row], bool]:
    """Whether `--only` and `--exclude`, lists of variants and sizes, leave a row in.

    A row is in if it is of an `only` variant and an `only` size, where the list has any, and of no
    `exclude` variant or size. Raises UsageError for what no row is.
    """
    rows = list(rows)
    variants = list(dict.fromkeys(one.variant for one in rows))
    sizes = {_size(one) for one in rows}

    def parse(flag: str, text: str | None) -> tuple[set[str], set[Size]]:
        names, shapes = set(), set()
        for item in parse_names(text or ""):
            if item in variants:
                names.add(item)
            elif item[0].isdecimal():
                found = _sizes_of(item, {size[0] for size in sizes}, flag) & sizes
                if not found:
                    raise UsageError(f"{flag}: no point has the size {item}")
                shapes |= found
            else:
                raise UsageError(f"{flag}: {unknown('variant or size', item, variants)}")
        return names, shapes

    wanted, unwanted = parse("--only", only), parse("--exclude", exclude)

    def keep(one: Row) -> bool:
        size = _size(one)
        return (
            (not wanted[0] or one.variant in wanted[0])
            and (not wanted[1] or size in wanted[1])
            and one.variant not in unwanted[0]
            and size not in unwanted[1]
        )

    return keep
