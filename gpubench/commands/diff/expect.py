"""Figures that new hardware must reach, in the place of a base side, and whether it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpubench.commands.diff.compare import ABSENT
from gpubench.commands.diff.findings import Comparison, Finding, Key, Limits, PooledPoint, Verdict
from gpubench.commands.diff.report import Report
from gpubench.commands.diff.sides import Side
from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.row import KEY, Row

TIME = "median_us"
RATES = ("gflops", "gbytes_per_s", "percent_of_peak", "percent_of_blas")
"""Columns that a figure may be expected of: a lower time is better, a higher rate."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """A figure of one point, and how far the measured one may be from it."""

    where: dict[str, str | int]
    """Columns of the key, and what they hold at the point."""

    column: str
    value: float
    lower: float
    """The figure may be lower by this fraction of `value`."""

    upper: float
    """The figure may be higher by this fraction of `value`."""

    @property
    def label(self) -> str:
        """`variant = cublas, m = 4096, …`."""
        return ", ".join(f"{name} = {value}" for name, value in self.where.items())


def require_expected_device(path: Path, device: str | None, new: Side) -> None:
    """Raise UsageError, naming both, where the figures in `path` are for another device."""
    devices = Counter(row.device for row in new.rows if row.device is not None)
    others = [measured_on for measured_on in devices if measured_on != device]
    if device is not None and others:
        raise UsageError(
            f"{path} is meant for {device}, {new.name} was measured on {others[0]}; "
            "--ignore-device compares them all the same"
        )


def expected_report(
    path: Path, expectations: Sequence[Expectation], new: Side, limits: Limits, *, strict: bool
) -> Report:
    """The report on a side for which the file `path` expects figures.

    Raises UsageError where an expectation fits several points.
    """
    rows: dict[Key, Row] = {}
    findings: dict[Key, Finding] = {}
    for expectation in expectations:
        fitting = [key for key, found in new.points.items() if _fits(found[0], expectation)]
        if len(fitting) > 1:
            example = new.points[fitting[1]][0].label
            raise UsageError(
                f"{path}: {expectation.label} fits {len(fitting)} points of {new.name}, such as "
                f"{example}; add more of the key: {', '.join(KEY)}"
            )
        row = new.points[fitting[0]][0] if fitting else _row_of(expectation)
        if row.key in findings:
            raise UsageError(f"{path}: {expectation.label} is expected twice")
        rows[row.key] = row
        findings[row.key] = _judge(expectation, row, new.pooled.get(row.key))
    unexpected = len(new.points.keys() - findings.keys())
    return Report(
        comparison=Comparison(findings=findings, untimed={}, limits=limits, drift=1.0, untested=0),
        rows=rows,
        base=str(path),
        new=new.name,
        machine=new.rows[0].device or "",
        limits="their tolerances",
        strict=strict,
        notes=(f"{unexpected} points of {new.name} are not expected",),
    )


def _fits(row: Row, expectation: Expectation) -> bool:
    return all(getattr(row, name) == value for name, value in expectation.where.items())


def _row_of(expectation: Expectation) -> Row:
    """A row with as much of the key as is expected."""
    key: dict[str, Any] = dict.fromkeys(KEY, "")
    return Row(**(key | expectation.where))


def _judge(expectation: Expectation, row: Row, point: PooledPoint | None) -> Finding:
    """`same` within the tolerances; otherwise slower or faster, by what the column means."""
    if point is None:
        return Finding(verdict=Verdict.MISSING, reason=ABSENT)
    time_us, figure = point.median_us, getattr(row, expectation.column)
    if time_us is None or figure is None:
        verdict = Verdict.BROKEN if point.failed else Verdict.MISSING
        reason = f"has no {expectation.column}" if point.status == Status.OK else point.reason
        return Finding(verdict=verdict, reason=reason)
    low = expectation.value * (1 - expectation.lower)
    high = expectation.value * (1 + expectation.upper)
    if expectation.column == TIME:
        figure = time_us
        ratio = figure / expectation.value
        below, above = Verdict.FASTER, Verdict.SLOWER
    else:
        # Rounds of several files: a rate is work over time, so it scales with the first row's.
        figure /= time_us / (row.median_us or time_us)
        ratio = expectation.value / figure  # of times
        below, above = Verdict.SLOWER, Verdict.FASTER
    return Finding(
        verdict=below if figure < low else above if figure > high else Verdict.SAME,
        reason=f"{expectation.column} {figure:.6g}; expected {low:.6g} to {high:.6g}",
        base_median_us=time_us / ratio,
        new_median_us=time_us,
        ratio=ratio,
    )
