"""Makes tables of published and measured figures, for the terminal and for Markdown."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from gpubench.commands.reproduce.compare import OTHER_DEVICE, Entry, Reproduction
from gpubench.commands.reproduce.experiment import Series
from gpubench.commands.reproduce.rules import Figure
from gpubench.hardware.peaks import peak_gflops
from gpubench.model import Device, Status
from gpubench.view import tables
from gpubench.view.numbers import number, rate, with_unit
from gpubench.view.row_tables import DISAGREE, UNSTABLE

_LEGEND = f"{UNSTABLE} {DISAGREE}: only the interval supports a claim"


class Grid(NamedTuple):
    """A table with a title above it, and the verdicts as lines below it."""

    title: str
    table: tables.Table
    below: Sequence[str] = ()

    @property
    def parts(self) -> list[RenderableType]:
        """The title, the table and the lines, for a terminal or for `tables.markdown`."""
        styles = {"shape holds": "green", "shape differs": "yellow"}
        below = (Text(line, styles.get(line.partition(":")[0], "dim")) for line in self.below)
        return [Text(f"\n{self.title}", style="bold"), self.table, *below]


def _filled(
    title: str, lines: Sequence[Sequence[tuple[str, str]]], below: Sequence[str] = ()
) -> Grid:
    """Return a grid of cells with their headings, without empty columns.

    The first column is never left out, and is text. The other columns are text if most of their
    cells do not start with a digit.
    """
    kept = [i for i, _ in enumerate(lines[0]) if i == 0 or any(line[i][1] for line in lines)]
    cells = [line[i][1] for line in lines for i in kept[1:] if line[i][1]]
    is_numeric = sum(cell[0].isdecimal() for cell in cells) * 2 >= len(cells)
    headings = [lines[0][i][0] for i in kept]
    grid = tables.table(*headings, left=headings[:1] if is_numeric else None)
    for line in lines:
        grid.add_row(*(line[i][1] for i in kept))
    return Grid(title, grid, below)


def grids(done: Reproduction, *, whole: bool) -> list[Grid]:
    """Return the tables of the series, then a table of the devices, then the tables of facts.

    A terminal is narrow, so facts about single figures are shown only if `whole` is true. If there
    is no GPU, the series of a GPU and the devices are also shown only if `whole` is true.
    """
    file, shows_published = done.experiment.file, whole or not done.no_gpu
    shown = [
        _series(done, series, whole=whole)
        for series in file.series
        if (series.published and shows_published)
        or any(first.measured is not None for first, *_ in done.entries[series.name])
    ]
    if shows_published and any(len(facts) > 1 for facts in file.devices.values()):
        shown.append(_devices(done))
    for facts in file.facts:
        lines = [[*zip(facts.columns, map(_text, row), strict=True)] for row in facts.rows]
        shown.append(_filled(facts.title, lines))
    return shown


def _series(done: Reproduction, series: Series, *, whole: bool) -> Grid:
    labels = done.entries[series.name]
    facts = dict.fromkeys(name for cell in series.cells for name in cell.facts if whole)
    has_claims = not {first.claim for first, *_ in labels} <= {OTHER_DEVICE, ""}
    lines = []
    for first, *beside in labels:
        row, now = first.row, first.percent_of_peak
        failed = str(row.status) if row and row.status != Status.OK else ""
        lines.append(
            [
                (series.axis, first.cell.label),
                *((name, _text(first.cell.facts.get(name))) for name in facts),
                ("published", _text(first.published)),
                ("measured", failed or _figure(first)),
                ("95 % interval", _interval(first) if has_claims and first.ratio else ""),
                ("ratio", rate(first.ratio)),
                ("claim", first.claim if has_claims else ""),
                ("% of peak then", number(first.published_percent_of_peak, 1)),
                ("% of peak now", number(now, 1) if series.figure == Figure.GFLOPS else ""),
                *((entry.column, _figure(entry)) for entry in beside),
                *((x.replace("_", " "), _short(getattr(row, x, None))) for x in series.explain),
            ]
        )
    verdicts = [judgement.sentence for judgement in done.judgements[series.name]]
    if any(entry.unstable for entries in labels for entry in entries):
        verdicts.append(_LEGEND)
    return _filled(f"{series.name} ({series.figure.heading})", lines, verdicts)


def _devices(done: Reproduction) -> Grid:
    """Return a table of devices with a line per fact. The GPU of this run is the last column."""
    published = done.experiment.file.devices
    now = [device for device in done.devices if device.compute_capability]
    names = dict.fromkeys(name for facts in published.values() for name in facts if name != "name")
    lines = [
        [
            ("", with_unit(name).replace("l2", "L2 cache")),
            *((device, _text(facts.get(name))) for device, facts in published.items()),
            *((device.name, _short(_fact_now(name, device) or None)) for device in now),
        ]
        for name in names
    ]
    return _filled("Devices then and now" if now else "Devices then", lines)


def _fact_now(name: str, device: Device) -> object:
    """Return a fact of a device by its name in `[[device]]`."""
    if name.startswith("peak_"):
        return (peak_gflops(device, name.split("_")[1]) or 0) / 1e3
    if name == "compute_capability":
        return ".".join(map(str, device.compute_capability or ()))
    if name == "global_memory_mib":
        return device.facts.get("global_memory_bytes", 0) // 2**20
    return getattr(device, name, None) or device.facts.get(name)


def _figure(entry: Entry) -> str:
    """Return a measured figure, or its interval if rounds disagree."""
    if entry.unstable and entry.measured is not None:
        return f"{_interval(entry) or rate(entry.measured)} {UNSTABLE}"
    return rate(entry.measured)


def _interval(entry: Entry) -> str:
    ends = entry.measured_low, entry.measured_high
    return "" if None in ends else " to ".join(map(rate, ends))


def _text(value: object) -> str:
    """Return a published fact with all its digits."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _short(value: object) -> str:
    """Return a fact of this run. A fraction is rounded to four significant digits."""
    return rate(value) if isinstance(value, float) else _text(value)


def opening(done: Reproduction) -> list[str]:
    """Return lines on the experiment's source, on the devices of this run, and on the topic."""
    file = done.experiment.file
    now = ", ".join(dict.fromkeys(device.name for device in done.devices)) or "nothing ran"
    lines = [
        f"published: {file.source}",
        f"measured: {now}; ratio: how many times as fast as published",
    ]
    on_gpu = [each.sweep for each in done.experiment.sweeps if each.sweep.device == "cuda"]
    if done.no_gpu and on_gpu:
        left_out = dict.fromkeys(v for s in on_gpu for v in s.variants or ("every variant",))
        names = ", ".join(left_out)
        lines.append(f"left out, because they need an NVIDIA GPU: {names} ({done.no_gpu})")
    return lines + ([" ".join(file.about.split())] if file.about else [])


def closing(done: Reproduction) -> list[str]:
    """Return a line for each failure and for each skipped point of a figure, and the notes."""
    entries = [e for labels in done.entries.values() for label in labels for e in label]
    shown = {entry.row.key for entry in entries if entry.row}
    failures = [
        f"{row.status}: {row.label}: {row.reason}"
        for row in done.rows
        if row.status in {Status.WRONG, Status.ERROR}
        or (row.status == Status.SKIPPED and row.key in shown)
    ]
    return [*dict.fromkeys(failures), *done.experiment.file.notes]


def summary(done: Reproduction) -> str:
    """Return a line with the number of claims and rules for each verdict."""
    claims = [first.claim for labels in done.entries.values() for first, *_ in labels]
    shapes = [rule.sentence.partition(":")[0] for each in done.judgements.values() for rule in each]
    verdicts = Counter(word for word in (*claims, *shapes) if word not in {"", OTHER_DEVICE})
    text = ", ".join(f"{word} ({count})" for word, count in sorted(verdicts.items()))
    if not text and OTHER_DEVICE in claims:
        text = OTHER_DEVICE
    elif not text:
        is_published = any(series.published for series in done.experiment.file.series)
        text = f"nothing was {'measured' if is_published else 'published'} to compare"
    return f"{done.experiment.name}: {text}{', some points failed' if done.failed else ''}"


def parts(done: Reproduction, *, whole: bool) -> list[RenderableType]:
    """Return the tables and texts on an experiment. For Markdown, `whole` is true."""
    shown = [part for grid in grids(done, whole=whole) for part in grid.parts]
    return [*map(Text, opening(done)), *shown, *(Text(f"\n{line}") for line in closing(done))]


def title(done: Reproduction) -> str:
    """Return the name and the title of an experiment."""
    return f"{done.experiment.name}: {done.experiment.file.title}"


def markdown(experiments: Sequence[Reproduction]) -> str:
    """Return the tables of all experiments as Markdown."""
    texts = [
        f"## {title(done)}\n\n{tables.markdown(parts(done, whole=True))}" for done in experiments
    ]
    return "\n\n".join(["# Published experiments, run again", *texts]) + "\n"
