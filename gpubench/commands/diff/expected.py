"""Expected figures in the place of a base."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gpubench.commands.diff.compare import ABSENT
from gpubench.commands.diff.expect import Expectation, judge_expected
from gpubench.commands.diff.expect_file import Expected
from gpubench.commands.diff.input import Key, Table
from gpubench.commands.diff.report import Report
from gpubench.commands.diff.verdicts import Comparison, Finding, Limits, Side, Verdict
from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.row import KEY, Row


def check_expected_device(expected: Expected, new: Table) -> None:
    """Raise UsageError, naming both, where the figures are meant for another device."""
    devices = Counter(one.device for one in new.rows if one.device is not None)
    others = [device for device in devices if device != expected.device]
    if expected.device is not None and others:
        raise UsageError(
            f"{expected.path} is meant for {expected.device}, {new.names} was measured on "
            f"{others[0]}; --ignore-device compares them all the same"
        )


def expected_report(expected: Expected, new: Table, limits: Limits, *, strict: bool) -> Report:
    """The report on a table of which some figures are expected.

    Raises UsageError where an expectation fits several points.
    """
    rows: dict[Key, Row] = {}
    findings: dict[Key, Finding] = {}
    for one in expected.points:
        fitting = [key for key, found in new.points.items() if _fits(found[0], one)]
        if len(fitting) > 1:
            example = new.points[fitting[1]][0].label
            raise UsageError(
                f"{expected.path}: {one.label} fits {len(fitting)} points of {new.names}, such as "
                f"{example}; say more of the key: {', '.join(KEY)}"
            )
        key = fitting[0] if fitting else _row_of(one).key
        if key in findings:
            raise UsageError(f"{expected.path}: {one.label} is expected twice")
        rows[key] = new.points[key][0] if fitting else _row_of(one)
        findings[key] = _judge(one, rows[key], new.sides.get(key))
    return Report(
        comparison=Comparison(findings=findings, untimed={}, limits=limits, drift=1.0, untested=0),
        rows=rows,
        base=str(expected.path),
        new=new.names,
        machine=new.rows[0].device or "",
        limits="their tolerances",
        strict=strict,
        notes=(
            f"{len(new.points.keys() - findings.keys())} points of {new.names} are not expected",
        ),
    )


def _fits(one: Row, expected: Expectation) -> bool:
    return all(getattr(one, name) == value for name, value in expected.where.items())


def _row_of(expected: Expectation) -> Row:
    """A row with as much of the key as is expected."""
    key: dict[str, Any] = dict.fromkeys(KEY, "")
    return Row(**(key | expected.where))


def _judge(expected: Expectation, one: Row, side: Side | None) -> Finding:
    if side is None:
        return Finding(verdict=Verdict.MISSING, reason=ABSENT)
    time_us, figure = side.median_us, getattr(one, expected.column)
    if time_us is None or figure is None:
        verdict = Verdict.BROKEN if side.failed else Verdict.MISSING
        why = side.reason if side.status != Status.OK else f"has no {expected.column}"
        return Finding(verdict=verdict, reason=why)
    # Of several files' rounds: a rate is work over time, so it scales with the first row's.
    scale = time_us / (one.median_us or time_us)
    figure = time_us if expected.column == "median_us" else figure / scale
    return judge_expected(expected, figure, time_us)
