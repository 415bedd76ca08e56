"""`gpubench report`: CSVs in, one self-contained HTML page out."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich.text import Text

import gpubench
from gpubench.commands.report.listing import MEANINGS, best_table, failure_table, point_table
from gpubench.commands.report.pictures import Picture, pictures_of
from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.output import require_free, write_whole
from gpubench.row import Row, read
from gpubench.view.pictures.series import grouped
from gpubench.view.tables import console

HERE = "gpubench.commands.report"

Files = Sequence[tuple[Path, Sequence[Row]]]

CONTEXT = ("device", "compute_capability", "driver", "cuda", "cupy", "library", "gpubench")
"""Columns of the CSV that make up an environment."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A figure and what it is."""

    name: str
    figure: str
    bad: bool = False


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What ran the points, and when."""

    title: str
    facts: tuple[Fact, ...]


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
    origins = [(path.name, row) for path, of_file in files for row in of_file]
    rows = [row for _, row in origins]
    if not rows:
        raise UsageError("nothing to report: no file has a row")
    measured = [row for row in rows if row.status == Status.OK]
    failed = [row for row in rows if row.status != Status.OK]
    script = _asset("page.js")
    devices = list(dict.fromkeys(row.device or "an unknown device" for row in rows))
    operations = list(dict.fromkeys(row.op for row in rows))
    pictures = pictures_of(files, bandwidth_gbytes_per_s)
    template = Environment(
        loader=PackageLoader(HERE, ""),
        autoescape=True,  # names and reasons come from a file
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("page.html")
    return template.render(
        title=f"{' and '.join(operations)} on {' and '.join(devices)}",
        subtitle=_when(rows),
        facts=_facts(rows),
        sections=_sections(pictures, failed),
        best=best_table(measured),
        pictures=pictures,
        points=point_table(measured, [name for name, row in origins if row.status == Status.OK]),
        failures=failure_table(failed),
        machines=_machines(files),
        meanings=[Fact(name=name, figure=meaning) for name, meaning in MEANINGS.items()],
        version=gpubench.__version__,
        files=", ".join(path.name for path, _ in files),
        style=Markup(_asset("page.css")),  # noqa: S704 - ours
        script=Markup(script),  # noqa: S704 - ours
        script_hash=_hash(script),
    )


def _asset(name: str) -> str:
    return package_files(HERE).joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """What the page's policy lets run: this script and no other."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _when(rows: Sequence[Row]) -> str:
    days = sorted({row.started_utc[:10] for row in rows if row.started_utc})
    if not days:
        return ""
    return f"Measured on {days[0]}" + (f" to {days[-1]}" if days[1:] else "") + " (UTC)"


def _facts(rows: Sequence[Row]) -> list[Fact]:
    counts = Counter(row.status for row in rows)
    facts = [
        Fact(name="points measured", figure=f"{counts[Status.OK]:,}"),
        Fact(name="variants", figure=str(len({row.variant for row in rows}))),
        Fact(name="sizes", figure=str(len({row.size for row in rows}))),
        Fact(name="skipped", figure=f"{counts[Status.SKIPPED]:,}"),
    ]
    for status, name in ((Status.WRONG, "wrong"), (Status.ERROR, "failed")):
        facts.append(Fact(name=name, figure=f"{counts[status]:,}", bad=counts[status] > 0))
    return facts


def _sections(pictures: Sequence[Picture], failed: Sequence[Row]) -> list[dict[str, str]]:
    sections = {"best": "Best per size"}
    if pictures:
        sections["pictures"] = "Pictures"
    sections["points"] = "All points"
    if failed:
        sections["failures"] = "Skipped and failed"
    sections["environment"] = "Environment"
    return [{"id": name, "title": title} for name, title in sections.items()]


def _machines(files: Files) -> list[Machine]:
    """What ran the points: one for each device, driver, library and version."""
    pairs = [(path.name, row) for path, rows in files for row in rows]
    groups = grouped(pairs, lambda pair: tuple(getattr(pair[1], name) for name in CONTEXT))
    machines = []
    for context, some in groups.items():
        rows = [row for _, row in some]
        facts = [
            Fact(name=name.replace("_", " "), figure=str(value))
            for name, value in zip(CONTEXT, context, strict=True)
            if value is not None
        ]
        facts += [
            Fact(name=name, figure=_joined(getattr(row, name) for row in rows))
            for name in ("timer", "cache", "scope")
        ]
        started = sorted(row.started_utc for row in rows if row.started_utc)
        if started:
            facts.append(Fact(name="started (UTC)", figure=f"{started[0]} to {started[-1]}"))
        held = _joined(one for row in rows if row.throttle for one in row.throttle.split(";"))
        if held:
            facts.append(Fact(name="clock held down by", figure=held))
        machines.append(Machine(title=_joined(name for name, _ in some), facts=tuple(facts)))
    return machines


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))
