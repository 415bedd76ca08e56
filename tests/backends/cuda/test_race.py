"""The choice among a library's algorithms, by a race on scripted times or from the disk."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import platformdirs
import pytest

from gpubench.backends.cuda.fastest_algorithm import (
    LEAST_ROUNDS,
    LIMIT_S,
    ROUNDS,
    choose_algorithm,
    race,
)
from gpubench.errors import LaunchError

FACTS = {"library": 130100, "gpu": "NVIDIA H200", "dtype": "float32", "m k n": (256, 256, 256)}


class Track:
    """Algorithms whose launches take scripted times in microseconds, with noise and drift."""

    def __init__(
        self,
        times_us: Sequence[float],
        *,
        noise: float = 0.0,
        drift: Callable[[int], float] = lambda _taken: 1.0,
        broken: Sequence[int] = (),
        seed: int = 0,
    ) -> None:
        self.times_us, self.noise, self.drift, self.broken = times_us, noise, drift, broken
        self.taken: list[tuple[int, int]] = []
        self.now_s = 0.0
        self._random = random.Random(seed)  # noqa: S311 # noise, not a secret

    def sample(self, algorithm: int, launches: int) -> float:
        if algorithm in self.broken:
            raise LaunchError("cublasLtMatmul: status 15")
        self.taken.append((algorithm, launches))
        time_us = self.times_us[algorithm] * self.drift(len(self.taken))
        self.now_s += time_us * launches / 1e6
        return time_us * self._random.gauss(1.0, self.noise)

    def race(self, max_launches: int = 256) -> int:
        return race(len(self.times_us), self.sample, max_launches, lambda: self.now_s)


def test_the_fastest_algorithm_wins_though_samples_are_noisy() -> None:
    times_us = [8.1, 8.0, 12.0, 7.8, 9.0, 8.2, 30.0, 8.4]  # the best is 2.5 % ahead
    winners = Counter(Track(times_us, noise=0.015, seed=seed).race() for seed in range(100))
    assert winners[3] >= 98


def test_a_clock_that_falls_while_they_run_favours_none() -> None:
    # If they were measured one after another, the first would seem 4 % faster than the last.
    track = Track([10.0, 10.1, 10.2, 9.9], drift=lambda taken: 1 + 0.0005 * taken)
    assert track.race() == 3


def test_slower_algorithms_leave_early() -> None:
    track = Track([10.0, 10.01, 14.0, 20.0], noise=0.002)
    track.race()
    samples = Counter(algorithm for algorithm, _ in track.taken)
    assert samples[2] == samples[3] == 1 + LEAST_ROUNDS
    assert samples[0] == samples[1] == 1 + ROUNDS


@pytest.mark.parametrize(
    ("launch_us", "max_launches", "launches"), [(3.0, 256, 34), (3.0, 8, 8), (150, 256, 1)]
)
def test_the_fastest_decides_on_the_launches(
    launch_us: float, max_launches: int, launches: int
) -> None:
    track = Track([4 * launch_us, launch_us])
    track.race(max_launches)
    assert {count for _, count in track.taken[2:]} == {launches}


def test_the_order_changes_from_round_to_round() -> None:
    track = Track([10.0] * 5)
    track.race()
    order = [algorithm for algorithm, _ in track.taken[5:]]
    rounds = [tuple(order[at : at + 5]) for at in range(0, len(order), 5)]
    assert all(sorted(round_order) == list(range(5)) for round_order in rounds)
    assert len(set(rounds)) > ROUNDS / 2


def test_an_algorithm_that_cannot_run_is_passed_over() -> None:
    assert Track([5.0, 10.0, 12.0], broken=[0]).race() == 1
    with pytest.raises(LaunchError, match="none of the library's 2 algorithms can run"):
        Track([5.0, 10.0], broken=[0, 1]).race()


@pytest.mark.parametrize("launch_s", [0.02, 0.2, 3.0])
def test_slow_launches_are_raced_for_about_a_second(launch_s: float) -> None:
    track = Track([1e6 * launch_s, 0.9e6 * launch_s, 0.8e6 * launch_s, *[2e6 * launch_s] * 5])
    winner = track.race()
    assert track.now_s < LIMIT_S + 8 * launch_s + 1e-9
    assert winner == (0 if launch_s == 3.0 else 2)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda _name: str(tmp_path / "cache"))
    return tmp_path / "cache"


def never(_algorithm: int, _launches: int) -> float:
    raise AssertionError("raced again")


def files(cache: Path) -> Iterator[Path]:
    return (path for path in cache.rglob("*") if path.is_file())


@pytest.mark.usefixtures("cache")
def test_a_kept_choice_is_found_where_the_library_lists_it_now() -> None:
    choose_algorithm(["aa", "bb"], FACTS, Track([9.0, 5.0]).sample, 256)
    assert choose_algorithm(["bb", "cc", "aa"], FACTS, never, 256) == (0, "tuned")
    # If the library does not propose the kept algorithm any more, there is a race.
    assert choose_algorithm(["aa", "cc"], FACTS, Track([9.0, 5.0]).sample, 256) == (1, "tuned")


@pytest.mark.usefixtures("cache")
def test_the_choice_of_a_process_that_raced_at_the_same_time_is_used() -> None:
    def sample(algorithm: int, launches: int) -> float:
        if launches > 1 and not others:
            others.append(choose_algorithm(["aa", "bb"], FACTS, Track([5.0, 9.0]).sample, 256))
        return track.sample(algorithm, launches)

    track, others = Track([9.0, 5.0]), []
    assert choose_algorithm(["aa", "bb"], FACTS, sample, 256) == (0, "tuned")
    assert others == [(0, "tuned")]


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("fact", "other"), [("library", 130200), ("gpu", "A100"), ("m k n", (8, 8, 8))]
)
def test_a_choice_holds_for_one_library_gpu_and_shape(fact: str, other: object) -> None:
    choose_algorithm(["aa", "bb"], FACTS, Track([9.0, 5.0]).sample, 256)
    other_facts = {**FACTS, fact: other}
    assert choose_algorithm(["aa", "bb"], other_facts, Track([5.0, 9.0]).sample, 256) == (
        0,
        "tuned",
    )


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b"\xff\xfe\n", b"[" * 100_000])
def test_a_damaged_file_is_replaced(cache: Path, damage: bytes) -> None:
    choose_algorithm(["aa", "bb"], FACTS, Track([5.0, 9.0]).sample, 256)
    (kept,) = files(cache)
    whole = kept.read_bytes()
    kept.write_bytes(damage)
    assert choose_algorithm(["aa", "bb"], FACTS, Track([5.0, 9.0]).sample, 256) == (0, "tuned")
    assert kept.read_bytes() == whole


@pytest.mark.parametrize("blocked", ["cache", "cache/algorithms"])
def test_without_a_cache_each_process_takes_the_librarys_choice(cache: Path, blocked: str) -> None:
    path = cache.parent / blocked
    path.parent.mkdir(exist_ok=True)
    path.write_text("a file where a directory should be")
    for times_us in ([9.0, 5.0], [5.0, 9.0]):
        index, how = choose_algorithm(["aa", "bb"], FACTS, Track(times_us).sample, 256)
        assert (index, how) == (0, "not tuned: the cache is not writable")
    broken = Track([9.0, 5.0, 4.0], broken=[0])
    assert choose_algorithm(["aa", "bb", "cc"], FACTS, broken.sample, 256)[0] == 1
