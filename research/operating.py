"""Simulate how often `diff`, `ab`, `tune`, `fleet` and `history` are right, with a table of each.

    python research/operating.py --directory results/operating    # writes diff.md, tune.md, …
    python research/operating.py --only diff --comparisons 50 --fit

Rules are developed with `--fit`, and judged without it. The rounds of `diff` are recorded: with
`--fit` those of results/h200/diff_rounds (20 rounds), otherwise those of sweep.csv and
sweep_again.csv (10 rounds). Each comparison divides the rounds of one build at random between two
sides, chooses points at random, and adds the changes of its case. Without `--fit`, `tune` and
`fleet` draw other landscapes and fleets of the same kinds, from another seed. Needs no GPU.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import operating_ab
import operating_fleet
import operating_history
import operating_tune
from common import ROOT, measured, parser, table
from operating_scenes import (
    ROUNDS,
    SWEEPS,
    Change,
    Flags,
    Floats,
    Random,
    Recorded,
    Scene,
    blas,
    both,
    files_of,
    half,
    inside_rounds,
    modes,
    only,
    points_of_a_kernel,
    quiet,
    ramp,
    slow_rounds,
    tenth,
    whole,
)

from gpubench.commands.diff.compare import compare
from gpubench.commands.diff.findings import Comparison, DiffVerdict, Key, Limits
from gpubench.commands.diff.options import AB_PAIRS

# ---- diff


@dataclass(frozen=True)
class Case:
    """One line of the table for `diff`: what changes between the two sides of a comparison."""

    name: str
    change: Change = quiet
    slowed: str = ""
    """Name of the points that are made slower: `own`, `kernel`, `point` or `memory`."""

    by: float = 0.0
    rounds: int = 5
    points: int = 300
    clock: float = 0.0
    """Relative change of the clock frequency. The times of products depend on the clock, and the
    times of memory-bound points do not."""

    half_clock: float = 0.0
    """Relative change of the clock frequency for half of the kernels. The times of these kernels
    change inversely."""

    unchanged: bool = False
    """Whether the code of each kernel that is not slowed is known to be the same on both sides."""

    times: int = 1
    """Factor by which the number of comparisons is multiplied. With only 200 comparisons, some
    rates cannot be distinguished from their bounds."""


def own(name: str, change: Change, by: float, rounds: int = 5, times: int = 1) -> Case:
    return Case(name, change, "own", by, rounds, times=times)


CASES = [
    Case("quiet"),
    Case("quiet", rounds=3),
    Case("quiet, 100 points", points=100),
    *(own("quiet", quiet, by) for by in (0.03, 0.05, 0.1)),
    *(Case("quiet", quiet, "kernel", by) for by in (0.03, 0.05)),
    Case("quiet", quiet, "point", 0.05),
    Case("a round +30 %", slow_rounds(0.3)),
    own("a round +30 %", slow_rounds(0.3), 0.05),
    Case("a round +30 %", slow_rounds(0.3), "point", 0.05),
    Case("a round of each side +30 %", slow_rounds(0.3, sides="base new")),
    Case("a round +30 % at a third of the points", slow_rounds(0.3, part=1 / 3)),
    Case("a round +30 % at a third of the points", slow_rounds(0.3, part=1 / 3), "kernel", 0.05),
    Case("a round +0 to +60 %, by point", slow_rounds(0.3, unequal=True)),
    Case("a round +0 to +60 %, by point", slow_rounds(0.3, unequal=True), "kernel", 0.05),
    Case("base +10 % as a whole", whole("base", 0.1)),
    *(own(f"base +{by:.0%} as a whole", whole("base", by), by) for by in (0.05, 0.1, 0.3)),
    Case("new side +10 % as a whole", whole("new", 0.1)),
    own("new side +10 % as a whole", whole("new", 0.1), 0.1),
    Case("the BLAS has two speeds, 4 % apart", modes(0.04, blas)),
    own("the BLAS has two speeds, 4 % apart", modes(0.04, blas), 0.1),
    Case("each BLAS point has two speeds, 8 % apart", modes(0.08, blas, alike=False)),
    Case("a kernel has two speeds, 8 % apart", modes(0.08, Scene.kernel)),
    Case("a kernel has two speeds, 8 % apart, 14 points", modes(0.08, Scene.kernel), points=14),
    Case("one point in ten has two speeds, 8 % apart", modes(0.08, tenth, alike=False)),
    Case("a kernel has two speeds, 8 % apart", modes(0.08, Scene.kernel), "own", 0.1),
    Case("drift of 6 % inside rounds", inside_rounds(0.06)),
    own("drift of 6 % inside rounds", inside_rounds(0.06), 0.05, times=5),
    own("drift of 6 % inside rounds", inside_rounds(0.06), 0.1),
    Case("two of five rounds +30 %", slow_rounds(0.3, 2)),
    *(own("two of five rounds +30 %", slow_rounds(0.3, 2), by) for by in (0.05, 0.1)),
    Case("two of five rounds of each side +30 %", slow_rounds(0.3, 2, sides="base new")),
    own("two of five rounds of each side +30 %", slow_rounds(0.3, 2, sides="base new"), 0.05),
    Case("ramp of 4 % over rounds", ramp(0.04)),
    *(own("ramp of 4 % over rounds", ramp(0.04), by) for by in (0.05, 0.1)),
    Case("one of three rounds +30 %", slow_rounds(0.3), rounds=3),
    own("one of three rounds +30 %", slow_rounds(0.3), 0.05, 3),
    Case("two of three rounds +30 %", slow_rounds(0.3, 2), rounds=3),
    *(own("two of three rounds +30 %", slow_rounds(0.3, 2), by, 3) for by in (0.1, 0.2)),
    Case("clock 5 % lower", clock=-0.05),
    Case("clock 5 % lower", quiet, "memory", 0.07, clock=-0.05),
    Case("clock 5 % lower", quiet, "kernel", 0.05, clock=-0.05),
    Case("clock 10 % higher", clock=0.1),
    own("new side +10 % as a whole", whole("new", 0.1), 0.05),
    own("the BLAS has two speeds, 4 % apart", modes(0.04, blas), 0.05, times=5),
    own("each BLAS point has two speeds, 8 % apart", modes(0.08, blas, alike=False), 0.05, times=5),
    own("a kernel has two speeds, 8 % apart", modes(0.08, Scene.kernel), 0.05),
    own("one point in ten has two speeds, 8 % apart", modes(0.08, tenth, alike=False), 0.05),
]
"""The lines of the table of `diff`. A case's index is part of its seed, so new cases come last."""


BLAS_FASTER, BLAS_SLOWER = only(blas, "new", -0.025), only(blas, "base", 0.03)
MACHINE = whole("base", 0.1)
REFERENCES = [
    *(Case("only the BLAS 2.5 % faster", BLAS_FASTER, rounds=rounds) for rounds in (5, 3)),
    Case("only the BLAS 2.5 % faster", BLAS_FASTER, "kernel", 0.05),
    Case("only the BLAS 2.5 % slower", only(blas, "new", 0.025), "kernel", 0.05),
    *(
        Case("only the BLAS 3 % slower in the base", BLAS_SLOWER, rounds=rounds)
        for rounds in (5, 3)
    ),
    Case("only the BLAS 3 % slower in the base", BLAS_SLOWER, "kernel", 0.05),
    Case("only the BLAS 3 % slower in the base, 14 points", BLAS_SLOWER, points=14),
    Case("only the BLAS 10 % faster", only(blas, "new", -0.1)),
    Case("base +10 % as a whole", MACHINE),
    *(Case("base +10 % as a whole", MACHINE, "kernel", 0.05, rounds=rounds) for rounds in (5, 3)),
    Case("base +10 % as a whole, the BLAS +13 %", both(MACHINE, BLAS_SLOWER), "kernel", 0.05),
    Case("half of the kernels 5 % slower", only(half, "new", 0.05)),
    Case("half of the kernels 5 % slower", only(half, "new", 0.05), "kernel", 0.1),
    Case("a clock 5 % lower at half of the kernels", half_clock=-0.05),
    Case("a clock 5 % lower at half of the kernels", quiet, "kernel", 0.05, half_clock=-0.05),
    Case("quiet"),
    *(Case("quiet", quiet, "kernel", by) for by in (0.03, 0.05)),
    Case("quiet, 14 points", quiet, "kernel", 0.05, points=14),
    Case("a kernel has two speeds, 8 % apart", modes(0.08, Scene.kernel)),
    Case(
        "each BLAS point has two speeds, 8 % apart", modes(0.08, blas, alike=False), "kernel", 0.05
    ),
    Case("drift of 6 % inside rounds", inside_rounds(0.06), "kernel", 0.1),
    Case("two of five rounds +30 %", slow_rounds(0.3, 2), "kernel", 0.05),
    Case("one of three rounds +30 %", slow_rounds(0.3), "kernel", 0.05, rounds=3),
]
"""Cases that are simulated twice. In the second simulation, some kernels are known to have
unchanged code."""


def comparison(case: Case, fit: bool, rng: Random) -> tuple[Comparison, list[Key], Flags]:
    """Simulate a comparison.

    Return the comparison, the points, and which points were made slower.
    """
    products, memory = files_of(fit)
    world = products.chosen(choose_points(products, case.points, rng))
    columns = rng.permutation(world.logs.shape[1])[: 2 * case.rounds]
    base, new = np.split(world.logs[:, columns], 2, axis=1)
    if case.clock:
        new = new - math.log1p(case.clock)
        extra = redrawn(memory.logs, 2 * case.rounds, rng)
        base, new = (
            np.vstack([a, b]) for a, b in zip((base, new), np.split(extra, 2, axis=1), strict=True)
        )
    keys = world.keys + memory.keys * bool(case.clock)
    templates = world.points + memory.points * bool(case.clock)
    own_kernels = np.append(world.kernels, np.full(len(keys) - len(world.keys), -2))
    scene, choice = (Scene(each, base, new, own_kernels) for each in rng.spawn(2))
    every = np.arange(len(keys))
    choices: dict[str, Callable[[], Flags]] = {
        "": lambda: np.zeros(len(keys), bool),
        "own": lambda: own_kernels >= 0,
        "kernel": choice.kernel,
        "point": lambda: every == choice.rng.choice(np.flatnonzero(own_kernels >= 0)),
        "memory": lambda: every >= len(keys) - 4,
    }
    slowed = choices[case.slowed]()
    scene.new[slowed] += math.log1p(case.by)
    case.change(scene)
    clock = np.full(len(keys), 1 + case.clock)
    if case.half_clock:
        chosen = half(scene)
        clock[chosen] += case.half_clock
        scene.new[chosen] -= math.log1p(case.half_clock)
    code = np.where(slowed, "", "the same") if case.unchanged else np.full(len(keys), "")
    old, changed = (
        {
            key: replace(
                point, sweeps_us=(tuple(us),), clock_mhz=(point.clock_mhz or 0) * at, code=build
            )
            for key, point, us, at, build in zip(
                keys, templates, np.exp(logs).tolist(), clocks.tolist(), code.tolist(), strict=True
            )
        }
        for logs, clocks in ((scene.base, np.ones(len(keys))), (scene.new, clock))
    )
    return compare(old, changed, Limits()), keys, slowed


def choose_points(world: Recorded, number: int, rng: Random) -> Sequence[int]:
    """Return indices of points: all BLAS points, six points of one kernel, and random points."""
    library, others = np.flatnonzero(world.blas), np.flatnonzero(~world.blas)
    kernel = np.flatnonzero(points_of_a_kernel(world.kernels, rng))
    first = [*library, *rng.permutation(kernel)[:6]]
    rest = [i for i in rng.permutation(others) if i not in first]
    return (first + rest)[:number]


def redrawn(logs: Floats, number: int, rng: Random) -> Floats:
    """Draw new random rounds for each point.

    The mean and the scatter of a point's rounds are kept.
    """
    middle, spread = logs.mean(axis=1, keepdims=True), logs.std(axis=1, ddof=1, keepdims=True)
    deviations = (logs - middle) / spread * math.sqrt(logs.shape[1] / (logs.shape[1] - 1))
    return np.asarray(middle + spread * rng.choice(deviations.ravel(), (len(logs), number)))


def diff_line(place: int, number: int, fit: bool) -> list[object]:
    """Simulate one case of `diff`, and return the line of the table."""
    case = CASES[place]
    number *= case.times
    rng = np.random.default_rng([place, fit])
    hit_count = wrong = undecided = 0
    share, same = [], []
    for _ in range(number):
        result, keys, slowed = comparison(case, fit, rng)
        hits = np.array([result.findings[key].verdict == DiffVerdict.SLOWER for key in keys])
        hit_count += bool((hits & slowed).any())
        wrong += bool((hits & ~slowed).any())
        share.append(hits[slowed].mean() if slowed.any() else 0.0)
        undecided += 2 * result.counts[DiffVerdict.AMBIGUOUS] > len(result.two_sided)
        same.append(result.counts[DiffVerdict.SAME] / len(keys))
    return [
        case.name,
        case.rounds,
        f"{case.slowed} {case.by:+.0%}" if case.slowed else "nothing",
        f"{hit_count} of {number}" if case.slowed else "",
        f"{statistics.fmean(share):.0%}" if case.slowed else "",
        f"{wrong} of {number}",
        f"{undecided} of {number}",
        f"{statistics.fmean(same):.0%}",
    ]


def reference_line(place: int, number: int, fit: bool) -> list[object]:
    """Simulate a case without and with known code, and return the line of the table."""
    counts = []
    for unchanged in (False, True):
        case = replace(REFERENCES[place], unchanged=unchanged)
        rng = np.random.default_rng([83, place, fit])
        hit_count = wrong = 0
        for _ in range(number):
            result, keys, slowed = comparison(case, fit, rng)
            hits = np.array([result.findings[key].verdict == DiffVerdict.SLOWER for key in keys])
            hit_count += bool((hits & slowed).any())
            wrong += bool((hits & ~slowed).any())
        counts += [f"{hit_count} of {number}" if case.slowed else "", f"{wrong} of {number}"]
    slowed_by = f"{case.slowed} {case.by:+.0%}" if case.slowed else "nothing"
    return [case.name, case.rounds, slowed_by, *counts]


REFERENCE_HEADING = ["rounds are", "rounds", "slower", "found, code not known",
                     "wrong, code not known", "found, code known", "wrong, code known"]  # fmt: skip


BLIND = [
    place
    for place, case in enumerate(CASES)
    if not case.slowed and not case.clock and "as a whole" not in case.name
]
"""Indices of cases in which kernels are slowed by the smallest change that `diff` claims to
find."""


def blind_line(place: int, number: int, fit: bool) -> list[object]:
    """Simulate slow-downs that `diff` claims to find, and return the line of the table.

    `diff` first compares rounds without a slow-down, and then the same rounds with a slow-down.
    """
    case = CASES[place]
    sizes: dict[str, list[float]] = {"own": [], "kernel": [], "point": []}
    hits_by_kind = dict.fromkeys(sizes, 0)
    for seed in range(number):
        start = [place, fit, seed]
        blind = comparison(case, fit, np.random.default_rng(start))[0].detectable
        named = zip(sizes, (blind.everything, blind.kernel, blind.point), strict=True)
        for slowed, size in named:
            if size is None:
                continue
            slower = replace(case, slowed=slowed, by=size)
            result, keys, chosen = comparison(slower, fit, np.random.default_rng(start))
            hits = [result.findings[key].verdict == DiffVerdict.SLOWER for key in keys]
            hits_by_kind[slowed] += bool((np.array(hits) & chosen).any())
            sizes[slowed].append(size)
    cells = list[object]()
    for slowed, named_sizes in sizes.items():
        median = f"{100 * statistics.median(named_sizes):.1f} %" if named_sizes else "never"
        cells += [median, f"{hits_by_kind[slowed]} of {len(named_sizes)}"]
    return [case.name, case.rounds, *cells]


BLIND_HEADING = ["rounds are", "rounds", "everything", "everything, found", "one kernel",
                 "one kernel, found", "one point", "one point, found"]  # fmt: skip

DIFF_HEADING = ["rounds are", "rounds", "slower", "found", "slowed points found",
                "other point called slower", "not decided", "same"]  # fmt: skip


# ---- ab


def ab_on_gpu(by: float, fit: bool, rng: Random) -> tuple[operating_ab.Ended, list[Key]]:
    """Simulate `ab` with the scatter of recorded rounds. Return the end, and the slowed points."""
    products = files_of(fit)[0]
    world = products.chosen(choose_points(products, 100, rng))
    base, new = np.split(redrawn(world.logs, 2 * AB_PAIRS, rng), 2, axis=1)
    slowed = points_of_a_kernel(world.kernels, rng) & (by > 0)
    new[slowed] += math.log1p(by)

    def at(number: int, q: float) -> Comparison:
        old, changed = (
            {
                key: replace(point, code="", files=(), sweeps_us=tuple((us,) for us in times))
                for key, point, times in zip(
                    world.keys, world.points, np.exp(logs[:, :number]).tolist(), strict=True
                )
            }
            for logs in (base, new)
        )
        return compare(old, changed, Limits(q=q))

    slow = [key for key, is_slow in zip(world.keys, slowed.tolist(), strict=True) if is_slow]
    return operating_ab.in_turns(at, AB_PAIRS), slow


def ab_line(item: tuple[str, float], number: int, fit: bool) -> list[object]:
    """Simulate `ab` with one source of pairs, and return the line of the table."""
    where, by = item
    if where != "gpu":
        return operating_ab.line(where == "busy", by > 0, number)
    rng = np.random.default_rng([84, round(100 * by), fit])
    ended = [ab_on_gpu(by, fit, rng) for _ in range(number)]
    hit_count = sum(not set(slow).isdisjoint(each.slower) for each, slow in ended)
    wrong = sum(not set(each.slower) <= set(slow) for each, slow in ended)
    return [
        "an H200, 100 points",
        AB_PAIRS,
        f"a kernel {by:+.0%}" if by else "nothing",
        f"{hit_count} of {number}" if by else "",
        f"{wrong} of {number}",
        f"{statistics.median(each.pairs for each, _ in ended):g}",
        "",
        "",
    ]


AB = [*((where, by) for where in ("quiet", "busy") for by in (0.0, 0.1)),
      *(("gpu", by) for by in (0.0, 0.03, 0.05, 0.1))]  # fmt: skip
"""The lines of the table for `ab`. A line has the source of the pairs, and the relative slow-down
of the new side."""


# ---- all tables


def tune_line(name: str, number: int, fit: bool) -> list[object]:
    """Simulate races of `tune` in one landscape, and return the line of the table."""
    rng = np.random.default_rng([list(operating_tune.LANDSCAPES).index(name), fit])
    *hits, group, visits = zip(*(operating_tune.run(name, rng) for _ in range(number)), strict=True)
    return [
        name,
        f"{sum(hits[0])} of {number}",
        *(f"{statistics.fmean(column):.1%}" for column in hits[1:]),
        f"{statistics.median(group):g}",
        f"{statistics.fmean(visits):.1f}",
    ]


def fleet_line(place: int, number: int, fit: bool) -> list[object]:
    """Simulate fleets of devices, and return the line of the table."""
    rng = np.random.default_rng([place, fit])
    noise = operating_fleet.recorded(ROUNDS if fit else SWEEPS)
    return operating_fleet.line(noise, *operating_fleet.LINES[place], number, rng)


def disturbed_line(place: int, number: int, fit: bool) -> list[object]:
    """Simulate disturbed fleets, and return the line of the table."""
    rng = np.random.default_rng([place, fit, 2])
    noise = operating_fleet.recorded(ROUNDS if fit else SWEEPS)
    return operating_fleet.disturbed_line(noise, operating_fleet.DISTURBED[place], number, rng)


def history_line(place: int, number: int, fit: bool) -> list[object]:
    """Simulate histories of saved results, and return the line of the table."""
    rng, case = np.random.default_rng([place, fit, 3]), operating_history.LINES[place]
    every = files_of(fit)[0]

    def draw() -> tuple[Floats, Flags]:
        world = every.chosen(choose_points(every, case[2], rng))
        return world.logs - np.median(world.logs, axis=1, keepdims=True), world.blas

    return operating_history.line(draw, case, number, rng)


TABLES: dict[str, tuple[Callable[..., list[object]], Sequence[object], list[str]]] = {
    "diff": (diff_line, range(len(CASES)), DIFF_HEADING),
    "references": (reference_line, range(len(REFERENCES)), REFERENCE_HEADING),
    "blind": (blind_line, BLIND, BLIND_HEADING),
    "ab": (ab_line, AB, operating_ab.HEADING),
    "tune": (tune_line, list(operating_tune.LANDSCAPES), operating_tune.HEADING),
    "fleet": (fleet_line, range(len(operating_fleet.LINES)), operating_fleet.HEADING),
    "fleet_disturbed": (
        disturbed_line, range(len(operating_fleet.DISTURBED)), operating_fleet.DISTURBED_HEADING
    ),
    "history": (history_line, range(len(operating_history.LINES)), operating_history.HEADING),
}  # fmt: skip
"""Maps a table to the function that makes a line, the items from which lines are made, and the
headings."""


def source() -> str:
    """Return a sentence that names the sweeps whose rounds are drawn, and their commits."""
    commits = measured("commit")
    names = [str(path.relative_to(ROOT / "results")) for path in SWEEPS]
    return f"Rounds of {' and '.join(f'{name} (commit {commits[name]})' for name in names)}."


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--comparisons", type=int, default=200)
    options.add_argument("--only", choices=TABLES)
    options.add_argument("--fit", action="store_true")
    options.add_argument("--directory", type=Path, help="write the tables here; default: stdout")
    asked = options.parse_args()
    with Pool() as pool:
        for name in [asked.only] if asked.only else TABLES:
            line, items, heading = TABLES[name]
            jobs = [(item, asked.comparisons, asked.fit) for item in items]
            text = table(heading, pool.starmap(line, jobs, chunksize=1))
            if name != "tune" and not asked.fit:
                text = f"{source()}\n\n{text}"
            if asked.directory:
                (asked.directory / f"{name}.md").write_text(f"{text}\n", encoding="utf-8")
            else:
                print(f"{text}\n", flush=True)


if __name__ == "__main__":
    main()
