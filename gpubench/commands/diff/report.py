"""What every format shows of a comparison: exit code, headline, notes, what to do next."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gpubench.commands.diff.compare import TOO_NOISY, rounds_needed
from gpubench.commands.diff.findings import Comparison, Finding, Key, Verdict
from gpubench.commands.diff.sides import Side, gpus_of, is_blas
from gpubench.model import Timer
from gpubench.row import KEY, Row

SLOWER, STRICT, BROKEN = 1, 3, 4
"""Exit codes; 0 is for the rest, 2 for what could not be compared."""

LABELLED = {"variant", "tile", "backend", "m", "n", "k"}
"""Columns of the key that every label holds, or that no label needs."""

CONTEXT = ("gpubench", "library", "cupy")
"""Columns that may differ between the sides; a note says so."""

MILD = tuple(Verdict(name) for name in ("same", "faster", "ambiguous", "clock", "missing", "new"))
"""Verdicts that are no regression, as the headline counts them."""

MOST = 3
"""Points, at least, of which "most" can be said to have moved together."""

USUAL_ROUNDS = 10

SWEEPS = 5
"""Sweeps per side with which the test can decide on one figure per sweep: least_p(5, 5) is 0.008.
"""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A comparison with what its readers need."""

    comparison: Comparison
    rows: Mapping[Key, Row]
    """One row of each point, of the new side if it has one."""

    base: str
    new: str
    """The names of the sides."""

    machine: str
    limits: str
    """How far apart points may be that are called the same, in words."""

    strict: bool
    notes: tuple[str, ...]
    """What a reader must know to interpret the verdicts."""

    advice: tuple[str, ...] = ()
    """What would settle the open points."""

    @property
    def exit_code(self) -> int:
        """Of the worst verdict: a wrong result before a slow one before an open one."""
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
        row = self.rows[key]
        columns = [
            str(value)
            for name in self._varying
            if (value := getattr(row, name)) and (name, value) != ("compute_mode", row.dtype)
        ]
        tile = f" {row.tile}" if row.tile else ""
        return " ".join((f"{row.variant}{tile} at {row.size}", *columns))

    @cached_property
    def _varying(self) -> list[str]:
        rows = self.rows.values()
        columns = (name for name in KEY if name not in LABELLED)
        return [name for name in columns if len({getattr(row, name) for row in rows}) > 1]


def make_report(
    comparison: Comparison,
    base: Side,
    new: Side,
    *,
    strict: bool,
    rerun_command: str = "",
    notes: Iterable[str] = (),
) -> Report:
    """The report on a comparison of two sides.

    `rerun_command` would measure the ambiguous points again; `notes` come after its own.
    """
    rows = {row.key: row for row in (*base.rows, *new.rows)}
    dtypes = list(dict.fromkeys(row.dtype for row in rows.values()))
    return Report(
        comparison=comparison,
        rows=rows,
        base=base.name,
        new=new.name,
        machine=", ".join(filter(None, (new.rows[0].device, *dtypes))),
        limits=f"±{100 * comparison.limits.threshold:g} % or {comparison.limits.floor_us:g} µs",
        strict=strict,
        notes=(*_notes(comparison, rows, base, new), *notes),
        advice=tuple(_advice(comparison, rows, rerun_command)),
    )


def _notes(comparison: Comparison, rows: Mapping[Key, Row], base: Side, new: Side) -> Iterator[str]:
    limits = comparison.limits
    two_sided = comparison.two_sided
    if comparison.untested:
        fewest = min(min(found.base_rounds, found.new_rounds) for found in two_sided.values())
        yield (
            f"too few rounds to test {comparison.untested} of {counted(len(two_sided), 'point')}: "
            f"{fewest}, where {rounds_needed(len(two_sided), limits.q)} a side are needed. Their "
            "verdicts rest on the size of the effect alone: every round of one side against every "
            "round of the other."
        )
    if noisy := sum(finding.reason == TOO_NOISY for finding in comparison.findings.values()):
        yield (
            f"{counted(noisy, 'point')} may have moved, but few of the others could be shown "
            "to have stayed: the machine is noisy, and on a CPU each process has times of its own. "
            f"Compare {SWEEPS} sweeps a side, taken in turns: --base b*.csv --new n*.csv"
        )
    if comparison.drifted:
        yield (
            f"machine drift: most points moved together by {change(comparison.drift)}, the BLAS "
            "with them. That is the machine, not the build; points that moved no further are not "
            "judged."
        )
    elif len(two_sided) >= MOST and not any(is_blas(rows[key]) for key in two_sided):
        shared = statistics.median(finding.ratio or 1.0 for finding in two_sided.values())
        if abs(math.log(shared)) > math.log1p(limits.threshold):
            yield (
                f"most points moved together by {change(shared)}. Without a row of a BLAS it is "
                "not known whether the machine did it: sweep cublas (or cpu_blas) with them."
            )
    gpus = [gpus_of(row for row in side.rows if row.median_us) for side in (base, new)]
    if limits.between_gpus and all(gpus) and gpus[0] != gpus[1]:
        yield (
            "the sides ran on different GPUs of one kind. Such differ by up to "
            f"{100 * limits.between_gpus:g} % at some points, so a point that moved by less is "
            "ambiguous. Measure both sides on one GPU; --ignore-device compares without this "
            "allowance"
        )
    for column in CONTEXT:
        values = [{getattr(row, column) for row in side.rows} - {None} for side in (base, new)]
        if all(values) and values[0] != values[1]:
            before, after = (", ".join(sorted(names)) for names in values)
            yield f"{column}: {before} on the base side, {after} on the new one"


def _advice(comparison: Comparison, rows: Mapping[Key, Row], rerun_command: str) -> list[str]:
    """The commands that would settle the open points: ambiguous ones, and those not tested."""
    open_points = {
        key: finding
        for key, finding in comparison.findings.items()
        if finding.verdict == Verdict.AMBIGUOUS
        or (finding.verdict in {Verdict.SLOWER, Verdict.FASTER} and finding.p is None)
    }
    if not open_points:
        return []
    most = max(min(finding.base_rounds, finding.new_rounds) for finding in open_points.values())
    needed = max(USUAL_ROUNDS, rounds_needed(len(comparison.two_sided), comparison.limits.q))
    on_cpu = any(rows[key].timer == Timer.HOST for key in open_points)
    # On a CPU, more processes show more than more rounds do.
    rounds = needed if most < needed or on_cpu else 2 * most
    both_builds = f"both builds {SWEEPS} times each" if on_cpu else "both builds"
    lines = []
    # A sweep has one operation and one kind of operands.
    for sweep in dict.fromkeys((key.op, key.operands) for key in open_points):
        chosen = [rows[key] for key in open_points if (key.op, key.operands) == sweep]
        blas = [row for row in rows.values() if (row.op, row.operands) == sweep and is_blas(row)]
        options = covering_options(chosen) | {
            "rounds": str(rounds),
            "variants": _listed(row.variant for row in (*chosen, *blas)),
        }
        flags = " ".join(f"--{name} {text}" for name, text in options.items())
        lines.append(f"to settle it, measure {both_builds}, in turns, with: gpubench sweep {flags}")
    if rerun_command:
        lines.append(f"or, where the kernels are the same as here: {rerun_command}")
    return lines


def covering_options(rows: Sequence[Row]) -> dict[str, str]:
    """Options of the smallest sweep that has all these points; it may have more."""
    options = {
        "op": _listed(row.op for row in rows),
        "sizes": _listed(row.size for row in rows),
        "tiles": _listed(row.tile for row in rows if row.tile),
        "variants": _listed(row.variant for row in rows),
        "dtypes": _listed(row.dtype for row in rows),
        "operands": _listed(row.operands for row in rows),
        "cache": _one_or_both(row.cache for row in rows),
        "scope": _one_or_both(row.scope for row in rows),
        "timer": "cupti" if any(row.timer == Timer.CUPTI for row in rows) else "",
        "device": _listed(row.backend for row in rows),
    }
    usual = {
        "op": "gemm",
        "dtypes": "float32",
        "operands": "uniform",
        "cache": "cold",
        "scope": "kernel",
    }
    return {name: text for name, text in options.items() if text and text != usual.get(name)}


def _listed(items: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(items))


def _one_or_both(items: Iterable[str]) -> str:
    listed = _listed(items)
    return "both" if "," in listed else listed


def change(ratio: float | None) -> str:
    """`+5.1 %` for 1.051."""
    return "" if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def interval(finding: Finding) -> str:
    """`+4.9 .. +5.3 %`."""
    if finding.ratio_low is None or finding.ratio_high is None:
        return ""
    return f"{100 * (finding.ratio_low - 1):+.1f} .. {change(finding.ratio_high)}"


def counted(count: int, noun: str) -> str:
    """`1 point`, `2 points`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
