"""What `gpubench diff` is worth: how often it cries wolf, and what it misses.

    python benchmarks/diff_power.py SWEEPS --output results/h200/diff [--slowed FOLDER ...]

SWEEPS is a folder of sweeps of one build (`benchmarks/diff_sweeps.py`). Three tables are written,
to OUTPUT.md and OUTPUT.csv:

1. Wolf: pairs of sweeps of the same build, and how many exit 1. None should. Those of two GPUs of
   one kind have a line of their own.
2. Injected: each sweep against another one of its GPU in which the rounds of one variant take 5 %
   or 2 % longer, and in how many the variant is found slower. By default the threshold is 2 % for
   the first and 1 % for the second, so that the second is looked for at all.
3. Slowed: sweeps of a build with a kernel that really is slower (`benchmarks/diff_slowdown.py`)
   against sweeps of the build without, on the same GPU.

A point counts where the slowdown is twice the floor of 0.5 µs; the others need not be found. With
`--sweeps-a-side 5`, a side is five sweeps, the sides' sweeps in turns.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from gpubench.commands.diff.compare import compare
from gpubench.commands.diff.input import Key, Table, read_table
from gpubench.commands.diff.verdicts import Comparison, Limits, Side, Verdict
from gpubench.plan.registry import variants
from gpubench.row import KEY

BLAS = {variant.baseline for variant in variants() if variant.baseline}
SLOWDOWNS = ((0.05, Limits()), (0.02, Limits(threshold=0.01)))
Sides = dict[Key, Side]


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of the summary."""

    kind: str
    slowdown: str
    threshold: float
    base: str
    new: str
    exit_1: bool
    points: int
    """Points that should be found slower; for wolf, all that were compared."""

    found: int
    """Points found slower among those."""

    others: int
    """Points of other variants that are called slower."""

    ambiguous: int


def variant_of(key: Key) -> str:
    return str(key[KEY.index("variant")])


def judged(base: Sides, new: Sides, limits: Limits) -> Comparison[Key]:
    return compare(base, new, is_blas=lambda key: variant_of(key) in BLAS, limits=limits)


def slowed(sides: Sides, variant: str, slowdown: float) -> Sides:
    factor = 1 + slowdown
    return {
        key: replace(
            side,
            sweeps_us=tuple(tuple(factor * t for t in sweep) for sweep in side.sweeps_us),
            cycles=tuple(factor * cycles for cycles in side.cycles),
        )
        if variant_of(key) == variant
        else side
        for key, side in sides.items()
    }


def worth_finding(base: Sides, variant: str, slowdown: float, limits: Limits) -> set[Key]:
    """Points of the variant whose slowdown is well above the floor."""
    return {
        key
        for key, side in base.items()
        if variant_of(key) == variant
        and side.timed
        and slowdown * statistics.median(side.rounds_us) > 2 * limits.floor_us
    }


def result(
    kind: str,
    names: tuple[str, str],
    comparison: Comparison[Key],
    wanted: set[Key] | None = None,
    slowdown: str = "",
) -> Result:
    slower = set(comparison.of(Verdict.SLOWER))
    slowed = {variant_of(key) for key in wanted or ()}
    return Result(
        kind=kind,
        slowdown=slowdown,
        threshold=comparison.limits.threshold,
        base=names[0],
        new=names[1],
        exit_1=bool(slower),
        points=len(comparison.findings if wanted is None else wanted),
        found=len(slower if wanted is None else slower & wanted),
        others=0 if wanted is None else sum(variant_of(key) not in slowed for key in slower),
        ambiguous=comparison.counts[Verdict.AMBIGUOUS],
    )


def sides_of(
    files: list[Path], a_side: int, *, neighbours: bool
) -> Iterator[tuple[list[Path], list[Path]]]:
    """Pairs of single sweeps; or of several sweeps each, dealt to the sides in turns."""
    if a_side > 1:
        for start in range(0, len(files) - 2 * a_side + 1, a_side):
            yield files[start : start + 2 * a_side : 2], files[start + 1 : start + 2 * a_side : 2]
    elif neighbours:
        yield from (([base], [new]) for base, new in itertools.pairwise(files))
    else:
        yield from (([base], [new]) for base, new in itertools.combinations(files, 2))


@cache
def table(*paths: Path) -> Table:
    """A side, read once: each file is in many pairs."""
    return read_table(paths)


def by_gpu(files: Iterable[Path]) -> dict[str, list[Path]]:
    """The files of each GPU, in order."""
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(table(path).rows[0].device_uuid or "", []).append(path)
    return groups


def sides_to_slow(files: list[Path], a_side: int) -> list[tuple[list[Path], list[Path]]]:
    """Pairs whose second side is to be slowed: each file once, against another one of its GPU."""
    if a_side > 1:
        return list(sides_of(files, a_side, neighbours=True))
    return [
        ([group[number - 1]], [path])
        for group in by_gpu(files).values()
        if len(group) > 1
        for number, path in enumerate(group)
    ]


def name(paths: list[Path]) -> str:
    return "+".join(path.stem for path in paths)


def same_build(
    files: list[Path], a_side: int, variant: str, *, neighbours: bool
) -> Iterator[Result]:
    """Every pair for wolves; and for each sweep, or several, an injection."""
    for limits in (Limits(), Limits(threshold=0.01)):
        results = []
        for base, new in sides_of(files, a_side, neighbours=neighbours):
            kind = "wolf" if len(by_gpu([*base, *new])) == 1 else "wolf, two GPUs"
            comparison = judged(table(*base).sides, table(*new).sides, limits)
            results.append(result(kind, (name(base), name(new)), comparison))
        yield from sorted(results, key=lambda one: one.kind)
    chosen = sides_to_slow(files, a_side)
    for slowdown, limits in SLOWDOWNS:
        for base, new in chosen:
            before, after = table(*base).sides, table(*new).sides
            wanted = worth_finding(before, variant, slowdown, limits)
            comparison = judged(before, slowed(after, variant, slowdown), limits)
            share = f"{100 * slowdown:g} %"
            yield result("injected", (name(base), name(new)), comparison, wanted, share)


def real(folder: Path, files: list[Path], variant: str) -> Iterator[Result]:
    """A build that is slower; the folder's name says by how much: `slowed-5`, `slowed-2`."""
    percent = float(folder.name.rpartition("-")[2])
    limits = Limits(threshold=0.01) if percent < 3 else Limits()  # noqa: PLR2004 # as SLOWDOWNS
    slow = by_gpu(sorted(folder.glob("*.csv")))
    for gpu, group in by_gpu(files).items():
        for path, other in zip(group, itertools.cycle(slow[gpu]), strict=False):
            base, new = table(path).sides, table(other).sides
            wanted = worth_finding(base, variant, percent / 100, limits)
            comparison = judged(base, new, limits)
            names = (path.stem, f"{folder.name}/{other.stem}")
            yield result("slowed", names, comparison, wanted, f"about {percent:g} %")


def summary(results: Sequence[Result]) -> str:
    lines = [
        "| comparisons | slowdown | threshold | exit 1 | points slower | of | of other kernels |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for (kind, slowdown, threshold), group in itertools.groupby(
        results, key=lambda one: (one.kind, one.slowdown, one.threshold)
    ):
        some = list(group)
        lines.append(
            f"| {len(some)} {kind} | {slowdown} | {100 * threshold:g} % | "
            f"{sum(one.exit_1 for one in some)} | {sum(one.found for one in some)} | "
            f"{sum(one.points for one in some)} | {sum(one.others for one in some)} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("sweeps", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--slowed", type=Path, nargs="*", default=[])
    parser.add_argument("--variant", default="shared_tile")
    parser.add_argument("--sweeps-a-side", type=int, default=1)
    parser.add_argument("--neighbours", action="store_true")
    asked = parser.parse_args()
    files = sorted(asked.sweeps.glob("*.csv"))
    results = list(
        same_build(files, asked.sweeps_a_side, asked.variant, neighbours=asked.neighbours)
    )
    for folder in asked.slowed:
        results += real(folder, files, asked.variant)
    text = summary(results)
    print(text)
    asked.output.with_suffix(".md").write_text(text, encoding="utf-8")
    with asked.output.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, list(Result.__dataclass_fields__), lineterminator="\n")
        lines.writeheader()
        lines.writerows(one.__dict__ for one in results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
