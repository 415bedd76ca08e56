"""Fit the constants of the model of tiles to measured sweeps, and print the error of the model.

    python research/fit_tiles.py results/h100/shapes/alone_1[78]_*float16.csv --judge judged.csv
    python research/fit_tiles.py fit_float64.csv --judge judged_float64.csv
    python research/fit_tiles.py fit.csv --only l2_of_a step_of_turns in_line

The model is in `gpubench/kernels/tile_costs.py`.

The files are those of `research/shapes.py --every`. A configuration counts more if it is closer
to the fastest of its shape. On tensor cores, most of the error that all configurations of a shape
have in common is left out, because it does not change their order.

The script prints the constants. For each file it prints a table of how far the picks are from the
fastest configuration that was measured, and of their ratios to the library.
"""

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from common import parser, table
from scipy.optimize import least_squares
from shapes import KERNELS, SUMMARY, Result, read, summary

from gpubench.kernels.tile_costs import (
    COSTS,
    Choice,
    Costs,
    Picks,
    SmallTile,
    first_together,
    predicted_us,
)
from gpubench.model import Cache, Launches, Problem

MULTIPROCESSORS = 132

DECAY = {Choice: 6.0, SmallTile: 4.0}
"""Rate at which a configuration's weight falls with its time, for each kind of tile. With 4, the
weight is 1 for the fastest configuration, and 1/e for a configuration that takes 25 % longer."""

IN_COMMON = {Choice: 0.9, SmallTile: 0.0}
"""Fraction of a shape's mean error that the fit leaves out, for each kind of tile."""

PRIOR = 0.012
"""Weight of a constant's relative change from its initial value. This weight keeps constants near
their initial values if the times do not determine them."""

ROBUST = 0.04
"""Relative error of a predicted time beyond which a configuration's weight falls."""

BOUNDS: Mapping[str, tuple[float, float]] = {
    "tensor": (0.6, 1.5),
    "not_transposed": (0.9, 1.3),
    "l2_of_a": (0.5, 1.5),
    "step_of_turns": (0.9, 1.1),
    "shared": (0.3, 2.5),
    "barriers": (0.0, 0.3),
    "idle": (0.0, 1.0),
    "norm": (1.5, 12.0),
    "uneven": (0.0, 1.0),
}
"""Lowest and highest value of some constants. All other constants are in 0 to 6."""

CLOSE = 0.03
"""A pick is close if its time exceeds the fastest time by at most this fraction."""

_TILE = re.compile(r"(\d+)x(\d+)x\d+(?:/s\d+)?(?:/k(\d+))?/cluster=(\d)x(\d)")


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A measured configuration at a shape."""

    kernel: str
    choice: Choice | SmallTile
    problem: Problem
    median_us: float
    best_us: float
    """Time of the fastest configuration of any kernel at the shape."""

    library_us: float

    default_us: float
    """Time of the fastest older kernel, which runs with default tiles. Infinite if no older kernel
    ran."""


def timed(path: Path) -> Iterator[Timed]:
    """Yield each configuration in a file for which there is a model, with operands in the cache."""
    for results in read(path):
        first = results[0]
        if first.cache != Cache.HOT:
            continue
        problem = Problem(op="gemm", m=first.m, n=first.n, k=first.k, dtype=first.dtype)
        alone = [result for result in results if result.launches == Launches.ALONE]
        own = [result for result in alone or results if result.kind != "library"]
        for result in own:
            if choice := choice_of(result, problem):
                yield Timed(
                    kernel=result.variant,
                    choice=choice,
                    problem=problem,
                    median_us=result.median_us,
                    best_us=min(result.median_us for result in own),
                    library_us=min(r.median_us for r in results if r.kind == "library"),
                    default_us=min(
                        (r.median_us for r in own if r.kind == "default"), default=math.inf
                    ),
                )


def choice_of(result: Result, problem: Problem) -> Choice | SmallTile | None:
    """Convert a configuration to the form of the kernel's model.

    Return None if there is no model.
    """
    if not (picks := KERNELS.get(result.variant)):
        return None
    if not isinstance(picks, Picks):
        return {str(choice): choice for choice in picks.choices(problem)}.get(result.tile)
    if not (match := _TILE.match(result.tile)):
        return None
    rows, columns, splits, down, across = (int(text or 1) for text in match.groups())
    return Choice(
        form=picks.form,
        rows=rows,
        columns=columns,
        down=down,
        across=across,
        splits=splits,
    )


def modelled_us(row: Timed, costs: Costs) -> float:
    """Return the time that the model predicts."""
    return predicted_us(row.choice, row.problem, MULTIPROCESSORS, costs)


def fitted(rows: Sequence[Timed], start: Costs, names: Sequence[str] = ()) -> Costs:
    """Fit the constants, so that the weighted error of the logarithms of times is smallest.

    If there are no `names`, all constants are fitted, but constants that are 0 at the start stay 0.
    """
    names = names or [name for name, value in asdict(start).items() if value]
    low, high = zip(*(BOUNDS.get(name, (0.0, 6.0)) for name in names), strict=True)
    decay, in_common = DECAY[type(rows[0].choice)], IN_COMMON[type(rows[0].choice)]
    weights = np.array([math.exp(-decay * (row.median_us / row.best_us - 1)) for row in rows])
    numbers: dict[Problem, int] = {}
    shapes = np.array([numbers.setdefault(row.problem, len(numbers)) for row in rows])
    of_shape = np.bincount(shapes, weights**2)

    def errors(values: np.ndarray) -> np.ndarray:
        costs = replace(start, **dict(zip(names, values, strict=True)))
        logs = np.array([math.log(modelled_us(row, costs) / row.median_us) for row in rows])
        means = np.bincount(shapes, weights**2 * logs) / of_shape
        changes = PRIOR * (values - first) / (np.abs(first) + 0.1)
        return np.append(weights * (logs - in_common * means[shapes]), changes)

    first = np.clip([asdict(start)[name] for name in names], np.add(low, 1e-6), high)
    best = least_squares(errors, first, bounds=(low, high), loss="soft_l1", f_scale=ROBUST)
    rounded = {name: float(f"{x:.4g}") for name, x in zip(names, best.x, strict=True)}
    return replace(start, **rounded)


def compared(rows: Sequence[Timed], costs: Costs) -> dict[str, list[tuple[float, float]]]:
    """Return two figures for each shape and each way to pick configurations.

    The first figure is the relative distance of the fastest pick from the fastest measured
    configuration. The second figure is the library's time divided by the time of the fastest pick.
    """
    shapes: dict[Problem, list[tuple[float, Timed]]] = {}
    for row in rows:
        shapes.setdefault(row.problem, []).append((modelled_us(row, costs), row))
    outcomes: dict[str, list[tuple[float, float]]] = {}
    for by_time in shapes.values():
        order = [row for _, row in sorted(by_time, key=lambda pair: pair[0])]
        kernels = {row.kernel for row in order}
        of_kernel = first_together(((row.kernel, row) for row in order), kernels)
        first, automatic = order[0], list(chain.from_iterable(of_kernel.values()))
        for how, picked, other_us in (
            ("the first pick", order[:1], math.inf),
            ("the better of the first two", order[:2], math.inf),
            ("`--tiles auto`", automatic, math.inf),
            ("the same and the older kernels' defaults", automatic, first.default_us),
        ):
            time_us = min(other_us, *(row.median_us for row in picked))
            outcome = time_us / first.best_us - 1, first.library_us / time_us
            outcomes.setdefault(how, []).append(outcome)
    return outcomes


def picks_table(rows: Sequence[Timed], costs: Costs) -> str:
    """Return a table of errors and of ratios to the library, with a line for each way to pick."""
    lines = []
    for how, outcomes in compared(rows, costs).items():
        errors, ratios = map(sorted, zip(*outcomes, strict=True))
        figures = (statistics.median(errors), errors[int(0.9 * len(errors))], errors[-1])
        close = sum(error <= CLOSE for error in errors) / len(errors)
        percents = (f"{100 * figure:.1f} %" for figure in figures)
        cells = [how, *percents, f"{100 * close:.0f} %"]
        lines.append([*cells, *summary(ratios)])
    heading = ["what runs", "median", "ninth decile", "worst", "within 3 %"]
    return table([*heading, *SUMMARY], lines)


def main() -> None:
    """Fit the constants, and print a table of picks for each file."""
    options = parser(__doc__)
    options.add_argument("files", nargs="*", type=Path)
    options.add_argument("--judge", nargs="*", type=Path, default=[])
    options.add_argument("--only", nargs="+", default=[], help="constants to fit")
    options.add_argument("--keep", action="store_true", help="judge the constants as they are")
    arguments = options.parse_args()
    rows = [row for path in arguments.files for row in timed(path)]
    if not rows:
        options.error("the files have no configuration of these kernels")
    costs = COSTS[rows[0].problem.dtype]
    if not arguments.keep:
        costs = fitted(rows, costs, arguments.only)
        for name, value in asdict(costs).items():
            print(f"        {name}={value:g},")
    for path in (*arguments.files, *arguments.judge):
        print(path)
        print(picks_table(list(timed(path)), costs), end="\n\n")


if __name__ == "__main__":
    main()
