"""Judge two build files: the compiler's results for each kernel, before and after a change.

docs/diff.md states the rules for users. results/h200/static_columns.md shows which slowdowns the
columns predict.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from gpubench.errors import UsageError
from gpubench.model import OPERATIONS, Status
from gpubench.plan.ranges import parse_names
from gpubench.results.build_row import COLUMNS, BuildKey, BuildRow
from gpubench.text import shown, unknown


class BuildVerdict(StrEnum):
    """The verdicts on a row of a build file, starting with the most important."""

    BROKEN = "broken"
    WORSE = "worse"
    MISSING = "missing"
    CHANGED = "changed"
    BETTER = "better"
    NEW = "new"
    SAME = "same"


class ColumnRule(NamedTuple):
    """The rule by which a column is judged."""

    rising_is_worse: bool
    limit: str
    """Allowed change for the worse, as an amount or as a percentage, if the user states no
    limit."""

    lines: str = ""
    """Column with the source lines that cause the value."""

    of_memory: bool = True
    """Whether the column is also judged for operations that are bound by memory. A column for which
    `of_memory` is false does not predict a slowdown of operations that are bound by memory
    (results/h200/static_columns.md)."""


SHARE = "multiply_adds_per_instruction"

JUDGED = {
    "spill_bytes": ColumnRule(rising_is_worse=True, limit="0"),
    "local_bytes": ColumnRule(rising_is_worse=True, limit="0"),
    "occupancy": ColumnRule(rising_is_worse=False, limit="0", of_memory=False),
    SHARE: ColumnRule(rising_is_worse=False, limit="5%", of_memory=False),
    "sectors_over_least": ColumnRule(rising_is_worse=True, limit="1%", lines="uncoalesced_lines"),
    "bank_conflict_ways": ColumnRule(rising_is_worse=True, limit="1%", lines="bank_conflict_lines"),
}
"""The judged columns and their rules. A difference in any other column has the verdict
`changed`."""

ROUNDING = 1e-9
"""Relative rounding error of a difference. A change by exactly the limit does not exceed it."""

TOOLS = {"loop": "disassembler", "accesses": "recorder"}
"""Groups of columns that a tool fills, each with the column that names the tool. The tool may be
missing."""

COMPARED = {
    column.name: TOOLS.get(column.metadata["group"], "")
    for column in COLUMNS
    if column.metadata["group"] in {"code", "multiprocessor", "grid", *TOOLS}
    and column.name not in {"gpu", "limited_by", *(judged.lines for judged in JUDGED.values())}
} | {"options": ""}
"""The compared columns. Each column is mapped to the column that names its tool, or to an empty
text if no tool fills it."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A column of a build file whose value differs between the two sides."""

    column: str
    base: str | float | None
    new: str | float | None
    effect: BuildVerdict
    """`worse`, `better` or `changed`."""

    line: str = ""
    """Source line that causes a change for the worse, such as `mine.cu:23`, or an empty text if the
    line is not known."""

    def __str__(self) -> str:
        at = f" at {self.line}" if self.line else ""
        relative = ""
        if isinstance(self.base, int | float) and isinstance(self.new, int | float) and self.base:
            relative = f" ({100 * (self.new / self.base - 1):+.0f} %)"
        return f"{self.column} {_figure(self.base)} → {_figure(self.new)}{relative}{at}"


@dataclass(frozen=True, kw_only=True)
class BuildFinding:
    """The verdict on a row of a build file, and the changes behind the verdict."""

    verdict: BuildVerdict
    reason: str = ""
    changes: tuple[Change, ...] = ()
    """The columns that differ. The changes that decide the verdict are the first in this tuple."""


def read_limits(text: str | None) -> dict[str, str]:
    """Return the limits of all judged columns.

    A text such as `spill_bytes=64` replaces the default limit of a column.

    Raises UsageError for a column that is not judged, and for a limit that is not a number of at
    least 0.
    """
    limits = {name: judged.limit for name, judged in JUDGED.items()}
    allowed = set[str]()
    for item in parse_names(text or ""):
        name, _, limit = item.partition("=")
        if name not in limits:
            raise UsageError(f"--allow: {unknown('column', name, limits)}")
        if not re.fullmatch(r"\d+(\.\d+)?%?", limit, re.ASCII):
            raise UsageError(
                f"--allow: '{shown(item)}' is not understood; "
                "write, for example, spill_bytes=64 or occupancy=10%"
            )
        limits[name] = limit
        allowed.add(name)
    if "spill_bytes" in allowed and "local_bytes" not in allowed:  # local memory holds the spills
        limits["local_bytes"] = limits["spill_bytes"]
    return limits


def compare_builds(
    base: Sequence[BuildRow], new: Sequence[BuildRow], limits: Mapping[str, str]
) -> dict[BuildKey, BuildFinding]:
    """Judge every row that at least one side compiled."""
    before, after = ({row.key: row for row in rows} for rows in (base, new))
    findings = {key: _judge(before.get(key), after.get(key), limits) for key in (before | after)}
    return {key: finding for key, finding in findings.items() if finding}


def _judge(
    before: BuildRow | None, after: BuildRow | None, limits: Mapping[str, str]
) -> BuildFinding | None:
    """Return the finding on a row, or None if neither side compiled it."""
    base, new = (row if row and row.status == Status.OK else None for row in (before, after))
    if new and not base:
        return BuildFinding(verdict=BuildVerdict.NEW, reason=_why(before))
    if base and not after:
        return BuildFinding(verdict=BuildVerdict.MISSING, reason="not in the file")
    if not base or not new:
        is_new_failure = not before and after and after.status == Status.ERROR
        lost = BuildFinding(verdict=BuildVerdict.BROKEN, reason=_why(after))
        return lost if base or is_new_failure else None
    changes = _changes(base, new, limits)
    if base.resident_blocks and new.resident_blocks == 0:
        threads, bound = new.threads_per_block or 0, new.max_threads_per_block
        reason = "a launch would fail: a block exceeds the resources of a multiprocessor"
        if bound is not None and threads > bound:
            reason = (
                f"a launch would fail: a block has {threads} threads, but the launch bounds allow "
                f"only {bound}"
            )
        return BuildFinding(verdict=BuildVerdict.BROKEN, reason=reason, changes=changes)
    if base.loop_instructions and new.disassembler and not new.loop_instructions:
        reason = "no loop multiplies and adds any more"
        return BuildFinding(verdict=BuildVerdict.WORSE, reason=reason, changes=changes)
    effects = {change.effect for change in changes}
    order = (BuildVerdict.WORSE, BuildVerdict.BETTER, BuildVerdict.CHANGED)
    verdict = next((effect for effect in order if effect in effects), BuildVerdict.SAME)
    return BuildFinding(verdict=verdict, changes=changes)


def _why(row: BuildRow | None) -> str:
    return f"{row.status}: {row.reason or 'no reason recorded'}" if row else ""


def _changes(before: BuildRow, after: BuildRow, limits: Mapping[str, str]) -> tuple[Change, ...]:
    """Return the columns that differ, starting with the changes for the worse."""
    if after.op in OPERATIONS and OPERATIONS[after.op].bandwidth_bound:
        limits = {name: limit for name, limit in limits.items() if JUDGED[name].of_memory}
    changes: list[Change] = []
    for name, tool in COMPARED.items():
        base, new = getattr(before, name), getattr(after, name)
        if base != new and (not tool or (getattr(before, tool) and getattr(after, tool))):
            effect = _effect(name, base, new, limits)
            line = _line(name, before, after) if effect == BuildVerdict.WORSE else ""
            changes.append(Change(column=name, base=base, new=new, effect=effect, line=line))
    effects = {change.column: change.effect for change in changes}
    if effects.get(SHARE) == BuildVerdict.BETTER and effects.get("occupancy") == BuildVerdict.WORSE:
        # Fewer threads that each do more work are not slower in the recorded sweeps.
        changes = [
            replace(change, effect=BuildVerdict.CHANGED)
            if change.column in {"occupancy", SHARE}
            else change
            for change in changes
        ]
    order = list(BuildVerdict)
    return tuple(sorted(changes, key=lambda change: order.index(change.effect)))


def _line(column: str, before: BuildRow, after: BuildRow) -> str:
    """Return the most wasteful source line that only the new side has.

    A change of the source moves lines, so lines of one file with equal factors count as equal. If
    the new side has no line of its own, return its most wasteful line.
    """
    if not (lines := JUDGED[column].lines):
        return ""
    base, new = (
        [entry.rpartition(" ")[::2] for entry in (getattr(row, lines) or "").split(";")]
        for row in (before, after)
    )
    unmatched = Counter((place.rpartition(":")[0], factor) for place, factor in base)
    for place, factor in new:
        unmatched[place.rpartition(":")[0], factor] -= 1
        if unmatched[place.rpartition(":")[0], factor] < 0:
            return place
    return new[0][0]


def _effect(
    name: str, base: str | float | None, new: str | float | None, limits: Mapping[str, str]
) -> BuildVerdict:
    if name not in limits or not isinstance(base, int | float) or not isinstance(new, int | float):
        return BuildVerdict.CHANGED
    limit = limits[name]  # such as `64`, or `10%`, which is relative to the base's value
    allowed = abs(base) * float(limit[:-1]) / 100 if limit.endswith("%") else float(limit)
    if abs(new - base) <= allowed * (1 + ROUNDING):
        return BuildVerdict.CHANGED
    is_worse = (new > base) == JUDGED[name].rising_is_worse
    return BuildVerdict.WORSE if is_worse else BuildVerdict.BETTER


def _figure(value: str | float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
