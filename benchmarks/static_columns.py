"""Measure how well each column of a build file predicts that a kernel is slower.

    python benchmarks/static_columns.py results/h200 > static_columns.md    # some minutes

Takes recorded sweeps of an H200 with many tiles, compiles every tile, and compares each pair of
tiles of one kernel that differ in one parameter only, for edges by 1. Such a pair stands for a
small change of a kernel. A pair counts if its times differ by more than 2 %.

Two tables: for each column, how often the side with the worse value is the slower side; and for
rules such as those of `gpubench diff`, how often a pair with a worse side is slower there. Limits
are chosen on the kernels of `FIT`, and judged on the kernels of `JUDGE`.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from shared import markdown

from gpubench.backends import compiler_of
from gpubench.commands.explain.build import build_rows, make_instance
from gpubench.model import Config, CudaVariant, Problem
from gpubench.plan.registry import of_op
from gpubench.results.build_row import BuildRow
from gpubench.results.row import Row, read

FILES = {
    "sweep.csv": 2048,
    "tune/vectorized_4096.csv.gz": 4096,
    "tune/pipelined_4096.csv.gz": 4096,
    "tune/wgmma_cluster_4096.csv.gz": 4096,
    "gemv.csv": 16384,
    "gemv_t.csv": 16384,
    "atax.csv": 16384,
}
"""The recorded sweeps, and the size to take from each: one that fills the GPU."""

FIT = ("naive", "naive_uncoalesced", "shared_tile", "register_tile")
"""Kernels on which limits are chosen. All others judge them."""

ARCHITECTURE = "sm_90"
MATTERS = 0.02
"""Relative difference of two times that counts, as in `gpubench diff`."""

LIMITS = (0.0, 0.02, 0.05, 0.1, 0.2)
MIN_PAIRS = 5
"""Fewer pairs do not make a percentage."""


def per_multiply_add(name: str) -> Callable[[BuildRow], float | None]:
    """Return a function of a count of the inner loop over its multiply-adds."""

    def value(row: BuildRow) -> float | None:
        count = getattr(row, name)
        if count is None or not row.loop_instructions or not row.multiply_adds_per_instruction:
            return None
        return float(count / (row.loop_instructions * row.multiply_adds_per_instruction))

    return value


def plain(name: str) -> Callable[[BuildRow], float | None]:
    return lambda row: getattr(row, name)


COLUMNS: dict[str, tuple[Callable[[BuildRow], float | None], bool]] = {
    "registers": (plain("registers"), True),
    "spill_bytes": (plain("spill_bytes"), True),
    "local_bytes": (plain("local_bytes"), True),
    "shared memory": (
        lambda row: (row.static_shared_bytes or 0) + (row.dynamic_shared_bytes or 0),
        True,
    ),
    "occupancy": (plain("occupancy"), False),
    "resident_blocks": (plain("resident_blocks"), False),
    "waves": (plain("waves"), True),
    "multiply_adds_per_instruction": (plain("multiply_adds_per_instruction"), False),
    "loop_shared_load per multiply-add": (per_multiply_add("loop_shared_load"), True),
    "loop_global_load per multiply-add": (per_multiply_add("loop_global_load"), True),
    "loop_local per multiply-add": (per_multiply_add("loop_local"), True),
    "loop_barrier per multiply-add": (per_multiply_add("loop_barrier"), True),
    "loop_integer per multiply-add": (per_multiply_add("loop_integer"), True),
    "bank_conflicts per multiply-add": (per_multiply_add("bank_conflicts"), True),
    "load_to_use": (plain("load_to_use"), False),
}
"""The columns, and whether the higher value counts as the worse one."""


GATE = (
    "spill_bytes rises",
    "occupancy falls by more than 0 %",
    "occupancy falls, and multiply-adds per instruction do not rise by 5 %",
    "multiply_adds_per_instruction falls by more than 5 %",
)
"""The rules that are shown for each kernel."""


@dataclass(frozen=True)
class Pair:
    """Two tiles of a kernel: what was compiled, and the time of the second over the first."""

    kernel: str
    first: BuildRow
    second: BuildRow
    ratio: float


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=Path)
    asked = parser.parse_args()
    pairs = [pair for name, size in FILES.items() for pair in pairs_of(asked.results / name, size)]
    sys.stdout.write(page(pairs))
    return 0


def pairs_of(path: Path, size: int) -> list[Pair]:
    """Return the pairs of a file: both orders of two neighbouring tiles."""
    times: dict[tuple[str, str, str], dict[str, Row]] = defaultdict(dict)
    for row in read(path):
        if row.backend == "cuda" and row.m == row.n == size and row.median_us and row.tile:
            times[row.op, row.variant, row.dtype][row.tile] = row
    pairs = []
    for (op, name, dtype), rows in times.items():
        kernel = of_op(op)[name]
        if not isinstance(kernel, CudaVariant) or len(rows) < MIN_PAIRS:
            continue
        tiles = {tile: kernel.tiles.read(tile) for tile in rows}
        built = compiled(kernel, list(tiles.values()), next(iter(rows.values())), dtype)
        pairs += [
            Pair(name, built[a], built[b], (rows[b].median_us or 0) / (rows[a].median_us or 1))
            for a, b in combinations(rows, 2)
            if a in built and b in built and are_neighbours(tiles[a], tiles[b])
        ]
    return pairs


def compiled(
    kernel: CudaVariant, tiles: Sequence[Config], row: Row, dtype: str
) -> dict[str, BuildRow]:
    """Return what the compiler makes of each tile, of the launch that bears the kernel's name."""
    problem = Problem(op=kernel.op, m=row.m, n=row.n, k=row.k, dtype=dtype)
    instances = [make_instance(kernel, tile, problem, ARCHITECTURE) for tile in tiles]
    rows = [row for row in build_rows(instances, compiler_of(kernel.backend)) if row.registers]
    main_rows = [row for row in rows if row.kernel == kernel.name] or rows
    return {row.tile: row for row in reversed(main_rows)}


def are_neighbours(a: Config, b: Config) -> bool:
    """Return whether two tiles differ in one parameter, and edges by no more than 1."""
    different = [name for name in {*a, *b} if a.get(name) != b.get(name)]
    if len(different) != 1:
        return False
    name = different[0]
    return name != "edge" or abs(int(a[name]) - int(b[name])) == 1


def page(pairs: Sequence[Pair]) -> str:
    fit = [pair for pair in pairs if pair.kernel in FIT]
    judge = [pair for pair in pairs if pair.kernel not in FIT]
    names = {
        kernel: sum(pair.kernel == kernel for pair in pairs)
        for kernel in dict.fromkeys(pair.kernel for pair in pairs)
    }
    counts = ", ".join(f"{name} {count}" for name, count in names.items())
    version = compiler_of("cuda").version()
    heading = (
        f"{len(pairs)} pairs of neighbouring tiles on an H200 ({version}): {counts}. Limits are "
        f"chosen on {', '.join(FIT)} ({len(fit)} pairs), and judged on the others ({len(judge)})."
    )
    by_column = [
        (
            name,
            "higher" if rising else "lower",
            *(predicted(part, value, rising=rising) for part in (fit, judge)),
        )
        for name, (value, rising) in COLUMNS.items()
    ]
    by_rule = [
        (rule, *(outcome(part, worse) for part in (fit, judge))) for rule, worse in rules().items()
    ]
    by_kernel = [
        (
            name,
            *(
                outcome([pair for pair in pairs if pair.kernel == name], rules()[rule])
                for rule in GATE
            ),
        )
        for name in names
    ]
    sections = (
        heading,
        (
            "Pairs whose times differ by more than 2 %, and how often the side with the worse "
            "value of a column is the slower one (50 %: the column says nothing):"
        ),
        markdown(("column", "worse", "chosen on", "judged on"), by_column),
        (
            "Pairs with a side that is worse by a rule, and how often that side is more than 2 % "
            "slower / within 2 % / more than 2 % faster:"
        ),
        markdown(("rule", "chosen on", "judged on"), by_rule),
        "The rules of `gpubench diff`, by kernel:",
        markdown(("kernel", *GATE), by_kernel),
    )
    return "\n\n".join(sections) + "\n"


def predicted(
    pairs: Sequence[Pair], value: Callable[[BuildRow], float | None], *, rising: bool
) -> str:
    agree = total = 0
    for pair in pairs:
        first, second = value(pair.first), value(pair.second)
        matters = max(pair.ratio, 1 / pair.ratio) > 1 + MATTERS
        if first is None or second is None or first == second or not matters:
            continue
        total += 1
        agree += ((second > first) == rising) == (pair.ratio > 1)
    return f"{100 * agree / total:.0f} % of {total}" if total >= MIN_PAIRS else f"{total} pairs"


Rule = Callable[[BuildRow, BuildRow], bool]


def rules() -> dict[str, Rule]:
    """Return the rules: whether the second row is worse than the first."""

    def falls(name: str, limit: float) -> Rule:
        value = COLUMNS[name][0]
        return lambda a, b: (value(b) or 0) < (1 - limit) * (value(a) or 0)

    def rises(name: str, limit: float = 0.0) -> Rule:
        value = COLUMNS[name][0]
        return lambda a, b: (value(b) or 0) > (1 + limit) * (value(a) or 0)

    share = "multiply_adds_per_instruction"
    chosen: dict[str, Rule] = {"spill_bytes rises": rises("spill_bytes")}
    chosen["spill_bytes appears"] = lambda a, b: not a.spill_bytes and bool(b.spill_bytes)
    chosen["local_bytes rises"] = rises("local_bytes")
    chosen["loop_local per multiply-add rises"] = rises("loop_local per multiply-add")
    chosen |= {
        f"occupancy falls by more than {100 * at:g} %": falls("occupancy", at)
        for at in (0.0, 0.25, 0.4)
    }
    chosen |= {f"{share} falls by more than {100 * at:g} %": falls(share, at) for at in LIMITS}
    bank = "bank_conflicts per multiply-add"
    chosen |= {f"{bank} rises by more than {100 * at:g} %": rises(bank, at) for at in (0.0, 0.2)}
    chosen["load_to_use falls"] = falls("load_to_use", 0.0)
    spills, occupancy = chosen["spill_bytes rises"], falls("occupancy", 0.0)
    five = falls(share, 0.05)
    chosen["spills, occupancy or 5 %"] = lambda a, b: spills(a, b) or occupancy(a, b) or five(a, b)
    chosen["spills or 5 %"] = lambda a, b: spills(a, b) or five(a, b)
    rises_five = rises(share, 0.05)
    chosen["occupancy falls, and multiply-adds per instruction do not rise by 5 %"] = lambda a, b: (
        occupancy(a, b) and not rises_five(a, b)
    )
    chosen["spill_bytes rises, and multiply-adds per instruction do not rise by 5 %"] = (
        lambda a, b: spills(a, b) and not rises_five(a, b)
    )
    chosen["none of the three worse, either way (same time expected)"] = lambda a, b: (
        not (chosen["spills, occupancy or 5 %"](a, b) or chosen["spills, occupancy or 5 %"](b, a))
    )
    return chosen


def outcome(pairs: Sequence[Pair], worse: Rule) -> str:
    slower = same = faster = 0
    both = [(pair.first, pair.second, pair.ratio) for pair in pairs]
    for first, second, ratio in [*both, *((b, a, 1 / ratio) for a, b, ratio in both)]:
        if worse(first, second):
            slower += ratio > 1 + MATTERS
            faster += ratio < 1 / (1 + MATTERS)
            same += 1 / (1 + MATTERS) <= ratio <= 1 + MATTERS
    total = slower + same + faster
    if total < MIN_PAIRS:
        return f"{total} pairs"
    shares = " / ".join(f"{100 * count / total:.0f}" for count in (slower, same, faster))
    return f"{shares} % of {total}"


if __name__ == "__main__":
    sys.exit(main())
