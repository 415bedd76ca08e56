"""Every generated part of README.md and of the pages in docs/, made from results/.

    python -m cogapp -I docs -p "import tables" -r README.md docs/*.md

cog runs the call that stands in the first line of a generated part, and writes what it returns.
"""

import csv
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import Field
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from textwrap import fill
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # claims.py
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import alone
from shared import ROOT, measured_file, rounds

from gpubench.commands.compare_cublas.ladder import steps
from gpubench.commands.reproduce.compare import Reproduction
from gpubench.commands.reproduce.experiment import read_experiment, shipped
from gpubench.commands.reproduce.view import grids
from gpubench.hardware.occupancy import occupancy
from gpubench.model import CudaVariant, Problem, Resources
from gpubench.plan.registry import choose, variants
from gpubench.results import build_row
from gpubench.results.provenance import source_hash
from gpubench.results.row import COLUMNS, Row, read
from gpubench.stats.pairs import ratio_of_pairs
from gpubench.view.numbers import milliseconds
from gpubench.view.row_tables import UNSTABLE, UNSTABLE_LEGEND, best_of, best_of_each, by_problem
from gpubench.view.tables import markdown, pipe_table

RESULTS = ROOT / "results"
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
)
LIBRARIES = ("cublas", "cublaslt")
RIVALS = ("bfloat16", "float16", "tf32", "float32")
"""Element types of the files in rivals/."""

EMULATED = "cublas_emulated"
DISAGREE = "rounds disagree"
WIDTH = 119
"""Number of characters in a line of prose."""


def table(heading: Sequence[str], lines: Iterable[Sequence[object]], *, text: bool = False) -> str:
    """Return a Markdown table. Columns after the first are figures, unless all are `text`."""
    cells = [list(heading), *([str(cell) for cell in line] for line in lines)]
    left = [True, *(text for _ in heading[1:])]
    return "\n".join(pipe_table(cells, left)).replace("\\*", "*")


def load(path: Path) -> Any:
    """Return the content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def dictionaries(path: Path) -> list[dict[str, str]]:
    """Return the lines of a CSV with other columns than those of a sweep."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def number(value: float | None, digits: int) -> str:
    """Return a number with this many decimals, or nothing for None."""
    return "" if value is None else f"{value:.{digits}f}"


def is_own(row: Row) -> bool:
    """Return whether a row is of a kernel of this project."""
    return row.variant not in {*LIBRARIES, EMULATED}


def library_of(own: Row, rows: Sequence[Row]) -> Row | None:
    """Return the faster library at a kernel's problem and in its state, or None.

    Some launches of the libraries are too short to be sustained. Such a kernel has no ratio: one of
    two states would compare two clocks.
    """
    timed = [row for row in rows if row.variant in LIBRARIES and row.median_us]
    timed = [row for row in timed if row.problem_key == own.problem_key]
    return best_of(timed) if timed else None


def speedup(own: Row, library: Row) -> tuple[float, tuple[float, float] | None]:
    """Return how many times as fast a kernel is, and the 95 % interval of the ratio.

    The interval is Student's, from the logarithms of the ratios of the rounds, which are
    interleaved. None if the two have different numbers of rounds.
    """
    ratio = (library.median_us or math.nan) / (own.median_us or math.nan)
    pairs = rounds(library), rounds(own)
    return ratio, ratio_of_pairs(*pairs)[1:] if len(pairs[0]) == len(pairs[1]) > 1 else None


def comparisons(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Yield the fastest kernel of each problem with the faster library."""
    timed = [row for row in rows if row.status == "ok" and row.median_us]
    for problem in by_problem(timed):
        if own := [row for row in problem if is_own(row)]:
            fastest = min(own, key=lambda row: row.median_us or math.inf)
            if library := library_of(fastest, timed):
                yield fastest, library


def ratio_text(own: Row, library: Row) -> str:
    """Return the ratio with its interval, or that the rounds disagree."""
    if own.unstable or library.unstable:
        return DISAGREE
    ratio, interval = speedup(own, library)
    return f"{ratio:.2f} ({interval[0]:.2f} to {interval[1]:.2f})" if interval else f"{ratio:.2f}"


def tiles() -> str:
    """Return milliseconds by tile at 2048 in float32; the best of each kernel is bold."""
    variants = ("naive_uncoalesced", "naive", "register_tile", "shared_tile")
    rows = {
        (row.variant, row.tile): row
        for row in read(measured_file("sweep.csv"))
        if (row.n, row.cache) == (2048, "cold")
    }
    best = {name: best_of(row for row in rows.values() if row.variant == name) for name in variants}
    if unstable := [row.label for row in best.values() if row.unstable]:
        raise ValueError(f"{DISAGREE}: {unstable}")

    def cell(row: Row) -> str:
        text = milliseconds(row.median_us)
        if row.unstable:
            return f"{text} {UNSTABLE}"
        return f"**{text}**" if row is best[row.variant] else text

    shown = ("1", "2", "4", "5", "8", "12", "16", "24", "32")
    lines = [[tile, *(cell(rows[name, tile]) for name in variants)] for tile in shown]
    cells = [["tile", *variants], *lines]
    made = "\n".join(pipe_table(cells, [False] * len(cells[0]))).replace("\\*", "*")
    return f"{made}\n\n{UNSTABLE_LEGEND}." if UNSTABLE in made else made


def odd_float8() -> str:
    """Return the times of products of odd rows in float8, and the rates at which data move."""
    (device,) = load(measured_file("deviceinfo.json"))["devices"]
    copy = device["facts"]["measured_copy_gbytes_per_s"]
    best = best_of_each(read(measured_file("odd_float8_e4m3.csv")), attrgetter("size", "cache"))
    lines = []
    for size in dict.fromkeys(size for size, _ in best):
        cold, hot = best[size, "cold"], best[size, "hot"]
        percent = 100 * (cold.gbytes_per_s or math.nan) / copy
        times = (number(row.median_us, 1) for row in (hot, cold))
        lines.append([size, *times, number(cold.gbytes_per_s, 0), f"{percent:.0f} %"])
    return table(["shape", "hot, µs", "cold, µs", "cold, GB/s", "of a copy's rate"], lines)


def alone_agreement() -> str:
    """Return which times of launches alone agree with the profilers', and why others do not."""
    lines = alone.read(measured_file("alone.csv"))
    every = alone.judged(lines)
    whole = [each for each in every if each.line.launches == "alone"]
    (control,) = (each for each in every if each.line.launches == "overlapped")
    causes = Counter(each.cause for each in whole)
    ratios = alone.ratios(whole)
    near = sum(alone.agree(*ratio) for ratio in ratios)
    low_us, high_us = control.causes["tool"]
    empty = sum(line.launches == alone.EMPTY for line in lines)
    longer_us = alone.differences(lines, "recorded_us", "beside_cupti_us")
    clearing_us = alone.differences(
        [line for line in lines if line.clears], "recorded_us", "beside_cupti_us"
    )
    short_us = alone.differences(
        [each.line for each in whole if (each.expected_us or math.inf) < alone.SHORT_US],
        *("ncu_us", "gpubench_us"),
    )
    shorter_us = (control.expected_us or math.nan) - (control.line.judged_us or math.nan)
    unknown = ", ".join(
        f"`{line.variant}` at {line.n} in {line.dtype} ({line.judged_us:.1f} µs, "
        f"{expected_us:.1f} were expected)"
        for line, expected_us, *_ in (each for each in whole if each.cause is None)
    )
    return fill(
        f"{causes['']} of {len(whole)} times are within 0.15 µs or 1 % of the tool in whose "
        f"process they were taken. {causes['tool']} more agree without the constant of Nsight "
        f"Compute: it reports an empty kernel {low_us:.2f} to {high_us:.2f} µs longer than "
        f"gpubench does (first to ninth decile of {empty} empty kernels with the launches of these "
        f"kernels). With the clock that each tool saw, {causes['clock']} more agree, and "
        f"{causes['tool and clock']} with both. {causes['recording']} calls of cuBLAS agree that "
        f"clear memory first: CUPTI's period of such calls is {statistics.median(clearing_us):.1f} "
        f"µs longer than gpubench's in the same process (median of {len(clearing_us)}; of all "
        f"{len(longer_us)} calls {statistics.median(longer_us):.1f}). {causes[None]} times have no "
        f"measured cause{unknown and f': {unknown}'}. Times below {alone.SHORT_US:g} µs are "
        f"{statistics.median(short_us):.2f} µs shorter than Nsight Compute's (median), and "
        f"{high_us + alone.ALLOWED_US:.2f} µs would be too much. The control is "
        f"{shorter_us:.2f} µs shorter, and is "
        f"{'rejected' if control.cause is None else 'not rejected'}. Of {len(ratios)} ratios to "
        f"the faster library below {alone.SHORT_US:g} µs, {near} are within 1 % of the tools' "
        "ratios. The others are not decided.",
        WIDTH,
    )


def ab_runs() -> str:
    """Return how often `gpubench ab` exits 1 on a CPU beside other work: sentences."""
    from claims import default_pairs, in_turns  # which imports this module

    default, earlier = default_pairs(True), default_pairs(False)
    minutes, loads = (sorted(run[name] for run in default) for name in ("seconds", "load"))
    same, slower, same_before, slower_before = (
        in_turns(0.0, 1.0, new, default=of_today)[0].replace(" (", " runs (")
        for of_today in (True, False)
        for new in ("same", "10 % slower")
    )
    return fill(
        f"{len(default)} runs had the default and two CPUs each, beside other work that starts "
        f"and stops. They took {minutes[0] / 60:.0f} to {minutes[-1] / 60:.0f} minutes, at a load "
        f"of {loads[0]:.0f} to {loads[-1]:.0f} for two CPUs. With a build and itself, the exit "
        f"code was 1 in {same}. With a kernel that is 10 % slower, it was 1 in {slower}. "
        f"{len(earlier)} earlier runs had 22 to 30 pairs, which were too few: it was 1 in "
        f"{same_before}, and in {slower_before}.",
        WIDTH,
    )


def operands() -> str:
    """Return time, watts and clock by what the operands hold, in long runs at 8192."""
    kinds: dict[tuple[str, str], dict[str, Row]] = {}
    for row in read(measured_file("operands.csv")):
        if row.status == "ok":
            of_kernel = kinds.setdefault((row.dtype, row.variant), {})
            before = of_kernel.get(row.operands, row)
            of_kernel[row.operands] = min(before, row, key=lambda one: one.median_us or math.inf)
    lines = []
    for (dtype, variant), by_kind in sorted(kinds.items()):
        for kind in ("uniform", "normal", "integers", "low-entropy", "ones", "zeros"):
            if kept := by_kind.get(kind):
                time_us, joules = kept.median_us or math.nan, kept.joules or math.nan
                cells = [dtype, variant, kind, milliseconds(time_us)]
                lines.append([*cells, f"{1e6 * joules / time_us:.0f}", number(kept.sm_mhz, 0)])
    heading = ["precision", "variant", "operands", "ms", "watts", "MHz"]
    return table(heading, lines)


def ladder_steps() -> str:
    """Return every step of the ladder at 4096, with what limits its occupancy."""
    rows = [row for row in read(measured_file("ladder.csv")) if row.status == "ok"]
    best = {name: best_of(row for row in rows if row.variant == name) for name in names_of(rows)}
    order, lines = steps(choose("gemm", "cuda", ())), []
    for name in filter(best.__contains__, (*order, *LIBRARIES)):
        row, before = best[name], best.get(order.get(name, ""))
        time_us = row.median_us or 0.0
        gain = f"{(before.median_us or 0.0) / time_us:.2f}×" if before else ""
        cells = [name, row.tile, milliseconds(time_us), f"{row.gflops:,.0f}"]
        cells += [number(row.percent_of_blas, 1), gain, str(row.registers or "")]
        lines.append([*cells, f"{row.occupancy:.0%}" if row.occupancy else "", limits(row)])
    heading = ["step", "tile", "ms", "GFLOP/s", "% of cuBLAS", "gain", "registers", "occupancy"]
    return table([*heading, "limited by"], lines)


def names_of(rows: Iterable[Row]) -> list[str]:
    """Return the variants of the rows, each once."""
    return list(dict.fromkeys(row.variant for row in rows))


def limits(row: Row) -> str:
    """Return the resources that limit the number of blocks on a multiprocessor."""
    if not row.tile or not row.registers or not row.compute_capability:
        return ""
    (variant,) = choose(row.op, "cuda", (row.variant,))
    if not isinstance(variant, CudaVariant) or variant.tiles is None:
        return ""
    problem = Problem(op=row.op, m=row.m, n=row.n, k=row.k, dtype=row.dtype)
    launch = variant.launch(variant.tiles.read(row.tile), problem).main
    resources = Resources(
        registers=row.registers,
        local_bytes=row.local_bytes or 0,
        spill_bytes=0,
        shared_bytes=(row.shared_bytes or 0) - launch.shared_bytes,
    )
    major, minor = map(int, row.compute_capability.split("."))
    resident = occupancy((major, minor), resources, launch)
    return ", ".join(resident.limited_by) if resident else ""


def ladder_top() -> str:
    """Return the fastest step and the faster library at each size and cache state."""
    lines = []
    for own, library in comparisons(read(measured_file("ladder_top.csv"))):
        cells = [own.size, own.cache, milliseconds(library.median_us), library.variant]
        cells += [milliseconds(own.median_us), f"{own.variant} {own.tile}"]
        lines.append([*cells, ratio_text(own, library)])
    heading = ["size", "cache", "cuBLAS, ms", "which", "ours, ms", "which", "times as fast"]
    return table(heading, lines)


def tera(row: Row) -> str:
    """Return 10¹² operations per second."""
    return number(row.gflops and row.gflops / 1e3, 1)


def rate(rows: Sequence[Row], digits: int = 0) -> str:
    """Return the rate of the fastest row, and its percentage of the better cuBLAS."""
    if not rows:
        return ""
    best = best_of(rows)
    part = f" ({best.percent_of_blas:.{digits}f} %)" if best.percent_of_blas else ""
    return DISAGREE if best.unstable else f"{tera(best)}{part}"


def rivals() -> str:
    """Return the rate of each kernel, library, torch and Triton by size: a table per precision."""
    rows = [row for dtype in RIVALS for row in read(measured_file(f"rivals/{dtype}.csv.gz"))]
    parts = []
    for precision in dict.fromkeys(row.compute_mode for row in rows):
        timed = [row for row in rows if (row.compute_mode, row.status) == (precision, "ok")]
        sizes = sorted({row.n for row in timed})
        lines = []
        for name in names_of(timed):
            cells = (
                rate([row for row in timed if (row.variant, row.n) == (name, size)])
                for size in sizes
            )
            lines.append([f"`{name}`", *cells])
        parts.append(f"### {precision}\n\n{table(['kernel', *map(str, sizes)], lines)}")
    return "\n\n".join(parts)


def agreement() -> str:
    """Return a time by gpubench and by Nsight Compute, and how many times agree."""
    path = measured_file("alone.csv")
    judged = alone.judged(alone.read(path))
    whole = [each for each in judged if each.line.launches == "alone"]
    (tile,) = (
        each.line
        for each in whole
        if (each.line.dtype, each.line.variant, each.line.n) == ("float32", "shared_tile", "208")
    )
    causes = Counter(each.cause for each in whole)
    return fill(
        f"`shared_tile 16` at 208 takes {tile.gpubench_us:.2f} µs by gpubench and "
        f"{tile.ncu_us:.2f} by Nsight Compute. Of {len(whole)} times of kernels and libraries, "
        f"{causes['']} agree within 0.15 µs or 1 %, {len(whole) - causes[''] - causes[None]} more "
        f"with the measured difference of both tools, and {causes[None]} do not.",
        WIDTH,
    )


def published() -> str:
    """Return two published experiments beside the times that were measured."""
    shown = {"p100-tiles": ("register_tile", "shared_tile"), "blog-2009": ("naive", "shared_tile")}
    parts = []
    for name, starts in shown.items():
        rows = read(measured_file(f"reproduce/{name}.csv"))
        run = Reproduction(experiment=read_experiment(shipped()[name]), rows=rows, devices=())
        parts += [
            markdown(grid.parts) for grid in grids(run, whole=True) if grid.title.startswith(starts)
        ]
    return "\n\n".join(parts)


def parsed(path: Path) -> list[dict[str, str]]:
    """Return the first table of a Markdown file, one dictionary per line."""
    parts = groupby(path.read_text(encoding="utf-8").splitlines(), lambda line: line[:1] == "|")
    first = next(list(lines) for is_table, lines in parts if is_table)
    heading, _, *lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in first)
    return [dict(zip(heading, cells, strict=True)) for cells in lines]


def claims_of_others() -> str:
    """Return the number of other people's figures by verdict."""
    verdicts = ("holds", "does not hold", "not decided", "wrong at this shape")
    lines = []
    for path in sorted(RESULTS.glob("*/claims/*/reproduce.csv"), key=lambda path: path.parent.name):
        figures = dictionaries(path)
        found = Counter(figure["claim"].removesuffix(" on this device") for figure in figures)
        folder, gpu = path.parent, figures[0]["device"].removeprefix("NVIDIA ")
        link = f"[`{folder.name}`](../results/{folder.relative_to(RESULTS)}/reproduce.md)"
        lines.append([link, gpu.split()[0], *(found[verdict] or "" for verdict in verdicts)])
    return table(["claim", "GPU", *verdicts], lines)


def first_line(name: str) -> str:
    """Return the first line of a file of results/."""
    return (RESULTS / name).read_text(encoding="utf-8").partition("\n")[0]


def first_table(name: str) -> str:
    """Return the first table of a file of results/."""
    lines = parsed(RESULTS / name)
    return table(list(lines[0]), (list(line.values()) for line in lines), text=True)


def changed_kernels() -> str:
    """Return the kernels of each file whose sources differ from those of today.

    Without kernels of libraries, whose hash depends on what is installed.
    """
    present = {(each.op, each.name): source_hash(each) for each in variants() if not each.libraries}
    lines = []
    for path in sorted(RESULTS.glob("*/**/*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            names = next(rows)
            if {"op", "variant", "source_hash"} <= {*names}:
                key = itemgetter(*map(names.index, ("op", "variant", "source_hash")))
                kernels = {(op, name): known for op, name, known in map(key, rows) if known}
                kernels = {each: known for each, known in kernels.items() if each in present}
                changed = sorted(
                    each[1] for each, known in kernels.items() if known != present[each]
                )
                said = (
                    "all"
                    if len(changed) == len(kernels) > 1
                    else ", ".join(map("`{}`".format, changed))
                )
                if said:
                    lines.append([f"[{path.name}](../{path.relative_to(ROOT)})", said])
    return table(["file", "kernels that have changed"], lines, text=True)


def columns() -> str:
    """Return the columns of the CSV, one table per group."""
    return _columns(COLUMNS, GROUPS)


def build_columns() -> str:
    """Return the columns of a build file, one table per group."""
    return _columns(build_row.COLUMNS, BUILD_GROUPS)


def _columns(columns: Sequence[Field[Any]], headings: Mapping[str, str]) -> str:
    kinds, parts = {"str": "text", "int": "integer", "float": "number"}, []
    for group, members in groupby(columns, key=lambda column: column.metadata["group"]):
        lines = (
            [
                f"`{column.name}`",
                kinds[str(column.type).removesuffix(" | None")],
                column.metadata["meaning"],
            ]
            for column in members
        )
        heading = f"## {group}: {headings[group]}" if group in headings else f"## {group}"
        parts.append(f"{heading}\n\n{table(['column', 'type', 'meaning'], lines, text=True)}")
    return "\n\n".join(parts)


GROUPS = {
    "key": "What was measured",
    "outcome": "How it ended",
    "time": "How long a launch takes",
    "rates": "What follows from the time",
    "why": "What explains it",
    "clocks": "What state the GPU was in",
    "host": "What state the host was in",
    "context": "On what, and when",
}
"""Headings of the groups of columns."""

BUILD_GROUPS = {
    "key": "What was compiled",
    "outcome": "Whether it compiles",
    "code": "What the compiler allocated",
    "multiprocessor": "What a multiprocessor holds",
    "grid": "How the launch fills a GPU",
    "loop": "An iteration of the inner loop",
    "accesses": "What a warp's accesses request",
    "context": "How it was compiled",
}
"""Headings of the groups of columns of a build file."""


def block(name: str, *arguments: str) -> str:
    """Return what the function `name` makes, between empty lines. cog calls this."""
    import claims  # these import this module
    import shape_tables

    modules = (sys.modules[__name__], shape_tables, claims)
    made = next(vars(module)[name] for module in modules if name in vars(module))
    return f"\n{made(*arguments)}\n\n"
