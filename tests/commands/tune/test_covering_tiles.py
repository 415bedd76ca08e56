"""The cover of a list: few configurations, every problem within the limit, doubts named."""

from dataclasses import replace

from samples import printed
from samples import sample as sample_row

from gpubench.commands.tune.covering_tiles import (
    chosen_tiles,
    cover_rows,
    cover_tables,
    cover_winners,
    covers,
)
from gpubench.plan.tuned import Winner
from gpubench.results.row import Row


def race(m: int, **times_us: float) -> list[Row]:
    """The rows of a race; `t8=12.5` is the time of tile 8. A negative time was eliminated."""
    return [
        replace(
            sample_row(),
            variant="mine",
            tile=name.removeprefix("t"),
            m=m,
            problem=f"p{m}",
            status="ok" if time_us > 0 else "eliminated",
            median_us=abs(time_us),
            ci_low_us=abs(time_us),
            ci_high_us=abs(time_us),
            round_medians_us=";".join([str(abs(time_us))] * 7),
        )
        for name, time_us in times_us.items()
    ]


def shown(races: list[list[Row]], limit: float, undecided: int = 0) -> str:
    return printed(*cover_tables(covers(races, races[:undecided], limit), []))


RACES = [
    race(1, t8=100.0, t16=101.0, t32=120.0),
    race(2, t8=130.0, t16=101.5, t32=100.0),
    race(3, t8=100.0, t16=110.0, t32=-90.0),
    race(4, t8=130.0, t16=100.0, t32=130.0),
]


def test_a_cover_has_the_fewest_tiles_within_the_limit() -> None:
    (cover,) = covers(RACES, [], 0.02)
    assert cover.tiles == ("8", "16")
    assert {problem.row.m: problem.row.tile for problem in cover.problems} == {
        1: "8",
        2: "16",
        3: "8",
        4: "16",
    }


def test_a_wider_limit_needs_fewer_tiles() -> None:
    (cover,) = covers(RACES, [], 0.12)
    assert cover.tiles == ("16",)


def test_an_eliminated_configuration_covers_nothing_even_if_its_time_looks_good() -> None:
    (cover,) = covers([RACES[2]], [], 0.5)
    assert cover.tiles == ("8",)


def test_greedy_choices_that_became_needless_are_dropped() -> None:
    slower = {
        "greedy": {2: 0.0, 3: 0.0, 4: 0.0, 5: 0.0},
        "left": {1: 0.0, 2: 0.0, 3: 0.0},
        "right": {4: 0.0, 5: 0.0, 6: 0.0},
    }
    assert set(chosen_tiles(slower)) == {"left", "right"}


def test_every_problem_is_covered_by_its_best_if_nothing_else_does() -> None:
    races = [race(m, **{f"t{m}": 10.0, "t99": 20.0}) for m in (1, 2, 3)]
    (cover,) = covers(races, [], 0.02)
    assert set(cover.tiles) == {"1", "2", "3"}


def test_layouts_and_dtypes_have_covers_of_their_own() -> None:
    other = [replace(row, layout="column-major B") for row in RACES[0]]
    assert len(covers([*RACES, other], [], 0.02)) == 2


def test_each_layout_gets_the_configuration_of_its_own_cover() -> None:
    rows = [replace(row, layout="row-major") for row in race(1, t8=100.0, t16=120.0)]
    columns = [replace(row, layout="column-major B") for row in race(1, t8=120.0, t16=90.0)]
    both = [
        Winner(
            device=best.device or "",
            op="gemm",
            variant="mine",
            dtype=best.compute_mode,
            layout=best.layout,
            m=1,
            n=best.n,
            k=best.k,
            tile="",
            simplest="",
            group=1,
            configurations=2,
            within=0.02,
            median_us=1.0,
            percent_of_blas=None,
            source_hash="",
            gpubench="",
            tuned_utc="",
        )
        for best in (rows[0], columns[1])
    ]
    covered = cover_winners(covers([rows, columns], [], 0.02), both, [])
    assert [(one.layout, one.tile, one.median_us) for one in covered] == [
        ("row-major", "8", 100.0),
        ("column-major B", "16", 90.0),
    ]


def test_a_problem_that_is_not_certain_is_named() -> None:
    text = shown(RACES, 0.02)
    assert "2 of 3 configurations keep 4 problems within 2 %" in text
    assert "not certain" not in text
    rounds = ";".join(map(str, (101.0, 101.5, 101.5, 102.0, 104.0, 104.0, 104.0)))
    unsure = replace(RACES[1][1], round_medians_us=rounds)
    text = shown([RACES[0], [RACES[1][0], unsure, RACES[1][2]], *RACES[2:]], 0.02)
    assert "not certain to be within 2 %: 1 of 4 problems" in text
    assert "p2 with 16" in text


def test_a_problem_that_the_confirmation_finds_outside_is_not_counted_as_within() -> None:
    outside = [replace(RACES[1][1], round_medians_us=";".join(["106.0"] * 7)), RACES[1][2]]
    (_, grid, *_) = parts = cover_tables(covers(RACES, [], 0.02), outside)
    assert "2 of 3 configurations keep 3 of 4 problems within 2 %" in str(parts[0])
    assert [line[2] for line in grid.lines] == ["0.00 %", "6.00 %"]


def test_an_undecided_race_is_named() -> None:
    assert "p1 with 8: its race was undecided" in shown(RACES, 0.02, undecided=1)


def test_the_confirmation_measures_each_configuration_of_the_cover_and_the_best() -> None:
    confirmed = {(row.m, row.tile) for row in cover_rows(covers(RACES, [], 0.02))}
    assert confirmed == {(1, "8"), (2, "16"), (2, "32"), (3, "8"), (4, "16")}


def test_a_problem_without_a_time_is_named() -> None:
    skipped = [replace(row, status="skipped", median_us=None) for row in race(7, t8=10.0, t16=9.0)]
    text = shown([*RACES, skipped], 0.02)
    assert "not certain to be within 2 %: 1 of 5 problems" in text
    assert "p7: not measured" in text
