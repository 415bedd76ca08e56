"""Published beside measured: tables, the same for the terminal and in markdown, and the CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from gpubench.commands.reproduce.compare import Compared, Measured, Reproduction
from gpubench.commands.reproduce.experiment import DEVICE_FACTS
from gpubench.commands.reproduce.rules import Figure
from gpubench.hardware.peaks import peak_gflops
from gpubench.model import Device, Status
from gpubench.view.tables import UNSTABLE, UNSTABLE_LEGEND, number, pipe_table, table

_GAP = 2  # blanks between a terminal's columns

_OF_ROW = ("op", "variant", "tile", "dtype", "size", "scope", "status", "device")

CSV_COLUMNS = (
    *("experiment", "series", "label", "column", "figure", "published", "published_device"),
    *("measured", "measured_low", "measured_high", "unstable", "ratio"),
    *("published_percent_of_peak", "percent_of_peak", *_OF_ROW, "shape"),
)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table before it is terminal or markdown; the first column is text, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    below: tuple[str, ...] = ()  # lines under it: the verdicts

    @property
    def numeric(self) -> bool:
        """Whether the columns after the first are numbers, which stand to the right."""
        cells = [cell for row in self.rows for cell in row[1:] if cell]
        return sum(cell[0].isdecimal() for cell in cells) * 2 >= len(cells)

    def renderable(self, available: int) -> RenderableType:
        """For a terminal of so many columns."""
        grid = table(*self.columns, left=self.columns[:1] if self.numeric else None)
        for row in self.rows:
            grid.add_row(*row)
        listing = grid.rich()
        listing.collapse_padding = True
        for column, width in zip(listing.columns, self._widths(available), strict=True):
            column.width = width
        styles = {"shape holds": "green", "shape differs": "yellow"}
        return Group(
            Text(f"\n{self.title}", style="bold"),
            listing,
            *(Text(line, style=styles.get(line.partition(":")[0], "dim")) for line in self.below),
        )

    def _widths(self, available: int) -> list[int]:
        """Of the columns: what does not fit is broken between words, and no figure is cut."""
        texts = list(zip(self.columns, *self.rows, strict=True))
        widths = [max(map(len, column)) for column in texts]
        longest_words = [max(map(len, " ".join(column).split()), default=0) for column in texts]
        slack = [width - word for width, word in zip(widths, longest_words, strict=True)]
        while sum(widths) + _GAP * (len(widths) - 1) > available and any(slack):
            widest = slack.index(max(slack))
            widths[widest] -= 1
            slack[widest] -= 1
        return widths

    @property
    def markdown(self) -> str:
        """A pipe table with its title and the lines below it."""
        left = [True, *(not self.numeric for _ in self.columns[1:])]
        below = ["", *(f"- {line}" for line in self.below)] if self.below else []
        lines = pipe_table([self.columns, *self.rows], left)
        return "\n".join([f"**{self.title}**", "", *lines, *below])


def grids(ran: Reproduction, *, whole: bool) -> list[Grid]:
    """The series of an experiment, its devices then and now, its facts.

    Not `whole`: without what else was published about a figure, as a terminal is 80 wide.
    """
    found = [
        _series(compared, whole=whole)
        for compared in ran.compared
        if compared.series.published
        or any(line.figures[0].value is not None for line in compared.lines)
    ]
    facts = [
        _dense(facts.title, facts.columns, [tuple(map(_fact, row)) for row in facts.rows])
        for facts in ran.experiment.file.facts
    ]
    return [*found, *([_devices(ran)] if ran.experiment.devices else []), *facts]


def _dense(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[str] = ()
) -> Grid:
    """A grid without the columns, but for the first, that say nothing."""
    kept = [i for i in range(len(columns)) if i == 0 or any(row[i] for row in rows)]
    return Grid(
        title=title,
        columns=tuple(columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in rows),
        below=tuple(below),
    )


def _series(compared: Compared, *, whole: bool) -> Grid:
    series = compared.series
    facts = dict.fromkeys(name for cell in series.cells for name in cell.facts if whole)
    columns = (
        *(series.axis, *facts, "published", "measured", "ratio"),
        *("% of peak then", "% of peak now", *(column.name for column in series.beside)),
        *(name.replace("_", " ") for name in series.explain),
    )
    is_rate = series.figure == Figure.GFLOPS
    rows = []
    for line in compared.lines:
        measured, *beside = line.figures
        row = measured.row
        cells = [line.cell.label, *(_fact(line.cell.facts.get(name)) for name in facts)]
        failed = str(row.status) if row and row.status != Status.OK else ""
        cells += [_fact(line.cell.published), failed or _figure(measured), digits(line.ratio)]
        cells += [number(line.published_percent_of_peak, 1)]
        cells += [number(measured.percent_of_peak, 1) if is_rate else ""]
        cells += map(_figure, beside)
        cells += [_fact_now(getattr(row, name)) if row else "" for name in series.explain]
        rows.append(cells)
    verdicts = [judgement.sentence for judgement in compared.judgements]
    if any(figure.unstable for line in compared.lines for figure in line.figures):
        verdicts.append(f"{UNSTABLE_LEGEND}; the interval is shown")
    return _dense(f"{series.name} ({series.figure.heading})", columns, rows, verdicts)


def _devices(ran: Reproduction) -> Grid:
    """Properties down, devices across; the GPU of today last."""
    published = ran.experiment.devices
    today = [device for device in ran.devices if device.compute_capability]
    rows = [
        (
            heading,
            *(_fact(facts.get(name)) for facts in published.values()),
            *(_fact_now(_of_device(name, device) or None) for device in today),
        )
        for name, heading in DEVICE_FACTS.items()
        if any(name in facts for facts in published.values())
    ]
    title = "Devices then and now" if today else "Devices then"
    return _dense(title, ("", *published, *(device.name for device in today)), rows)


def _of_device(name: str, device: Device) -> object:
    """A fact of `DEVICE_FACTS` about a device of today."""
    if name.startswith("peak_"):
        return (peak_gflops(device, name.split("_")[1]) or 0) / 1e3
    facts = device.facts | {
        "compute_capability": ".".join(map(str, device.compute_capability or ())),
        "multiprocessors": device.multiprocessors,
        "l2_bytes": device.l2_bytes,
        "global_memory_mib": device.facts.get("global_memory_bytes", 0) // 2**20,
    }
    return facts.get(name)


def _figure(measured: Measured) -> str:
    """Three digits of a speed-up, four of anything else; of disagreeing rounds the interval."""
    count = 3 if measured.figure == Figure.SPEEDUP else 4
    if measured.unstable and measured.value is not None:
        return f"{' to '.join(digits(end, count) for end in measured.interval)} {UNSTABLE}"
    return digits(measured.value, count)


def digits(value: float | None, count: int = 3) -> str:
    """`0.2753`, `57.1`, `1,204`: so many significant digits, and every one before the point."""
    if value is None:
        return ""
    if abs(value) >= 10 ** (count - 1):
        return f"{value:,.0f}"
    return f"{value:#.{count}g}".rstrip(".")


def _fact(value: object) -> str:
    """A published fact with every digit that was published."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _fact_now(value: object) -> str:
    """A fact of today, four digits of a fraction."""
    return f"{value:.4g}" if isinstance(value, float) else _fact(value)


def opening(ran: Reproduction) -> list[str]:
    """Where it was published, what ran it now, what needs a GPU, what it is."""
    file = ran.experiment.file
    now = ", ".join(dict.fromkeys(device.name for device in ran.devices)) or "nothing ran"
    lines = [
        f"published: {file.source}",
        f"measured: {now}; ratio: how many times as fast as published",
    ]
    left_out = dict.fromkeys(
        variant
        for sweep, _ in ran.experiment.sweeps
        if sweep.device == "cuda"
        for variant in sweep.variants or ("every variant",)
    )
    if ran.no_gpu and left_out:
        lines.append(f"left out, as it needs an NVIDIA GPU: {', '.join(left_out)} ({ran.no_gpu})")
    return lines + ([" ".join(file.about.split())] if file.about else [])


def closing(ran: Reproduction) -> list[str]:
    """A line for each point that failed, or was skipped and leaves a figure open; the notes.

    A tile that was skipped while another was the best leaves none.
    """
    lines = [line for compared in ran.compared for line in compared.lines]
    shown = {figure.row.key for line in lines for figure in line.figures if figure.row}
    failures = [
        f"{row.status}: {row.label}: {row.reason}"
        for row in ran.rows
        if row.status in {Status.WRONG, Status.ERROR}
        or (row.status == Status.SKIPPED and row.key in shown)
    ]
    return [*failures, *ran.experiment.file.notes]


def summary(ran: Reproduction) -> str:
    """A line: how many rules of the shape hold."""
    verdicts = [judgement.holds for compared in ran.compared for judgement in compared.judgements]
    words = {True: "hold", False: "differ", None: "not judged"}
    counts = [(verdicts.count(verdict), word) for verdict, word in words.items()]
    parts = ", ".join(f"{count} {word}" for count, word in counts if count)
    failed = ", some points failed" if ran.failed else ""
    shapes = f"rules of the shape: {parts}" if parts else "no shape was published"
    return f"{ran.experiment.name}: {shapes}{failed}"


def markdown(done: Sequence[Reproduction]) -> str:
    """Every experiment: what it is, its tables, whether its shape holds."""
    parts = ["# Published experiments, run again"]
    for ran in done:
        parts += [f"## {ran.experiment.name}: {ran.experiment.file.title}", *opening(ran)]
        parts += [grid.markdown for grid in grids(ran, whole=True)]
        parts += closing(ran)
    return "\n\n".join(parts) + "\n"


def csv_lines(done: Sequence[Reproduction]) -> Iterator[dict[str, object]]:
    """One line for each measured column of each label of each series, by `CSV_COLUMNS`."""
    for ran in done:
        for compared in ran.compared:
            series = compared.series
            for line in compared.lines:
                published = {
                    "published": line.cell.published,
                    "published_device": series.device_of(line.cell),
                    "ratio": line.ratio,
                    "published_percent_of_peak": line.published_percent_of_peak,
                    "shape": "; ".join(judgement.sentence for judgement in compared.judgements),
                }
                for column, measured in zip(series.columns, line.figures, strict=True):
                    row = measured.row
                    yield {
                        "experiment": ran.experiment.name,
                        "series": series.name,
                        "label": line.cell.label,
                        "column": column.name,
                        "figure": measured.figure,
                        "measured": measured.value,
                        "measured_low": measured.interval[0],
                        "measured_high": measured.interval[1],
                        "unstable": measured.unstable,
                        **({name: getattr(row, name) for name in _OF_ROW} if row else {}),
                        "percent_of_peak": measured.percent_of_peak,
                        **published,
                    }
                    published = {}  # they stand in the line of the first column
