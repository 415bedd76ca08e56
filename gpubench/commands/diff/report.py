"""What a comparison comes to: exit code, headline, notes and what to do next."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpubench.commands.diff.again import covering
from gpubench.commands.diff.compare import TOO_NOISY
from gpubench.commands.diff.input import Key, Table, gpus_of
from gpubench.commands.diff.shift import rounds_needed
from gpubench.commands.diff.verdicts import Comparison, Finding, Verdict
from gpubench.model import Timer
from gpubench.row import KEY, Row

SLOWER, STRICT, BROKEN = 1, 3, 4
"""Exit codes; 0 is for the rest, 2 for what could not be compared."""

LABELLED = {"variant", "tile", "backend", "m", "n", "k"}
"""Columns of the key that every label holds, or that no label needs."""

CONTEXT = ("gpubench", "library", "cupy")
"""Columns that may differ and should then be known."""

MILD = tuple(Verdict(name) for name in ("same", "faster", "ambiguous", "clock", "missing", "new"))
"""Verdicts that are no regression, as the headline counts them."""

USUAL_ROUNDS = 10

SWEEPS = 5
"""Sweeps a side with which the test can speak on one figure a sweep: least_p(5, 5) is 0.008."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A comparison with what its readers need; every format shows this."""

    comparison: Comparison[Key]
    rows: Mapping[Key, Row]
    """One row of each point, of the new side if it has one."""

    base: str
    new: str
    """The sides' names."""

    machine: str
    limits: str
    """How far apart points may be that are called the same, in words."""

    strict: bool
    notes: tuple[str, ...]
    """What a reader must know to read the verdicts right."""

    advice: tuple[str, ...] = ()
    """What would settle what is open."""

    @property
    def exit_code(self) -> int:
        """The gravest of the verdicts: a wrong result before a slow one before an open one."""
        counts = self.comparison.counts
        if counts[Verdict.BROKEN]:
            return BROKEN
        if counts[Verdict.SLOWER]:
            return SLOWER
        if self.strict and (counts[Verdict.AMBIGUOUS] or counts[Verdict.MISSING]):
            return STRICT
        return 0

    @property
    def headline(self) -> str:
        """The verdict in a line."""
        counts = self.comparison.counts
        points = f"of {counted(sum(counts.values()), 'point')}"
        if counts[Verdict.BROKEN]:
            slower = f"; {counts[Verdict.SLOWER]} slower" if counts[Verdict.SLOWER] else ""
            return f"broken: {counts[Verdict.BROKEN]} {points} had a right result before{slower}"
        if counts[Verdict.SLOWER]:
            worst, finding = next(iter(self.comparison.of(Verdict.SLOWER).items()))
            return (
                f"slower: {counts[Verdict.SLOWER]} {points}, by up to "
                f"{change(finding.ratio).lstrip('+')} ({self.label(worst)})"
            )
        rest = ", ".join(f"{counts[verdict]} {verdict}" for verdict in MILD if counts[verdict])
        kind = "not settled" if self.exit_code == STRICT else "no confirmed regression"
        return f"{kind}: {points} {rest}"

    def label(self, key: Key) -> str:
        """What a person calls the point, with those columns of its key that vary."""
        one = self.rows[key]
        tile = f" {one.tile}" if one.tile else ""
        return " ".join((f"{one.variant}{tile} at {one.size}", *self._telling(one)))

    def _telling(self, one: Row) -> list[str]:
        return [
            str(getattr(one, name))
            for name in KEY
            if name not in LABELLED
            and getattr(one, name)
            and not (name == "compute_mode" and one.compute_mode == one.dtype)
            and len({getattr(other, name) for other in self.rows.values()}) > 1
        ]


def make_report(
    comparison: Comparison[Key],
    base: Table,
    new: Table,
    *,
    strict: bool,
    is_blas: Callable[[Key], bool],
    again: str = "",
    notes: tuple[str, ...] = (),
) -> Report:
    """The report on a comparison of two sides; `again` is the command that would repeat it."""
    rows = {one.key: one for one in (*base.rows, *new.rows)}
    first = new.rows[0]
    dtypes = list(dict.fromkeys(one.dtype for one in rows.values()))
    return Report(
        comparison=comparison,
        rows=rows,
        base=base.names,
        new=new.names,
        machine=", ".join(filter(None, (first.device, *dtypes))),
        limits=f"±{100 * comparison.limits.threshold:g} % or {comparison.limits.floor_us:g} µs",
        strict=strict,
        notes=(
            *_notes_on_rounds(comparison),
            *_notes_on_noise(comparison),
            *_notes_on_drift(comparison, is_blas),
            *_notes_on_gpus(comparison, base, new),
            *_notes_on_context(base, new),
            *notes,
        ),
        advice=tuple(_advice(comparison, rows, is_blas, again)),
    )


def _notes_on_rounds(comparison: Comparison[Key]) -> list[str]:
    if not comparison.untested:
        return []
    both = [one for one in comparison.findings.values() if one.ratio is not None]
    fewest = min(min(one.base_rounds, one.new_rounds) for one in both)
    needed = rounds_needed(len(both), comparison.limits.q)
    note = (
        f"too few rounds to test {comparison.untested} of {counted(len(both), 'point')}: "
        f"{fewest}, where {needed} a side are needed. Their verdicts rest on the size of the "
        "effect alone: every round of one side against every round of the other."
    )
    return [note]


def _notes_on_noise(comparison: Comparison[Key]) -> list[str]:
    held_back = [one for one in comparison.findings.values() if one.reason == TOO_NOISY]
    if not held_back:
        return []
    note = (
        f"{counted(len(held_back), 'point')} may have moved, but few of the others could be shown "
        "to have stayed: the machine is noisy, and on a CPU each process has times of its own. "
        f"Compare {SWEEPS} sweeps a side, taken in turns: --base b*.csv --new n*.csv"
    )
    return [note]


def _notes_on_drift(comparison: Comparison[Key], is_blas: Callable[[Key], bool]) -> list[str]:
    both = {key: one for key, one in comparison.findings.items() if one.ratio is not None}
    if comparison.drifted:
        note = (
            f"machine drift: most points moved together by {change(comparison.drift)}, the BLAS "
            "with them. That is the machine, not the build; points that moved no further are not "
            "judged."
        )
        return [note]
    if len(both) < 3 or any(is_blas(key) for key in both):  # noqa: PLR2004 # "most" of three
        return []
    shared = statistics.median(one.ratio or 1.0 for one in both.values())
    if abs(math.log(shared)) <= math.log1p(comparison.limits.threshold):
        return []
    note = (
        f"most points moved together by {change(shared)}. Whether it was the machine, no row of "
        "a BLAS tells: sweep cublas (or cpu_blas) with them."
    )
    return [note]


def _notes_on_gpus(comparison: Comparison[Key], base: Table, new: Table) -> list[str]:
    allowed = comparison.limits.between_gpus
    sides = [gpus_of(one for one in side.rows if one.median_us) for side in (base, new)]
    if not allowed or not all(sides) or sides[0] == sides[1]:
        return []
    note = (
        f"the sides ran on different GPUs of one kind. Such differ by up to {100 * allowed:g} % at "
        "some points, so a point that moved by less is ambiguous. Measure both sides on one GPU; "
        "--ignore-device compares without this allowance"
    )
    return [note]


def _notes_on_context(base: Table, new: Table) -> list[str]:
    notes = []
    for column in CONTEXT:
        values = [
            ", ".join(sorted({v for one in side.rows if (v := getattr(one, column)) is not None}))
            for side in (base, new)
        ]
        if all(values) and values[0] != values[1]:
            notes.append(f"{column}: {values[0]} on the base side, {values[1]} on the new one")
    return notes


def _advice(
    comparison: Comparison[Key],
    rows: Mapping[Key, Row],
    is_blas: Callable[[Key], bool],
    again: str,
) -> list[str]:
    """The command that would settle what is open; points not tested are open too."""
    open_points = [
        key
        for key, one in comparison.findings.items()
        if one.verdict == Verdict.AMBIGUOUS or (comparison.untested and moved_untested(one))
    ]
    if not open_points:
        return []
    most = max(
        min(one.base_rounds, one.new_rounds)
        for key, one in comparison.findings.items()
        if key in open_points
    )
    both = sum(one.ratio is not None for one in comparison.findings.values())
    needed = max(USUAL_ROUNDS, rounds_needed(both, comparison.limits.q))
    on_cpu = any(rows[key].timer == Timer.HOST for key in open_points)
    # On a CPU, more processes tell more than more rounds do.
    rounds = needed if most < needed or on_cpu else 2 * most
    both_builds = f"both builds {SWEEPS} times each" if on_cpu else "both builds"
    lines = []
    for op in dict.fromkeys(rows[key].op for key in open_points):  # a sweep has one
        chosen = [rows[key] for key in open_points if rows[key].op == op]
        witnesses = [one for key, one in rows.items() if is_blas(key) and one.op == op]
        options = covering(chosen) | {"rounds": str(rounds)}
        names = (one.variant for one in (*chosen, *witnesses))
        options["variants"] = ",".join(dict.fromkeys(names))
        flags = " ".join(f"--{name.replace('_', '-')} {text}" for name, text in options.items())
        lines.append(f"to settle it, measure {both_builds}, in turns, with: gpubench sweep {flags}")
    if again:
        lines.append(f"or, where the kernels are the same as here: {again} --rerun")
    return lines


def moved_untested(one: Finding) -> bool:
    """Whether a point was found to have moved without a test."""
    return one.verdict in {Verdict.SLOWER, Verdict.FASTER} and one.p is None


def change(ratio: float | None) -> str:
    """`+5.1 %` for 1.051."""
    return "" if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def interval(one: Finding) -> str:
    """`+4.9 .. +5.3 %`."""
    if one.ratio_low is None or one.ratio_high is None:
        return ""
    return f"{100 * (one.ratio_low - 1):+.1f} .. {change(one.ratio_high)}"


def counted(count: int, noun: str) -> str:
    """`1 point`, `2 points`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
