"""The report on a comparison, and its formats: text, Markdown, JSON and JUnit's XML."""

from __future__ import annotations

import json
import math
import shlex
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from io import StringIO
from itertools import islice
from xml.etree import ElementTree as ET

from rich.console import Console, Group, RenderableType
from rich.text import Text

import gpubench
from gpubench.commands.diff.compare import (
    ABSENT,
    DECIDING_ROUNDS,
    TOO_FEW_SWEEPS,
    Comparison,
    Disturbance,
    Finding,
    Key,
    Verdict,
)
from gpubench.commands.diff.options import Format
from gpubench.commands.diff.sides import Side, gpus_of, is_blas
from gpubench.commands.diff.texts import (
    COMMAND_LIMIT,
    code_text,
    junit_text,
    markdown_page,
    markdown_text,
    shortened,
    xml_text,
)
from gpubench.model import Timer, layouts_of
from gpubench.results.row import KEY, Row
from gpubench.view.numbers import counted, milliseconds
from gpubench.view.tables import Table, console, table

SLOWER, STRICT, BROKEN = 1, 3, 4
"""Exit codes. 0 means no confirmed regression, and 2 means sides that cannot be compared."""

LABELLED = {"variant", "tile", "backend", "m", "n", "k"}
"""Columns of the key that every label has, or that no label needs."""

MAX_TABLE_ROWS = 1000
"""Maximum number of slower points that the text shows; the other formats have all."""

MIN_SHARED = 3
"""Minimum number of points for a statement about most points."""

DEFAULTS = {
    "op": "gemm",
    "dtypes": "float32",
    "operands": "uniform",
    "cache": "cold",
    "scope": "kernel",
}
"""Options of a sweep that need not be written."""

SWEEPS = 5
"""Recommended number of sweeps per side on a CPU."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A comparison with the texts that its formats share."""

    comparison: Comparison
    rows: Mapping[Key, Row]
    """A row of each point, of the new side if the point has one there."""

    base: str
    new: str
    machine: str
    limits: str
    """Largest difference of points that count as the same, in words."""

    strict: bool
    notes: tuple[str, ...]
    advice: tuple[str, ...] = ()
    full: bool = False
    """Whether the text lists every point that is not slower."""

    @property
    def exit_code(self) -> int:
        """The code of the worst verdict: broken, slower, then not settled."""
        verdicts = self.comparison.counts.keys()
        if Verdict.BROKEN in verdicts:
            return BROKEN
        if Verdict.SLOWER in verdicts:
            return SLOWER
        unsettled = verdicts & {Verdict.AMBIGUOUS, Verdict.MISSING} or self.comparison.drifted
        return STRICT if self.strict and unsettled else 0

    @property
    def colour(self) -> str:
        """The colour of the headline."""
        return "red" if self.exit_code else "yellow" if self._not_judged else "green"

    @property
    def headline(self) -> str:
        """The verdict in a line, with the shift of the machine if it matters."""
        shift = (
            f"machine-wide shift of {_change(self.comparison.drift)}: " * self.comparison.drifted
        )
        return f"{shift}{self._verdicts}"

    @property
    def _verdicts(self) -> str:
        comparison = self.comparison
        counts = comparison.counts
        points = f"of {counted(sum(counts.values()), 'point')}"
        if counts[Verdict.BROKEN]:
            slower = f"; {counts[Verdict.SLOWER]} slower" if counts[Verdict.SLOWER] else ""
            return f"broken: {counts[Verdict.BROKEN]} {points} wrong or lost{slower}"
        if counts[Verdict.SLOWER]:
            worst, finding = next(iter(comparison.of(Verdict.SLOWER).items()))
            return (
                f"slower: {counts[Verdict.SLOWER]} {points}, by up to "
                f"{_change(finding.judged_ratio).lstrip('+')} ({self.label(worst)})"
            )
        order = ("same", "faster", "ambiguous", "clock", "missing", "new")
        counted_verdicts = ", ".join(
            f"{counts[name]} {name}" for name in map(Verdict, order) if counts[name]
        )
        kind = "not settled" if self.exit_code == STRICT else "no confirmed regression"
        if self._not_judged:
            return f"not judged: {self._not_judged}; {points} {counted_verdicts}"
        return f"{kind}: {points} {counted_verdicts}"

    @property
    def _not_judged(self) -> str:
        """Why no point could be judged, and what to measure; empty if any point was judged."""
        comparison = self.comparison
        reasons = {finding.reason for finding in comparison.untested.values()}
        if not reasons or any(f.p is not None for f in comparison.two_sided.values()):
            return ""
        if TOO_FEW_SWEEPS in reasons:
            return f"one sweep a side on a CPU, measure {SWEEPS}"
        return "one round a side, measure with more --rounds"

    def label(self, key: Key) -> str:
        """Name the point, with the columns of its key that vary."""
        row = self.rows[key]
        mode = "" if row.compute_mode == row.dtype else row.compute_mode
        columns = (mode if name == "compute_mode" else getattr(row, name) for name in self._varying)
        return " ".join(filter(None, (row.variant, row.tile, "at", row.size, *columns)))

    @cached_property
    def _varying(self) -> list[str]:
        columns = {name: {getattr(row, name) for row in self.rows.values()} for name in KEY}
        return [name for name in KEY if name not in LABELLED and len(columns[name]) > 1]


def make_report(
    comparison: Comparison,
    base: Side,
    new: Side,
    *,
    strict: bool,
    rerun_command: str = "",
    notes: Iterable[str] = (),
) -> Report:
    """Return the report; `rerun_command` is the command that measures ambiguous points again."""
    rows = {row.key: row for row in (*base.rows, *new.rows)}
    dtypes = dict.fromkeys(row.dtype for row in rows.values())
    return Report(
        comparison=comparison,
        rows=rows,
        base=base.name,
        new=new.name,
        machine=", ".join(filter(None, (new.rows[0].device, *dtypes))),
        limits=f"±{100 * comparison.limits.threshold:g} %",
        strict=strict,
        notes=(*_notes(comparison, rows, base, new), *notes),
        advice=tuple(_advice(comparison, rows, rerun_command)),
    )


def _notes(comparison: Comparison, rows: Mapping[Key, Row], base: Side, new: Side) -> Iterator[str]:
    limits = comparison.limits
    two_sided = comparison.two_sided
    if disturbed := [_disturbance(item, base, new) for item in comparison.disturbances]:
        yield (
            f"disturbed: {shortened(disturbed, '; ')}. What a round did to all points is removed "
            "before points are judged"
        )
    if untested := comparison.untested:
        on_cpu = any(finding.reason == TOO_FEW_SWEEPS for finding in untested.values())
        yield (
            f"{counted(len(untested), 'point')} cannot be judged: "
            + (
                "on a CPU all rounds of a sweep shift together, so one sweep per side shows no "
                f"change of the build. Compare {SWEEPS} per side, taken in turns: --base b*.csv "
                "--new n*.csv"
                if on_cpu
                else "one round per side does not show how well a time repeats"
            )
        )
    if modes := [rows[key].label for key, finding in two_sided.items() if finding.modes > 1]:
        yield (
            f"the rounds of {shortened(modes, ', ')} have more than one mode. Such a point is "
            f"judged once both sides together have {DECIDING_ROUNDS} rounds: --rerun"
        )
    if comparison.drifted:
        yield (
            f"most points and the BLAS moved together by {_change(comparison.drift)}: the machine "
            "changed, not the build. Points are judged by what they moved beyond that"
        )
    elif len(two_sided) >= MIN_SHARED and not any(is_blas(rows[key]) for key in two_sided):
        shared = statistics.median(finding.ratio or 1.0 for finding in two_sided.values())
        if abs(math.log(shared)) > math.log1p(limits.threshold):
            yield (
                f"most points moved together by {_change(shared)}. Without a row of a BLAS, the "
                "cause may be the machine or the build: also sweep cublas (or cpu_blas)"
            )
    gpus = [gpus_of(row for row in side.rows if row.median_us) for side in (base, new)]
    if limits.between_gpus and all(gpus) and gpus[0] != gpus[1]:
        yield (
            "the sides ran on different GPUs of one kind, which differ by up to "
            f"{100 * limits.between_gpus:g} % at some points: only larger changes count. "
            "Measure both sides on one GPU, or compare without this allowance: --ignore-device"
        )
    for column in ("gpubench", "library", "cupy"):
        values = [{getattr(row, column) for row in side.rows} - {None} for side in (base, new)]
        if all(values) and values[0] != values[1]:
            before, after = (", ".join(sorted(names)) for names in values)
            yield f"{column}: {before} on the base side, {after} on the new one"


def _disturbance(disturbance: Disturbance, base: Side, new: Side) -> str:
    """Return `round 3 of new.csv (new side), +30.1 %`."""
    path = list((base if disturbance.side == "base" else new).files)[disturbance.file]
    where = f"round {disturbance.round} of {path.name}" if disturbance.round else path.name
    left_out = ", unequally, so it is left out" if disturbance.left_out else ""
    return f"{where} ({disturbance.side} side), {_change(disturbance.ratio)}{left_out}"


def _advice(comparison: Comparison, rows: Mapping[Key, Row], rerun_command: str) -> list[str]:
    """Return the commands that would settle the ambiguous points."""
    open_points = comparison.of(Verdict.AMBIGUOUS)
    if not open_points:
        return []
    # On a CPU these are sweeps.
    rounds = min(min(finding.base_rounds, finding.new_rounds) for finding in open_points.values())
    more_rounds = str(max(DECIDING_ROUNDS // 2, 2 * rounds))
    lines = []
    for op in dict.fromkeys(key.op for key in open_points):  # a sweep has one operation
        chosen = [rows[key] for key in open_points if key.op == op]
        blas = [row for row in rows.values() if row.op == op and is_blas(row)]
        variants = _listed(row.variant for row in (*chosen, *blas))
        options = covering_options(chosen) | {"variants": variants, "pairs": more_rounds}
        words = ["gpubench", "ab", "BASE", "NEW"]
        for name, text in options.items():
            words += [f"--{name}", text]
        command = shlex.join(words)  # names come from files
        lines.append(f"to settle it, measure both builds in turns: {command}")
    if rerun_command:
        lines.append(f"or, where the kernels are the same as here: {rerun_command}")
    return lines


def covering_options(rows: Sequence[Row]) -> dict[str, str]:
    """Return the options of the smallest sweep that has all these points; it may have more."""
    options = {
        "op": _listed(row.op for row in rows),
        "sizes": _listed(row.size for row in rows),
        "tiles": _listed(row.tile for row in rows if row.tile),
        "variants": _listed(row.variant for row in rows),
        "dtypes": _listed(row.dtype for row in rows),
        "operands": _listed(row.operands for row in rows),
        "layouts": _listed(layouts_of(row.layout for row in rows if row.op == "gemm")),
        "cache": _listed(row.cache for row in rows),
        "scope": _listed(row.scope for row in rows),
        "timer": "cupti" if any(row.timer == Timer.CUPTI for row in rows) else "",
        "device": _listed(row.backend for row in rows),
    }
    options |= {name: "both" for name in ("cache", "scope") if "," in options[name]}
    return {name: text for name, text in options.items() if text and text != DEFAULTS.get(name)}


def _listed(items: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(items))


def _change(ratio: float | None) -> str:
    """Return `+5.1 %` for 1.051."""
    return "" if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def _interval(finding: Finding) -> str:
    """Return `+4.9 .. +5.3 %`."""
    low = _change(finding.ratio_low).removesuffix(" %")
    return f"{low} .. {_change(finding.ratio_high)}" if low else ""


def _figures(finding: Finding) -> tuple[str, str, str, str]:
    """Return the milliseconds of both sides, the change and its interval."""
    before, after = milliseconds(finding.base_median_us), milliseconds(finding.new_median_us)
    return before, after, _change(finding.ratio), _interval(finding)


def _table(report: Report, findings: Mapping[Key, Finding], point: str) -> Table:
    """Return a line per point; `point` is the heading of their names."""
    grid = table(point, "base, ms", "new, ms", "change", "interval, %", "", left={point, ""})
    for key, finding in findings.items():
        is_clock = finding.verdict == Verdict.CLOCK
        remark = f"in cycles {_change(finding.cycles_ratio)}" if is_clock else finding.reason
        *figures, interval = _figures(finding)
        grid.add_row(report.label(key), *figures, interval.removesuffix(" %"), remark)
    return grid


# ---- text


def text(report: Report) -> RenderableType:
    """Return the text: the headline, the slower points, and short lists of the others."""
    comparison = report.comparison
    parts: list[RenderableType] = [
        Text(report.headline, style=f"bold {report.colour}"),
        Text(f"{report.base} → {report.new}, {report.machine}"),
        *(Text(f"! {note}", style="yellow") for note in report.notes),
    ]
    if broken := comparison.of(Verdict.BROKEN):
        reasons = (f"{report.label(key)}: {lost.reason}" for key, lost in broken.items())
        parts += [Text(""), *(Text(f"broken: {reason}", style="red") for reason in reasons)]
    if slower := comparison.of(Verdict.SLOWER):
        listed = dict(islice(slower.items(), MAX_TABLE_ROWS))
        parts += [Text(""), _table(report, listed, "slower")]
        if len(slower) > MAX_TABLE_ROWS:
            parts.append(Text(f"and {len(slower) - MAX_TABLE_ROWS} more"))
    parts.append(Text(""))
    for verdict in ("missing", "ambiguous", "clock", "faster", "new"):
        if findings := comparison.of(Verdict(verdict)):
            names = [
                f"{report.label(key)}{_in_short(finding)}" for key, finding in findings.items()
            ]
            line = "; ".join(names) if report.full else shortened(names, "; ")
            parts.append(Text(f"{verdict} ({len(findings)}): {line}"))
    if same := comparison.counts[Verdict.SAME]:
        parts.append(Text(f"same: {counted(same, 'point')} within {report.limits}"))
    if comparison.untimed:
        parts.append(Text(f"no time on either side: {len(comparison.untimed)}"))
    return Group(*parts)


def print_text(report: Report, screen: Console) -> None:
    """Print the report. Commands are not wrapped, so that they can be copied."""
    screen.print(text(report))
    for line in report.advice:
        screen.print(Text(f"\n{line}"), soft_wrap=True)


def _plain_text(report: Report) -> str:
    page = StringIO()
    print_text(report, console(page))
    return page.getvalue()


def _in_short(finding: Finding) -> str:
    """Return a point's change for a short list, or the reason why there is none."""
    if finding.ratio is None:
        return "" if finding.reason in {"", ABSENT} else f" ({finding.reason})"
    if finding.verdict == Verdict.CLOCK:
        return f" {_change(finding.ratio)}, in cycles {_change(finding.cycles_ratio)}"
    if finding.verdict == Verdict.AMBIGUOUS:
        because = ", ".join(filter(None, (_interval(finding), finding.reason)))
        return f" {_change(finding.ratio)} ({because})"
    return f" {_change(finding.ratio)}"


# ---- markdown


def _markdown(report: Report) -> str:
    """Return a pull-request comment: the regressions, and the rest in sections to unfold."""
    sides = f"`{code_text(report.base)}` → `{code_text(report.new)}`"
    same = counted(report.comparison.counts[Verdict.SAME], "point")
    advice = []
    for line in report.advice:
        words, _, command = line.partition(": ")
        command = " ".join(command.split()).replace("```", "")[:COMMAND_LIMIT]
        advice.append(f"{markdown_text(words)}:\n\n```sh\n{command}\n```")
    tables = {
        str(verdict): _table(report, findings, "point")
        for verdict in Verdict
        if verdict != Verdict.SAME and (findings := report.comparison.of(verdict))
    }
    return markdown_page(
        report.headline,
        f"{sides}, {markdown_text(report.machine)}",
        report.notes,
        tables,
        {Verdict.BROKEN, Verdict.SLOWER},
        [f"{same} the same within {report.limits}.", *advice],
    )


# ---- JSON

JSON_FORMAT = 1
"""Version of the format. It increases when a field is removed or changes its meaning."""


def _json(report: Report) -> str:
    """Return all results, as docs/diff.md describes them."""
    comparison = report.comparison
    return json.dumps(
        {
            "format": JSON_FORMAT,
            "gpubench": gpubench.__version__,
            "headline": report.headline,
            "exit_code": report.exit_code,
            "strict": report.strict,
            "base": report.base,
            "new": report.new,
            "limits": asdict(comparison.limits),
            "counts": {str(verdict): comparison.counts[verdict] for verdict in Verdict},
            "drift": comparison.drift,
            "drifted": comparison.drifted,
            "untested": len(comparison.untested),
            "disturbances": [asdict(item) for item in comparison.disturbances],
            "notes": list(report.notes),
            "advice": list(report.advice),
            "points": [
                key._asdict() | asdict(finding) for key, finding in comparison.findings.items()
            ],
            "untimed": [
                key._asdict() | {"reason": reason} for key, reason in comparison.untimed.items()
            ],
        },
        indent=2,
        ensure_ascii=False,
        allow_nan=False,
    )


# ---- JUnit


def _junit(report: Report) -> str:
    findings = report.comparison.findings.items()
    cases = [_case(report, key, finding) for key, finding in findings]
    return junit_text(cases)


def _case(report: Report, key: Key, finding: Finding) -> ET.Element:
    row = report.rows[key]
    case = ET.Element(
        "testcase",
        classname=xml_text(f"gpubench.{row.op}.{row.variant}"),
        name=xml_text(report.label(key)),
        time=f"{(finding.new_median_us or 0.0) / 1e6:.9f}",
    )
    outcomes = {"broken": "error", "slower": "failure"}
    outcomes |= dict.fromkeys(("ambiguous", "missing"), "failure" if report.strict else "skipped")
    if outcome := outcomes.get(finding.verdict):
        element = ET.SubElement(case, outcome, message=xml_text(_message(finding)))
        if outcome != "skipped":
            element.set("type", str(finding.verdict))
    return case


def _message(finding: Finding) -> str:
    before, after, change, interval = _figures(finding)
    figures = f"{before} ms → {after} ms: {change} ({interval})" if change else ""
    return ", ".join(filter(None, (str(finding.verdict), figures, finding.reason)))


FORMATS: dict[Format, Callable[[Report], str]] = {
    Format.TEXT: _plain_text,
    Format.MARKDOWN: _markdown,
    Format.JSON: _json,
    Format.JUNIT: _junit,
}
