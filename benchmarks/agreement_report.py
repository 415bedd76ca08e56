"""What the readings show: ratios, launch gaps, verdicts, and the report."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from agreement_timers import Case, Reading

TITLES = {
    "events_hot": "gpubench events, hot",
    "ncu_hot": "ncu, hot",
    "events_cold": "gpubench events, cold",
    "ncu_cold": "ncu, cold",
    "cupti_hot": "gpubench cupti, hot",
    "raw_cupti_hot": "raw CUPTI, hot",
    "cupyx": "cupyx benchmark",
    "do_bench": "triton do_bench",
    "event_pair": "event pair",
}

NEAR_US, FAR_US = 3.0, 14.0
"""From these times on the wide bound applies, and the narrow line."""

GAP_BOUND_US = 0.3
SHORT_US = 300.0
"""Below, a gap is larger than the noise of the two times that it is the difference of."""

MAX_NAMED = 4
"""Cases named beside a reason."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A case and its time by every timer."""

    case: Case
    us: dict[str, float]
    """Microseconds per call, by column; a blank line is missing."""

    kernels: int | None
    """Kernels in a call, where a profiler has counted them."""

    def ratio(self, above: str, below: str) -> float | None:
        """One time over another."""
        if above in self.us and below in self.us:
            return self.us[above] / self.us[below]
        return None

    @property
    def gap_us(self) -> float | None:
        """Time per call in a stream beyond its execution, from both timers on the same launches."""
        return self.us.get("paired_gap")

    @property
    def difference_us(self) -> float | None:
        """The same from two separate runs, between which the machine may have changed."""
        if "events_hot" in self.us and "cupti_hot" in self.us:
            return self.us["events_hot"] - self.us["cupti_hot"]
        return None

    @property
    def gap_per_kernel_us(self) -> float | None:
        """The same for each kernel of the call."""
        gap = self.gap_us
        return None if gap is None or not self.kernels else gap / self.kernels


Figure = Callable[[Line], float | None]

DERIVED: dict[str, tuple[str, Figure]] = {
    "events_over_ncu_hot": ("events ÷ ncu, hot", lambda line: line.ratio("events_hot", "ncu_hot")),
    "events_over_ncu_cold": ("… cold", lambda line: line.ratio("events_cold", "ncu_cold")),
    "cupti_over_raw": ("cupti ÷ raw CUPTI", lambda line: line.ratio("cupti_hot", "raw_cupti_hot")),
    "gap_us": ("gap, µs per call", lambda line: line.gap_us),
    "gap_per_kernel_us": ("… per kernel", lambda line: line.gap_per_kernel_us),
    "events_minus_cupti_us": ("events − cupti, µs", lambda line: line.difference_us),
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A claim, and the deviation of each case that it covers."""

    claim: str
    deviations: dict[Case, float]
    """Fractions, or microseconds."""

    limit: float
    fractions: bool

    @property
    def outcome(self) -> str:
        """`PASS`, `FAIL`, or `NOT JUDGED` without a case."""
        if not self.deviations:
            return "NOT JUDGED"
        return "FAIL" if self.outside else "PASS"

    @property
    def outside(self) -> int:
        """Cases beyond the limit."""
        return sum(not abs(deviation) <= self.limit for deviation in self.deviations.values())

    @property
    def finding(self) -> str:
        """The claim, and the worst case."""
        if not self.deviations:
            return f"{self.claim}: no point has both times"
        case, worst = max(self.deviations.items(), key=lambda item: abs(item[1]))
        shown = f"{worst:+.2%}" if self.fractions else f"{worst:+.2f} µs"
        count = len(self.deviations)
        return f"{self.claim}: {self.outside} of {count} points outside, worst {shown} ({case})"


def arrange(cases: Sequence[Case], readings: Sequence[Reading]) -> list[Line]:
    """A line for each case: the medians over all passes."""
    lines = []
    for case in cases:
        times: dict[str, list[float]] = {}
        kernels = None
        for reading in readings:
            if reading.case == case and reading.us is not None:
                times.setdefault(reading.column, []).append(reading.us)
                kernels = reading.kernels or kernels
        us = {column: median(values) for column, values in times.items()}
        lines.append(Line(case=case, us=us, kernels=kernels))
    return lines


def verdicts(lines: Sequence[Line]) -> list[Verdict]:
    """Every bound that gpubench promises to keep."""
    return [
        near_one(lines, "events_hot", "ncu_hot", 0.01, low=FAR_US),
        near_one(lines, "events_hot", "ncu_hot", 0.08, low=NEAR_US),
        near_one(lines, "events_cold", "ncu_cold", 0.10, low=FAR_US),
        near_one(lines, "cupti_hot", "raw_cupti_hot", 0.01),
        near_median(lines, "gap per kernel", lambda line: line.gap_per_kernel_us),
    ]


def near_one(
    lines: Iterable[Line], above: str, below: str, limit: float, low: float = 0.0
) -> Verdict:
    """The ratio of two times is 1 within `limit`, where the second is `low` or more."""
    deviations = {
        line.case: ratio - 1
        for line in lines
        if (ratio := line.ratio(above, below)) is not None and line.us[below] >= low
    }
    claim = f"{TITLES[above]}, within {limit:.0%} of {TITLES[below]}"
    if low:
        claim += f", where that is {low:g} µs or more"
    return Verdict(claim=claim, deviations=deviations, limit=limit, fractions=True)


def near_median(lines: Iterable[Line], name: str, figure: Figure) -> Verdict:
    """A figure in microseconds lies within the gap's bound of its median over all lines."""
    values = {line.case: value for line in lines if (value := figure(line)) is not None}
    middle = median(values.values()) if values else 0.0
    claim = f"{name} within ±{GAP_BOUND_US:g} µs of its median"
    return Verdict(
        claim=f"{claim}, {middle:.2f} µs" if values else claim,
        deviations={case: value - middle for case, value in values.items()},
        limit=GAP_BOUND_US,
        fractions=False,
    )


def gap_lines(lines: Sequence[Line]) -> list[str]:
    """The gap from two separate runs, at all points and where it exceeds their noise."""
    short = [line for line in lines if line.us.get("events_hot", SHORT_US) < SHORT_US]
    return [
        near_median(chosen, f"events − cupti, {where},", lambda line: line.difference_us).finding
        for where, chosen in (("all points", lines), (f"points under {SHORT_US:g} µs", short))
    ]


def page(
    lines: Sequence[Line],
    readings: Sequence[Reading],
    judged: Sequence[Verdict],
    facts: dict[str, str],
) -> str:
    """The whole report, in Markdown that reads well in a terminal."""
    times = [[*names(line), *(text(line.us.get(name)) for name in TITLES)] for line in lines]
    ratios = [
        [*names(line), str(line.kernels or ""), *(text(of(line), 3) for _, of in DERIVED.values())]
        for line in lines
    ]
    ratio_titles = ["kernels per call", *(title for title, _ in DERIVED.values())]
    return "\n".join(
        (
            "# Agreement of gpubench's times with the profilers'\n",
            *(f"- {name}: {fact}" for name, fact in facts.items()),
            "\n## Microseconds per call, float32\n",
            *table(["kernel", "N", *TITLES.values()], times),
            "\n## Ratios, and the launch gap (both timers on the same launches, hot)\n",
            *table(["kernel", "N", *ratio_titles], ratios),
            "\n## Verdicts\n",
            *(f"- {verdict.outcome}: {verdict.finding}" for verdict in judged),
            "\nThe same from two separate runs, not judged:\n",
            *(f"- {line}" for line in gap_lines(lines)),
            "\n## Blank fields\n",
            *(blanks(readings) or ["None."]),
            "",
        )
    )


def names(line: Line) -> list[str]:
    return [f"{line.case.variant} {line.case.tile}".strip(), str(line.case.size)]


def text(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def blanks(readings: Iterable[Reading]) -> list[str]:
    """Each reason once, with the column and cases it left blank."""
    cases: dict[tuple[str, str], list[str]] = {}
    for reading in readings:
        if reading.us is None:
            cases.setdefault((reading.column, reading.reason), []).append(str(reading.case))
    return [
        f"- {TITLES.get(column, column)}: {reason} (at {len(named)}: {', '.join(named[:MAX_NAMED])}"
        f"{', …' if len(named) > MAX_NAMED else ''})"
        for (column, reason), named in cases.items()
    ]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table with aligned columns: the first to the left, figures to the right."""
    grid = [list(head), *(list(row) for row in rows)]
    first, *widths = (max(map(len, column)) for column in zip(*grid, strict=True))
    grid.insert(1, ["-" * first, *("-" * (width - 1) + ":" for width in widths)])
    return [
        f"| {row[0]:<{first}} | "
        + " | ".join(f"{cell:>{width}}" for cell, width in zip(row[1:], widths, strict=True))
        + " |"
        for row in grid
    ]


def save(prefix: Path, shown: str, lines: Sequence[Line]) -> None:
    """PREFIX.md for people, PREFIX.csv with every digit."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    columns = (f"{name}_us" for name in TITLES)
    writer.writerow(["variant", "tile", "n", "kernels_per_call", *columns, *DERIVED])
    for line in lines:
        key = (line.case.variant, line.case.tile, line.case.size, line.kernels)
        derived = (of(line) for _, of in DERIVED.values())
        writer.writerow([*key, *(line.us.get(name) for name in TITLES), *derived])
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for suffix, content in ((".md", shown), (".csv", buffer.getvalue())):
        prefix.with_name(prefix.name + suffix).write_text(content, encoding="utf-8")
