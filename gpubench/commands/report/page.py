"""`gpubench report`: CSVs in, one self-contained HTML page out."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from rich.text import Text

import gpubench
from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.results.output import Output
from gpubench.results.row import COLUMNS, Row, read
from gpubench.text import clean
from gpubench.view.pictures import Kind, Theme
from gpubench.view.pictures.kinds import draw, fitting
from gpubench.view.pictures.series import grouped, sources
from gpubench.view.pictures.style import INK_AND_PAGE, svg
from gpubench.view.tables import (
    UNSTABLE_LEGEND,
    best_of,
    console,
    marked,
    milliseconds,
    number,
    spans,
    tied_tiles,
)

Files = Sequence[tuple[Path, Sequence[Row]]]

CONTEXT = (
    *("device", "compute_capability", "driver", "cuda", "cupy", "nvrtc", "library"),
    *("environment", "gpubench"),
)
"""Columns of the CSV that make up an environment."""

CAPTIONS = {
    Kind.TILES: "Time per launch against tile size, both axes logarithmic. The large marker is the "
    "best tile, a cross one whose kernel uses local memory, the band (often thinner than the line) "
    "the 95 % interval.",
    Kind.SIZES: "Speed of each variant at its best tile against matrix size, with the theoretical "
    "peak and the BLAS.",
    Kind.BLAS: "Speed of each variant at its best tile, in percent of the BLAS of the same device, "
    "at the largest size.",
    Kind.PEAK: "Speed of the fastest kernel and of the BLAS in percent of the theoretical peak, by "
    "matrix size, in short visits (burst) and in long runs at the power limit (sustained).",
    Kind.PRECISIONS: "Speed of the fastest kernel and of the BLAS in percent of each precision's "
    "theoretical peak, at its largest size.",
    Kind.ROOFLINE: "Speed over arithmetic intensity, counting the bytes that must move. No kernel "
    "can stand above the roof; how far below it stands is what tuning may gain.",
    Kind.SPEEDUP: "How many times faster than the naive loop on one CPU core.",
}

CSV_COLUMNS = {column.name: column for column in COLUMNS}
MEANINGS = {name: str(column.metadata["meaning"]) for name, column in CSV_COLUMNS.items()}

HEADS = {
    "compute_mode": "arithmetic",
    "device": "on",
    "gflops": "GFLOP/s",
    "gbytes_per_s": "GB/s",
    "percent_of_peak": "% of peak",
    "percent_of_peak_at_clock": "% of peak at clock",
    "percent_of_copy": "% of copy",
    "percent_of_blas": "% of BLAS",
    "arithmetic_intensity": "FLOP/byte",
    "cgma": "CGMA",
    "sm_mhz": "SM MHz",
    "nvml_sm_mhz": "NVML SM MHz",
    "memory_mhz": "memory MHz",
    "temperature_c": "°C",
    "power_w": "W",
}
"""Heads of columns that read better than their names in the CSV."""

BEST_RATES = ("gflops", "gbytes_per_s", "percent_of_peak", "percent_of_blas", "percent_of_copy")
"""Columns of the table of best tiles."""

GROUPS = ("rates", "why", "clocks", "host")
"""Groups of the CSV's columns that the list of points shows whole."""

MENUS = {"variant", "size", "dtype", "cache", "scope", "on", "file"}
"""Columns with a menu above the table, if they hold more than one value."""

MAX_LISTED = 10_000
"""Rows of a table: what a browser sorts at once."""

DIGITS, PERCENT_DIGITS = 4, 3
"""Significant digits of a figure, and of a percentage."""


def run_report(
    files: Sequence[Path], output: Path, *, bandwidth_gbytes_per_s: float | None, force: bool
) -> None:
    """`gpubench report`: write the page, print its name."""
    claimed = Output(output, overwrite=force)
    text = page([(path, read(path)) for path in files], bandwidth_gbytes_per_s)
    claimed.write(text.encode())
    console().print(Text(str(output)), soft_wrap=True)


def page(files: Files, bandwidth_gbytes_per_s: float | None = None) -> str:
    """The page of some results. Raises UsageError if there is not one row."""
    origins = [(clean(path.name), row) for path, rows in files for row in rows]
    rows = [row for _, row in origins]
    if not rows:
        raise UsageError("nothing to report: no file has a row")
    measured = [(name, row) for name, row in origins if row.status == Status.OK]
    environment = Environment(
        loader=PackageLoader("gpubench.commands.report", ""),
        autoescape=True,  # names and reasons come from a file
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (
        Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))  # noqa: S704 - ours
        for name in ("page.css", "page.js")
    )
    # The page's policy lets this script run and no other.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    devices = dict.fromkeys(row.device or "an unknown device" for row in rows)
    days = sorted({row.started_utc[:10] for row in rows if row.started_utc})
    until = f" to {days[-1]}" if len(days) > 1 else ""
    counts = Counter(row.status for row in rows)
    facts = {
        "points measured": counts[Status.OK],
        "variants": len({row.variant for row in rows}),
        "sizes": len({row.size for row in rows}),
        "skipped": counts[Status.SKIPPED] + counts[Status.ELIMINATED],
        "wrong": counts[Status.WRONG],
        "failed": counts[Status.ERROR],
    }
    return environment.get_template("page.html").render(
        title=f"{' and '.join(dict.fromkeys(row.op for row in rows))} on {' and '.join(devices)}",
        subtitle=f"Measured on {days[0]}{until} (UTC)" if days else "",
        facts={name: f"{count:,}" for name, count in facts.items()},
        best=_best_table([row for _, row in measured]),
        pictures=_pictures(files, bandwidth_gbytes_per_s),
        points=_point_table(measured),
        failures=_failure_table([row for row in rows if row.status != Status.OK]),
        machines=_machines(origins),
        meanings=MEANINGS,
        version=gpubench.__version__,
        files=", ".join(path.name for path, _ in files),
        style=style,
        script=script,
        script_hash=f"sha256-{digest}",
    )


def _machines(origins: Sequence[tuple[str, Row]]) -> list[tuple[str, dict[str, str]]]:
    """What ran the points, and when: one for each device, driver, library and version."""
    machines = []
    groups = grouped(origins, lambda pair: tuple(getattr(pair[1], name) for name in CONTEXT))
    for context, pairs in groups.items():
        rows = [row for _, row in pairs]
        facts = {
            name.replace("_", " "): str(value)
            for name, value in zip(CONTEXT, context, strict=True)
            if value is not None
        }
        for name in ("timer", "cache", "scope"):
            facts[name] = _joined(getattr(row, name) for row in rows)
        if started := sorted(row.started_utc for row in rows if row.started_utc):
            facts["started (UTC)"] = f"{started[0]} to {started[-1]}"
        causes = [cause for row in rows if row.throttle for cause in row.throttle.split(";")]
        if held := _joined(causes):
            facts["clock held down by"] = held
        machines.append((_joined(name for name, _ in pairs), facts))
    return machines


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


# ---- pictures


def _pictures(files: Files, copy_gbytes_per_s: float | None) -> list[tuple[Markup, str]]:
    """The SVG and the caption of every kind of picture that the rows suffice for.

    Files of different devices or versions are overlaid. Files that agree in both would only repeat
    each other's lines: each is drawn on its own.
    """
    together = sources(files, copy_gbytes_per_s)
    groups = [("", together)]
    if len({(of.rows[0].device, of.rows[0].gpubench) for of in together}) < len(together):
        groups = [(f"{file[0].name}: ", sources([file], copy_gbytes_per_s)) for file in files]
    found: list[tuple[Markup, str]] = []
    for name, of in groups:
        for kind in fitting(of):
            caption = f"{name}{CAPTIONS[kind]}"
            try:
                drawing = svg(draw(of, kind, theme=Theme.BOTH, strip=True))
            except UsageError as error:  # too many lines for one picture
                found.append((Markup(), f"{caption} Not drawn: {error}"))
            else:
                found.append((inline(drawing, f"p{len(found)}", caption), caption))
    return found


def inline(drawing: str, prefix: str, label: str) -> Markup:
    """A whole SVG file as an element of a page.

    The ink becomes the page's own colour; ids are prefixed, as pictures must not share them.
    """
    ink, _ = INK_AND_PAGE[Theme.BOTH]
    body = drawing[drawing.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{prefix}-", body)
    body = re.sub(r"<[^>]*>", lambda tag: tag[0].replace(ink, "currentColor"), body)
    head = f'<svg role="img" aria-label="{escape(label)}"'
    return Markup(body.replace("<svg", head, 1))  # noqa: S704 - matplotlib escapes what it writes


# ---- tables, as text


@dataclass(frozen=True)
class Column:
    """One column: its head, its text for a row, the CSS class of its cells, what it means."""

    title: str
    text: Callable[[Row], str]
    css: str = ""
    meaning: str = ""


def _table(
    title: str,
    caption: str,
    rows: Sequence[Row],
    columns: Iterable[Column],
    css: Callable[[Row], str],
) -> dict[str, Any]:
    """A table as text; a column in which no row has anything is left out.

    `css` gives the class of a row: best, bad or none. `menus` are the index, head and values of
    each column that names things, if there is a choice.
    """
    if len(rows) > MAX_LISTED:
        caption = f"{caption} Only the first {MAX_LISTED:,} of {len(rows):,} stand here."
        rows = rows[:MAX_LISTED]
    shown = [column for column in columns if any(map(column.text, rows))]
    lines = [(css(row), [column.text(row) for column in shown]) for row in rows]
    menus = [
        (index, column.title, values)
        for index, column in enumerate(shown)
        if column.title in MENUS
        and len(values := list(dict.fromkeys(cells[index] for _, cells in lines))) > 1
    ]
    return {"title": title, "caption": caption, "columns": shown, "lines": lines, "menus": menus}


def _best_table(rows: Sequence[Row]) -> dict[str, Any]:
    """The best tile of each variant at each size, the fastest of each size marked."""
    best, tiles = [], {}
    for of_variant in grouped(rows, _series).values():
        best.append(best_of(of_variant))
        tiles[id(best[-1])] = ", ".join(tied_tiles(of_variant, best[-1]))
    sizes = grouped(best, _problem).values()
    fastest = {id(best_of(of_size)) for of_size in sizes}
    return _table(
        "Best per size",
        "The fastest tile of each variant; tiles after a comma may be as fast, as their intervals "
        "overlap. The fastest variant of each size is green.",
        [row for of_size in sizes for row in sorted(of_size, key=lambda row: row.median_us or 0.0)],
        [
            *_what(rows),
            Column("best tile", lambda row: tiles[id(row)]),
            *_TIME,
            *map(_of_csv, BEST_RATES),
        ],
        lambda row: "best" if id(row) in fastest else "",
    )


def _point_table(origins: Sequence[tuple[str, Row]]) -> dict[str, Any]:
    """Every measured point with its rates, what explains them, the clocks, and its row's file."""
    rows = [row for _, row in origins]
    file_of = {id(row): name for name, row in origins}
    best = {id(best_of(of_variant)) for of_variant in grouped(rows, _series).values()}
    names = [name for name, column in CSV_COLUMNS.items() if column.metadata["group"] in GROUPS]
    columns = [*_what(rows), _of_csv("tile"), *_TIME, *map(_of_csv, [*names, "samples"])]
    if len(set(file_of.values())) > 1:
        columns.append(Column("file", lambda row: file_of[id(row)]))
    return _table(
        "All points",
        "Each measured point: its rates, what explains them, the clocks. The best tile of each "
        "variant is green.",
        rows,
        columns,
        lambda row: "best" if id(row) in best else "",
    )


def _failure_table(rows: Sequence[Row]) -> dict[str, Any]:
    """What has no time, and why: one line a status, variant, size and reason."""
    groups = grouped(rows, lambda row: (row.status, *_series(row), row.reason)).values()
    tiles = {id(of[0]): spans([row.tile for row in of if row.tile]) for of in groups}
    return _table(
        "Skipped and failed",
        "Points without a time, and the reason.",
        [of[0] for of in groups],
        [
            *_what(rows),
            Column("tiles", lambda row: tiles[id(row)]),
            Column("status", lambda row: row.status or ""),
            Column("reason", lambda row: row.reason or "", css="wrap"),
        ],
        lambda row: "" if row.status in {Status.SKIPPED, Status.ELIMINATED} else "bad",
    )


def _what(rows: Sequence[Row]) -> list[Column]:
    """The columns that say what a row is; those in which all rows agree are left out."""
    varying = [
        name
        for name in ("op", "dtype", "cache", "scope", "timer", "device", "gpubench")
        if len({getattr(row, name) for row in rows}) > 1
    ]
    if any(row.compute_mode != row.dtype for row in rows):
        varying.insert(0, "compute_mode")
    size = Column("size", lambda row: row.size, meaning="N, or M×N×K if it is not a square")
    return [_of_csv("variant"), size, *map(_of_csv, varying)]


def _half_interval(row: Row) -> str:
    if row.ci_low_us is None or row.ci_high_us is None or not row.median_us:
        return ""
    return number(50 * (row.ci_high_us - row.ci_low_us) / row.median_us, 2)


_TIME = (
    Column(
        "ms",
        lambda row: marked(row, milliseconds),
        "n",
        f"{MEANINGS['median_us']}; {UNSTABLE_LEGEND}",
    ),
    Column("± %", _half_interval, "n", "half the 95 % interval of the median, in percent of it"),
)


def _of_csv(name: str) -> Column:
    """A column of the CSV."""
    digits = PERCENT_DIGITS if name.startswith("percent") else DIGITS
    return Column(
        HEADS.get(name, name.replace("_", " ")),
        lambda row: _figure(getattr(row, name), digits),
        "" if "str" in str(CSV_COLUMNS[name].type) else "n",
        MEANINGS[name],
    )


def _figure(value: object, digits: int) -> str:
    """So many significant digits of a float, all of an integer; text as it is."""
    if isinstance(value, float):
        whole = len(str(int(round(abs(value), 6))))
        return number(value, max(0, digits - whole))
    if isinstance(value, int):
        return f"{value:,}"
    return str(value or "")


def _problem(row: Row) -> tuple[Any, ...]:
    """What rows that may be compared agree in, and the device and version they come from."""
    return (*row.problem_key, row.device, row.gpubench)


def _series(row: Row) -> tuple[Any, ...]:
    return (*_problem(row), row.variant)
