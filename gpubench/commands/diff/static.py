"""Judge two build files: what the compiler made of each kernel, before and after a change. Pure.

docs/diff.md states the rules for users; results/h200/static_columns.md has what they predict.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeGuard

from gpubench.errors import UsageError
from gpubench.model import OPERATIONS, Status
from gpubench.plan.ranges import parse_names
from gpubench.results.build_row import COLUMNS, BuildKey, BuildRow
from gpubench.text import shown, unknown


class BuildVerdict(StrEnum):
    """The verdict on a row, from the most to the least important."""

    BROKEN = "broken"
    WORSE = "worse"
    MISSING = "missing"
    CHANGED = "changed"
    BETTER = "better"
    NEW = "new"
    SAME = "same"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The largest change of a column for the worse that does not count."""

    amount: float
    relative: bool
    """Whether the amount is a fraction of the base side's value."""

    def __str__(self) -> str:
        return f"{100 * self.amount:g}%" if self.relative else f"{self.amount:g}"

    def exceeded(self, before: float, after: float) -> bool:
        """Return whether two values differ by more than the limit."""
        return abs(after - before) > self.amount * (abs(before) if self.relative else 1)


SHARE = "multiply_adds_per_instruction"

LINES = {"sectors_over_least": "uncoalesced_lines", "bank_conflict_ways": "bank_conflict_lines"}
"""Judged columns of accesses, and the column that has their lines."""

ALWAYS_JUDGED = ("spill_bytes", *LINES)
"""Judged columns of operations that are bound by memory. Their other columns do not predict a
slowdown (results/h200/static_columns.md)."""

RISING_IS_WORSE = {
    "spill_bytes": True, "occupancy": False, SHARE: False,
    "sectors_over_least": True, "bank_conflict_ways": True,
}  # fmt: skip
"""The judged columns, and whether a higher value is worse."""

DEFAULT_LIMITS: dict[str, Limit] = {
    "spill_bytes": Limit(amount=0, relative=False),
    "occupancy": Limit(amount=0, relative=False),
    SHARE: Limit(amount=0.05, relative=True),
    **{name: Limit(amount=0.01, relative=True) for name in LINES},
}

COMPARED = (
    *(
        column.name
        for column in COLUMNS
        if column.metadata["group"] in {"code", "multiprocessor", "grid", "loop", "accesses"}
        and column.name not in {"gpu", "limited_by", *LINES.values()}
    ),
    "options",
)
"""Columns whose difference is a change."""

FILLED_BY = {
    column.name: {"loop": "disassembler", "accesses": "recorder"}[column.metadata["group"]]
    for column in COLUMNS
    if column.metadata["group"] in {"loop", "accesses"}
}
"""Columns that a tool fills, and the column that names it. The tool may be missing."""

LOOP_LOST = "no loop multiplies and adds any more"
ABSENT = "not in the file"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A column whose value differs."""

    column: str
    base: str | float | None
    new: str | float | None
    effect: BuildVerdict
    """`worse`, `better` or `changed`."""

    line: str = ""
    """`mine.cu:23`, the line behind a change for the worse; empty if it is not known."""

    def __str__(self) -> str:
        at = f" at {self.line}" if self.line else ""
        return f"{self.column} {_figure(self.base)} → {_figure(self.new)}{self._relative}{at}"

    @property
    def _relative(self) -> str:
        if not isinstance(self.base, int | float) or not isinstance(self.new, int | float):
            return ""
        return f" ({100 * (self.new / self.base - 1):+.0f} %)" if self.base else ""


@dataclass(frozen=True, kw_only=True)
class BuildFinding:
    """The verdict on a row, and the figures behind it."""

    verdict: BuildVerdict
    reason: str = ""
    changes: tuple[Change, ...] = ()
    """The changes that decide the verdict come first."""


def read_limits(text: str | None) -> dict[str, Limit]:
    """Return the limits of all judged columns, where a text such as `spill_bytes=64` sets some.

    Raises UsageError for another column, and for a limit that is not a number of at least 0.
    """
    limits = dict(DEFAULT_LIMITS)
    for item in parse_names(text or ""):
        name, _, limit = item.partition("=")
        if name not in limits:
            raise UsageError(f"--allow: {unknown('column', name, limits)}")
        limits[name] = _limit(limit, item)
    return limits


def _limit(text: str, item: str) -> Limit:
    relative = text.endswith("%")
    try:
        amount = float(text.removesuffix("%")) / (100 if relative else 1)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise UsageError(f"--allow: '{shown(item)}' is not such as spill_bytes=64 or occupancy=10%")
    return Limit(amount=amount, relative=relative)


def compare_builds(
    base: Sequence[BuildRow], new: Sequence[BuildRow], limits: Mapping[str, Limit]
) -> dict[BuildKey, BuildFinding]:
    """Judge every row that at least one side compiled."""
    before, after = ({row.key: row for row in rows} for rows in (base, new))
    findings = {key: _judge(before.get(key), after.get(key), limits) for key in (before | after)}
    return {key: finding for key, finding in findings.items() if finding}


def _judge(
    before: BuildRow | None, after: BuildRow | None, limits: Mapping[str, Limit]
) -> BuildFinding | None:
    """Return the finding on a row, or None if neither side compiled it."""
    if not _is_compiled(before) or not _is_compiled(after):
        return _one_sided(before, after)
    changes = changed_columns(before, after, limits)
    if before.resident_blocks and after.resident_blocks == 0:
        return BuildFinding(
            verdict=BuildVerdict.BROKEN, reason=_why_no_launch(after), changes=changes
        )
    if before.loop_instructions and after.disassembler and not after.loop_instructions:
        return BuildFinding(verdict=BuildVerdict.WORSE, reason=LOOP_LOST, changes=changes)
    effects = {change.effect for change in changes}
    order = (BuildVerdict.WORSE, BuildVerdict.BETTER, BuildVerdict.CHANGED)
    return BuildFinding(
        verdict=next((effect for effect in order if effect in effects), BuildVerdict.SAME),
        changes=changes,
    )


def _why_no_launch(row: BuildRow) -> str:
    threads, limit = row.threads_per_block, row.max_threads_per_block
    if threads and limit is not None and threads > limit:
        return f"a launch would fail: {threads} threads in a block, launch bounds of {limit}"
    return "a launch would fail: a block exceeds the resources of a multiprocessor"


def _one_sided(before: BuildRow | None, after: BuildRow | None) -> BuildFinding | None:
    if _is_compiled(after):
        return BuildFinding(verdict=BuildVerdict.NEW, reason=_why(before))
    if after is None and _is_compiled(before):
        return BuildFinding(verdict=BuildVerdict.MISSING, reason=ABSENT)
    is_new_failure = before is None and after is not None and after.status == Status.ERROR
    if is_new_failure or _is_compiled(before):
        return BuildFinding(verdict=BuildVerdict.BROKEN, reason=_why(after))
    return None


def _is_compiled(row: BuildRow | None) -> TypeGuard[BuildRow]:
    return row is not None and row.status == Status.OK


def _why(row: BuildRow | None) -> str:
    return f"{row.status}: {row.reason or 'no reason given'}" if row else ""


def changed_columns(
    before: BuildRow, after: BuildRow, limits: Mapping[str, Limit]
) -> tuple[Change, ...]:
    """Return the columns that differ, changes for the worse first."""
    if after.op in OPERATIONS and OPERATIONS[after.op].bandwidth_bound:
        limits = {name: limits[name] for name in ALWAYS_JUDGED}
    changes: list[Change] = []
    for name in COMPARED:
        tool = FILLED_BY.get(name)
        if tool and not (getattr(before, tool) and getattr(after, tool)):
            continue
        base, new = getattr(before, name), getattr(after, name)
        if base != new:
            effect = _effect(name, base, new, limits)
            line = _line(name, before, after) if effect == BuildVerdict.WORSE else ""
            changes.append(Change(column=name, base=base, new=new, effect=effect, line=line))
    effects = {change.column: change.effect for change in changes}
    if effects.get(SHARE) == BuildVerdict.BETTER and effects.get("occupancy") == BuildVerdict.WORSE:
        # More work per thread for fewer threads: the recorded sweeps do not show a slowdown.
        traded = {"occupancy", SHARE}
        changes = [
            replace(change, effect=BuildVerdict.CHANGED) if change.column in traded else change
            for change in changes
        ]
    order = list(BuildVerdict)
    return tuple(sorted(changes, key=lambda change: order.index(change.effect)))


def _line(column: str, before: BuildRow, after: BuildRow) -> str:
    """Return the line that wastes most of those that are worse on the new side only.

    A change moves lines, so the same factor in the same file counts as the same line.
    """
    if column not in LINES:
        return ""
    base, new = (
        [entry.rpartition(" ")[::2] for entry in (getattr(row, LINES[column]) or "").split(";")]
        for row in (before, after)
    )
    known = Counter((place.rpartition(":")[0], factor) for place, factor in base)
    for place, factor in new:
        known[place.rpartition(":")[0], factor] -= 1
        if known[place.rpartition(":")[0], factor] < 0:
            return place
    return new[0][0]


def _effect(
    name: str, base: str | float | None, new: str | float | None, limits: Mapping[str, Limit]
) -> BuildVerdict:
    if name not in limits or not isinstance(base, int | float) or not isinstance(new, int | float):
        return BuildVerdict.CHANGED
    if not limits[name].exceeded(base, new):
        return BuildVerdict.CHANGED
    return BuildVerdict.WORSE if (new > base) == RISING_IS_WORSE[name] else BuildVerdict.BETTER


def _figure(value: str | float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
