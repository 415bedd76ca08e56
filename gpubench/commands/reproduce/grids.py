"""Published beside measured, as tables for the terminal and as markdown: one layout for both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from gpubench.commands.reproduce.experiments import DEVICE_FACTS
from gpubench.commands.reproduce.measure import Reproduction
from gpubench.commands.reproduce.published import Figure
from gpubench.commands.reproduce.side_by_side import Compared, Line
from gpubench.model import Device, Status
from gpubench.row import Row
from gpubench.view.tables import number, table

RATIO = "ratio: how many times as fast as published"

GAP = 2
"""Blanks between a terminal's columns."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table before it is terminal or markdown; the first column is text, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    below: tuple[str, ...] = ()
    """Lines under it: what its figures say."""

    @property
    def dense(self) -> Grid:
        """Without the columns, but for the first, that say nothing."""
        kept = [
            index
            for index in range(len(self.columns))
            if index == 0 or any(row[index] for row in self.rows)
        ]
        return Grid(
            title=self.title,
            columns=tuple(self.columns[index] for index in kept),
            rows=tuple(tuple(row[index] for index in kept) for row in self.rows),
            below=self.below,
        )


def grids(done: Reproduction, compared: Sequence[Compared], *, whole: bool) -> list[Grid]:
    """The series of an experiment, its devices then and now, its facts.

    Not `whole`: without what else was published about a figure, as a terminal is 80 wide.
    """
    found = [_series(one, whole=whole) for one in compared if one.series.published or one.measured]
    if done.experiment.devices:
        found.append(_devices(done))
    for facts in done.experiment.facts:
        rows = tuple(tuple(_fact(value) for value in row) for row in facts.rows)
        found.append(Grid(title=facts.title, columns=facts.columns, rows=rows))
    return [grid.dense for grid in found]


def _series(one: Compared, *, whole: bool) -> Grid:
    series = one.series
    facts = dict.fromkeys(name for cell in series.cells for name in cell.facts if whole)
    columns: list[tuple[str, Callable[[Line], str]]] = [
        (series.axis, lambda line: line.cell.label),
        *((name, _fact_of(name)) for name in facts),
        ("published", lambda line: _fact(line.cell.published)),
        ("measured", _main),
        ("ratio", lambda line: number_of_digits(line.ratio)),
        ("% of peak then", lambda line: number(line.published_percent_of_peak, 1)),
        ("% of peak now", _percent_now(series.figure)),
        *((column.name, _beside(place)) for place, column in enumerate(series.columns) if place),
        *((name.replace("_", " "), _explained(name)) for name in series.explain),
    ]
    return Grid(
        title=f"{series.name} ({series.figure.heading})",
        columns=tuple(name for name, _ in columns),
        rows=tuple(tuple(cell(line) for _, cell in columns) for line in one.lines),
        below=tuple(judgement.sentence for judgement in one.judgements),
    )


def _main(line: Line) -> str:
    """The measured figure, or how its point ended."""
    measured = line.figures[0]
    if measured.row and measured.row.status != Status.OK:
        return str(measured.row.status)
    return _beside(0)(line) if measured.value is not None else ""


def _beside(place: int) -> Callable[[Line], str]:
    def cell(line: Line) -> str:
        measured = line.figures[place]
        return figure(measured.figure, measured.value)

    return cell


def _percent_now(of: Figure) -> Callable[[Line], str]:
    def cell(line: Line) -> str:
        row = line.figures[0].row
        return number(row.percent_of_peak, 1) if row and of == Figure.GFLOPS else ""

    return cell


def _explained(name: str) -> Callable[[Line], str]:
    def cell(line: Line) -> str:
        row = line.figures[0].row
        return _ours(getattr(row, name)) if row else ""

    return cell


def _fact_of(name: str) -> Callable[[Line], str]:
    return lambda line: _fact(line.cell.facts.get(name))


def _devices(done: Reproduction) -> Grid:
    """Properties down, devices across; the GPU of today last."""
    published = done.experiment.devices
    today = [device for device in done.devices if device.backend == "cuda"]
    rows = [
        (
            heading,
            *(_fact(device.facts.get(name)) for device in published),
            *(_today(device, fact) for device in today),
        )
        for name, (heading, fact) in DEVICE_FACTS.items()
        if any(name in device.facts for device in published)
    ]
    names = (*(device.name for device in published), *(device.name for device in today))
    title = "Devices then and now" if today else "Devices then"
    return Grid(title=title, columns=("", *names), rows=tuple(rows))


def _today(device: Device, fact: Callable[[Device], object]) -> str:
    return _ours(fact(device) or None)


def failures(rows: Iterable[Row], compared: Sequence[Compared]) -> list[str]:
    """A line for each point that was wrong or failed, or was skipped and leaves a figure open.

    A tile that was skipped while another was the best leaves none.
    """
    open_figures = {
        figure.row.key
        for one in compared
        for line in one.lines
        for figure in line.figures
        if figure.row
    }
    return [
        f"{one.status}: {one.label}: {one.reason}"
        for one in rows
        if one.status in {Status.WRONG, Status.ERROR}
        or (one.status == Status.SKIPPED and one.key in open_figures)
    ]


def as_renderable(grid: Grid, available: int) -> RenderableType:
    """For a terminal of so many columns."""
    listing = table(*grid.columns, left=grid.columns[:1] if _numeric(grid) else None)
    listing.collapse_padding = True
    for column, width in zip(listing.columns, _widths(grid, available), strict=True):
        column.width = width
    for row in grid.rows:
        listing.add_row(*map(Text, row))  # not as markup: C[i] is no style
    return Group(
        Text(f"\n{grid.title}", style="bold"),
        listing,
        *(Text(line, style=_style(line)) for line in grid.below),
    )


def _widths(grid: Grid, available: int) -> list[int]:
    """Of the columns: what does not fit is broken between words, and no figure is cut."""
    texts = list(zip(grid.columns, *grid.rows, strict=True))
    widths = [max(map(len, column)) for column in texts]
    least = [max(map(len, " ".join(column).split()), default=0) for column in texts]
    slack = [width - low for width, low in zip(widths, least, strict=True)]
    while sum(widths) + GAP * (len(widths) - 1) > available and any(slack):
        widest = slack.index(max(slack))
        widths[widest] -= 1
        slack[widest] -= 1
    return widths


def as_markdown(grid: Grid) -> str:
    """A pipe table with its title and the lines below it."""
    right = "---:" if _numeric(grid) else "---"
    lines = [
        f"**{grid.title}**",
        "",
        _pipes(grid.columns),
        _pipes(("---", *(right for _ in grid.columns[1:]))),
        *(_pipes(row) for row in grid.rows),
    ]
    if grid.below:
        lines += ["", *(f"- {line}" for line in grid.below)]
    return "\n".join(lines)


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _numeric(grid: Grid) -> bool:
    """Whether the columns after the first are numbers, which stand to the right."""
    cells = [cell for row in grid.rows for cell in row[1:] if cell]
    return sum(cell[0].isdecimal() for cell in cells) * 2 >= len(cells)


def _style(line: str) -> str:
    return {"shape holds": "green", "shape differs": "yellow"}.get(line.partition(":")[0], "dim")


def figure(of: Figure, value: float | None) -> str:
    """Three digits of a speed-up, four of anything else; above that, all before the point."""
    return number_of_digits(value, 3 if of == Figure.SPEEDUP else 4)


def number_of_digits(value: float | None, digits: int = 3) -> str:
    """`0.2753`, `57.1`, `1,204`: so many significant digits, and every one before the point."""
    if value is None:
        return ""
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:#.{digits}g}".rstrip(".")


def _fact(value: object) -> str:
    """A published fact with every digit that was published."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _ours(value: object) -> str:
    """A fact of today, four digits of a fraction."""
    return f"{value:.4g}" if isinstance(value, float) else _fact(value)
