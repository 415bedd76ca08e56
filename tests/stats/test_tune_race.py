"""The race of configurations on simulated times: which of them leave."""

import math
import random
from collections.abc import Callable

import pytest

from gpubench.stats.race import DISSENT, EARLY_VISITS, MAX_ROUNDS, MIN_VISITS, Race

Noise = Callable[[random.Random, int], float]


def raced(times: list[float], noise: Noise, seed: int, within: float = 0.01) -> tuple[Race, int]:
    """Run a race to its end; return the race and the number of visits."""
    rng = random.Random(seed)  # noqa: S311 # times, no secret
    race = Race(within, seed)
    race.enter(len(times))
    visits = 0
    while not race.over:
        for number in tuple(race.waiting):
            race.add(number, times[number] * math.exp(noise(rng, visits)))
            visits += 1
        race.judge()
    return race, visits


def turns(race: Race, count: int, time: Callable[[int, int], float]) -> None:
    """Visit the configurations of a race. `time` has the time of a configuration in a turn."""
    for turn in range(count):
        for number in tuple(race.waiting):
            race.add(number, time(number, turn))
        race.judge()


def normal(rng: random.Random, _visits: int) -> float:
    return rng.gauss(0, 0.005)


def heavy(rng: random.Random, _visits: int) -> float:
    """Return noise that only slows: a quotient of normal variables, without mean and variance."""
    return 0.003 * min(abs(rng.gauss(0, 1) / rng.gauss(0, 1)), 100)


def drifting(rng: random.Random, visits: int) -> float:
    return rng.gauss(0, 0.005) + 0.2 * (visits // 40 % 2) + 0.001 * (visits % 40)


def spread(seed: int, ties: int = 1) -> list[float]:
    """Return 25 true times, of which `ties` are the best."""
    rng = random.Random(seed)  # noqa: S311 # times, no secret
    return [1.0] * ties + [1 + abs(rng.gauss(0, 0.5)) for _ in range(25 - ties)]


@pytest.mark.parametrize(
    ("noise", "ties"),
    [(normal, 1), (normal, 10), (heavy, 1), (drifting, 1)],
    ids=["normal noise", "ties", "heavy tails", "drift"],
)
def test_the_group_holds_the_best_in_9_of_10_races(noise: Noise, ties: int) -> None:
    """This is a short form of research/operating.py."""
    groups = [raced(spread(run, ties), noise, run)[0].racing for run in range(10)]
    assert sum(set(range(ties)) <= group for group in groups) >= 9


def test_what_is_far_behind_leaves_after_three_visits_and_the_race_is_short() -> None:
    times = [1.0, 1.05, *(3.0 + number for number in range(38))]
    race, visits = raced(times, normal, seed=1)
    assert race.racing == {0}
    assert visits == 38 * EARLY_VISITS + 2 * MIN_VISITS


def test_configurations_within_the_margin_of_each_other_stay_and_end_the_race() -> None:
    race, _ = raced([1.0, 1.001, 1.002, 1.5], lambda rng, _: rng.gauss(0, 0.0005), seed=2)
    assert race.racing == {0, 1, 2}
    assert race.round <= MAX_ROUNDS
    assert race.slower[3] == pytest.approx(0.5, abs=0.2)


def test_a_lone_disturbed_visit_loses_nothing() -> None:
    race = Race(0.01)
    race.enter(20)
    turns(
        race,
        MIN_VISITS + DISSENT + 1,
        lambda number, turn: (1.1 if number else 1.8 if turn == 1 else 1.0) * (1 + 1e-4 * turn),
    )
    assert race.racing == {0}


def test_a_slow_round_does_not_count_against_a_configuration() -> None:
    race = Race(0.01)
    race.enter(4)
    times = [1.0, 1.0, 1.2, 1.3]
    turns(race, 8, lambda number, turn: times[number] * 2**turn * (1 + 1e-4 * (turn % 2)))
    assert race.racing == {0, 1}


def test_a_failed_configuration_leaves_and_newcomers_are_compared_fairly() -> None:
    race = Race(0.01)
    race.enter(4)
    race.withdraw(3)
    times = [1.0, 1.2, 1.4, 9.0, 0.5]
    turns(race, 4, lambda number, turn: times[number] * (1 + 1e-4 * (turn % 3)))
    assert race.enter() == [4]  # twice as fast, though its rounds are slow
    turns(race, 8, lambda number, turn: 10 * times[number] * (1 + 1e-4 * (turn % 3)))
    assert race.racing == {4}
    assert 3 not in race.slower


def test_a_configuration_that_was_visited_too_rarely_stays_unless_it_is_far_behind() -> None:
    race = Race(0.01)
    race.enter(3)
    turns(race, MIN_VISITS - 1, lambda number, turn: [1.0, 1.2, 2.5][number] * (1 + 1e-4 * turn))
    assert race.racing == {0, 1}
    assert not race.settled
    for number in tuple(race.waiting):
        race.add(number, [1.0, 1.2][number])
    assert race.judge() == [1]
    assert race.settled


def test_the_best_stays_though_it_scatters_ten_times_as_much_as_the_others() -> None:
    lost = 0
    for seed in range(6):
        rng = random.Random(seed)  # noqa: S311 # times, no secret
        race = Race(0.01, seed)
        race.enter(30)
        times = [1.0, *(1.01 + 0.02 * number for number in range(29))]
        while not race.over:
            for number in tuple(race.waiting):
                noise = rng.gauss(0, 0.005 if number else 0.05)
                race.add(number, times[number] * math.exp(noise))
            race.judge()
        lost += 0 not in race.racing
    assert lost <= 1
