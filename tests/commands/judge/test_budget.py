"""`judge` divides --budget among problems."""

from dataclasses import replace

import pytest

from gpubench.commands.judge import budget as budgets
from gpubench.commands.judge.budget import Budget
from gpubench.options import DEFAULT
from gpubench.plan.problems import ListedProblem

PROBLEM = ListedProblem(name="1", further=(1,), dtype="float32")
SWEEP = replace(
    DEFAULT, problems=(PROBLEM,), timing=replace(DEFAULT.timing, rounds=15, budget_s=600.0)
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(budgets, "perf_counter", lambda: now[0])
    return now


def test_a_problem_gets_its_share_of_what_the_others_need_to_be_prepared(
    clock: list[float],
) -> None:
    budget = Budget(30)
    budget.begin()
    clock[0] += 10
    sweep = budget.share(SWEEP, 2, prepared=2)
    assert sweep.timing.budget_s == pytest.approx((590 - 28 * 10 / 2) / 30)


@pytest.mark.parametrize(("problems", "prepared", "rounds"), [(30, 8, 1), (1, 1, 15)])
def test_before_a_visit_is_measured_one_of_many_problems_gets_one_round_and_one_alone_several(
    clock: list[float], problems: int, prepared: int, rounds: int
) -> None:
    budget = Budget(problems)
    budget.begin()
    clock[0] += 20
    assert budget.share(SWEEP, 2, prepared).timing.rounds == rounds


def test_rounds_follow_from_the_mean_time_of_visits_and_an_equal_share(
    clock: list[float],
) -> None:
    budget = Budget(3)
    for visit_s, rounds in ((20, 10), (40, 5), (0, 3)):
        budget.begin()
        assert budget.share(SWEEP, 2, 3).timing.rounds == rounds
        clock[0] += 2 * visit_s
        budget.judged(2)


def test_time_that_is_left_gives_the_last_problem_no_more_rounds(clock: list[float]) -> None:
    budget = Budget(30)
    for _ in range(30):
        budget.begin()
        assert budget.share(SWEEP, 2, 30).timing.rounds == 1
        clock[0] += 2 * 6
        budget.judged(2)
    assert clock[0] < 400


def test_no_problem_begins_when_the_budget_is_used_up(clock: list[float]) -> None:
    budget = Budget(2)
    budget.begin()
    budget.share(SWEEP, 2, 2)
    clock[0] = 599
    budget.begin()
    assert budget.has_time
    clock[0] = 601
    assert not budget.has_time


def test_the_first_problem_begins_even_if_its_preparation_used_the_budget(
    clock: list[float],
) -> None:
    budget = Budget(2)
    budget.begin()
    clock[0] = 700
    assert budget.share(SWEEP, 2, 2).timing.rounds == 1
    assert budget.has_time
    budget.judged(2)
    budget.begin()
    assert not budget.has_time


def test_without_a_budget_nothing_changes(clock: list[float]) -> None:
    budget, sweep = Budget(2), replace(SWEEP, timing=DEFAULT.timing)
    budget.begin()
    assert budget.share(sweep, 2, 1) is sweep
    clock[0] = 1e6
    budget.begin()
