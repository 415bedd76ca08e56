"""Put the figures into README.md and the pages of docs/ and results/, and record a terminal.

    python docs/make_tables.py            # after a change of results/h200, or of how tables look
    python docs/make_tables.py --check    # exits 1, naming what is stale; writes nothing

What stands between `<!-- made: NAME -->` and `<!-- end -->` is what the function NAME gives, or the
table that `TABLES` names.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from html import unescape
from itertools import groupby
from pathlib import Path
from statistics import geometric_mean
from textwrap import fill

sys.path.insert(0, str(Path(__file__).parent))  # what is beside this file, also where tests load it

import typer
from claims import RESULTS, claims, records
from rich.console import Console
from rich.text import Text
from steps import STEPS

from gpubench.cli import app
from gpubench.commands.reproduce.compare import Reproduction
from gpubench.commands.reproduce.experiment import read_experiment, shipped
from gpubench.commands.reproduce.view import grids
from gpubench.results.row import Row, read
from gpubench.view.tables import UNSTABLE, UNSTABLE_LEGEND, milliseconds, pipe_table

ROOT = Path(__file__).parent.parent
H200 = RESULTS / "h200"
RECORDING = ROOT / "docs" / "images" / "terminal.svg"

PAGES = (ROOT / "README.md", RESULTS / "README.md", *sorted((ROOT / "docs").glob("*.md")))

RECORDED = (
    "gpubench show results/h200/ladder.csv --sort rate --top 6",
    "gpubench diff results/h200/sweep.csv results/h200/sweep_again.csv --only shared_tile,2048",
)
"""What is typed in the recording."""

COLUMNS = 80

WIDTH = 100
"""Characters of a line of a page."""

THOUSAND = 1000
"""Microseconds from here on have one decimal."""

BLOCK = re.compile(r"(?<=<!-- made: )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def tiles() -> str:
    """Milliseconds by tile at 2048 in float32; the best of each kernel is bold."""
    variants = ("naive_uncoalesced", "naive", "register_tile", "shared_tile")
    rows = {
        (row.variant, row.tile): row
        for row in read(H200 / "sweep.csv")
        if (row.n, row.cache) == (2048, "cold")
    }
    best = {
        name: min((row for (of, _), row in rows.items() if of == name), key=_time)
        for name in variants
    }
    _require_stable(best.values())

    def cell(row: Row) -> str:
        text = milliseconds(row.median_us)
        if row.unstable:
            return f"{text} {UNSTABLE}"
        return f"**{text}**" if row is best[row.variant] else text

    shown = ("1", "2", "4", "5", "8", "12", "16", "24", "32")
    lines = [[tile, *(cell(rows[name, tile]) for name in variants)] for tile in shown]
    lines.insert(0, ["tile", *variants])
    left = [False] * len(lines[0])
    made = "\n".join(line.replace("\\*", "*") for line in pipe_table(lines, left))
    return f"{made}\n\n{UNSTABLE_LEGEND}." if UNSTABLE in made else made


def _require_stable(rows: Iterable[Row]) -> None:
    """Raises ValueError naming rows whose rounds disagree: a page may rest nothing on them."""
    if unstable := [row.label for row in rows if row.unstable]:
        raise ValueError(f"rounds disagree: {unstable}")


def _time(row: Row) -> float:
    return row.median_us or 0.0


def ladder() -> str:
    """How much faster the fastest step is than the better of cuBLAS and a tuned cuBLASLt."""
    rows = [row for row in read(H200 / "ladder_top.csv") if row.median_us]
    _require_stable(rows)

    def ratio(size: str, cache: str) -> float:
        of_size = [row for row in rows if (row.size, row.cache) == (size, cache)]
        libraries = {row for row in of_size if row.variant.startswith("cublas")}
        own = min(_time(row) for row in of_size if row not in libraries)
        return min(map(_time, libraries)) / own

    sizes = ("2048", "4096", "8192", "16384")
    cold = [f"{ratio(size, 'cold'):.2f} at {size}" for size in sizes]
    return fill(
        "Speed of the fastest step, relative to the better of cuBLAS and a tuned cuBLASLt: "
        f"{', '.join(cold)} (cold cache); {ratio('1000', 'hot'):.3f} at 1000 (hot cache).",
        WIDTH,
    )


def agreement() -> str:
    """A kernel of three microseconds by gpubench, by Nsight Compute and by an event pair."""
    found = _agreement()["shared_tile", "16", 64]
    return fill(
        f"`shared_tile 16` at 64 takes {found['events_hot_us']:.2f} µs by gpubench, "
        f"{found['ncu_hot_us']:.2f} by Nsight Compute, and {found['event_pair_us']:.2f} by a pair "
        "of events around one launch from Python.",
        WIDTH,
    )


def agreement_table() -> str:
    """Times per launch beside Nsight Compute's and an event pair's, in microseconds."""
    found = _agreement()
    names = {("shared_tile", "16"): "shared_tile 16", ("cublas", ""): "cuBLAS"}
    heading = ["N"]
    for name in names.values():
        heading += [f"{name}: gpubench", "Nsight Compute", "event pair"]
    lines = [heading]
    for n in (64, 128, 256, 512, 1024, 2048, 4096):
        times = [
            found[variant, tile, n][column]
            for variant, tile in names
            for column in ("events_hot_us", "ncu_hot_us", "event_pair_us")
        ]
        texts = (f"{time:#.4g}" if time < THOUSAND else f"{time:,.1f}" for time in times)
        lines.append([str(n), *texts])
    return "\n".join(pipe_table(lines, [False] * len(heading)))


def three_times() -> str:
    """One kernel by each kind of timer, in microseconds."""
    found = _agreement()
    columns = {
        "CUPTI": "cupti_hot_us",
        "Nsight Compute": "ncu_hot_us",
        "blocked batch": "events_hot_us",
        "event pair from Python": "event_pair_us",
    }
    lines = [["size", *columns]]
    for n in (64, 1024):
        times = found["shared_tile", "16", n]
        lines.append([str(n), *(f"{times[column]:#.4g}" for column in columns.values())])
    return "\n".join(pipe_table(lines, [False] * len(lines[0])))


def _agreement() -> dict[tuple[str, str, int], dict[str, float]]:
    with (H200 / "agreement.csv").open(encoding="utf-8") as file:
        return {
            (line["variant"], line["tile"], int(line["n"])): {
                name: float(text) for name, text in line.items() if name.endswith("_us") and text
            }
            for line in csv.DictReader(file)
        }


def published() -> str:
    """Two published experiments beside what was measured."""
    shown = {"p100-tiles": ("register_tile", "shared_tile"), "blog-2009": ("naive", "shared_tile")}
    parts = []
    for name, starts in shown.items():
        rows = read(H200 / "reproduce" / f"{name}.csv")
        ran = Reproduction(experiment=read_experiment(shipped()[name]), rows=rows, devices=())
        parts += [one.markdown for one in grids(ran, whole=True) if one.title.startswith(starts)]
    return "\n\n".join(parts)


def tensor_cores() -> str:
    """Return the ratios of all comparisons in long runs: a sentence, and one line per precision."""
    ratios: dict[str, list[float]] = {}
    shown: dict[str, int] = {}
    for suite in ("precisions", "tensor"):
        for line in _table(f"h200/{suite}.md"):
            if line["state"] != "sustained" or not line.get("ratio"):
                continue
            low, to, _ = line.get("95 % interval", "").partition(" to ")
            ratios.setdefault(line["precision"], []).append(float(line["ratio"]))
            shown[line["precision"]] = shown.get(line["precision"], 0) + (
                to != "" and float(low) > 1
            )
    lines = [["precision", "comparisons", "shown faster", "lowest", "geometric mean", "highest"]]
    for precision in sorted(ratios):
        values = ratios[precision]
        figures = (f"{value:.2f}" for value in (min(values), geometric_mean(values), max(values)))
        lines.append([precision, str(len(values)), str(shown[precision]), *figures])
    every = [value for values in ratios.values() for value in values]
    sentence = fill(
        f"In long runs on an H200, the fastest kernel of each precision is {min(every):.2f} to "
        f"{max(every):.2f} times as fast as the better of cuBLAS and a tuned cuBLASLt "
        f"(geometric mean {geometric_mean(every):.2f}). In {sum(shown.values())} of {len(every)} "
        "comparisons the whole 95 % interval lies above 1; in the others the difference is not "
        "shown.",
        WIDTH,
    )
    return "\n".join([sentence, "", *pipe_table(lines, [True] + [False] * 5)])


def tune_race() -> str:
    """`tune` against a sweep of everything, and Kernel Tuner beside both: a line a space."""
    lines = [
        ["space", "all, 5 rounds", "tune", "winner", "group", "Kernel Tuner: brute force, best"]
    ]
    for path in sorted((H200 / "tune").glob("*.md")):
        table = list(_table(str(path.relative_to(RESULTS))))
        (title,) = re.findall("## (.*?) configurations", path.read_text(encoding="utf-8"))
        live = [line for line in table if line[""].startswith("tune, live")]
        tuner = [line["device time"] for line in table if line[""].startswith("Kernel Tuner")]
        best = min(tuner[1:], key=lambda text: float(text.split()[0]), default="")
        whole = f"{table[0]['wall time']}, {table[0]['device time']}"
        walls = " and ".join(f"{line['wall time']}, {line['device time']}" for line in live)
        slower = " and ".join(line["slower"] for line in live)
        left = " and ".join(line["group"] for line in live)
        lines.append(
            [title, whole, walls, slower, left, ", ".join(filter(None, (*tuner[:1], best)))]
        )
    return "\n".join(pipe_table(lines, [True] * len(lines[0])))


def rivals() -> str:
    """Kernels, libraries, torch and Triton beside each other."""
    path = H200 / "rivals.md"
    return path.read_text(encoding="utf-8").strip() if path.exists() else NOT_YET


NOT_YET = "Not measured yet."


def _table(name: str) -> Iterator[dict[str, str]]:
    """The first table of a file of results/, a dictionary a line; a short line lacks columns."""
    text = (RESULTS / name).read_text(encoding="utf-8")
    parts = groupby(text.splitlines(), lambda line: line[:1] == "|")
    table = next(list(lines) for is_table, lines in parts if is_table)
    heading, _, *lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table)
    if len(heading) > len(set(heading)):
        raise ValueError(f"{name}: two columns have one name: {', '.join(heading)}")
    for cells in lines:
        yield dict(zip(heading, cells, strict=False))


def _columns(name: str, *columns: str) -> str:
    """Some columns of the first table of a file, or all."""
    if not (RESULTS / name).exists():
        return NOT_YET
    rows = list(_table(name))
    kept = columns or tuple(rows[0])
    lines = [list(kept), *([row.get(column, "") for column in kept] for row in rows)]
    return "\n".join(pipe_table(lines, [True] * len(kept)))


def steps() -> str:
    """What made each file of results/, and when."""
    known, lines = records(), [["files", "command", "on", "measured"]]
    for step in STEPS:
        if facts := known.get(step.name):
            paths = [RESULTS / name for name in step.files if (RESULTS / name).exists()]
            files = ", ".join(f"[{path.name}]({path.relative_to(RESULTS)})" for path in paths)
            took = f", {facts['wall_s']:.0f} s" if facts["wall_s"] else ""
            measured = f"{facts['utc']}, commit `{facts['commit']}`{took}"
            lines.append([files, f"`{step.command}`", facts["machine"], measured])
    return "\n".join(pipe_table(lines, [True] * len(lines[0]))).replace("\\", "")


def not_measured() -> str:
    """The steps that have not run."""
    names = (f"`{step.name}`" for step in STEPS if step.name not in records())
    return fill(f"Not measured by it yet: {', '.join(names)}.", WIDTH)


TENSOR_COLUMNS = (
    *("precision", "size", "state", "fastest kernel", "Top/s", "% of peak", "MHz", "pJ/op"),
    *("library", "its Top/s", "its pJ/op", "ratio", "95 % interval", "asked"),
)

TABLES = {
    "diff_power": ("h200/diff_power.md",),
    "exports": ("h200/exports.md",),
    "fleet_power": ("h200/fleet_power.md",),
    "ladder_steps": ("h200/ladder.md", "step", "tile", "ms", "GFLOP/s", "% of cuBLAS", "gain"),
    "precisions": ("h200/precisions.md", *TENSOR_COLUMNS),
    "sixteen_bits": ("h200/tensor.md", *TENSOR_COLUMNS),
    "tune_simulated": ("cpu/tune_simulated.md",),
}
"""Blocks that are the table of a file: all its columns, or these."""

BLOCKS: dict[str, Callable[[], str]] = {
    made.__name__: made
    for made in (
        *(tiles, ladder, agreement, three_times, agreement_table, published),
        *(tensor_cores, tune_race, rivals, claims, steps, not_measured),
    )
} | {name: partial(_columns, *of) for name, of in TABLES.items()}


def filled(text: str) -> str:
    """A page with what its blocks must hold."""
    return BLOCK.sub(lambda block: f"{block[1]}{block[2]}\n{BLOCKS[block[1]]()}\n\n", text)


def recording() -> str:
    """The terminal after the commands of `RECORDED`, as SVG; nothing in it is fetched."""
    screen = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    os.environ |= {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1"}
    for command in RECORDED:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(ROOT):
            typer.main.get_command(app)(shlex.split(command)[1:], standalone_mode=False)
        screen.print(Text(f"$ {command}", style="bold"))
        screen.print(Text.from_ansi(f"{printed.getvalue().strip()}\n"))
    svg = screen.export_svg(title="gpubench", unique_id="terminal")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("font-family: Fira Code, monospace", "font-family: monospace")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def words(svg: str) -> list[str]:
    """What a recording says, whatever version of Rich drew it."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", unescape(svg))


def main() -> int:
    """Write what is stale, or name it."""
    if sys.argv[1:] not in ([], ["--check"]):
        sys.stderr.write("usage: make_tables.py [--check]\n")
        return 2
    stale = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            stale.append(page)
            if not sys.argv[1:]:
                page.write_text(new, encoding="utf-8")
    new = recording()
    if not RECORDING.exists() or words(RECORDING.read_text(encoding="utf-8")) != words(new):
        stale.append(RECORDING)
        if not sys.argv[1:]:
            RECORDING.write_text(new, encoding="utf-8")
    for path in stale if sys.argv[1:] else ():
        sys.stderr.write(f"{path} is stale: run python docs/make_tables.py\n")
    return 1 if stale and sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
