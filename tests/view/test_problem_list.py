"""The summary of a list of problems: the sum of weight × time, by variant and with the best."""

from dataclasses import replace

from samples import printed
from samples import sample as sample_row

from gpubench.model import Status
from gpubench.results.row import Row
from gpubench.view.problem_list import list_summaries


def row(problem: str, variant: str, time_us: float, weight: float = 1.0, **facts: object) -> Row:
    """Return a row of a problem. The length of the problem's name determines its size."""
    usual = {"tile": "", "m": 10 + len(problem), "round_medians_us": (time_us,)}
    usual["percent_of_blas"] = 100.0 if variant == "blas" else 50.0
    row = sample_row(variant, median_us=time_us, problem=problem, weight=weight)
    return replace(row, **usual | facts)


def shown(rows: list[Row]) -> str:
    return printed(*list_summaries(rows))


LIST = [
    row("up", "blas", 100.0, weight=3),
    row("up", "mine", 80.0, weight=3),
    row("down", "blas", 10.0),
    row("down", "mine", 40.0),
]


def test_the_list_takes_the_weighted_sum_with_the_blas_and_with_the_best_of_each() -> None:
    assert "takes 310.0 µs with blas, 250.0 µs with the best kernel of each problem" in shown(LIST)


def test_only_the_fastest_tile_of_a_variant_counts() -> None:
    slower = replace(LIST[1], tile="16", median_us=500.0)
    assert "250.0 µs with the best kernel of each problem" in shown([*LIST, slower])


def test_a_kernel_without_a_problem_is_not_named_as_taking_the_list() -> None:
    text = shown([LIST[0], LIST[3]])
    assert "no kernel ran the whole list" in text
    assert "1 of 2" in text


def test_a_list_with_a_problem_that_no_kernel_ran_is_not_summed_as_a_whole() -> None:
    missing = row("sideways", "blas", 1.0)
    for status, host in ((Status.ERROR, LIST[0].host), (Status.SKIPPED, None)):
        text = shown([*LIST, replace(missing, status=status, host=host, median_us=None)])
        assert "this list takes" not in text
        assert "no kernel ran 1 of 3 problems; the others take 250.0 µs" in text


def test_conditions_are_summed_apart() -> None:
    other = [replace(r, operands="zeros", median_us=(r.median_us or 0) / 2) for r in LIST]
    text = shown([*LIST, *other])
    assert "310.0 µs with blas" in text
    assert "155.0 µs with blas" in text
    assert "operands zeros" in text


def test_dtypes_are_summed_apart_if_a_problem_has_several_and_together_if_not() -> None:
    doubles = [replace(r, dtype="float64", compute_mode="float64") for r in LIST]
    assert shown([*LIST, *doubles]).count("with the best kernel of each problem") == 2
    assert shown([*LIST[:2], *doubles[2:]]).count("with the best kernel of each problem") == 1


def test_rows_of_a_plain_sweep_have_no_summary() -> None:
    assert list_summaries([replace(r, problem=None) for r in LIST]) == []
