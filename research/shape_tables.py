"""Make the tables of ratios at random shapes, from the files of `research/shapes.py`."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby, product
from operator import attrgetter
from pathlib import Path
from statistics import fmean, geometric_mean

import fit_tiles
from common import ALONE_SEEDS, CARDS, csv_rows, measured_file, table
from scipy import stats
from shapes import CLASSES, SUMMARY, Outcome, outcome, outcomes, random_shapes, shape_class, summary
from shapes import read as read_shapes

from gpubench.grouping import grouped
from gpubench.kernels.tile_costs import COSTS
from gpubench.model import Launches
from gpubench.results.counter_row import read as read_counters
from gpubench.results.row import Row, read
from gpubench.results.row import read as rows_of
from gpubench.stats.pairs import Ratio, ratio_of_pairs
from gpubench.view.row_tables import by_problem

ALONE = {dtype: f"alone_{seed}_{dtype}" for dtype, seed in ALONE_SEEDS.items()}
"""Maps a precision to the name of the file with launches alone at random shapes. When the shapes
were measured, no constant had been fitted to these shapes. Later, constants of TF32 were fitted to
4 of 80 shapes."""

CACHES = ("hot", "cold")
KINDS = {
    "few_hot": "1 to 64 rows, hot weights",
    "few_cold": "1 to 64 rows, weights from memory",
    "some_hot": "65 to 383 rows, hot weights",
    "some_cold": "65 to 383 rows, weights from memory",
    "large": "extents of 4096 to 16384",
    "small": "extents of 16 to 384",
    "odd_1": "odd extents of 128 to 4096",
    "odd_2": "odd multiples of 2",
    "odd_4": "odd multiples of 4",
}
"""Maps a kind of random shapes to a description. The shapes of `ALONE` are of no such kind."""

OTHERS = {
    **{(dtype, "few_hot"): 1.05 for dtype in ("bfloat16", "float16", "float8_e4m3")},
    ("float32", "few_hot"): 1.15,
    **{(dtype, "few_cold"): 1.0 for dtype in ("bfloat16", "float16")},
    **{
        (dtype, kind): at_least
        for dtype in ("bfloat16", "float16", "float8_e4m3")
        for kind, at_least in (("some_hot", 1.05), ("some_cold", 1.05), ("large", 1.01))
    },
    **{(dtype, "small"): 1.0 for dtype in ("bfloat16", "float32")},
    **{(dtype, "odd_1"): 1.8 for dtype in ("bfloat16", "float16")},
    ("tf32", "odd_1"): 1.3,
    ("float32", "odd_1"): 1.0,
    **{(dtype, "odd_2"): 1.0 for dtype in ("bfloat16", "float16")},
    **{(dtype, "odd_4"): 1.0 for dtype in ("bfloat16", "float16", "int8")},
}
"""Maps a precision and a kind of shapes to the bound of the geometric mean."""

OPERATIONS = {
    **{("gemm_gelu", dtype): 1.03 for dtype in ("bfloat16", "float16")},
    **{(op, "bfloat16"): 1.03 for op in ("gemm_bias_residual", "gemm_gelu_residual")},
    **{("gemm_batched", dtype): 1.05 for dtype in ("bfloat16", "float16")},
    ("gemm_scaled", "float8_e4m3"): 1.03,
    ("gemm_grouped", "bfloat16"): 1.1,
}
"""Maps an operation and a precision to the bound of the geometric mean, hot and cold."""

MIN_SHAPES = 8
"""The tables list a class only if the class has at least this number of shapes."""

DRAWS = 50_000
"""Number of shapes that are drawn to find the fraction of shapes in each class."""


def path_alone(dtype: str) -> Path:
    """Return the path of the file of `ALONE` for a precision."""
    return measured_file(f"shapes/{ALONE[dtype]}.csv")


def card(path: Path) -> str:
    """Return the name of the GPU that measured the file."""
    return next(card.upper() for card in CARDS if card in path.parts)


def outcomes_alone(dtype: str) -> list[Outcome]:
    """Return the outcomes in the file of `ALONE` for a precision."""
    return list(outcomes(path_alone(dtype)))


def path_of_others(dtype: str, kind: str) -> Path:
    """Return the path of the file with a precision's shapes of a kind. The file may not exist."""
    rows, _, cache = kind.partition("_")
    name = f"{rows}_rows_{dtype}" if cache in CACHES else f"shapes/alone_{kind}_{dtype}"
    return measured_file(f"{name}.csv")


def path_of_operation(op: str, dtype: str) -> Path:
    """Return the path of the file with random shapes of an operation that is no plain product."""
    return measured_file(f"shapes/alone_{op}_{dtype}.csv")


def other_ratios(dtype: str, kind: str) -> list[float]:
    """Return the ratios at a precision's shapes of a kind, in ascending order."""
    path = path_of_others(dtype, kind)
    cache = kind.rpartition("_")[2]
    caches = {cache} if cache in CACHES else CACHES
    return sorted(outcome.ratio for outcome in outcomes(path) if outcome.own.cache in caches)


def plain_mean(ratios: Sequence[float]) -> Ratio:
    """Return the geometric mean of ratios with Student's 95 % interval."""
    return ratio_of_pairs(ratios, [1.0] * len(ratios))


def said(ratio: Ratio, digits: int = 3, more: str = "") -> str:
    """Return a ratio as text. The text has the interval, unless the interval is infinite."""
    interval = f" ({ratio.low:.{digits}f} to {ratio.high:.{digits}f}{more})"
    return f"{ratio.ratio:.{digits}f}{interval if ratio.high < math.inf else ''}"


def path_of_squares(dtype: str) -> Path:
    """Return the path of the file with a precision's squares in pairs. The file may not exist."""
    return measured_file(f"squares_{dtype}.csv")


def in_pairs(dtype: str) -> list[tuple[Row, Ratio]]:
    """Return the rows of a precision's squares that were compared in pairs, and their ratios."""
    path = path_of_squares(dtype)
    return [
        (row, Ratio(row.pair_ratio, row.pair_ratio_low or 0.0, row.pair_ratio_high or math.inf))
        for row in (read(path) if path.exists() else ())
        if row.pair_ratio
    ]


@cache
def drawn() -> Mapping[str, float]:
    """Return which fraction of random shapes belongs to each class."""
    counts = Counter(shape_class(*shape) for shape in random_shapes(0, DRAWS))
    return {name: counts[name] / DRAWS for name in CLASSES}


def drawn_mean(ratios: Sequence[tuple[str, float]]) -> Ratio:
    """Return the geometric mean of ratios, weighted by class, with a 95 % interval.

    The weight of a class is its fraction of random shapes, not the number of its shapes in the
    file. The interval is Student's, with one variance for all classes (stratified sampling). A
    class without a shape is left out.
    """
    by_class = grouped(ratios, lambda pair: pair[0])
    logs = {
        name: [math.log(ratio) for _, ratio in by_class[name]]
        for name in CLASSES
        if name in by_class
    }
    total = sum(drawn()[name] for name in logs)
    parts = {name: drawn()[name] / total for name in logs}
    means = {name: fmean(values) for name, values in logs.items()}
    df = len(ratios) - len(logs)
    squares = sum((log - means[name]) ** 2 for name, values in logs.items() for log in values)
    weights = sum(part**2 / len(logs[name]) for name, part in parts.items())
    half = math.sqrt(squares / df * weights) * float(stats.t.ppf(0.975, df))
    mean = sum(part * means[name] for name, part in parts.items())
    return Ratio(*(math.exp(value) for value in (mean, mean - half, mean + half)))


def weighted_mean(every: Sequence[Outcome]) -> Ratio:
    """Return the mean ratio of outcomes, weighted as in `drawn_mean`."""
    return drawn_mean([(outcome.shape_class, outcome.ratio) for outcome in every])


def alone_mean(dtype: str) -> Ratio:
    """Return the weighted mean ratio in the file of `ALONE` for a precision."""
    return weighted_mean(outcomes_alone(dtype))


@cache
def first_pick(dtype: str) -> float:
    """Return the mean ratio of the library's time to the time of the model's first pick.

    The present model ranks only configurations that were measured with launches alone. `drawn_mean`
    computes the mean.
    """
    ratios = []
    for problem, of_shape in groupby(fit_tiles.timed(path_alone(dtype)), lambda row: row.problem):
        first = min(of_shape, key=lambda row: fit_tiles.modelled_us(row, COSTS[row.problem.dtype]))
        shape = shape_class(problem.m, problem.n, problem.k)
        ratios.append((shape, first.library_us / first.median_us))
    return drawn_mean(ratios).ratio


def squares_of(dtype: str) -> str:
    """Return the lowest and the highest ratio at the squares in long runs."""
    ratios = sorted(ratio.ratio for _, ratio in in_pairs(dtype))
    if not ratios:
        return "–"
    limits = dict.fromkeys(f"{ratio:.2f}" for ratio in (ratios[0], ratios[-1]))
    return " to ".join(limits) + other_gpu(dtype, path_of_squares(dtype))


def results_in_short() -> str:
    """Return a table with each precision's ratios, and the shapes where the library is faster."""
    lines = []
    for dtype in ALONE:
        every = outcomes_alone(dtype)
        behind = [outcome for outcome in every if outcome.ratio < 1]
        loses = "none"
        if behind:
            worst = min(behind, key=attrgetter("ratio"))
            shape = f"{worst.own.m}×{worst.own.n}×{worst.own.k}"
            percent = 100 * len(behind) / len(every)
            loses = f"{percent:.0f} %; lowest {worst.ratio:.2f} at {shape}"
        first = f"{first_pick(dtype):.2f}"
        lines.append([dtype, said(alone_mean(dtype), 2), first, squares_of(dtype), loses])
    cards = ", ".join(sorted({card(path_alone(dtype)) for dtype in ALONE}))
    heading = [f"precision, on {cards}", "random shapes", "first pick", "squares"]
    heading.append("shapes where it loses")
    return table(heading, lines, text=True)


def alone_shapes() -> str:
    """Return a table of ratios of launches alone by class, and a table for other shapes."""
    lines = []
    for dtype, name in ALONE.items():
        every = outcomes_alone(dtype)
        ratios = sorted(outcome.ratio for outcome in every)
        chained = drawn_mean([(x.shape_class, x.overlapped_ratio) for x in every]).ratio
        classes = grouped(every, attrgetter("shape_class"))
        lines.append(
            [
                dtype,
                card(path_alone(dtype)),
                *filter(str.isdigit, name.split("_")),
                len(ratios),
                said(alone_mean(dtype), 2),
                f"{first_pick(dtype):.2f}",
                f"{ratios[(len(ratios) - 1) // 10]:.2f}",
                f"{ratios[0]:.2f}",
                f"{100 * sum(ratio > 1 for ratio in ratios) / len(ratios):.0f} %",
                *(
                    f"{geometric_mean(x.ratio for x in members):.2f} ({len(members)})"
                    if len(members) >= MIN_SHAPES
                    else "–"
                    for members in (classes.get(name, []) for name in CLASSES)
                ),
                f"{chained:.2f}",
                squares_of(dtype),
            ]
        )
    heading = ["precision", "GPU", "seed", "shapes", "geometric mean", "first pick"]
    of_all = ["tenth percentile", "lowest", "faster"]
    made = table([*heading, *of_all, *CLASSES, "overlapped", "squares, sustained"], lines)
    return f"{made}\n\n{other_shapes()}"


def other_gpu(dtype: str, path: Path) -> str:
    """Return the name of a file's GPU, or an empty text if this GPU measured the random shapes."""
    return f", {card(path)}" if path.exists() and card(path) != card(path_alone(dtype)) else ""


def other_shapes() -> str:
    """Return a table of mean ratios with a line for each precision, and a column for each kind."""

    def cell(dtype: str, kind: str) -> str:
        path = path_of_others(dtype, kind)
        if not path.exists():
            return "–"
        return said(plain_mean(other_ratios(dtype, kind)), 2, other_gpu(dtype, path))

    kinds = [k for k in KINDS if any(path_of_others(dtype, k).exists() for dtype in ALONE)]
    lines = ([dtype, *(cell(dtype, kind) for kind in kinds)] for dtype in ALONE)
    return table(["precision", *(KINDS[kind] for kind in kinds)], lines)


def other_spread() -> str:
    """Return a table of the spread of the ratios that each cell of `other_shapes` averages."""
    lines = []
    for kind, dtype in product(KINDS, ALONE):
        if path_of_others(dtype, kind).exists():
            count, mean, *others = summary(other_ratios(dtype, kind))
            lines.append([KINDS[kind], dtype, count, mean, *others])
    return table(["shapes with", "precision", *SUMMARY], lines)


def operation_shapes() -> str:
    """Return a table of ratios of operations that are not plain products, by precision."""
    lines = []
    for path in sorted(path_alone("bfloat16").parent.glob("alone_gemm_*.csv")):
        by_cache = grouped(read_shapes(path), lambda results: results[0].cache)
        for state, shapes in by_cache.items():
            ratios, in_graph = (
                sorted(outcome(each, launches).ratio for each in shapes)
                for launches in (Launches.ALONE, Launches.GRAPH)
            )
            first, mean, mean_in_graph = shapes[0][0], *map(plain_mean, (ratios, in_graph))
            cells = [said(mean, 2), f"{ratios[0]:.2f}", said(mean_in_graph, 2)]
            lines.append([first.op, first.dtype, state, len(ratios), *cells])
    heading = ["operation", "precision", "cache", "shapes", "alone", "lowest", "in a graph"]
    return table(heading, lines)


def model_products() -> str:
    """Return a table of products of language models, with the fastest kernel and library call."""
    lines = []
    bursts = ("gemm_scaled_few", "gemm_scaled", "gemm_grouped", "gemm_grouped_skewed")
    sustained = ("gemm_gelu_residual", "gemm_batched", "gemm_scaled", "gemm_grouped")
    for name in (*bursts, *(f"sustained/{op}" for op in sustained)):
        timed = [row for row in rows_of(measured_file(f"{name}.csv")) if row.median_us]
        for of_problem in by_problem(timed):
            own, library = (
                min(
                    (x for x in of_problem if bool(x.tile) == is_own),
                    key=lambda x: x.median_us or 0,
                )
                for is_own in (True, False)
            )
            ratio = (library.median_us or 0) / (own.median_us or 1)
            us = f"{own.median_us:.1f}", f"{library.median_us:.1f}"
            lines.append(
                [
                    own.op,
                    own.state,
                    own.size,
                    own.tile,
                    us[0],
                    library.variant,
                    us[1],
                    f"{ratio:.2f}",
                ]
            )
    heading = ["operation", "state", "size", "our tile", "µs", "library", "its µs", "times as fast"]
    return table(heading, lines)


def repeated() -> str:
    """Return a table of mean ratios that were measured on two GPUs of one kind.

    The change is the geometric mean of (ratio on the second GPU / ratio on the first GPU) over the
    shapes, with Student's 95 % interval.
    """
    lines = []
    for path in sorted(measured_file("repeated").glob("*.csv")):
        folder = "shapes/" if path.name.startswith("alone") else ""
        first, second = (
            grouped(outcomes(file), lambda outcome: outcome.own.cache)
            for file in (measured_file(f"{folder}{path.name}"), path)
        )
        for state, of_first in first.items():
            runs = of_first, second[state]
            ratios = [[outcome.ratio for outcome in run] for run in runs]
            is_weighted = path.stem in ALONE.values()
            means = map(weighted_mean, runs) if is_weighted else map(plain_mean, ratios)
            changes = [after / before for before, after in zip(*ratios, strict=True)]
            largest = max(changes, key=lambda change: abs(math.log(change)))
            cells = map(said, (*means, plain_mean(changes)))
            name = path.stem.removeprefix("alone_")
            lines.append([name, state, len(changes), *cells, f"{largest:.3f}"])
    heading = ["file", "cache", "shapes", "mean on the first GPU", "mean on the second GPU"]
    return table([*heading, "change", "largest change of a shape"], lines)


def squares_in_bursts() -> str:
    """Return a table of ratios at squares in short bursts, by precision."""
    by_dtype = {
        path.stem.removeprefix("alone_squares_"): list(outcomes(path))
        for path in sorted(path_alone("bfloat16").parent.glob("alone_squares_*.csv"))
    }
    sizes = (str(each.own.m) for each in next(iter(by_dtype.values())))
    lines = ([dtype, *(f"{x.ratio:.3f}" for x in every)] for dtype, every in by_dtype.items())
    return table(["precision", *sizes], lines)


@cache
def library_kernels(dtype: str) -> Mapping[tuple[str | int | None, ...], str | None]:
    """Return the device function of each library call whose counters were read, by M, N and K."""
    path = measured_file(f"counters/{dtype}.counters.csv")
    if not path.exists():
        return {}
    first = (row for row in read_counters(path) if row.kernel == 1)
    return {(row.variant, row.m, row.n, row.k): row.function for row in first}


def lost_shapes() -> str:
    """Return a table of shapes where the library was fastest, with the best of all candidates."""
    lines = []
    for path in sorted(path_alone("bfloat16").parent.glob("lost_*.csv")):
        for results in read_shapes(path):
            picked = outcome(results)
            alone = [x for x in results if x.launches == Launches.ALONE and x.kind != "library"]
            best = min(alone, key=attrgetter("median_us"))
            library_us, size = picked.library.median_us, (best.m, best.n, best.k)
            function = library_kernels(best.dtype).get((picked.library.variant, *size)) or "–"
            cells = [f"{picked.ratio:.3f}", f"{library_us / best.median_us:.3f}"]
            what = f"{best.variant} {best.tile}"
            shape = "×".join(map(str, size))
            us = f"{library_us:.2f}"
            lines.append([best.dtype, shape, best.cache, us, function, *cells, what])
    heading = ["precision", "shape", "cache", "library, µs", "its kernel", "picks", "best of all"]
    heading.append("the best")
    return table(heading, lines)


def tuned_models() -> str:
    """Return a table of the choices for two models' products, from the file of `tune --table`."""
    cells = (
        [
            row["problem"],
            "×".join((row["m"], row["n"], row["k"])),
            f"{row['variant']} {row['tile']}".strip(),
            f"{float(row['median_us']):.1f}",
            row["library"],
            f"{float(row['library_us']):.1f}",
            f"{float(row['ratio']):.2f}",
            row["ties"] or "–",
        ]
        for row in csv_rows(measured_file("tune_models.csv"))
    )
    heading = ["problem", "size", "choice", "µs", "library", "its µs", "times as fast", "ties"]
    return table(heading, cells)


def picks(name: str) -> str:
    """Return a table of how far picks are from the fastest configuration."""
    rows = list(fit_tiles.timed(measured_file(f"shapes/alone_every_{name}.csv")))
    return fit_tiles.picks_table(rows, COSTS[rows[0].problem.dtype])
