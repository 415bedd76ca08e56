"""The `[expect]` of a TOML file: figures that a machine must reach. docs/diff.md has the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpubench.commands.diff.expect import RATES, TIME, Expectation
from gpubench.errors import UsageError
from gpubench.model import OPERATIONS
from gpubench.plan.ranges import parse_sizes, shown
from gpubench.plan.registry import unknown
from gpubench.plan.toml_file import read_toml
from gpubench.row import KEY

TOLERANCES = ("lower", "upper")
WHERE = tuple(name for name in KEY if name not in {"m", "n", "k"})


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
    if not isinstance(table, dict) or not isinstance(table.get("point"), list):
        raise UsageError(f"{path}: has no [[expect.point]]")
    _known(table, ("device", "point", *TOLERANCES), path)
    defaults = {name: table[name] for name in TOLERANCES if name in table}
    device = table.get("device")
    if device is not None and not isinstance(device, str):
        raise UsageError(f'{path}: device is a name, such as "NVIDIA H200"')
    points = [
        _point(one, defaults, f"{path}: [[expect.point]] {number}")
        for number, one in enumerate(table["point"], start=1)
    ]
    return Expected(path=path, points=tuple(points), device=device)


def _point(given: Any, defaults: Mapping[str, Any], place: str) -> Expectation:
    _known(given, (*WHERE, "size", "column", "value", *TOLERANCES), place)
    fields = {**defaults, **given}
    for name in ("variant", "size", "value", *TOLERANCES):
        if name not in fields:
            raise UsageError(f"{place}: '{name}' is missing")
    column = str(fields.get("column", TIME))
    if column not in {TIME, *RATES}:
        raise UsageError(f"{place}: {unknown('column', column, (TIME, *RATES))}")
    op = str(fields.get("op", "gemm"))
    if op not in OPERATIONS:
        raise UsageError(f"{place}: {unknown('operation', op, OPERATIONS)}")
    sizes = parse_sizes(str(fields["size"]), op, f"{place}: size")
    if len(sizes) != 1:
        raise UsageError(f"{place}: size '{shown(str(fields['size']))}' is more than one")
    where = {name: str(fields[name]) for name in WHERE if name in fields}
    return Expectation(
        where={**where, **dict(zip("mnk", sizes[0], strict=True))},
        column=column,
        value=_number(fields["value"], f"{place}: value", high=float("inf")),
        lower=_share(fields["lower"], f"{place}: lower", below=1.0),
        upper=_share(fields["upper"], f"{place}: upper", below=float("inf")),
    )


def _known(fields: Any, names: tuple[str, ...], place: str | Path) -> None:
    if not isinstance(fields, dict):
        raise UsageError(f"{place}: is no table")
    for name in fields:
        if name not in names:
            raise UsageError(f"{place}: {unknown('key', name, names)}")


def _number(value: object, place: str, *, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < high:
        raise UsageError(f"{place}: {shown(str(value))} is no positive number")
    return float(value)


def _share(value: object, place: str, *, below: float) -> float:
    """`"3%"` or 0.03."""
    try:
        share = float(value[:-1]) / 100 if isinstance(value, str) and value[-1:] == "%" else value
    except ValueError:
        share = None
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < below:
        most = ", less than 100 %" if below == 1 else ""
        raise UsageError(f"{place}: '{shown(str(value))}' is no share; write \"3%\" or 0.03{most}")
    return float(share)
