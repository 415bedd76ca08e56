"""Make every generated part of README.md and of the pages in docs/ from results/.

    python -m cogapp -I research -p "import tables" -r README.md results/*.md docs/*.md

cog runs the call in the first line of a generated part, and writes the text that the call returns.
`PAGES` are all files with such parts.
"""

import math
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import Field
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from textwrap import fill
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # the folder of claims.py

import claims
import compare_with_profiler as profiler
import shape_tables
from claims import RESULTS, comparisons, speedup
from common import FOREIGN, ROOT, WIDTH, csv_rows, measured_file, table
from foreign_gpu import PROFILED_SIZE

from gpubench.commands.compare_cublas.ladder import ladder_tables, steps
from gpubench.commands.compare_cublas.sustained_pairs import pairs_table
from gpubench.grouping import grouped
from gpubench.model import Variant
from gpubench.plan.registry import KERNELS, choose, variants
from gpubench.results import build_row
from gpubench.results.row import COLUMNS, Row, read
from gpubench.view import tables as view
from gpubench.view.numbers import milliseconds, number
from gpubench.view.row_tables import best_of_each, mean_power_w

KERNELS_PAGE = KERNELS / "gemm" / "README.md"
PAGES = (
    ROOT / "README.md",
    *sorted(RESULTS.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    KERNELS_PAGE,
)
RIVALS = ("bfloat16", "float16", "tf32", "float32")
"""Element types of the files in rivals/."""


# ---- tables that commands print


def ladder_steps() -> str:
    """Return the tables of all steps of the ladder at size 4096."""
    order = steps(choose("gemm", "cuda", ()))
    shown: Any = ladder_tables(read(measured_file("ladder.csv")), order)
    return view.markdown(shown.renderables)


def squares() -> str:
    """Return a table of the squares that were measured in pairs, in all precisions."""
    grid = pairs_table(
        [row for dtype in shape_tables.ALONE for row, _ in shape_tables.in_pairs(dtype)]
    )
    return view.markdown([grid] if grid else [])


# ---- kernels beside libraries


def ladder_top() -> str:
    """Return a table of the fastest step and the faster library at each size and cache state."""
    lines = []
    for own, library in comparisons(read(measured_file("ladder_top.csv"))):
        shaky = own.unstable or library.unstable
        ratio = claims.DISAGREE if shaky else shape_tables.said(speedup(own, library), 2)
        times = (milliseconds(library.median_us), library.variant, milliseconds(own.median_us))
        lines.append([own.size, own.cache, *times, f"{own.variant} {own.tile}", ratio])
    heading = ["size", "cache", "cuBLAS, ms", "which", "ours, ms", "which", "times as fast"]
    return table(heading, lines)


PARTS = (
    ("cublas", "float32"),
    ("wgmma_parts", "bf16x6"),
    ("triton_matmul", "bf16x6"),
    ("wgmma_parts", "bf16x3"),
    ("cublas", "tf32"),
)
"""Kernels and modes that are compared with float32 from bfloat16 parts."""


def parts() -> str:
    """Return a table of times, exact bits and joules of float32 products by parts at 4096."""
    fastest, fastest_sustained = (
        best_of_each(
            (row for row in read(measured_file(f"{name}.csv")) if row.median_us),
            attrgetter("variant", "compute_mode"),
        )
        for name in ("bits", "bits_sustained")
    )
    lines = []
    for variant, mode in PARTS:
        burst, sustained = fastest[variant, mode], fastest_sustained.get((variant, mode))
        bits = (number(each, 1) for each in (burst.error_max_bits, burst.error_rms_bits))
        times = (f"{row.median_us:,.0f} µs" if row else "–" for row in (burst, sustained))
        joules = number(sustained.joules, 2) if sustained else "–"
        lines.append([f"`{variant}`, {mode}", *bits, *times, joules])
    heading = ["4096, cold", "bits, largest error", "bits, rms", "burst"]
    return table([*heading, "long run", "joules"], lines)


def rivals() -> str:
    """Return the rates of kernels, libraries, torch and Triton by size. Each precision has a table.

    A rate is in 10¹² operations per second, followed by its percentage of the better cuBLAS's rate.
    """
    rows = [row for dtype in RIVALS for row in read(measured_file(f"rivals/{dtype}.csv.gz"))]
    parts = []
    for precision in dict.fromkeys(row.compute_mode for row in rows):
        timed = [row for row in rows if (row.compute_mode, row.status) == (precision, "ok")]
        best = best_of_each(timed, attrgetter("variant", "n"))
        sizes = sorted({row.n for row in timed})
        lines = [
            [f"`{name}`", *(rate(best.get((name, size))) for size in sizes)]
            for name in dict.fromkeys(row.variant for row in timed)
        ]
        parts.append(f"**{precision}**\n\n{table(['kernel', *map(str, sizes)], lines)}")
    return "\n\n".join(parts)


def rate(row: Row | None) -> str:
    """Return the rate of a row as text, with the percentage of the better cuBLAS's rate."""
    if row is None or row.unstable:
        return claims.DISAGREE if row else ""
    percent = f" ({row.percent_of_blas:.0f} %)" if row.percent_of_blas else ""
    return f"{number((row.gflops or math.nan) / 1e3, 1)}{percent}"


def agreement() -> str:
    """Return sentences about the agreement of times by gpubench and by Nsight Compute.

    In the first sentences, one process measured both times. The last sentence compares times of two
    processes. The independent comparison has no file in results/.
    """
    judged = profiler.judged(profiler.read(measured_file("alone.csv")))
    whole = [each for each in judged if each.line.launches == "alone"]
    causes = Counter(each.cause for each in whole)
    # Nsight Compute does not time the gaps between the kernels of a call.
    every = csv_rows(measured_file("agreement.csv"))
    single = [row for row in every if row["kernels_per_call"] == "1"]
    disagree = f", and {causes[None]} do not agree" if causes[None] else ""
    apart = [
        profiler.agrees(float(row["events_hot_us"]), float(row["ncu_hot_us"])) for row in single
    ]
    return fill(
        f"In one process, {causes['']} of {len(whole)} times agree with Nsight Compute's within "
        f"0.15 µs or 1 %. Another {causes['clock']} agree after a correction for different "
        f"clock frequencies{disagree}. In separate processes, {sum(apart)} of {len(apart)} hot "
        "float32 calls agree, and 49 of 77 calls in an independent comparison.",
        WIDTH,
    )


def alone_agreement() -> str:
    """Return a table that counts the times of launches alone that agree with the profiler."""
    return profiler.summary(profiler.read(measured_file("alone.csv")))


# ---- other files


def ab_runs() -> str:
    """Return a table of how often `gpubench ab` exits with 1 on a CPU beside other work."""
    lines = []
    for pairs, (min_pairs, max_pairs) in {
        "72, the default": (72, 72),
        "61 to 63, cut off": (61, 63),
        "22 to 56": (22, 56),
    }.items():
        runs = claims.ab_runs(min_pairs, max_pairs)
        minutes, loads = (
            spread([run[name] / unit for run in runs if name in run])
            for name, unit in (("seconds", 60), ("load", 1))
        )
        rates = (claims.in_turns(runs, new)[0] for new in ("same", "10 % slower"))
        lines.append([pairs, minutes, loads, *rates])
    heading = ["pairs", "minutes", "load for two CPUs", "exit 1 for itself", "10 % slower"]
    return table(heading, lines)


def spread(values: Sequence[float]) -> str:
    """Return the lowest and the highest value as text.

    Return an empty text if there are no values.
    """
    return f"{min(values):.0f} to {max(values):.0f}" if values else ""


def operands() -> str:
    """Return a table of time, power and clock in long runs, by the values of the operands."""
    rows = [row for row in read(measured_file("operands.csv")) if row.status == "ok"]
    cells = {
        (row.operands, f"{row.variant}, {row.dtype}"): f"{milliseconds(row.median_us)} ms, "
        f"{number(mean_power_w(row), 0)} W, {number(row.sm_mhz, 0)} MHz"
        for row in sorted(rows, key=attrgetter("dtype", "variant"))
    }
    kinds, kernels = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    lines = ([kind, *(cells.get((kind, kernel), "") for kernel in kernels)] for kind in kinds)
    return table(["operands", *kernels], lines)


def claims_of_others() -> str:
    """Return how many published figures of other people have each verdict."""
    verdicts = ("holds", "does not hold", "not decided", "wrong at this shape")
    lines = []
    for path in sorted(RESULTS.glob("*/claims/*/reproduce.csv"), key=lambda path: path.parent.name):
        figures = csv_rows(path)
        counts = Counter(figure["claim"].removesuffix(" on this device") for figure in figures)
        folder, gpu = path.parent, figures[0]["device"].removeprefix("NVIDIA ")
        link = f"[`{folder.name}`](../results/{folder.relative_to(RESULTS)}/reproduce.md)"
        lines.append([link, gpu.split()[0], *(counts[verdict] or "" for verdict in verdicts)])
    return table(["claim", "GPU", *verdicts], lines)


def foreign_kernels() -> str:
    """Return how many kernels of other projects are right, and a table of them."""
    files = [measured_file(f"{name}.csv") for name in FOREIGN]
    latest = {(row["kernel"], row["n"]): row for file in files for row in csv_rows(file)}
    rows = [row for row in latest.values() if row["repository"]]
    rows.sort(key=itemgetter("op", "compute_mode", "kernel"))
    sizes = sorted({row["n"] for row in rows}, key=int)
    cells = []
    for of_kernel in grouped(rows, itemgetter("kernel")).values():
        first, by_size = of_kernel[0], {row["n"]: row for row in of_kernel}
        file = first["file"].rpartition("/")[2]
        ratio = next((row["ratio"] for row in of_kernel if row["ratio"]), "–")
        percent = by_size.get(PROFILED_SIZE, {}).get("percent_of_cublas")
        cells.append(
            [
                f"{first['repository'].partition('/')[2]}: {file} {first['function']}".strip(),
                first["op"],
                first["compute_mode"],
                *(us_or_status(by_size[n]) if n in by_size else "–" for n in sizes),
                f"{float(percent):.0f} %" if percent else "–",
                ratio,
            ]
        )
    heading = ["kernel", "operation", "mode", *(f"µs at {n}" for n in sizes)]
    statuses = [row["status"] for row in rows if row["n"] == PROFILED_SIZE]
    right = f"{statuses.count('ok')} of {len(statuses)} kernels are right at {PROFILED_SIZE}.\n\n"
    return right + table([*heading, f"of cuBLAS at {PROFILED_SIZE}", "by Nsight Compute"], cells)


def us_or_status(row: Mapping[str, str]) -> str:
    """Return a row's time in microseconds, or the status of a row without a time."""
    return f"{float(row['gpubench_us']):,.0f}" if row["gpubench_us"] else row["status"]


def reproduced(first: str, after: str) -> str:
    """Return a part of reproduce.md. The part begins and ends at the titles of two tables."""
    text = measured_file("reproduce/reproduce.md").read_text(encoding="utf-8")
    start = text.index(f"**{first}")
    return text[start : text.index(f"**{after}", start)].strip()


def changed_kernels() -> str:
    """Return the kernels whose sources changed since a file was measured, for each file."""
    lines = []
    for path in sorted((*RESULTS.glob("*/**/*.csv"), *RESULTS.glob("*/**/*.json"))):
        if changed := claims.changed_kernels(path):
            kernels = claims.kernels_of(path)
            every = len(kernels) > 1 and all(kernels.values())
            said = "all" if every else ", ".join(f"`{name}`" for name in changed)
            lines.append([f"[{path.name}](../{path.relative_to(ROOT)})", said])
    return table(["file", "kernels that have changed"], lines, text=True)


# ---- tables from the code


def ladder_kernels(which: str) -> str:
    """Return a table of the `steps` of the ladder, or of all `others` of gemm."""
    listed = {variant.name: variant for variant in variants() if variant.op == "gemm"}
    ladder = steps(tuple(listed.values()))
    if which == "steps":
        after = {name: listed[name].after for name in ladder}
        lines = [
            [kernel_link(listed[name]), f"`{x}`" if x else "", listed[name].idea]
            for name, x in after.items()
        ]
        return table(["step", "changes", "idea"], lines, text=True)
    rest = [variant for name, variant in listed.items() if name not in ladder]
    lines = [[kernel_link(variant), variant.backend, variant.idea] for variant in rest]
    return table(["kernel or routine", "runs on", "idea"], lines, text=True)


def kernel_link(variant: Variant) -> str:
    """Return a link from the page of the kernels to a variant's source."""
    return f"[`{variant.name}`]({os.path.relpath(variant.source, KERNELS_PAGE.parent)})"


def headers() -> str:
    """Return the first sentence of each header's comment, without the header's name."""
    lines = []
    for path in sorted(KERNELS.glob("lib/*/*.cuh")):
        paragraph = path.read_text(encoding="utf-8").partition("\n//\n")[0].partition("\n\n")[0]
        text = " ".join(line.removeprefix("//").strip() for line in paragraph.splitlines())
        sentence = re.split(r"(?<=[^.][.])\s", text.partition(": ")[2], maxsplit=1)[0]
        link = f"[`{path.stem}`]({os.path.relpath(path, KERNELS_PAGE.parent)})"
        lines.append([link, sentence.rstrip(".:")])
    return table(["header", "holds"], lines, text=True)


def columns() -> str:
    """Return a table of columns of the CSV for each group of columns."""
    return _columns(COLUMNS, GROUPS)


def build_columns() -> str:
    """Return a table of columns of a build file for each group of columns."""
    return _columns(build_row.COLUMNS, BUILD_GROUPS)


def _columns(columns: Sequence[Field[Any]], headings: Mapping[str, str]) -> str:
    kinds, parts = {"str": "text", "int": "integer", "float": "number"}, []
    for group, members in groupby(columns, key=lambda column: column.metadata["group"]):
        lines = (
            [
                f"`{column.name}`",
                kinds.get(str(column.type).removesuffix(" | None"), "text"),
                column.metadata["meaning"],
            ]
            for column in members
        )
        heading = f"### {group}: {headings[group]}" if group in headings else f"### {group}"
        parts.append(f"{heading}\n\n{table(['column', 'type', 'meaning'], lines, text=True)}")
    return "\n\n".join(parts)


GROUPS = {
    "key": "What was measured",
    "outcome": "How it ended",
    "time": "How long a launch takes",
    "rates": "What follows from the time",
    "why": "What explains it",
    "pairs": "What measurements in turns with a library showed",
    "clocks": "What state the GPU was in",
    "host": "What state the host was in",
    "context": "On what, and when",
}
"""Maps a group of the CSV's columns to the heading of its table."""

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
"""Maps a group of a build file's columns to the heading of its table."""


def block(name: str, *arguments: str) -> str:
    """Return the text that the function `name` makes, between empty lines. cog calls `block`."""
    modules = (sys.modules[__name__], shape_tables, claims)
    make = next(make for module in modules if callable(make := vars(module).get(name)))
    return f"\n{make(*arguments)}\n\n"
