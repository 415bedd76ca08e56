"""The ladder: each kernel names the step before it, and the gains come from the rows."""

from fakes import failed, measured, point, variant
from samples import printed

from gpubench.commands.compare_cublas.ladder import ladder_tables, steps
from gpubench.model import Status
from gpubench.plan.registry import choose
from gpubench.results.row import Row

ORDER = {"first": "", "second": "first", "third": "second"}


def cells(rows: list[Row]) -> list[list[str]]:
    """Return the cells of the lines of steps."""
    lines = [line.split() for line in printed(ladder_tables(rows, ORDER), width=120).splitlines()]
    return [line for line in lines if line and line[0] in {*ORDER, "blas"}]


def step(name: str, median_us: float, size: int = 64) -> Row:
    return measured(median_us, point(variant(name=name), size=(size, size, size)))


def test_steps_stand_in_the_order_in_which_they_follow_each_other() -> None:
    variants = [
        variant(name="c", after="b"),
        variant(name="alone"),
        variant(name="b", after="a"),
        variant(name="d", after="b"),
        variant(name="a"),
    ]
    assert steps(variants) == {"a": "", "b": "a", "c": "b", "d": "b"}


def test_our_ladder_has_every_step_once_and_after_the_one_that_it_follows() -> None:
    variants = choose("gemm", "cuda", ())
    follows = steps(variants)
    order = list(follows)
    assert order[:4] == ["naive_uncoalesced", "naive", "shared_tile", "blocktile_1d"]
    assert {each.name for each in variants if each.after} <= {*order}
    assert all(order.index(after) < order.index(step) for step, after in follows.items() if after)


def test_a_gain_is_over_the_step_before_that_was_measured_at_each_size() -> None:
    other = step("first", 80.0, size=96)
    lines = cells([step("third", 10.0), step("first", 60.0), step("second", 20.0), other])
    assert [line[0] for line in lines] == ["first", "second", "third", "first"]
    assert "×" not in " ".join(lines[0])
    assert "3.00×" in lines[1]
    assert "2.00×" in lines[2]
    _, last = cells([step("third", 10.0), step("first", 60.0)])
    assert "6.00×" in last


def test_a_step_that_failed_is_named_with_its_reason() -> None:
    wrong = failed(Status.WRONG, "relative error 1", point(variant(name="second")))
    text = printed(ladder_tables([step("first", 60.0), wrong], ORDER))
    assert "wrong: second: relative error 1" in text


def test_a_step_counts_with_its_best_tile_and_libraries_stand_last() -> None:
    lines = cells([step("blas", 5.0), step("first", 60.0), step("first", 30.0)])
    assert [line[0] for line in lines] == ["first", "blas"]
    assert "30.00" in lines[0]
