"""Figures that new hardware must reach: the `[expect]` of a TOML file, and their comparison.

docs/diff.md describes the file.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gpubench.commands.diff.compare import (
    ABSENT,
    Comparison,
    DiffVerdict,
    Finding,
    Key,
    Limits,
    PooledPoint,
)
from gpubench.commands.diff.formats import Report
from gpubench.commands.diff.options import Options
from gpubench.commands.diff.report import times_report
from gpubench.commands.diff.sides import RATES, Side
from gpubench.errors import UsageError
from gpubench.model import OPERATIONS
from gpubench.plan.ranges import parse_fraction, parse_sizes
from gpubench.plan.toml_file import decode, read_toml
from gpubench.results.row import KEY, Row
from gpubench.text import shown, unknown

TIME = "median_us"
COLUMNS = (TIME, *RATES)
"""Columns with expected figures. A lower time is better, and a higher rate."""

WHERE = tuple(name for name in KEY if name not in {"m", "n", "k"})

MAX_LOWER, MAX_UPPER = 0.9999, 1e300
"""Largest tolerances, as fractions of the figure: not down to 0, and any finite factor upwards."""

_Value = str | int | float

_Point = msgspec.defstruct(
    "_Point",
    [
        ("variant", _Value),
        ("size", _Value),
        ("value", Annotated[float, msgspec.Meta(gt=0, le=1e300)]),
        ("lower", _Value),
        ("upper", _Value),
        ("column", str, TIME),
        *((name, _Value | None, None) for name in WHERE if name != "variant"),
    ],
    forbid_unknown_fields=True,
)
"""`[[expect.point]]`, with the tolerances of `[expect]` if the point has none."""


class _Expect(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    device: str | None = None
    lower: _Value | None = None
    upper: _Value | None = None
    point: tuple[dict[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The expected figure of a point, and its tolerances."""

    where: dict[str, str | int]
    """Columns of the key, and their values at the point."""

    column: str
    value: float
    lower: float
    upper: float
    """Tolerances: the figure may be lower or higher by these fractions of `value`."""

    @property
    def label(self) -> str:
        """`variant = cublas, m = 4096, …`."""
        return ", ".join(f"{name} = {value}" for name, value in self.where.items())


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A file's expectations, and the device that they are for."""

    path: Path
    points: tuple[Expectation, ...]
    device: str | None


def read_expected(path: Path) -> Expected:
    """Read the file. Raises UsageError with the place of an invalid value."""
    table = read_toml(path).get("expect")
    if not isinstance(table, dict) or "point" not in table:
        raise UsageError(f"{path}: has no [[expect.point]]")
    expect = decode(table, _Expect, f"{path}: [expect]")
    tolerances = {"lower": expect.lower, "upper": expect.upper}
    defaults = {name: value for name, value in tolerances.items() if value is not None}
    points = (
        _expectation({**defaults, **point}, f"{path}: [[expect.point]] {number}")
        for number, point in enumerate(expect.point, start=1)
    )
    return Expected(path=path, points=tuple(points), device=expect.device)


def _expectation(table: dict[str, Any], place: str) -> Expectation:
    fields = msgspec.structs.asdict(decode(table, _Point, place))
    if fields["column"] not in COLUMNS:
        raise UsageError(f"{place}: {unknown('column', fields['column'], COLUMNS)}")
    where = {name: str(fields[name]) for name in WHERE if fields[name] is not None}
    op = where.get("op", "gemm")
    if op not in OPERATIONS:
        raise UsageError(f"{place}: {unknown('operation', op, OPERATIONS)}")
    size = str(fields["size"])
    sizes = parse_sizes(size, op, f"{place}: size")
    if len(sizes) != 1:
        raise UsageError(f"{place}: size: '{shown(size)}' is more than one size")
    return Expectation(
        where={**where, **dict(zip("mnk", sizes[0], strict=True))},
        column=fields["column"],
        value=fields["value"],
        lower=parse_fraction(fields["lower"], f"{place}: lower", high=MAX_LOWER),
        upper=parse_fraction(fields["upper"], f"{place}: upper", high=MAX_UPPER),
    )


def require_expected_device(expected: Expected, new: Side) -> None:
    """Raise UsageError if the figures are for another device."""
    for row in new.rows:
        if None not in {expected.device, row.device} and row.device != expected.device:
            raise UsageError(
                f"{expected.path} is for {expected.device}, {new.name} was measured on "
                f"{row.device}; --ignore-device compares them nevertheless"
            )


def expected_report(expected: Expected, new: Side, limits: Limits, options: Options) -> Report:
    """Return the report on a side. Raises UsageError if an expectation fits several points."""
    path = expected.path
    rows: dict[Key, Row] = {}
    findings: dict[Key, Finding] = {}
    for expectation in expected.points:
        where = expectation.where.items()
        fitting = [
            new.rows_of(key)[0]
            for key in new.points
            if all(getattr(key, name) == value for name, value in where)
        ]
        if len(fitting) > 1:
            raise UsageError(
                f"{path}: {expectation.label} fits {len(fitting)} points of {new.name}, such as "
                f"{fitting[1].label}; add more of the key: {', '.join(KEY)}"
            )
        # A missing point has only the expected columns of the key.
        key: dict[str, Any] = dict.fromkeys(KEY, "") | expectation.where
        row = fitting[0] if fitting else Row(**key)
        if row.key in findings:
            raise UsageError(f"{path}: {expectation.label} is expected twice")
        rows[row.key] = row
        findings[row.key] = _judge(expectation, row, new.pooled.get(row.key))
    unexpected = len(new.points.keys() - findings.keys())
    return times_report(
        Comparison(findings=findings, limits=limits),
        rows,
        base=str(path),
        new=new.name,
        machine=new.rows[0].device or "",
        equal="within their tolerances",
        strict=options.strict,
        full=options.full,
        notes=(f"{unexpected} points of {new.name} have no expected figure",),
    )


def _judge(expectation: Expectation, row: Row, point: PooledPoint | None) -> Finding:
    """Return `same` within the tolerances, otherwise slower or faster."""
    if point is None:
        return Finding(verdict=DiffVerdict.MISSING, reason=ABSENT)
    figure = getattr(row, expectation.column)
    if point.lost or figure is None:
        reason = point.lost or f"has no {expectation.column}"
        return Finding(
            verdict=DiffVerdict.BROKEN if point.lost else DiffVerdict.MISSING, reason=reason
        )
    time_us = statistics.median(point.rounds_us)
    low = expectation.value * (1 - expectation.lower)
    high = expectation.value * (1 + expectation.upper)
    if expectation.column == TIME:
        figure = time_us
        ratio = figure / expectation.value
        below, above = DiffVerdict.FASTER, DiffVerdict.SLOWER
    else:
        # With rounds of several files: scale the first row's rate, which is work over time.
        figure /= time_us / (row.median_us or time_us)
        ratio = expectation.value / figure  # the ratio of times
        below, above = DiffVerdict.SLOWER, DiffVerdict.FASTER
    return Finding(
        verdict=below if figure < low else above if figure > high else DiffVerdict.SAME,
        reason=f"{expectation.column} {figure:.6g}; expected {low:.6g} to {high:.6g}",
        base_median_us=time_us / ratio,
        new_median_us=time_us,
        ratio=ratio,
        judged_ratio=ratio,
    )
