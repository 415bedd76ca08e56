"""Describe kernels of other people's repositories by `gpubench new-kernel --from`. Needs no GPU.

    python research/foreign.py CHECKOUTS -o results/cpu/foreign.csv --compile --check

CHECKOUTS is a folder with checkouts of the repositories in `foreign_kernels.csv`, under their names
without the owner, with their submodules. No source is edited. `foreign_kernels.csv` also has the
facts that each description must state: types, layout, and the launch at `EXTENTS` (`16x32 256 0`:
blocks, threads, bytes of shared memory). People read these facts in the sources. `?` stands for a
launch that the source does not state. A description is right if it states these facts and
compiles. No line of a right description must be changed.
"""

from __future__ import annotations

import csv
import os
import re
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from subprocess import run
from time import perf_counter

from common import GPUBENCH, ROOT, csv_rows, parser

from gpubench.backends.cuda.compile import compile_instance
from gpubench.backends.cuda.nvcc import compile_library
from gpubench.errors import CompileError, LaunchError, UsageError
from gpubench.model import CudaVariant, HostVariant, Problem, Variant
from gpubench.plan.registry import of_op

TABLE = ROOT / "research" / "foreign_kernels.csv"
ARCHITECTURE = "sm_90"
EXTENTS = {"gemm": (1024, 512, 256), "gemv": (1024, 512, 1)}
SQUARES = {"gemm": (1024, 1024, 1024), "gemv": (1024, 1024, 1)}
LIMIT_S = 3.0  # maximum CPU time of a description with its proof
GUESS = re.compile(r"[Gg]uess|could not be read")
COLUMNS = (
    "repository", "file", "function", "operation", "says", "changed_lines", "differs",
    "is_true", "launch", "launch_in_source", "seconds", "cpu_s", "compiled_s", "check",
)  # fmt: skip


def described(
    row: dict[str, str], checkouts: Path, own: Path, name: str = "mine"
) -> dict[str, object]:
    """Describe one kernel. Return the command's message in one line, and its times in seconds."""
    source = checkouts / row["repository"].partition("/")[2] / row["file"]
    if not source.is_file():
        sys.exit(f"foreign.py: {source} is missing: clone {row['repository']} into {checkouts}")
    command = [*GPUBENCH, "new-kernel", name, "--from", str(source), "--op", row["operation"]]
    chosen = ["--kernel", row["function"]] if row["function"] else []
    started, before = perf_counter(), cpu_seconds()
    done = run([*command, *chosen, "--dir", str(own)], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    starts = ("The description is complete", "Not proved", "First say", "error")
    said = [line for line in lines if line.startswith(starts)] or lines[-1:]
    seconds, of_cpu = perf_counter() - started, cpu_seconds() - before
    text = " ".join(" ".join(said).split())
    return {"says": text, "seconds": f"{seconds:.1f}", "cpu_s": f"{of_cpu:.1f}"}


def cpu_seconds() -> float:
    """Return the CPU seconds of this process's children.

    Other work on the machine does not count.
    """
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def differences(
    row: dict[str, str], variant: Variant, text: str, *, is_proved: bool
) -> tuple[list[str], str]:
    """Return the fields of a description that differ from the facts in `row`, and the launch."""
    fields, launch = [], ""
    if " ".join(variant.dtypes) != row["dtypes"]:
        fields.append(f"dtypes={' '.join(variant.dtypes)}")
    dtype, size = variant.dtypes[0], EXTENTS[row["operation"]]
    layout = " ".join(variant.own_layout(dtype))
    if layout != row["column_major"]:
        fields.append(f"column_major={layout or '-'}")
    if isinstance(variant, CudaVariant):
        problem = replace(
            Problem.of(row["operation"], size, dtype), column_major=variant.own_layout(dtype)
        )
        tile = variant.tiles.defaults[0]
        refused = variant.why_not(tile, problem)
        problem = problem.at(SQUARES[row["operation"]]) if refused else problem
        launched = variant.launch(tile, problem)
        parts = (
            "x".join(map(str, _without_ones(each))) for each in (launched.grid, launched.block)
        )
        launch = " ".join((*parts, str(launched.shared_bytes)))
        expected = row["launch"].split()
        if row["launch"] == "?" or not expected:
            fields += ["grid, block"] if GUESS.search(text) and not is_proved else []
        else:
            pairs = zip(("grid", "block", "shared_bytes"), launch.split(), expected, strict=True)
            fields += [f"{name}={value}" for name, value, each in pairs if value != each]
    return fields, launch + (" (a guess)" if launch and GUESS.search(text) else "")


def _without_ones(extents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the extents of a grid or a block, without the extents of 1 at the end."""
    while len(extents) > 1 and extents[-1] == 1:
        extents = extents[:-1]
    return extents


def compiled(variant: Variant) -> tuple[str, str]:
    """Compile a kernel, and return the seconds.

    If this fails, return an empty text and the error.
    """
    started, dtype = perf_counter(), variant.dtypes[0]
    try:
        if isinstance(variant, HostVariant):
            tile = variant.tiles.defaults[0] if variant.tiles else None
            compile_library(variant, tile, dtype, ARCHITECTURE)
        elif isinstance(variant, CudaVariant):
            tile = variant.tiles.defaults[0]
            name, options = variant.instance(tile, dtype), variant.options(tile, dtype)
            compile_instance(variant.source, name, ARCHITECTURE, options)
    except CompileError as error:
        return "", str(error).splitlines()[0]
    return f"{perf_counter() - started:.1f}", ""


def examine(row: dict[str, str], checkouts: Path, options: Namespace) -> dict[str, object]:
    """Describe and examine one kernel, and return the kernel's row of the output."""
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder, "own")
        said = described(row, checkouts, own)
        path = own / row["operation"] / "mine.py"
        result: dict[str, object] = dict.fromkeys(COLUMNS, "")
        result |= {key: row[key] for key in COLUMNS[:4]}
        result |= {**said, "launch_in_source": row["launch"]}
        is_complete = str(said["says"]).startswith("The description is complete")
        fields: list[str] = []
        try:
            if not path.exists():
                fields.append("no description")
            elif "=?" in (text := path.read_text(encoding="utf-8")):
                fields.append("signature")
            else:
                variant = of_op(row["operation"], own, ["mine"])["mine"]
                fields, result["launch"] = differences(row, variant, text, is_proved=is_complete)
                if options.compile:
                    result["compiled_s"], error = compiled(variant)
                    fields += [f"compile: {error}"] if error else []
        except (UsageError, LaunchError, ValueError) as error:
            fields.append(f"refused: {error}")
        result["changed_lines"] = len(fields)
        result["differs"] = "; ".join(fields)
        result["is_true"] = ("no" if fields else "yes") if is_complete else ""
        if options.check and is_complete:
            command = [*GPUBENCH, "check", "mine", "--kernels", str(own), "--op", row["operation"]]
            done = run(command, capture_output=True, text=True, check=False)
            lines = [line for line in done.stdout.splitlines() if line.strip()]
            result["check"] = f"{done.returncode}: {lines[-1] if lines else done.stderr.strip()}"
        return result


def main() -> int:
    options = parser(__doc__, "foreign.csv")
    options.add_argument("checkouts", type=Path)
    options.add_argument("--table", type=Path, default=TABLE)
    options.add_argument("--only", default="", help="only rows with this text")
    options.add_argument("--compile", action="store_true", help=f"compile for {ARCHITECTURE}")
    options.add_argument("--check", action="store_true", help="check kernels on the CPU")
    chosen = options.parse_args()
    rows = [row for row in csv_rows(chosen.table) if chosen.only in ":".join(row.values())]
    results = []
    for row in rows:
        results.append(examine(row, chosen.checkouts.resolve(), chosen))
        shown = ("repository", "file", "function", "cpu_s", "says", "differs")
        print(*(results[-1][name] for name in shown), sep=" | ", flush=True)
    with chosen.output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator=os.linesep)
        writer.writeheader()
        writer.writerows(results)
    truths = Counter(each["is_true"] for each in results)
    unchanged = sum(not each["changed_lines"] for each in results)
    wrong_grids = [each for each in results if "(a guess)" not in str(each["launch"])
                   and re.search("(grid|block|shared_bytes)=", str(each["differs"]))]  # fmt: skip
    slow = sum(float(str(each["cpu_s"])) > LIMIT_S for each in results)
    print(
        f"{unchanged} of {len(results)} descriptions need no changed line; {truths['yes']} of "
        f"{truths['yes'] + truths['no']} complete descriptions are true; {len(wrong_grids)} have a "
        f"wrong launch; {slow} took more than {LIMIT_S:g} s of CPU time"
    )
    return int(bool(truths["no"] or wrong_grids))


if __name__ == "__main__":
    sys.exit(main())
