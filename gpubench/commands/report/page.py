"""`gpubench report`: CSVs in, one self-contained HTML page out."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from rich.text import Text

import gpubench
from gpubench.commands.report.listing import MEANINGS, best_table, failure_table, point_table
from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.output import require_free, write_whole
from gpubench.row import Row, read
from gpubench.view.pictures import Kind, Theme
from gpubench.view.pictures.kinds import draw, fitting
from gpubench.view.pictures.series import grouped, sources
from gpubench.view.pictures.style import INK_AND_PAGE, svg
from gpubench.view.tables import console

Files = Sequence[tuple[Path, Sequence[Row]]]

CONTEXT = ("device", "compute_capability", "driver", "cuda", "cupy", "library", "gpubench")
"""Columns of the CSV that make up an environment."""

CAPTIONS = {
    Kind.TILES: "Time per launch against tile size, both axes logarithmic. The large marker is the "
    "best tile, a cross one whose kernel uses local memory, the band (often thinner than the line) "
    "the 95 % interval.",
    Kind.SIZES: "Speed of each variant at its best tile against matrix size, with the theoretical "
    "peak and the BLAS.",
    Kind.BLAS: "Speed of each variant at its best tile, in percent of the BLAS of the same device, "
    "at the largest size.",
    Kind.ROOFLINE: "Speed over arithmetic intensity, counting the bytes that must move. No kernel "
    "can stand above the roof; how far below it stands is what tuning may gain.",
    Kind.SPEEDUP: "How many times faster than the naive loop on one CPU core.",
}


def run_report(
    files: Sequence[Path], output: Path, *, bandwidth_gbytes_per_s: float | None, force: bool
) -> None:
    """`gpubench report`: write the page, print its name."""
    require_free(output, overwrite=force)
    text = page([(path, read(path)) for path in files], bandwidth_gbytes_per_s)
    write_whole(output, lambda file: file.write(text.encode()))
    console().print(Text(str(output)), soft_wrap=True)


def page(files: Files, bandwidth_gbytes_per_s: float | None = None) -> str:
    """The page of some results. Raises UsageError if there is not one row."""
    origins = [(path.name, row) for path, rows in files for row in rows]
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
    operations = dict.fromkeys(row.op for row in rows)
    devices = dict.fromkeys(row.device or "an unknown device" for row in rows)
    return environment.get_template("page.html").render(
        title=f"{' and '.join(operations)} on {' and '.join(devices)}",
        subtitle=_when(rows),
        facts=_facts(rows),
        best=best_table([row for _, row in measured]),
        pictures=pictures(files, bandwidth_gbytes_per_s),
        points=point_table([row for _, row in measured], [name for name, _ in measured]),
        failures=failure_table([row for row in rows if row.status != Status.OK]),
        machines=_machines(origins),
        meanings=MEANINGS,
        version=gpubench.__version__,
        files=", ".join(path.name for path, _ in files),
        style=style,
        script=script,
        script_hash=f"sha256-{digest}",
    )


def _when(rows: Sequence[Row]) -> str:
    days = sorted({row.started_utc[:10] for row in rows if row.started_utc})
    if not days:
        return ""
    return f"Measured on {days[0]}" + (f" to {days[-1]}" if days[1:] else "") + " (UTC)"


def _facts(rows: Sequence[Row]) -> dict[str, str]:
    counts = Counter(row.status for row in rows)
    facts = {
        "points measured": counts[Status.OK],
        "variants": len({row.variant for row in rows}),
        "sizes": len({row.size for row in rows}),
        "skipped": counts[Status.SKIPPED],
        "wrong": counts[Status.WRONG],
        "failed": counts[Status.ERROR],
    }
    return {name: f"{count:,}" for name, count in facts.items()}


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
        if held := _joined(
            held for row in rows if row.throttle for held in row.throttle.split(";")
        ):
            facts["clock held down by"] = held
        machines.append((_joined(name for name, _ in pairs), facts))
    return machines


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def pictures(files: Files, copy_gbytes_per_s: float | None) -> list[tuple[Markup, str]]:
    """The SVG and the caption of every kind of picture that the rows suffice for.

    Files of different devices or versions are overlaid. Files that agree in both would only repeat
    each other's lines: each is drawn on its own.
    """
    together = sources(files, copy_gbytes_per_s)
    owners = {(source.rows[0].device, source.rows[0].gpubench) for source in together}
    groups = [("", together)]
    if len(owners) < len(together):
        groups = [
            (f"{path.name}: ", sources([(path, rows)], copy_gbytes_per_s)) for path, rows in files
        ]
    found: list[tuple[Markup, str]] = []
    for name, of in groups:
        for kind in fitting(of):
            caption = f"{name}{CAPTIONS[kind]}"
            drawing = svg(draw(of, kind, theme=Theme.BOTH))
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
