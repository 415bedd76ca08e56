"""Regressions that a comparison could miss, and changes that are no regression."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from diffs import ROUNDS, SIZES, Run, Write, failure, row, rows, swapped

from gpubench.model import Status
from gpubench.results.row import Row


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (Status.SKIPPED, "estimated 12 s a launch, over --launch-limit 10"),
        (Status.ERROR, "lost the device"),
        (Status.WRONG, "relative error 0.3"),
    ],
)
def test_a_point_that_lost_its_time_is_broken(
    file: Write, run: Run, status: Status, reason: str
) -> None:
    new = swapped(rows(), failure(status, reason))
    code, out, _ = run(file("base.csv", rows()), file("new.csv", new))
    assert code == 4
    assert out.startswith("broken: 1 of 9 points wrong or lost")
    assert reason in out


def test_a_point_that_one_of_five_sweeps_lost_is_broken(file: Write, run: Run) -> None:
    base = [file(f"b{n}.csv", rows()) for n in range(5)]
    new = [file(f"n{n}.csv", rows()) for n in range(4)]
    lost = file("n4.csv", swapped(rows(), failure(Status.SKIPPED, "over --launch-limit 10")))
    assert run("--base", *base, "--new", *new)[0] == 0
    assert run("--base", *base, "--new", *new, lost)[0] == 4
    assert run("--base", *base, lost, "--new", *new)[0] == 0
    assert run("--base", *base[:4], lost, "--new", *new, lost.replace("n4", "n3"))[0] == 2


def test_another_compute_mode_is_broken_and_not_missing_and_new(file: Write, run: Run) -> None:
    changed = replace(row("own", 64, 0.5), compute_mode="tf32")
    new = [changed if row.key == rows()[3].key else row for row in rows()]
    code, out, _ = run(file("base.csv", rows()), file("new.csv", new))
    assert code == 4
    assert "computes in tf32, on the base side in float32" in out
    assert "missing" not in out
    assert "new (" not in out


BLAS_TOO = dict.fromkeys(("cublas", "own", "other"), 1600 / 1980)
SLOW = [row("own", size, 1980 / 1600, mhz=1600.0) for size in SIZES]


@pytest.mark.parametrize(
    ("base", "new", "first"),
    [
        (  # The base was throttled, which could hide that the kernel became slower.
            rows(mhz=1600.0),
            swapped(rows(mhz=1980.0, **BLAS_TOO), row("own", 64, mhz=1980.0)),
            "machine-wide shift of -19.2 %: slower: 1 of 9 points, by up to 23.8 % (own at 64)",
        ),
        (
            swapped(rows(mhz=1980.0), row("own", 64, mhz=1600.0)),
            rows(mhz=1980.0),
            "slower: 1 of 9 points, by up to 23.8 % (own at 64)",
        ),
        (
            rows(mhz=1980.0),
            swapped(rows(mhz=1980.0), *SLOW),
            "slower: 3 of 9 points, by up to 23.8 %",
        ),
    ],
    ids=["the clock rose", "throttled at one point", "it lowers its own clock"],
)
def test_a_change_of_the_clock_hides_no_slower_kernel(
    file: Write, run: Run, base: list[Row], new: list[Row], first: str
) -> None:
    code, out, _ = run(file("base.csv", base), file("new.csv", new))
    assert (code, out.startswith(first)) == (1, True), out


def test_a_lower_clock_that_also_slows_the_blas_is_no_regression(file: Write, run: Run) -> None:
    lower = dict.fromkeys(("cublas", "own", "other"), 1980 / 1600)
    base, new = file("base.csv", rows(mhz=1980.0)), file("new.csv", rows(mhz=1600.0, **lower))
    code, out, _ = run(base, new)
    assert code == 0
    assert re.match(
        r"machine-wide shift of \+23\.[78] %: no confirmed regression: 9 clock of 9 points", out
    )
    assert run(base, new, "--strict")[0] == 3


def test_kernels_that_became_slower_while_the_machine_became_faster_are_slower(
    file: Write, run: Run
) -> None:
    """Other work slowed the base, and the new build is slower by the same factor."""
    base, new = file("base.csv", rows()), rows(cublas=1 / 1.1)
    code, out, _ = run(base, file("new.csv", new))
    first = "machine-wide shift of -9.1 %: slower: 6 of 9 points, by up to 10.0 %"
    assert (code, out.partition(" (")[0]) == (1, first)
    assert "nine of ten cases: everything 2." in out  # the slow points add no scatter
    single_blas = [line for line in new if line.variant != "cublas" or line.m == 64]
    assert (
        run(base, file("one.csv", single_blas))[0] == 0
    )  # a single BLAS point may have two speeds
    other = [replace(line, library="cuBLAS 14") for line in new]
    assert run(base, file("other.csv", other))[0] == 0
    apart = swapped(new, row("cublas", 64))
    assert run(base, file("apart.csv", apart))[0] == 0  # the BLAS points disagree


def coded(code: str, **factors: float) -> list[Row]:
    """Return rows of four kernels and the BLAS. `own` has this code, and the others have c1."""
    return [
        replace(
            row(name, size, factors.get(name, 1.0)),
            source_hash="f1",
            code_hash={"cublas": None, "own": code}.get(name, "c1"),
        )
        for name in ("cublas", "own", "one", "two", "three")
        for size in SIZES
    ]


def test_where_only_the_library_moved_kernels_with_unchanged_code_show_the_machine(
    file: Write, run: Run
) -> None:
    base = file("base.csv", coded("a"))
    code, out, _ = run(base, file("new.csv", coded("b", cublas=0.97)))
    assert code == 0
    assert "only the library moved, by -3.0 %" in out
    code, out, _ = run(base, file("slow.csv", coded("b", cublas=0.97, own=1.05)))
    assert (code, out.splitlines()[0].startswith("slower: 3 of 15 points")) == (1, True), out
    hidden = coded("b", cublas=1.05, own=1.05)  # relative to the BLAS, `own` is unchanged
    assert run(base, file("hidden.csv", hidden))[0] == 1
    drifted = coded("b", cublas=1.1, own=1.1, one=1.1, two=1.1, three=1.1)
    code, out, _ = run(base, file("drifted.csv", drifted))
    assert (code, out.startswith("machine-wide shift of +10.0 %")) == (0, True)


def test_a_machine_that_becomes_slower_from_round_to_round_hides_no_kernel(
    file: Write, run: Run
) -> None:
    def ramp(**factors: float) -> list[Row]:
        return [
            replace(line, round_medians_us=tuple(
                us * (1 + 0.01 * place) for place, us in enumerate(line.round_medians_us)
            ))
            for line in rows(**factors)
        ]  # fmt: skip

    base = file("base.csv", ramp())
    assert run(base, file("new.csv", ramp(own=1.05, other=1.05)))[0] == 1
    assert run(base, file("same.csv", ramp()))[0] == 0


def test_all_points_slower_with_the_blas_are_a_machine_wide_shift(file: Write, run: Run) -> None:
    base, new = file("base.csv", rows()), file("new.csv", rows(cublas=1.05, own=1.05, other=1.05))
    code, out, _ = run(base, new)
    first = "machine-wide shift of +5.0 %: not decided: 9 ambiguous of 9 points"
    assert (code, out.splitlines()[0]) == (0, first)
    assert "moved with the machine" in " ".join(out.split())
    assert run(base, new, "--strict")[0] == 3


def noisy(count: int, rounds: int, seed: int, factor: float = 1.0) -> list[Row]:
    """Return points whose rounds scatter by 0.3 %. The first six are slower by `factor`."""
    chance = random.Random(seed)  # noqa: S311 # noise, not a secret
    return [
        row(
            "own",
            16 + number,
            factor if number < 6 else 1.0,
            [100 * chance.lognormvariate(0, 0.003) for _ in range(rounds)],
        )
        for number in range(count)
    ]


def test_a_point_with_two_speeds_is_listed_with_both(file: Write, run: Run) -> None:
    bimodal = row("own", 64, 1.0, (100.0, 108.1, 100.2, 100.1, 100.3))
    base = file("base.csv", swapped(rows(), bimodal))
    new = swapped(rows(), row("own", 64, 1.08))
    code, out, _ = run(base, file("new.csv", new))
    assert code == 0
    assert "own at 64 float32 ran at two speeds" in " ".join(out.split())
    assert "two speeds: 0.1002 and 0.1082 ms" in " ".join(out.split())
    assert "; found less often at 1 point with two speeds" in out
    # The distance of the two speeds does not explain this change.
    assert run(base, file("slower.csv", swapped(rows(), row("own", 64, 1.5))))[0] == 1
    # With more rounds the test of differences decides.
    often = swapped(rows(), row("own", 64, 1.0, (*ROUNDS, 108.1, *ROUNDS[:4])))
    more = swapped(rows(), row("own", 64, 1.08, ROUNDS * 2))
    assert run(file("base.csv", often), file("more.csv", more))[0] == 1


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_one_round_a_side_is_not_judged_and_that_is_said(
    file: Write, run: Run, factor: float
) -> None:
    base = [row("own", size, 1.0, (100.0,)) for size in SIZES]
    new = [row("own", size, factor, (101.0,)) for size in SIZES]
    code, out, _ = run(file("base.csv", base), file("new.csv", new))
    assert code == 0
    assert out.startswith(
        "not judged: each side has one round, so measure more --rounds; 3 ambiguous of 3 points"
    )


def test_sides_may_have_different_numbers_of_rounds_and_no_scatter(file: Write, run: Run) -> None:
    base = file("base.csv", [row("own", size, 1.0, ROUNDS[:3]) for size in SIZES])
    assert run(base, file("new.csv", rows(own=1.05)[3:6]))[0] == 1
    single = [row("own", size, 1.05, ROUNDS[:1]) for size in SIZES]
    code, out, _ = run(base, file("new.csv", single))
    assert (code, "own at 64" in out) == (1, True)
    exact = [[row("own", size, factor, [100.0] * 5) for size in SIZES] for factor in (1.0, 1.03)]
    base = file("base.csv", exact[0])
    assert [run(base, file("new.csv", new))[0] for new in exact] == [0, 1]


def test_on_a_cpu_the_sweep_is_the_unit(file: Write, run: Run) -> None:
    """Each sweep shifts all its rounds, so ten rounds of a sweep count as one round."""

    def sweeps(side: str, shifts: tuple[float, ...]) -> list[str]:
        return [
            file(
                f"{side}{place}.csv",
                [replace(row("own", size, shift), timer="host") for size in SIZES],
            )
            for place, shift in enumerate(shifts)
        ]

    base, new = sweeps("b", (1.0, 1.09, 1.02)), sweeps("n", (1.1, 1.03, 1.12))
    code, out, _ = run(base[0], new[0])
    assert code == 0
    assert out.startswith("not judged: a CPU needs 5 sweeps per side")
    assert run("--base", *base, "--new", *new)[0] == 0
    slower = sweeps("s", (1.3, 1.33, 1.31))
    assert run("--base", *sweeps("q", (1.0, 1.02, 1.01)), "--new", *slower)[0] == 1
    busy = 1.0, 1.001, 1.08
    out = run("--base", *sweeps("x", busy), "--new", *sweeps("y", busy))[1]
    assert "two speeds" not in out  # the slow sweep ran beside other work


def spoiled(rows: Sequence[Row], place: int, factor: float) -> list[Row]:
    """Return the rows with one slower round in each."""

    def changed(row: Row) -> Row:
        times = list(row.round_medians_us)
        times[place] *= factor
        return replace(row, round_medians_us=tuple(times))

    return [changed(row) for row in rows]


def test_a_disturbed_round_hides_no_regression_and_is_named_in_the_first_lines(
    file: Write, run: Run
) -> None:
    base = file("base.csv", noisy(40, 5, 1))
    for seed, factor, code in ((2, 1.05, 1), (3, 1.0, 0)):
        new = file(f"new{seed}.csv", spoiled(noisy(40, 5, seed, factor), 2, 1.3))
        ended, out, _ = run(base, new)
        assert ended == code
        first = " ".join(out.splitlines()[:5])
        assert re.search(rf"round 3 of new{seed}\.csv \(new side\), \+(29|30)\.\d %", first)
    assert "40 same" in out.splitlines()[0]


def test_a_round_that_disturbed_points_unequally_is_left_out(file: Write, run: Run) -> None:
    new = [
        spoiled([row], 1, 1.0 + number % 4 * 0.2)[0]
        for number, row in enumerate(noisy(40, 5, 2, 1.05))
    ]
    code, out, _ = run(file("base.csv", noisy(40, 5, 1)), file("new.csv", new))
    assert (code, out.startswith("slower: 6 of 40")) == (1, True)
    assert "not equally at all points, so the round is left out" in " ".join(out.split())


def test_on_a_cpu_beside_other_work_the_shortest_sweeps_decide(file: Write, run: Run) -> None:
    """At each point, half of the sweeps take longer by different factors."""
    rng = random.Random(4)  # noqa: S311 # a sample, not a secret

    def sweeps(side: str, factor: float) -> list[str]:
        paths = []
        for number in range(20):
            of_sweep = []
            for name, size in product(("own", "cublas"), SIZES):
                busy = rng.uniform(1.1, 1.8) if rng.random() < 0.5 else 1
                shift = busy * rng.gauss(1, 0.005) * (factor if name == "own" else 1)
                measured = replace(row(name, size, shift), timer="host", min_us=99 * shift)
                of_sweep.append(measured)
            paths.append(file(f"{side}{number}.csv", of_sweep))
        return paths

    base = sweeps("b", 1.0)
    code, out, _ = run("--base", *base, "--new", *sweeps("n", 1.1))
    assert code == 1
    assert re.match(r"slower: [123] of 6 ", out)
    assert "cublas at" not in out.partition("ambiguous")[0]
    assert "by the fastest sweeps" in out
    assert run("--base", *base, "--new", *sweeps("s", 1.0))[0] == 0


def at_bandwidth(rows: Sequence[Row], part: float) -> list[Row]:
    """Return the rows at a share of the copy bandwidth."""
    return [
        replace(row, gbytes_per_s=4222 * part, percent_of_copy=100 * part, percent_of_peak=3.0)
        for row in rows
    ]


def test_a_clock_neither_excuses_nor_convicts_what_the_memory_bounds(file: Write, run: Run) -> None:
    def side(mhz: float, copying: float, part: float) -> list[Row]:
        factors = dict.fromkeys(("cublas", "own", "other"), 1980 / mhz)
        memory = [row("copying", size, copying, mhz=mhz) for size in SIZES]
        return [*at_bandwidth(rows(mhz=mhz, **factors), 0.02), *at_bandwidth(memory, part)]

    base = file("base.csv", side(1980.0, 1.0, 1.0))
    code, out, _ = run(base, file("fell.csv", side(1881.0, 1.07, 0.93)))
    first = "machine-wide shift of +5.3 %: slower: 3 of 12 points"
    assert (code, out.partition(",")[0]) == (1, first)
    assert "clock (9)" in out
    code, out, _ = run(base, file("rose.csv", side(2040.0, 1.0, 1.0)))
    assert (code, "same: 3 points" in out) == (0, True)
