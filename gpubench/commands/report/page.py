"""`gpubench report`: write result files as one self-contained HTML page."""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import gpubench
from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.model import Status
from gpubench.results.row import COLUMNS, Row
from gpubench.text import clean
from gpubench.view.numbers import milliseconds, number, rate, spans, tile_order
from gpubench.view.pictures import Kind, Theme
from gpubench.view.pictures.kinds import draw, fitting
from gpubench.view.pictures.series import sources
from gpubench.view.pictures.style import INK_AND_PAGE, svg
from gpubench.view.pictures.tiles import looks_of
from gpubench.view.row_tables import (
    NAMES,
    UNSTABLE_LEGEND,
    Column,
    best_of,
    best_of_each,
    fastest_first,
    filled,
    marked,
    tied_tiles,
    with_common_reasons,
)

Files = Sequence[tuple[Path, Sequence[Row]]]

CONTEXT = (
    "device", "compute_capability", "driver", "cuda", "cupy", "nvrtc", "library",
    "environment", "gpubench",
)  # fmt: skip
"""Columns of the CSV that describe an environment."""

CAPTIONS = {
    Kind.TILES: "Time per launch against tile size, both axes logarithmic. The large marker is the "
    "best tile. A cross is a tile whose kernel uses local memory. The band is the 95 % interval; "
    "it may be thinner than the line.",
    Kind.SIZES: "Speed of each variant at its best tile against matrix size, with the theoretical "
    "peak and the BLAS.",
    Kind.BLAS: "Speed of each variant at its best tile, in percent of the BLAS of the same device, "
    "at the largest size.",
    Kind.ROOFLINE: "Speed over arithmetic intensity, counting the bytes that must move. The slope "
    "is the bandwidth of a copy, or else the datasheet's bandwidth. No kernel can be above the "
    "roof. The distance to the roof is what tuning may gain.",
}

CSV_COLUMNS = {column.name: column for column in COLUMNS}
MEANINGS = {name: str(column.metadata["meaning"]) for name, column in CSV_COLUMNS.items()}

HEADINGS = {
    "compute_mode": "arithmetic",
    "device": "on",
    "gflops": "GFLOP/s",
    "gbytes_per_s": "GB/s",
    "percent_of_blas": "% of BLAS",
    "arithmetic_intensity": "FLOP/byte",
    "cgma": "CGMA",
    "sm_mhz": "SM MHz",
    "nvml_sm_mhz": "NVML SM MHz",
    "memory_mhz": "memory MHz",
    "temperature_c": "°C",
    "power_w": "W",
}
"""Headings of the columns whose heading differs from their name in the CSV."""

BEST_RATES = ("gflops", "gbytes_per_s", "percent_of_peak", "percent_of_blas", "percent_of_copy")
"""CSV columns that the table of the best tiles shows."""

GROUPS = ("rates", "why", "clocks", "host")  # groups of CSV columns that the list of points shows
MENUS = {"variant", "size", "dtype", "cache", "scope", "on", "file"}
"""Headings of the columns that get a menu above the table if they have several values."""

MAX_LISTED = 10_000  # maximum number of rows of a table, so that a browser sorts it at once


def page(files: Files, bandwidth_gbytes_per_s: float | None = None) -> str:
    """Return the page of results. Raises UsageError if no file has a row."""
    origins = [(clean(path.name), row) for path, rows in files for row in rows]
    rows = [row for _, row in origins]
    if not rows:
        names = ", ".join(str(path) for path, _ in files)
        raise UsageError(f"nothing to report: no row is in {names}")
    measured = [(name, row) for name, row in origins if row.status == Status.OK]
    environment = Environment(
        loader=PackageLoader("gpubench.commands.report", ""),
        autoescape=True,  # names and reasons come from files
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (
        Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))  # noqa: S704 - ours
        for name in ("page.css", "page.js")
    )
    # The page's security policy allows only this script.
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
        files=", ".join(clean(path.name) for path, _ in files),
        style=style,
        script=script,
        script_hash=f"sha256-{digest}",
    )


def _machines(origins: Sequence[tuple[str, Row]]) -> list[tuple[str, dict[str, str]]]:
    """Describe each environment by its files, device, driver, library, version and time."""
    machines = []
    groups = grouped(origins, lambda pair: tuple(getattr(pair[1], name) for name in CONTEXT))
    for context, pairs in groups.items():
        rows = [row for _, row in pairs]
        facts = {
            name.replace("_", " "): str(value)
            for name, value in zip(CONTEXT, context, strict=True)
            if value is not None
        }
        for name in ("timer", "cache", "launches", "scope"):
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
    """Return the SVG and the caption of each kind of picture for which there are enough rows.

    Files of different devices or versions are drawn in one picture. Files of the same device and
    version would repeat each other's lines, so each file is drawn separately.
    """
    together = sources(files, copy_gbytes_per_s)
    looks = looks_of(together)
    groups = [("", together)]
    if len({(source.rows[0].device, source.rows[0].gpubench) for source in together}) < len(
        together
    ):
        groups = [
            (f"{clean(file[0].name)}: ", sources([file], copy_gbytes_per_s)) for file in files
        ]
    pictures: list[tuple[Markup, str]] = []
    for name, group in groups:
        for kind in fitting(group):
            caption = f"{name}{CAPTIONS[kind]}"
            try:
                drawing = svg(draw(group, kind, theme=Theme.BOTH, looks=looks))
            except UsageError as error:  # too many lines for one picture
                pictures.append((Markup(), f"{caption} Not drawn: {error}"))
            else:
                pictures.append((inline(drawing, f"p{len(pictures)}", caption), caption))
    return pictures


def inline(drawing: str, prefix: str, label: str) -> Markup:
    """Return an SVG file as an element of a page.

    Lines and text get the colour of the page's text. Ids get a prefix, because ids must be unique
    in a page.
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


def _table(
    title: str,
    caption: str,
    rows: Sequence[Row],
    columns: Iterable[Column],
    css: Callable[[Row], str],
) -> dict[str, Any]:
    """Return a table for the template, without columns that are empty for all rows.

    `css` returns the class of a row: best, bad or none. `menus` are the index, heading and values
    of each column in `MENUS` that has several values.
    """
    if len(rows) > MAX_LISTED:
        caption = f"{caption} Only the first {MAX_LISTED:,} of {len(rows):,} are listed."
        rows = rows[:MAX_LISTED]
    shown = filled(rows, columns)
    lines = [(css(row), [column.text(row) for column in shown]) for row in rows]
    menus = [
        (index, column.title, values)
        for index, column in enumerate(shown)
        if column.title in MENUS
        and len(values := sorted({cells[index] for _, cells in lines}, key=tile_order)) > 1
    ]
    return {"title": title, "caption": caption, "columns": shown, "lines": lines, "menus": menus}


def _best_table(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the best tile of each variant at each size. Each size's fastest variant is marked."""
    best, tiles = [], {}
    for kernel_rows in grouped(rows, _kernel).values():
        best.append(best_of(kernel_rows))
        tiles[id(best[-1])] = ", ".join(tied_tiles(kernel_rows, best[-1]))
    problems = grouped(sorted(best, key=_order), _problem).values()
    fastest = {id(best_of(problem_rows)) for problem_rows in problems}
    return _table(
        "Best per size",
        "The fastest tile of each variant. Tiles after a comma may be as fast, because their "
        "intervals "
        "overlap. The fastest variant of each size is green.",
        [row for problem_rows in problems for row in fastest_first(problem_rows)],
        [
            *_identity(rows, _TIME),
            Column("best tile", lambda row: tiles[id(row)], is_text=True),
            *map(_csv_column, BEST_RATES),
        ],
        lambda row: "best" if id(row) in fastest else "",
    )


def _point_table(origins: Sequence[tuple[str, Row]]) -> dict[str, Any]:
    """Return a table of every measured point, with rates, explaining figures, clocks and file."""
    origins = sorted(origins, key=lambda origin: _order(origin[1]))
    rows = [row for _, row in origins]
    file_names = {id(row): name for name, row in origins}
    best = set(map(id, best_of_each(rows, _kernel).values()))
    names = [name for name, column in CSV_COLUMNS.items() if column.metadata["group"] in GROUPS]
    columns = [*_identity(rows, (NAMES[1], *_TIME)), *map(_csv_column, [*names, "samples"])]
    if len(set(file_names.values())) > 1:
        columns.append(Column("file", lambda row: file_names[id(row)], is_text=True))
    return _table(
        "All points",
        "Each measured point: its rates, what explains them, the clocks. The best tile of each "
        "variant is green.",
        rows,
        columns,
        lambda row: "best" if id(row) in best else "",
    )


def _failure_table(rows: Sequence[Row]) -> dict[str, Any]:
    """Return a table of the points that have no time.

    A line has the points of one variant and size that have the same status and reason.
    """
    ordered = sorted(with_common_reasons(rows), key=_order)
    groups = grouped(ordered, lambda row: (row.status, *_kernel(row), row.reason)).values()
    tiles = {id(group[0]): spans([row.tile for row in group if row.tile]) for group in groups}
    return _table(
        "Skipped and failed",
        "Points without a time, and the reason.",
        [group[0] for group in groups],
        [
            *_identity(rows),
            Column("tiles", lambda row: tiles[id(row)], is_text=True),
            *map(_csv_column, ("status", "reason")),
        ],
        lambda row: "" if row.status in {Status.SKIPPED, Status.ELIMINATED} else "bad",
    )


AXES = (
    "op", "dtype", "layout", "operands", "cache", "launches", "state", "scope", "timer",
    "device", "gpubench",
)  # fmt: skip
"""Columns that are shown if their values differ, because they distinguish rows of the same variant
and size."""


def _identity(rows: Sequence[Row], time: Iterable[Column] = ()) -> list[Column]:
    """Return the columns that identify a row, except columns that are equal in all rows.

    The columns of the time follow the size, so that the narrow screen of a phone shows the time.
    """
    varying = [name for name in ("problem", *AXES) if len({getattr(row, name) for row in rows}) > 1]
    if any(row.compute_mode != row.dtype for row in rows):
        varying.insert(0, "compute_mode")
    size = Column("size", lambda row: row.size, True, "N, or M×N×K if it is not a square")
    return [_csv_column("variant"), size, *time, *map(_csv_column, varying)]


_TIME = (
    Column(
        "ms",
        lambda row: marked(row, milliseconds),
        meaning=f"{MEANINGS['median_us']}; {UNSTABLE_LEGEND}",
    ),
    Column(
        "± %",
        lambda row: number(None if row.half_interval is None else 100 * row.half_interval, 2),
        meaning="half the 95 % interval of the median, in percent of the median",
    ),
)


def _csv_column(name: str) -> Column:
    return Column(
        HEADINGS.get(name, name.replace("_", " ").replace("percent", "%")),
        lambda row: _figure(getattr(row, name)),
        "str" in str(CSV_COLUMNS[name].type),
        MEANINGS[name],
    )


def _figure(value: object) -> str:
    """Return a value as text: a float with four significant digits, an integer with all digits."""
    if isinstance(value, float):
        return rate(value)
    return f"{value:,}" if isinstance(value, int) else str(value or "")


def _problem(row: Row) -> tuple[Any, ...]:
    """Return the key of rows that may be compared with each other: problem, device and version."""
    return (*row.problem_key, row.device, row.gpubench)


def _order(row: Row) -> tuple[Any, ...]:
    """Return the key by which rows are sorted. Sizes are sorted by number."""
    return row.op, row.dtype, row.compute_mode, row.numbers


def _kernel(row: Row) -> tuple[Any, ...]:
    return (*_problem(row), row.variant)
