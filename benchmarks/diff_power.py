"""How good `gpubench diff` is: its false positives, and the slowdowns that it misses.

    python benchmarks/diff_power.py SWEEPS --output results/h200/diff [--slowed DIRECTORY ...]

SWEEPS is a directory of sweeps of one build (`benchmarks/diff_sweeps.py`). Three tables are
written, to OUTPUT.md and OUTPUT.csv:

1. Same build: pairs of its sweeps, and how many exit 1, which is a false positive. Pairs of two
   GPUs of one kind have a line of their own.
2. Injected: each sweep against another one of its GPU in which the rounds of one variant take 5 %
   or 2 % longer, and in how many the variant is found slower. By default the threshold is 2 % for
   the first and 1 % for the second, so that the second is looked for at all.
3. Slowed: sweeps of a build with a kernel that really is slower (`benchmarks/diff_slowdown.py`)
   against sweeps of the build without, on the same GPU.

A point counts where the slowdown is twice the floor of 0.5 µs; the others need not be found. With
`--sweeps-a-side 5`, a side is five sweeps, assigned to the sides in turns.
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

from gpubench.commands.diff.compare import Comparison, Key, Limits, PooledPoint, Verdict, compare
from gpubench.commands.diff.sides import Side, read_side

SLOWDOWNS = ((0.05, Limits()), (0.02, Limits(threshold=0.01)))
Points = dict[Key, PooledPoint]


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
    """Points that should be found slower; of the same build, all that were compared."""

    found: int
    """Points found slower among those."""

    others: int
    """Points of other variants that are called slower."""

    ambiguous: int


def slowed(points: Points, variant: str, slowdown: float) -> Points:
    factor = 1 + slowdown
    return {
        key: replace(
            point,
            sweeps_us=tuple(tuple(factor * t for t in sweep) for sweep in point.sweeps_us),
            cycles=tuple(factor * cycles for cycles in point.cycles),
        )
        if key.variant == variant
        else point
        for key, point in points.items()
    }


def worth_finding(base: Points, variant: str, slowdown: float, limits: Limits) -> set[Key]:
    """Points of the variant whose slowdown is well above the floor."""
    return {
        key
        for key, point in base.items()
        if key.variant == variant
        and point.timed
        and slowdown * statistics.median(point.rounds_us) > 2 * limits.floor_us
    }


def result(
    kind: str,
    names: tuple[str, str],
    comparison: Comparison,
    wanted: set[Key] | None = None,
    slowdown: str = "",
) -> Result:
    slower = set(comparison.of(Verdict.SLOWER))
    slowed = {key.variant for key in wanted or ()}
    return Result(
        kind=kind,
        slowdown=slowdown,
        threshold=comparison.limits.threshold,
        base=names[0],
        new=names[1],
        exit_1=bool(slower),
        points=len(comparison.findings if wanted is None else wanted),
        found=len(slower if wanted is None else slower & wanted),
        others=0 if wanted is None else sum(key.variant not in slowed for key in slower),
        ambiguous=comparison.counts[Verdict.AMBIGUOUS],
    )


def sides_of(
    files: list[Path], a_side: int, *, neighbours: bool
) -> Iterator[tuple[list[Path], list[Path]]]:
    """Pairs of single sweeps; or of several sweeps each, assigned to the sides in turns."""
    if a_side > 1:
        for start in range(0, len(files) - 2 * a_side + 1, a_side):
            yield files[start : start + 2 * a_side : 2], files[start + 1 : start + 2 * a_side : 2]
    elif neighbours:
        yield from (([base], [new]) for base, new in itertools.pairwise(files))
    else:
        yield from (([base], [new]) for base, new in itertools.combinations(files, 2))


@cache
def side(*paths: Path) -> Side:
    """A side, read once: each file is in many pairs."""
    return read_side(paths)


def by_gpu(files: Iterable[Path]) -> dict[str, list[Path]]:
    """The files of each GPU, in order."""
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(side(path).rows[0].device_uuid or "", []).append(path)
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
    """Every pair as it is; and for each sweep, or several, one with an injected slowdown."""
    for limits in (Limits(), Limits(threshold=0.01)):
        results = []
        for base, new in sides_of(files, a_side, neighbours=neighbours):
            two_gpus = len(by_gpu([*base, *new])) > 1
            kind = "same build, two GPUs" if two_gpus else "same build"
            comparison = compare(side(*base).pooled, side(*new).pooled, limits)
            results.append(result(kind, (name(base), name(new)), comparison))
        yield from sorted(results, key=lambda line: line.kind)
    chosen = sides_to_slow(files, a_side)
    for slowdown, limits in SLOWDOWNS:
        for base, new in chosen:
            before, after = side(*base).pooled, side(*new).pooled
            wanted = worth_finding(before, variant, slowdown, limits)
            comparison = compare(before, slowed(after, variant, slowdown), limits)
            percent = f"{100 * slowdown:g} %"
            yield result("injected", (name(base), name(new)), comparison, wanted, percent)


def really_slower(folder: Path, files: list[Path], variant: str) -> Iterator[Result]:
    """A build that is slower; the directory's name says by how much: `slowed-5`, `slowed-2`."""
    percent = float(folder.name.rpartition("-")[2])
    limits = Limits(threshold=0.01) if percent < 3 else Limits()  # noqa: PLR2004 # as SLOWDOWNS
    slow = by_gpu(sorted(folder.glob("*.csv")))
    for gpu, group in by_gpu(files).items():
        for path, other in zip(group, itertools.cycle(slow[gpu]), strict=False):
            base, new = side(path).pooled, side(other).pooled
            wanted = worth_finding(base, variant, percent / 100, limits)
            comparison = compare(base, new, limits)
            names = (path.stem, f"{folder.name}/{other.stem}")
            yield result("slowed", names, comparison, wanted, f"about {percent:g} %")


def summary(results: Sequence[Result]) -> str:
    lines = [
        "| comparisons | slowdown | threshold | exit 1 | points slower | of | of other kernels |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for (kind, slowdown, threshold), group in itertools.groupby(
        results, key=lambda line: (line.kind, line.slowdown, line.threshold)
    ):
        of_kind = list(group)
        lines.append(
            f"| {len(of_kind)} {kind} | {slowdown} | {100 * threshold:g} % | "
            f"{sum(line.exit_1 for line in of_kind)} | {sum(line.found for line in of_kind)} | "
            f"{sum(line.points for line in of_kind)} | {sum(line.others for line in of_kind)} |"
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
    options = parser.parse_args()
    files = sorted(options.sweeps.glob("*.csv"))
    results = list(
        same_build(files, options.sweeps_a_side, options.variant, neighbours=options.neighbours)
    )
    for folder in options.slowed:
        results += really_slower(folder, files, options.variant)
    text = summary(results)
    print(text)
    options.output.with_suffix(".md").write_text(text, encoding="utf-8")
    with options.output.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, list(Result.__dataclass_fields__), lineterminator="\n")
        lines.writeheader()
        lines.writerows(line.__dict__ for line in results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
