"""What gpubench was to reach, and what the files of results/ say: the table of docs/claims.md.

A bound is met, missed, flagged (rounds disagree, so nothing is claimed), or not measured: no file
has the figure. `python docs/make_tables.py` writes the page.
"""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from agreement import BOUNDS, TITLES, Line, verdicts
from agreement_timers import Case
from rivals import lacks
from steps import SANITIZED
from tensor import ASKED, judged, library_of, times_as_fast

from gpubench.model import DTYPES
from gpubench.results.row import Row, read
from gpubench.view.tables import pipe_table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"

Finding = tuple[str, bool | str | None] | None
"""The figure, and whether the bound is met (None: flagged), or that in words; or no figure."""

Judge = Callable[[list[Path]], Finding]
"""Of the files that a claim names."""


@dataclass(frozen=True)
class Claim:
    """A bound."""

    what: str
    files: str
    """A pattern in results/."""

    judge: Judge

    @property
    def cells(self) -> list[str]:
        """What, figure, outcome, files."""
        paths = sorted(RESULTS.glob(self.files))
        found = self.judge(paths) if paths else None
        figure, met = found or ("", None)
        words = {True: "met", False: "**missed**", None: "rounds disagree"}
        said = met if isinstance(met, str) else words[met]
        names = ", ".join(f"[{path.name}](../{path.relative_to(ROOT)})" for path in paths[:3])
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""  # noqa: PLR2004 # of a line
        return [self.what, figure, said if found else "not measured", names + more]


def matches(pattern: str, good: Callable[[list[tuple[str, ...]]], Finding]) -> Judge:
    """Of the groups of all matches in the files."""

    def judge(paths: list[Path]) -> Finding:
        text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
        found = [match.groups() for match in re.finditer(pattern, text, re.MULTILINE)]
        return good(found) if found else None

    return judge


def number(pattern: str, unit: str, *, most: float = math.inf, least: float = -math.inf) -> Judge:
    """Of the first match's only group."""
    return matches(pattern, lambda found: (found[0][0] + unit, least <= float(found[0][0]) <= most))


def total(pattern: str, unit: str, *, most: float = math.inf, least: float = 0.0) -> Judge:
    """Of the sum of all matches' only group."""

    def good(found: list[tuple[str, ...]]) -> Finding:
        added = sum(int(groups[0].replace(",", "")) for groups in found)
        return f"{added:,} {unit}", least <= added <= most

    return matches(pattern, good)


def step(name: str) -> float | None:
    """The wall time of a step, where it is known."""
    wall_s: float | None = records().get(name, {}).get("wall_s")
    return wall_s


def records() -> dict[str, dict[str, Any]]:
    """What publish.py knows of each step whose files are in results/."""
    known: dict[str, dict[str, Any]] = json.loads((RESULTS / "steps.json").read_text())
    return known


def seconds(name: str, most: float) -> Judge:
    """Of the wall time of a step."""
    return lambda _paths: (f"{step(name):.0f} s", (step(name) or 0) <= most) if step(name) else None


def samples(paths: list[Path]) -> Finding:
    """The part of the sweep's wall time that is device time of samples."""
    spent_s, wall_s = sum(row.device_s or 0.0 for row in read(paths[0])), step(paths[0].stem)
    return (f"{spent_s / wall_s:.0%}", spent_s >= 0.6 * wall_s) if wall_s else None


def forecast(paths: list[Path]) -> Finding:
    """What a dry run says of the sweep `main`, over what that took."""
    said = re.search(r"about (\d+):(\d+)", paths[0].read_text(encoding="utf-8"))
    if said is None or not (wall_s := step("main")):
        return None
    about_s = 60 * int(said[1]) + int(said[2])
    return f"{about_s} s for {wall_s:.0f} s", 1 / 1.5 <= about_s / wall_s <= 1.5  # noqa: PLR2004 # the bound


def faster(size: str, least: float, *, interval: bool = False, **key: str) -> Judge:
    """Of the best hand-written kernel against the better library at one size and `key`.

    With `interval` it is said if the 95 % interval of the ratio alone reaches the bound.
    """

    def judge(paths: list[Path]) -> Finding:
        every = [row for path in paths for row in timed(path)]
        rows = [
            row
            for row in every
            if row.size == size and all(getattr(row, name) == value for name, value in key.items())
        ]
        own = best(row for row in rows if not is_library(row))
        library = best(row for row in rows if row.variant in BASELINES)
        if own and library is None:  # too short to sustain: see benchmarks/tensor.py
            library = library_of(own, every)
        if own is None or library is None:
            return None
        ratio, high, between = times_as_fast(own, library)
        text = f"{ratio:.3f} ({between})" if interval and between else f"{ratio:.3f}"
        reached = judged(least, ratio, high if interval else ratio)
        return text, None if own.unstable or library.unstable else reached

    return judge


def of_copy(size: str, least: float) -> Judge:
    """Of the percentage of a copy's rate that the best hand-written kernel reaches."""

    def judge(paths: list[Path]) -> Finding:
        rows = [row for row in timed(paths[0]) if row.size == size and not is_library(row)]
        if (own := best(rows)) is None or own.percent_of_copy is None:
            return None
        return (
            f"{own.percent_of_copy:.1f} %",
            None if own.unstable else own.percent_of_copy >= least,
        )

    return judge


def timed(path: Path) -> list[Row]:
    return [row for row in read(path) if row.status == "ok" and row.median_us]


BASELINES = {"cublas", "cublaslt"}


def is_library(row: Row) -> bool:
    return row.variant.startswith(("cublas", "cupy_matmul", "torch", "triton"))


def best(rows: Sequence[Row] | Iterator[Row]) -> Row | None:
    return min(rows, key=lambda row: row.median_us or math.inf, default=None)


def agreement(bound: str) -> Judge:
    """Of one of the bounds that agreement.py judges."""

    def judge(paths: list[Path]) -> Finding:
        with paths[0].open(encoding="utf-8") as file:
            found: dict[Case, Line] = {}
            for row in csv.DictReader(file):
                case = Case(row["variant"], row["tile"], int(row["n"]))
                found[case] = {
                    name: float(row[f"{name}_us"]) for name in TITLES if row[f"{name}_us"]
                }
                if row["gap_us"]:
                    found[case]["paired_gap"] = float(row["gap_us"])
                if row["kernels_per_call"]:
                    found[case]["kernels"] = float(row["kernels_per_call"])
        for claim, outcome, detail in verdicts(found):
            if claim == bound and outcome != "NOT JUDGED":
                return detail, outcome == "PASS"
        return None

    return judge


def faults(found: list[tuple[str, ...]]) -> Finding:
    """By how much times change beside kernels with faults, and whether a status is unexpected."""
    worst = max(abs(float(change)) for change, _ in found if change)
    unexpected = sum(bool(note) for _, note in found)
    return f"{worst:.2f} %, {unexpected} unexpected", worst <= 1 and not unexpected


def memory(found: list[tuple[str, ...]]) -> Finding:
    """What 500 points have more in use than five."""
    after = {int(points): int(used.replace(",", "")) for points, used in found}
    return f"{after[500] - after[5]:,} bytes", after[500] - after[5] <= 2**21


def fuzzed(found: list[tuple[str, ...]]) -> Finding:
    """How many inputs were tried, with how many findings."""
    inputs = sum(int(count.replace(",", "")) for count, _ in found)
    findings = sum(int(count) for _, count in found)
    return f"{inputs:,} inputs, {findings} findings", inputs >= 10**5 and not findings


def all_dtypes(found: list[tuple[str, ...]]) -> Finding:
    """Whether no kernel is wrong, in any precision."""
    wrong = sum(int(count) for (count,) in found)
    text = f"{wrong} wrong in {len(found)} precisions"
    return (text, wrong == 0) if wrong or len(found) == len(DTYPES) else None


def tuned(found: list[tuple[str, ...]]) -> Finding:
    """The worst of the races: how much slower its winner is, and its part of the time."""
    slower = max(float(cells[0]) for cells in found)
    part = max(float(cell) for cells in found for cell in cells[1:] if cell)
    return f"{slower:.2f} %, {part:.0f} % of the time", slower <= 1 and part <= 20  # noqa: PLR2004 # the bound


def diff_power(column: int, least: float | None) -> Judge:
    """Of the lines of five rounds, the default: none exits 1 (None), or so many do."""

    def good(found: list[tuple[str, ...]]) -> Finding:
        counts = [re.findall(r"(\d+) of (\d+)", groups[0])[column] for groups in found]
        rates = [int(hits) / int(of) for hits, of in counts]
        met = max(rates) == 0 if least is None else min(rates) >= least
        return ", ".join(f"{hits} of {of}" for hits, of in counts), met

    return matches(r"^\| 5 \| \d+ (\|.*)$", good)


def fleets(column: int, *, least: float = 0.0, most: float = 100.0) -> Judge:
    """Of a column of the simulated fleets."""

    def good(found: list[tuple[str, ...]]) -> Finding:
        rates = [float(re.findall(r"([\d.]+)%", groups[0])[column]) for groups in found]
        shown = ", ".join(f"{rate:g} %" for rate in rates)
        return shown, all(least <= rate <= most for rate in rates)

    return matches(r"^\| \d+ (\|.*)$", good)


def held(what: str) -> Judge:
    """Of what a script has judged itself: `holds: …` or `FAILS: …`."""

    def good(found: list[tuple[str, ...]]) -> Finding:
        return found[0][1], all(outcome == "holds" for outcome, _ in found)

    return matches(rf"^(holds|FAILS): (.*{what}.*)$", good)


def sanitized(found: list[tuple[str, ...]]) -> Finding:
    """What each tool ran without a report."""
    clean = {(tool, dtype) for tool, dtype, code in found if code == "0"}
    left = [f"{tool} of {dtype}" for tool, dtype in SANITIZED if (tool, dtype) not in clean]
    said = f"{len(clean)} of {len(SANITIZED)} runs clean"
    return f"{said}; not: {', '.join(left)}" if left else said, not left


def rivals(paths: list[Path]) -> Finding:
    """How many of the rivals have a time, of each size in each precision that they have."""
    names = ("torch", "triton", "sgemm")
    rows = [row for row in read(paths[0]) if row.variant.startswith(names)]
    asked = [row for row in rows if not lacks(row)]
    count = len({(row.variant, row.compute_mode, row.n) for row in asked if row.status == "ok"})
    every = len({(row.variant, row.compute_mode, row.n) for row in asked})
    return f"{count} of {every}", count == every


LADDER = {
    **dict.fromkeys(("2048", "4096", "8192", "16384"), 1.05),
    **dict.fromkeys(("1024", "1000", "4096x4096x1000", "128x8192x8192"), 1.0),
}
SIXTEEN_BITS = {"bfloat16", "float16"}
SIZES_OF_GEMV = ("16384", "8192x32768")

CLAIMS: dict[str, list[Claim]] = {
    "Wall time": [
        Claim("`gpubench sweep` on a GPU, at most 30 s", "h200/quick.csv", seconds("quick", 30)),
        Claim("`gpubench sweep` on two CPU cores, at most 30 s", "cpu/quick.csv", seconds("cpu_quick", 30)),
        Claim("the README's sweep on a GPU, nothing compiled before, at most 120 s", "h200/main.csv", seconds("main", 120)),
        Claim("at least 60 % of it is device time of samples", "h200/main.csv", samples),
        Claim("`--dry-run` says how long within a factor of 1.5", "h200/dry_run.txt", forecast),
        Claim("the README's sweep on two CPU cores, at most 240 s", "cpu/main.csv", seconds("cpu_main", 240)),
        Claim("all five experiments of `gpubench reproduce`, at most 600 s", "h200/reproduce/reproduce.csv", seconds("reproduce", 600)),
        Claim("the exact probe and the check after timing add at most 10 % to a sweep", "h200/verify_cost.txt", number(r"timing add (-?[\d.]+) %", " %", most=10)),
        Claim("64 configurations in no more time than Kernel Tuner", "h200/kernel_tuner_race.txt", matches(r"Tuner: ([\d.]+) s; gpubench: ([\d.]+) s", lambda found: (f"{found[0][1]} s, Kernel Tuner {found[0][0]} s", float(found[0][1]) <= float(found[0][0])))),
        Claim("and their intervals within ±0.5 %", "h200/kernel_tuner_race.txt", number(r"widest ±([\d.]+) ?%", " %", most=0.5)),
        Claim("`gpubench tune` of the same, at most 6 s from an empty cache before the confirmation", "h200/tune_tiles.txt", number(r"^([\d.]+) s: ", " s", most=6)),
    ],
    "Agreement with the profilers": [Claim(f"{bound}", "h200/agreement.csv", agreement(bound)) for bound in BOUNDS],
    "Repeatability": [
        Claim("two sweeps of one build: median difference at most 0.3 %", "h200/repeatability.txt", number(r"median difference ([\d.]+) ?%", " %", most=0.3)),
        Claim("99 % of points of 10 µs and more differ by less than 1 %", "h200/repeatability.txt", number(r"([\d.]+) ?% differ", " %", least=99)),
        Claim("a blocking kernel that is too short is noticed", "h200/short_blocking.txt", number(r"(\d+) void samples retaken", " samples retaken", least=1)),
    ],
    "Nothing is lost": [
        Claim("kernels with faults get their status, and good ones change by at most 1 %", "h200/faults.txt", matches(r"([+-][\d.]+) ?% from without|(\(expected \w+\))", faults)),
        Claim("500 points use no more memory than 5, but for a page of 2 MiB", "h200/memory.txt", matches(r"after +(\d+) points: ([\d,]+) bytes", memory)),
        Claim("200 kills on a CPU, nothing lost or doubled", "cpu/kill_resume*.txt", total(r"(\d+) kills in", "kills", least=200)),
        Claim("20 kills on a GPU, nothing lost or doubled", "h200/kill_resume*.txt", total(r"(\d+) kills in", "kills", least=20)),
        Claim("100,000 mutated inputs without a finding", "cpu/fuzz_*.txt", matches(r"^([\d,]+) inputs in \d+ s, (\d+) findings", fuzzed)),
    ],
    "Right": [
        Claim("every kernel at primes and powers of two, in every precision", "h200/right/*.txt", matches(r"^(\d+) wrong or failed", all_dtypes)),
        Claim("a thousand repeats, bit for bit", "h200/stress/*.txt", total(r"right, (\d+) wrong", "wrong", most=0)),
        Claim("compute-sanitizer reports nothing", "h200/sanitizer/*.txt", matches(r"^(\w+), (\w+): exit (\d+)", sanitized)),
        Claim("`explain` says what the driver says of every kernel", "h200/explain_agreement.txt", matches(r"differences: (\w+)", lambda found: (f"differences: {found[0][0]}", found[0][0] == "none"))),
    ],
    "Matrix times vector, cold": [
        *(Claim(f"{op} {size}: at least 90 % of a copy", f"h200/{op}.csv", of_copy(size, 90)) for op in ("gemv", "gemv_t") for size in SIZES_OF_GEMV),
        *(Claim(f"{op} {size}: at least as fast as cuBLAS", f"h200/{op}.csv", faster(size, 1.0)) for op in ("gemv", "gemv_t") for size in SIZES_OF_GEMV),
        Claim("atax 16384: at least 1.5 times as fast as two calls of cuBLAS", "h200/atax.csv", faster("16384", 1.5)),
        Claim("atax 4096: faster than two calls of cuBLAS", "h200/atax.csv", faster("4096", 1.0)),
    ],
    "The float32 ladder against the better of cuBLAS and a tuned cuBLASLt": [
        Claim(f"{size}, {cache}: at least {least:g}", "h200/ladder_top.csv", faster(size, least, cache=cache))
        for size, least in LADDER.items() for cache in ("cold", "hot")
    ],
    "Tensor cores against the better of cuBLAS and a tuned cuBLASLt, sustained (95 % interval)": [
        Claim(f"{dtype} {size}: at least {least:g}", f"h200/{'tensor' if dtype in SIXTEEN_BITS else 'precisions'}.csv", faster(size, least, interval=True, compute_mode=dtype, state="sustained"))
        for (dtype, size), least in ASKED.items()
    ],
    "`gpubench diff` at five rounds, of 100, 300 and 1,000 points": [
        Claim("one build: no exit 1", "h200/diff_power.md", diff_power(0, None)),
        Claim("one build, `--threshold 1%`: no exit 1", "h200/diff_power.md", diff_power(1, None)),
        Claim("a kernel 5 % slower: exit 1 every time", "h200/diff_power.md", diff_power(3, 1.0)),
        Claim("a kernel 3 % slower: exit 1 in nine of ten", "h200/diff_power.md", diff_power(4, 0.9)),
        Claim("a kernel 2 % slower, `--threshold 1%`: exit 1 in 19 of 20", "h200/diff_power.md", diff_power(5, 0.95)),
        Claim("20 pairs of five sweeps of one build on a CPU: at most one exit 1", "cpu/diff_pairs.txt", held("of one build exit 1")),
    ],
    "`gpubench tune`": [
        *(Claim(f"{name}: within 1 % of the best of all, in at most 20 % of the time", f"h200/tune/{name}.md", matches(r"^\| tune, .*? \| .*? \| ([\d.]+)% \| (?:[\d.]+ s \((\d+)%\))? ?\| [\d.]+ s \((\d+)%\)", tuned)) for name in ("wgmma_cluster_4096", "wgmma_cluster_1000", "packed_panels_4096", "vectorized_4096", "pipelined_4096")),
        Claim("simulated: the group holds the best in at least 95 % of 1,000 races", "cpu/tune_simulated.md", held("group holds the best")),
    ],
    "Rivals, and exported programs": [
        Claim("every rival timed at 1024 to 8192 in bfloat16, float16, tf32 and float32", "h200/rivals.csv", rivals),
        Claim("exported programs within 3 % of gpubench", "h200/exports.md", held("exported programs")),
    ],
    "Many GPUs": [
        *(Claim(f"{count} GPUs: a sweep in at most {least} of one GPU's wall time", f"h200/many_gpus_{count}.txt", held("of it")) for count, least in ((2, 0.6), (4, 0.35))),
        Claim("and its figures are as on one GPU", "h200/many_gpus_*.txt", held("figures as on one")),
        Claim("a worker is killed: nothing lost", "h200/many_gpus_*.txt", held("worker killed")),
        Claim("`gpubench fleet` in under 60 s", "h200/many_gpus_*.txt", held("fleet in")),
        Claim("twice: the same verdicts", "h200/many_gpus_*.txt", held("same verdicts")),
        *(Claim(f"simulated fleets of 8, 64 and 1,024: a GPU {slowdown} % slower is found in at least {least} %", "h200/fleet_power.md", fleets(column, least=least)) for column, (slowdown, least) in enumerate(((5, 90), (10, 99), (20, 100)))),
        Claim("and at most 1 % of healthy ones have a false alarm", "h200/fleet_power.md", fleets(3, most=1)),
    ],
}  # fmt: skip
"""By what they are about."""


def claims() -> str:
    """A table for each subject."""
    heading = ["bound", "figure", "", "file"]
    parts = []
    for subject, of_subject in CLAIMS.items():
        lines = [heading, *(claim.cells for claim in of_subject)]
        table = "\n".join(pipe_table(lines, [True] * len(heading))).replace("\\*", "*")
        parts.append(f"## {subject}\n\n{table}")
    return "\n\n".join(parts)
