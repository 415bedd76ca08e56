"""The bounds of results/claims.md, and whether the files of results/ show each of them.

A claim about a ratio of two times, a mean of ratios, or a rate of cases is *shown* if the whole
95 % interval meets the bound, *missed* if none of the interval does, and *not decided* otherwise. Other figures are *met* or *missed*.
"""

import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from common import ROOT, csv_rows, hashes_of, load, measured, measured_file, table
from scipy import stats
from shape_tables import (
    ALONE,
    CACHES,
    KINDS,
    OPERATIONS,
    OTHERS,
    alone_mean,
    in_pairs,
    other_ratios,
    path_of_operation,
    path_of_others,
    plain_mean,
    said,
)
from shapes import outcomes
from verify_kernels import sizes_of

from gpubench.commands.diff.options import AB_CPU_PAIRS
from gpubench.grouping import grouped
from gpubench.model import CORE_DTYPES, CudaVariant, Problem
from gpubench.plan.registry import variants
from gpubench.results.row import Row, read
from gpubench.stats.pairs import Ratio, ratio_of_pairs
from gpubench.view.row_tables import best_of, by_problem

RESULTS = ROOT / "results"
GPU_COST, CPU_COST = measured_file("verify_cost.txt"), RESULTS / "cpu" / "verify_cost.txt"
"""Files with the output of `verify_cost.py`, of a GPU and of a CPU."""

REPRODUCED = measured_file("reproduce/reproduce.csv")

MISSING = re.compile("needs (a GPU|the Python module)|requires CUDA support")
"""Reasons why a solution of another project cannot run on the machine."""

OWN_KERNELS = [each for each in variants() if isinstance(each, CudaVariant)]
"""The hand-written kernels for GPUs, of all operations."""

LIBRARIES = ("cublas", "cublaslt")
EMULATED = "cublas_emulated"
DISAGREE = "rounds disagree"
OLDER_KERNELS = "no claim: older kernels"

Figure = tuple[str, str]
"""A measured figure as text, and the outcome of the figure, such as *shown*."""


@dataclass(frozen=True)
class Claim:
    """A claim: a bound, and the figure that is compared with the bound."""

    what: str
    files: str
    """Names or patterns of files in results/, separated by spaces."""

    judge: Callable[[], Figure]

    @property
    def cells(self) -> list[str]:
        """The line of this claim in a table: bound, figure, outcome, files, devices and days."""
        paths = [path for part in self.files.split() for path in sorted(RESULTS.glob(part))]
        figure, outcome = self.judge() if paths else ("", "not measured")
        if any(map(changed_kernels, paths)):
            outcome = OLDER_KERNELS
        links = [f"[{path.name}](../{path.relative_to(ROOT)})" for path in paths[:2]]
        more = [f"{len(paths) - 2} more"] if len(paths) > 2 else []  # noqa: PLR2004 # of a cell
        names = [path.relative_to(RESULTS) for path in paths if path.parent.name != "operating"]
        days = {days_by_file().get(f"{name}", "") for name in names} - {""}
        period = " to ".join(dict.fromkeys((min(days), max(days)))) if days else ""
        on = ", ".join(dict.fromkeys(name.parts[0].upper() for name in names))
        return [self.what, figure, outcome, ", ".join(links + more), on, period]


@cache
def days_by_file() -> Mapping[str, str]:
    """Return the day on which each file of results/ was measured."""
    return {file: utc[:10] for file, utc in measured("utc").items()}


@cache
def hashes() -> Mapping[str, str]:
    """Return the hash of the present sources of each kernel, by operation and name."""
    return hashes_of(variants())


@cache
def kernels_of(path: Path) -> Mapping[str, bool]:
    """Return whether each kernel in a file of results/ has changed since the measurement.

    Older files without the column `op` have plain products. A JSON file has rows like a CSV, or
    maps `kernels` to hashes. Other files have no kernels.
    """
    rows: Any = csv_rows(path) if path.suffix == ".csv" else ()
    if path.suffix == ".json":
        rows = load(path)
    if isinstance(rows, dict):
        by_name = rows.get("kernels")
        if not isinstance(by_name, dict):  # some scripts list their kernels
            return {}
        return {key: sources != hashes().get(key) for key, sources in by_name.items()}
    if not rows or not {"variant", "source_hash"} <= {*rows[0]}:
        return {}
    kernels = {(f"{row.get('op', 'gemm')} {row['variant']}", row["source_hash"]) for row in rows}
    by_key = grouped(sorted(kernels), lambda kernel: kernel[0])
    return {
        key: any(sources != hashes()[key] for _, sources in of_key if sources)
        for key, of_key in by_key.items()
        if key in hashes() and any(sources for _, sources in of_key)
    }


def changed_kernels(path: Path) -> list[str]:
    """Return the names of the kernels in a file whose sources changed since the measurement."""
    return sorted({key.partition(" ")[2] for key, changed in kernels_of(path).items() if changed})


# ---- figures and outcomes


def met(figure: str, holds: bool) -> Figure:
    return figure, "met" if holds else "**missed**"


def within(low: float, high: float, at_least: float = 0.0, at_most: float = math.inf) -> str:
    """Return the outcome of a figure by its interval and by its bounds."""
    is_shown, is_missed = at_least <= low and high <= at_most, high < at_least or low > at_most
    return "shown" if is_shown else "**missed**" if is_missed else "not decided"


def rate(hits: int, tries: int, *, at_least: float = 0.0, at_most: float = 1.0) -> Figure:
    """Judge a rate by the interval of Clopper and Pearson, Biometrika 26 (1934)."""
    interval = stats.binomtest(hits, tries).proportion_ci(method="exact")
    figure = f"{hits} of {tries} ({100 * interval.low:.1f} to {100 * interval.high:.1f} %)"
    return figure, within(interval.low, interval.high, at_least, at_most)


def ratio_figure(ratio: Ratio, at_least: float) -> Figure:
    """Judge a ratio, or a geometric mean of ratios, by its interval."""
    return said(ratio), within(ratio.low, ratio.high, at_least)


def by_size(figures: Mapping[str, Figure]) -> Figure:
    """Return all figures and their outcome.

    If outcomes differ, return each outcome with its sizes.
    """
    sizes: dict[str, list[str]] = {}
    for size, (_, outcome) in figures.items():
        sizes.setdefault(outcome, []).append(size)
    every = "; ".join(f"{size}: {figure}" for size, (figure, _) in figures.items() if figure)
    outcomes = "; ".join(f"{word}: {', '.join(names)}" for word, names in sizes.items())
    return every, next(iter(sizes)) if len(sizes) == 1 else outcomes


# ---- kernels beside the better library, in sweeps


def library_of(own: Row, rows: Sequence[Row]) -> Row | None:
    """Return the row of the faster library at a kernel's problem and in its state, or None.

    Some libraries' launches are too short for the sustained state. Then the kernel has no ratio,
    because a ratio of times in two states would compare two clock frequencies.
    """
    timed = [row for row in rows if row.variant in LIBRARIES and row.median_us]
    timed = [row for row in timed if row.problem_key == own.problem_key]
    return best_of(timed) if timed else None


def speedup(own: Row, library: Row) -> Ratio:
    """Return the speed of the kernel divided by the speed of the library, with a 95 % interval.

    Student's interval is computed from the logarithms of the rounds' ratios. Rounds of kernel and
    library are interleaved. The interval is infinite if the numbers of rounds differ, or if there
    is only one round.
    """
    ratio = (library.median_us or math.nan) / (own.median_us or math.nan)
    pairs = library.round_medians_us, own.round_medians_us
    low, high = 0.0, math.inf
    if len(pairs[0]) == len(pairs[1]) > 1:
        _, low, high = ratio_of_pairs(*pairs)
    return Ratio(ratio, low, high)


def comparisons(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Yield the fastest kernel and the faster library of each problem."""
    timed = [row for row in rows if row.status == "ok" and row.median_us]
    for problem in by_problem(timed):
        if own := [row for row in problem if row.variant not in {*LIBRARIES, EMULATED}]:
            fastest = best_of(own)
            if library := library_of(fastest, timed):
                yield fastest, library


def in_sweep(own: Row, library: Row, at_least: float) -> Figure:
    """Judge a ratio that should be `at_least` or higher."""
    figure, outcome = ratio_figure(speedup(own, library), at_least)
    return figure, DISAGREE if own.unstable or library.unstable else outcome


def faster(files: Sequence[str], bounds: dict[str, float], **key: str) -> Figure:
    """Judge the fastest kernel against the better library at each size.

    `key` has the values of columns that select rows.
    """
    rows = [row for name in files for row in read(measured_file(name))]
    pairs = {
        own.size: (own, library)
        for own, library in comparisons(rows)
        if all(getattr(own, name) == value for name, value in key.items())
    }
    return by_size(
        {
            size: in_sweep(*pairs[size], at_least) if size in pairs else ("", "not measured")
            for size, at_least in bounds.items()
        }
    )


def speedups(bounds: dict[str, float], what: str, files: str, **key: str) -> Claim:
    """Return a claim about the better library, with a bound for each size."""
    by_bound: dict[float, list[str]] = {}
    for size, at_least in bounds.items():
        by_bound.setdefault(at_least, []).append(size)
    said = ", ".join(f"{at_least:g} at {' '.join(sizes)}" for at_least, sizes in by_bound.items())
    names = [name.removeprefix("h?00/") for name in files.split()]
    return Claim(f"{what}: at least {said}", files, lambda: faster(names, bounds, **key))


# ---- what each claim rests on


def readme_sweep(path: Path, sweep: str) -> tuple[float, int]:
    """Return the seconds of a sweep and the percentage for verification, by `verify_cost.py`."""
    said = path.read_text(encoding="utf-8")
    wall = re.search(rf"{sweep}: at most \d+ s: ([\d.]+) s", said)
    share = re.search(rf"{sweep}: .*?verifying [\d.]+ s \((\d+) %\)", said)
    if wall is None or share is None:
        raise ValueError(f"{path} has no {sweep}")
    return float(wall[1]), int(share[1])


def wall(path: Path, sweep: str, most_s: int) -> Figure:
    wall_s, _ = readme_sweep(path, sweep)
    return met(f"{wall_s:.1f} s", wall_s <= most_s)


def verifying(sweep: str, at_most: int) -> Figure:
    _, percent = readme_sweep(GPU_COST, sweep)
    return met(f"{percent} %", percent <= at_most)


def reproducing() -> Figure:
    took_s = float(measured("wall_s")[str(REPRODUCED.relative_to(RESULTS))])
    return met(f"{took_s:.0f} s", took_s <= 600)  # noqa: PLR2004 # the bound


def differences() -> list[tuple[float, float]]:
    """Return each point's time in sweep.csv in µs, and its relative change in sweep_again.csv."""
    again = {row.key: row.median_us for row in read(measured_file("sweep_again.csv"))}
    return [
        (row.median_us, abs(time_us / row.median_us - 1))
        for row in read(measured_file("sweep.csv"))
        if row.median_us and (time_us := again.get(row.key))
    ]


def median_difference() -> Figure:
    """Judge the median difference by a binomial interval, whose ends are order statistics."""
    ordered = sorted(difference for _, difference in differences())
    first = int(stats.binom.ppf(0.025, len(ordered), 0.5))
    low, middle, high = ordered[first - 1], statistics.median(ordered), ordered[-first]
    return f"{middle:.3%} ({low:.3%} to {high:.3%})", within(low, high, at_most=0.003)


def close_points() -> Figure:
    long = [difference for time_us, difference in differences() if time_us >= 10]  # noqa: PLR2004 # µs
    return rate(sum(difference < 0.01 for difference in long), len(long), at_least=0.99)  # noqa: PLR2004 # the bound


def faults() -> Figure:
    points = load(measured_file("faults.json"))["points"]
    unexpected = sum(point["status"] != point["expected"] for point in points)
    worst = max(abs(point["change"] or 0.0) for point in points)
    said = f"{unexpected} unexpected statuses, times change by {worst:.2%}"
    return met(said, not unexpected and worst <= 0.01)  # noqa: PLR2004 # the bound


def kills() -> Figure:
    """Judge the number of kills. All runs on a CPU must be of one version of gpubench.

    A run in which a check failed leaves no file.
    """
    runs = load(RESULTS / "cpu/kills.json")
    cpu, gpu = (
        sum(run["kills"] for run in ran) for ran in (runs, load(measured_file("kills.json")))
    )
    holds = cpu >= 300 and gpu >= 20 and of_one_package(runs)  # noqa: PLR2004 # the bounds
    return met(f"{cpu} and {gpu} kills", holds)


def fuzzed() -> Figure:
    """Judge the numbers of inputs and findings. All runs must be of one version of gpubench."""
    runs = load(RESULTS / "cpu/fuzz.json")
    inputs, findings = (sum(run[name] for run in runs) for name in ("inputs", "findings"))
    holds = inputs >= 10**5 and not findings and of_one_package(runs)
    return met(f"{inputs:,} inputs, {findings} findings", holds)


def of_one_package(runs: Sequence[dict[str, Any]]) -> bool:
    """Return whether all runs had the same files of gpubench."""
    return len({run["package"] for run in runs}) == 1


def of_all(figure: str, holds: bool, asked: set[str], ran: set[str]) -> Figure:
    """Judge a figure that counts all kernels. It is not decided while some did not run."""
    absent = sorted(asked - ran)
    if holds and absent:
        return f"{figure}; {len(absent)} did not run, such as {absent[0]}", "not decided"
    return met(figure, holds)


def with_kernels(folder: str) -> list[Any]:
    """Return the contents of JSON files that name their kernels. Older files do not."""
    files = map(load, RESULTS.glob(f"h?00/{folder}/*.json"))
    return [file for file in files if "kernels" in file]


def right() -> Figure:
    """Judge the verification of each hand-written kernel in each of its precisions.

    The files also have the libraries, whose wrong results are listed in libraries.md.
    """
    files = with_kernels("right")
    own_names = {f"{own.op} {own.name}" for own in OWN_KERNELS}
    wrong = sum(
        point.partition(" at ")[0] in own_names for file in files for point in file["failed"]
    )
    points = sum(
        int(file["variants"][name].get("ok", 0))
        for file in files
        for name in own_names & {*file["variants"]}
    )
    asked = {
        f"{own.op} {own.name} {dtype}"
        for own in OWN_KERNELS
        for dtype in own.dtypes
        if not refuses_all(own, dtype)
    }
    ran = {f"{kernel} {file['dtype']}" for file in files for kernel in file["kernels"]}
    return of_all(f"{wrong} wrong, {points:,} right", not wrong, asked, ran)


def refuses_all(kernel: CudaVariant, dtype: str) -> bool:
    """Whether a kernel refuses all sizes of an operation, as `wgmma_scaled` does if rows have scales."""
    problems = [Problem.of(kernel.op, size, dtype) for size in sizes_of(kernel.op)]
    tiles = kernel.tiles.defaults if kernel.tiles else (None,)
    return all(kernel.why_not(tile, problem) for tile in tiles for problem in problems)


def stressed() -> Figure:
    """Judge the repeats of each kernel that lacks a core precision, in any operation."""
    paths = RESULTS.glob("h?00/stress/*.json")
    points = [point for path in paths for point in load(path) if "variant" in point]
    wrong = sum(point["wrong"] for point in points)
    asked = {own.name for own in OWN_KERNELS if not {*CORE_DTYPES} <= {*own.dtypes}}
    ran = {point["variant"] for point in points}
    return of_all(f"{wrong} wrong at {len(points)} points", not wrong, asked, ran)


def sanitized() -> Figure:
    """Judge the runs of kernels with block tiles under compute-sanitizer."""
    runs = with_kernels("sanitizer")
    clean = sum(run["exit"] == 0 for run in runs)
    asked = {own.name for own in OWN_KERNELS if own.tiles and "BK" in own.tiles.axes}
    ran = {kernel.partition(" ")[2] for run in runs for kernel in run["kernels"]}
    return of_all(f"{clean} of {len(runs)} runs clean", clean == len(runs), asked, ran)


def cheats() -> Figure:
    (last,) = measured_file("cheats.txt").read_text(encoding="utf-8").splitlines()[-1:]
    hold, total = last.removesuffix(" hold").split(" of ")
    return met(last, hold == total)


def field_cheats() -> Figure:
    """Judge the verdicts on cheating and honest solutions of other projects' problems."""
    records = load(RESULTS / "cpu/field_cheats.json")
    cheats, honest = ([x for x in records if x["honest"] is kind] for kind in (False, True))
    passed = sum(not {"faster", "same"}.isdisjoint(x["verdicts"]) for x in cheats)
    wrong = sum("wrong" in x["verdicts"] for x in honest)
    figure = (
        f"{passed} of {len(cheats)} cheats pass, "
        f"{wrong} of {len(honest)} honest solutions are wrong"
    )
    return met(figure, not passed and not wrong)


def field_problems() -> Figure:
    """Judge the verdicts on solutions from the repositories of other projects."""
    every = csv_rows(RESULTS / "cpu/field_problems.csv")
    rows = [row for row in every if not MISSING.search(row["reason"])]
    right = sum(row["verdict"] == row["expected"] for row in rows)
    return met(f"{right} of {len(rows)} as expected", right == len(rows))


def foreign_times() -> Figure:
    """Judge the times of other projects' kernels by Nsight Compute's."""
    rows = (row for path in RESULTS.glob("h?00/foreign*.csv") for row in csv_rows(path))
    ratios = [float(row["ratio"]) for row in rows if row["ratio"]]
    within = sum(abs(ratio - 1) <= 0.01 for ratio in ratios)  # noqa: PLR2004 # bound
    return met(f"{within} of {len(ratios)} within 1 %", within == len(ratios))


def two_gpus() -> Figure:
    many = load(measured_file("many_gpus_2.json"))
    turns = many.get("turns", [many])  # older files have one turn
    part = max(turn["all_gpus_s"] / turn["one_gpu_s"] for turn in turns)
    lost = many["timed"] - many["timed_after_a_kill"]
    said = f"{part:.2f} of one GPU's time, {lost} points lost, diff exits {many['diff']['exit']}"
    return met(said, part <= 0.6 and not lost and many["diff"]["exit"] == 0)  # noqa: PLR2004 # bound


def fleet_twice() -> Figure:
    first, second = load(measured_file("many_gpus_2.json"))["fleets"]
    longest = max(first["wall_s"], second["wall_s"])
    return met(f"{longest:.1f} s", longest < 60 and first["verdicts"] == second["verdicts"])  # noqa: PLR2004 # bound


def random_shapes(dtype: str, at_least: float) -> Figure:
    """Judge the geometric mean of ratios of launches alone.

    The weight of a class is its share of drawn shapes.
    """
    return ratio_figure(alone_mean(dtype), at_least)


def other_shapes(dtype: str, kind: str, at_least: float) -> Figure:
    """Judge the geometric mean of ratios at other random shapes, by Student's interval."""
    return ratio_figure(plain_mean(other_ratios(dtype, kind)), at_least)


def operation_shapes(op: str, dtype: str, cache: str, at_least: float) -> Figure:
    """Judge the geometric mean of an operation's ratios, by Student's interval."""
    every = outcomes(path_of_operation(op, dtype))
    ratios = [outcome.ratio for outcome in every if outcome.own.cache == cache]
    return ratio_figure(plain_mean(ratios), at_least)


def long_runs(dtype: str) -> Figure:
    """Judge each square by the interval of its ratio.

    The ratio was measured in pairs with the better library.
    """
    return by_size({row.size: ratio_figure(ratio, 1.0) for row, ratio in in_pairs(dtype)})


def ab_runs(at_least: int = AB_CPU_PAIRS, at_most: int = AB_CPU_PAIRS) -> list[dict[str, Any]]:
    """Return the runs of `gpubench ab` beside other work that have `at_least` to `at_most` pairs.

    The default is the number of pairs that `ab` measures on a CPU.
    """
    runs = load(RESULTS / "cpu/ab.json")
    return [run for run in runs if at_least <= run.get("pairs", 26) <= at_most]


def in_turns(
    runs: Sequence[dict[str, Any]], new: str, *, at_least: float = 0.0, at_most: float = 1.0
) -> Figure:
    """Judge the number of runs with this new side that ended with exit code 1."""
    codes = [run["exit"] for run in runs if run["new"] == new]
    return rate(codes.count(1), len(codes), at_least=at_least, at_most=at_most)


def false_names() -> Figure:
    """Judge the number of runs of `ab` that name a point that did not change.

    Runs whose record has no names are left out.
    """
    runs = [run for run in load(RESULTS / "cpu/ab.json") if "changed" in run]
    false = 0
    for run in runs:
        slowed = {name for name in run["changed"] if run["new"] != "same" and "loop " in name}
        false += any(name not in slowed or ratio < 1 for name, ratio in run["changed"].items())
    return rate(false, len(runs), at_most=0.05)


def parsed(path: Path) -> list[dict[str, str]]:
    """Return the table of a Markdown file, with a dictionary for each line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in x.split("|")[1:-1]] for x in lines if x.startswith("|")]
    return [dict(zip(rows[0], cells, strict=True)) for cells in rows[2:]]


def simulated(
    name: str, column: str, where: Mapping[str, str], *, at_least: float = 0.0, at_most: float = 1.0
) -> Figure:
    """Judge the worst rate in a column of a table of `research/operating.py`.

    `where` has a pattern for some columns. Only lines whose cells match all patterns count.
    """
    lines = [
        line
        for line in parsed(RESULTS / "operating" / f"{name}.md")
        if all(re.fullmatch(pattern, line[key]) for key, pattern in where.items())
    ]
    counts = [tuple(map(int, line[column].split(" of "))) for line in lines]
    hits, tries = (min if at_least else max)(counts, key=lambda count: count[0] / count[1])
    said, outcome = rate(hits, tries, at_least=at_least, at_most=at_most)
    return f"{said}, the worst of {len(lines)} cases", outcome


def simulation(
    what: str, name: str, column: str, where: Mapping[str, str], **bounds: float
) -> Claim:
    """Return a claim that `simulated` judges."""
    return Claim(what, f"operating/{name}.md", partial(simulated, name, column, where, **bounds))


LADDER = dict.fromkeys(("2048", "4096", "8192", "16384"), 1.05)
LADDER |= dict.fromkeys(("1024", "1000", "4096x4096x1000", "128x8192x8192"), 1.0)
SHAPES = {"tf32": 1.1, "int8": 1.1}
"""Bounds of geometric means. In the other precisions of `ALONE` the bound is 1."""

VECTORS = {
    **{op: {"16384": 1.0, "8192x32768": 1.0} for op in ("gemv", "gemv_t")},
    "atax": {"16384": 1.5, "4096": 1.0},
}
FALSE = "other point called slower"
QUIET = {"rounds are": "quiet.*", "rounds": "5"}
NARROW = {"good devices differ by": "normal, 0.25 %", "devices": "8|64"}
SWEEPS = "h?00/sweep.csv h?00/sweep_again.csv"

CLAIMS: dict[str, list[Claim]] = {
    "Wall time": [
        Claim("`gpubench sweep` on a GPU, nothing compiled before, at most 20 s", "h?00/verify_cost.txt", lambda: wall(GPU_COST, "first", 20)),
        Claim("`gpubench sweep` on two CPU cores, nothing compiled before, at most 20 s", "cpu/verify_cost.txt", lambda: wall(CPU_COST, "first", 20)),
        Claim("the README's sweep on a GPU, nothing compiled before, at most 90 s", "h?00/verify_cost.txt", lambda: wall(GPU_COST, "long", 90)),
        Claim("verifying takes at most 20 % of the first command's time on a GPU", "h?00/verify_cost.txt", lambda: verifying("first", 20)),
        Claim("verifying takes at most 10 % of the README's sweep on a GPU", "h?00/verify_cost.txt", lambda: verifying("long", 10)),
        Claim("all experiments of `gpubench reproduce`, at most 600 s", "h?00/reproduce/reproduce.csv", reproducing),
    ],
    "Repeatability": [
        Claim("two sweeps of one build: median difference at most 0.3 %", SWEEPS, median_difference),
        Claim("99 % of points of 10 µs and more differ by less than 1 %", SWEEPS, close_points),
    ],
    "Nothing is lost": [
        Claim("kernels with faults get the expected status, and times of good kernels change by at most 1 %", "h?00/faults.json", faults),
        Claim("300 kills on a CPU and 20 on a GPU, nothing lost or measured twice", "cpu/kills.json h?00/kills.json", kills),
        Claim("100,000 mutated inputs without a finding", "cpu/fuzz.json", fuzzed),
    ],
    "Right results": [
        Claim("every hand-written kernel is right at primes and powers of two, in every precision", "h?00/right/*.json", right),
        Claim("a thousand repeats of each kernel that lacks float32, float64 or int32, equal in every bit", "h?00/stress/*.json", stressed),
        Claim("compute-sanitizer reports nothing", "h?00/sanitizer/*.json", sanitized),
        Claim("kernels that cheat are not `ok` with a time that is false by 5 %", "h?00/cheats.txt", cheats),
    ],
    "Problems of other projects": [
        Claim("no solution that cheats passes, and no honest solution is wrong", "cpu/field_cheats.json", field_cheats),
        Claim("times of the projects' kernels are within 1 % of Nsight Compute's in the same process", "h?00/foreign*.csv", foreign_times),
        Claim("solutions in the projects' repositories get the expected verdict, if they can run on two CPU cores", "cpu/field_problems.csv", field_problems),
    ],
    "Times as fast as the better of cuBLAS and a tuned cuBLASLt (95 % interval)": [
        *(speedups(bounds, f"{op}, cold, against cuBLAS", f"h?00/{op}.csv") for op, bounds in VECTORS.items()),
        *(speedups(LADDER, f"float32 ladder, {cache}", "h?00/ladder_top.csv", cache=cache) for cache in ("cold", "hot")),
        *(Claim(f"{dtype}, random shapes, launches alone: geometric mean {SHAPES.get(dtype, 1.0):.2f}", f"h?00/shapes/{name}.csv", partial(random_shapes, dtype, SHAPES.get(dtype, 1.0))) for dtype, name in ALONE.items()),
        *(Claim(f"{dtype}, {KINDS[kind]}, launches alone: geometric mean {at_least:.2f}", f"{path_of_others(dtype, kind).relative_to(RESULTS)}", partial(other_shapes, dtype, kind, at_least)) for (dtype, kind), at_least in OTHERS.items()),
        *(Claim(f"{op}, {dtype}, {cache} operands, random shapes, launches alone: geometric mean {at_least:.2f}", f"{path_of_operation(op, dtype).relative_to(RESULTS)}", partial(operation_shapes, op, dtype, cache, at_least)) for (op, dtype), at_least in OPERATIONS.items() for cache in CACHES),
        *(Claim(f"{dtype}, squares in pairs in long runs, launches alone: at least 1", f"h?00/squares_{dtype}.csv", partial(long_runs, dtype)) for dtype in ALONE),
    ],
    "`gpubench diff` at five rounds, by recorded rounds that shaped no rule": [
        simulation("one build, quiet rounds: exit 1 in at most 2 %", "diff", FALSE, QUIET, at_most=0.02),
        simulation("one build, each disturbance of the table: exit 1 in at most 2 %", "diff", FALSE, {"rounds": "5"}, at_most=0.02),
        simulation("a kernel 5 % slower, quiet rounds: exit 1 in at least 95 %", "diff", "found", QUIET | {"slower": "kernel .5%"}, at_least=0.95),
        simulation("all own kernels 10 % slower: exit 1 in at least 95 % of each disturbance", "diff", "found", {"rounds": "5", "slower": "own .10%"}, at_least=0.95),
        simulation("all own kernels 5 % slower: exit 1 in at least 90 % of each disturbance, but not where the BLAS has two speeds", "diff", "found", {"rounds": "5", "slower": "own .5%", "rounds are": "(?!.*BLAS).*"}, at_least=0.9),
        simulation("all own kernels 5 % slower, the BLAS has two speeds: exit 1 in at least 90 %", "diff", "found", {"rounds": "5", "slower": "own .5%", "rounds are": ".*BLAS.*"}, at_least=0.9),
        simulation("more than half of the points ambiguous, quiet rounds: in at most 10 %", "diff", "not decided", {"rounds are": "quiet.*"}, at_most=0.1),
        simulation("more than half of the points ambiguous, rounds with a ramp: in at most 30 %", "diff", "not decided", {"rounds are": "ramp.*"}, at_most=0.3),
        *(simulation(f"a slow-down of {what} that `diff` says it would find is found in at least 90 % of each disturbance", "blind", f"{what}, found", {}, at_least=0.9) for what in ("everything", "one kernel", "one point")),
        Claim("`ab` on a CPU beside other work, with up to 72 pairs, names an unchanged point in at most 5 % of the runs", "cpu/ab.json", false_names),
        Claim("`ab` of a kernel 10 % slower: exit 1 in at least 80 %", "cpu/ab.json", lambda: in_turns(ab_runs(), "10 % slower", at_least=0.8)),
    ],
    "`gpubench tune`": [
        simulation("simulated: the group holds the best in at least 95 % of the races of each landscape", "tune", "group holds the best", {}, at_least=0.95),
    ],
    "Many GPUs": [
        Claim("two GPUs: a sweep in at most 0.6 of one GPU's time, with the same figures, and complete after a worker was killed", "h?00/many_gpus_2.json", two_gpus),
        Claim("`gpubench fleet` in under 60 s, twice with the same verdicts", "h?00/many_gpus_2.json", fleet_twice),
        simulation("simulated fleets of 8 and 64 GPUs whose spread is the narrowest of the table: a GPU 10 % slower in a unit is identified in at least 90 %", "fleet", "10% in one unit", NARROW, at_least=0.9),
        simulation("64 of these GPUs: a GPU 5 % slower in all units is identified in at least 85 %", "fleet", "5% in all units", NARROW | {"devices": "64"}, at_least=0.85),
        simulation("at most 2 % of healthy fleets of each spread have a false alarm", "fleet", "false alarms", {"good devices differ by": "(?!.*each process).*"}, at_most=0.02),
        simulation("at most 5 % of healthy fleets whose processes have two speeds have a false alarm", "fleet", "false alarms", {"good devices differ by": ".*each process.*"}, at_most=0.05),
    ],
}  # fmt: skip
"""The claims of each subject."""


def claims() -> str:
    """Return a table of claims for each subject."""
    heading = ("bound", "figure", "outcome", "file", "on", "measured")
    return "\n\n".join(
        f"## {subject}\n\n{table(heading, (claim.cells for claim in members), text=True)}"
        for subject, members in CLAIMS.items()
    )
