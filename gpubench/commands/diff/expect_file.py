"""The `[expect]` of a TOML file: figures that a machine must reach. docs/diff.md has the form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gpubench.commands.diff.expect import RATES, TIME, Expectation
from gpubench.errors import UsageError
from gpubench.model import OPERATIONS
from gpubench.plan.ranges import parse_fraction, parse_sizes, shown
from gpubench.plan.registry import unknown
from gpubench.plan.toml_file import decode, read_toml
from gpubench.row import KEY

WHERE = tuple(name for name in KEY if name not in {"m", "n", "k"})

MAX_LOWER, MAX_UPPER = 0.9999, 1e300
"""A figure may be any part less, but not nothing, and any finite number of times more."""

Value = str | int | float

Point = msgspec.defstruct(
    "Point",
    [
        ("variant", Value),
        ("size", Value),
        ("value", Annotated[float, msgspec.Meta(gt=0, le=1e300)]),
        ("lower", Value),
        ("upper", Value),
        ("column", str, TIME),
        *((name, Value | None, None) for name in WHERE if name != "variant"),
    ],
    forbid_unknown_fields=True,
)
"""`[[expect.point]]`, with the tolerances of `[expect]` where it has none."""


class Expect(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`[expect]`."""

    device: str | None = None
    lower: Value | None = None
    upper: Value | None = None
    point: tuple[dict[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A file's expectations."""

    path: Path
    points: tuple[Expectation, ...]
    device: str | None
    """The device they are meant for."""


def read_expected(path: Path) -> Expected:
    """Read the file. Raises UsageError naming what does not fit."""
    table = read_toml(path).get("expect")
    if not isinstance(table, dict) or "point" not in table:
        raise UsageError(f"{path}: has no [[expect.point]]")
    expect = decode(table, Expect, f"{path}: [expect]")
    tolerances = {"lower": expect.lower, "upper": expect.upper}
    defaults = {name: value for name, value in tolerances.items() if value is not None}
    points = [
        _point({**defaults, **point}, f"{path}: [[expect.point]] {number}")
        for number, point in enumerate(expect.point, start=1)
    ]
    return Expected(path=path, points=tuple(points), device=expect.device)


def _point(table: dict[str, Any], place: str) -> Expectation:
    fields = msgspec.structs.asdict(decode(table, Point, place))
    if fields["column"] not in {TIME, *RATES}:
        raise UsageError(f"{place}: {unknown('column', fields['column'], (TIME, *RATES))}")
    where = {name: str(fields[name]) for name in WHERE if fields[name] is not None}
    op = where.get("op", "gemm")
    if op not in OPERATIONS:
        raise UsageError(f"{place}: {unknown('operation', op, OPERATIONS)}")
    size = str(fields["size"])
    sizes = parse_sizes(size, op, f"{place}: size")
    if len(sizes) != 1:
        raise UsageError(f"{place}: size '{shown(size)}' is more than one")
    return Expectation(
        where={**where, **dict(zip("mnk", sizes[0], strict=True))},
        column=fields["column"],
        value=fields["value"],
        lower=parse_fraction(fields["lower"], f"{place}: lower", high=MAX_LOWER),
        upper=parse_fraction(fields["upper"], f"{place}: upper", high=MAX_UPPER),
    )
