"""A comparison in the terminal: the verdict, what got slower, the rest in short."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.text import Text

from gpubench.commands.diff.compare import ABSENT
from gpubench.commands.diff.input import Key
from gpubench.commands.diff.report import Report, change, counted, interval
from gpubench.commands.diff.verdicts import Finding, Verdict
from gpubench.view.tables import PIPED_WIDTH, milliseconds, table

SHORT = 8
"""Points named in the short lists; the others are counted."""

IN_SHORT = (
    Verdict.MISSING,
    Verdict.AMBIGUOUS,
    Verdict.CLOCK,
    Verdict.FASTER,
    Verdict.NEW,
)


def text(report: Report) -> RenderableType:
    """The whole view."""
    counts = report.comparison.counts
    style = "bold red" if report.exit_code else "bold green"
    parts: list[RenderableType] = [
        Text(report.headline, style=style),
        Text(f"{report.base} → {report.new}, {report.machine}"),
    ]
    parts += [Text(f"! {note}", style="yellow") for note in report.notes]
    if broken := report.comparison.of(Verdict.BROKEN):
        parts.append(Text(""))
        parts += [
            Text(f"broken: {report.label(key)}: {one.reason}", style="red")
            for key, one in broken.items()
        ]
    if slower := report.comparison.of(Verdict.SLOWER):
        parts += [Text(""), _slower_table(report, list(slower.items()))]
    parts.append(Text(""))
    parts += [
        _in_short(report, verdict, report.comparison.of(verdict))
        for verdict in IN_SHORT
        if counts[verdict]
    ]
    if counts[Verdict.SAME]:
        same = counted(counts[Verdict.SAME], "point")
        parts.append(Text(f"same: {same} within {report.limits}"))
    if report.comparison.untimed:
        parts.append(Text(f"no time on either side: {len(report.comparison.untimed)}"))
    parts += [Text(f"\n{line}") for line in report.advice]
    return Group(*parts)


def plain_text(report: Report) -> str:
    """The view as a file holds it."""
    page = StringIO()
    Console(file=page, width=PIPED_WIDTH, highlight=False, color_system=None).print(text(report))
    return page.getvalue()


def _slower_table(report: Report, slower: Sequence[tuple[Key, Finding]]) -> RenderableType:
    # Of two files there is an interval, of an expected figure what was expected.
    last = "interval, %" if any(one.ratio_low for _, one in slower) else "because"
    grid = table("slower", "base, ms", "new, ms", "change", last, left={"slower", "because"})
    for key, one in slower:
        grid.add_row(
            report.label(key),
            milliseconds(one.base_us),
            milliseconds(one.new_us),
            change(one.ratio),
            interval(one).removesuffix(" %") or one.reason,
        )
    return grid


def _in_short(report: Report, verdict: Verdict, findings: dict[Key, Finding]) -> Text:
    named = [f"{report.label(key)}{_figure(one)}" for key, one in list(findings.items())[:SHORT]]
    more = [f"{len(findings) - SHORT} more"] if len(findings) > SHORT else []
    return Text(f"{verdict} ({len(findings)}): {'; '.join(named + more)}")


def _figure(one: Finding) -> str:
    """What a short list says of a point: its change, or why there is none."""
    if one.ratio is None:
        return f" ({one.reason})" if one.reason not in {"", ABSENT} else ""
    if one.verdict == Verdict.CLOCK:
        return f" {change(one.ratio)}, in cycles {change(one.cycles_ratio)}"
    if one.verdict == Verdict.AMBIGUOUS:
        why = f", {one.reason}" if one.reason else ""
        return f" {change(one.ratio)} ({interval(one)}{why})"
    return f" {change(one.ratio)}"
