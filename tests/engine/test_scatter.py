"""The number of rounds that finds a slow-down, by recorded scatter."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from diffs import row
from fakes import CPU

from gpubench.engine.scatter import rounds_needed
from gpubench.errors import UsageError
from gpubench.model import Device, Timer
from gpubench.results import store
from gpubench.results.row import Row, write
from gpubench.stats.detectable import rounds_to_find, sweeps_to_find
from gpubench.stats.moderated import adjusted, moderate, p_values, summarize

GPU = Device(backend="cuda", name="NVIDIA H200")
KERNELS = [None, None, *(f"kernel {number // 8}" for number in range(40))]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBENCH_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()


def sweep(scatter: float, seed: int = 1, rounds: int = 5) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [
        row(f"kernel {number // 8}", 64 + number, rounds=(100 * np.exp(scatter * noise)).tolist())
        for number, noise in enumerate(rng.standard_normal((40, rounds)))
    ]


def test_the_rounds_find_the_slow_down_in_nine_of_ten_comparisons_and_half_of_them_do_not() -> None:
    scatter, size, threshold, q = 0.01, 0.05, 0.02, 0.01
    rng = np.random.default_rng(83)
    needed = rounds_to_find(size, KERNELS, scatter * rng.standard_normal((42, 4)), threshold, q)
    assert needed.kernel
    assert needed.point
    assert needed.kernel < needed.point
    slowed = {"kernel": np.arange(42) // 10 == 1, "point": np.arange(42) == 5}
    for what, number in (("kernel", needed.kernel), ("point", needed.point)):
        for rounds, enough in ((number, True), (number // 2, False)):
            hit_count = 0
            for _ in range(100):
                base, new = scatter * rng.standard_normal((2, 42, rounds))
                new[slowed[what]] += np.log1p(size)
                sides = summarize(base), summarize(new)
                effect = sides[1].mean - sides[0].mean
                p = adjusted(p_values(effect, np.log1p(threshold), moderate(*sides)))
                hit_count += np.mean(p[slowed[what]] <= q) >= 0.5
            assert (hit_count >= 90) == enough, (what, rounds, hit_count)


def test_a_kernel_with_two_speeds_needs_as_many_rounds_as_show_both() -> None:
    rng = np.random.default_rng(2)
    logs = 0.001 * rng.standard_normal((42, 6))
    logs[2:, ::2] += 0.08 * rng.integers(2, size=(40, 3))
    assert rounds_to_find(0.3, KERNELS, logs, 0.02, 0.01).point == 10


def test_on_a_cpu_the_shortest_time_of_each_sweep_decides_the_number_of_sweeps() -> None:
    rng = np.random.default_rng(3)
    quiet, busy = (
        sweeps_to_find(
            0.1, ["a", "a", "b"], np.log1p(width * rng.exponential(1, (3, 40))), 0.02, 0.01
        ).kernel
        for width in (0.01, 0.1)
    )
    assert quiet
    assert busy is None or busy > quiet


def test_the_newest_result_of_the_device_shows_the_scatter() -> None:
    with pytest.raises(UsageError, match="no result of NVIDIA H200"):
        rounds_needed("3%", GPU)
    store.save(sweep(0.02), "main")
    noisy = rounds_needed("5%", GPU)
    write(sweep(0.002), Path("results/quiet.csv"))
    write([replace(each, device="NVIDIA H100") for each in sweep(0.1)], Path("results/z.csv"))
    Path("results/damaged.csv").write_text("no result\n")
    quiet = rounds_needed("5%", GPU)
    assert quiet.source == "results/quiet.csv"
    assert quiet.needed.kernel == 3
    assert noisy.needed.kernel is None or noisy.needed.kernel > 3
    assert "at all points of a kernel with 3 rounds per side" in quiet.sentence


def test_sweeps_of_ab_are_pooled_and_on_a_cpu_they_count_as_one_time_each() -> None:
    Path("results/1-ab").mkdir()
    for number in range(8):
        rows = [
            replace(each, timer=Timer.HOST, device=CPU.name, source_hash="a", min_us=each.median_us)
            for each in sweep(0.001, seed=number, rounds=1)
        ]
        write(rows[:2], Path(f"results/1-ab/base-{number:03}.csv"))
    rounds = rounds_needed("10%", CPU)
    assert (rounds.unit, rounds.source) == ("sweep", "results/1-ab/base-000.csv and 7 more")
    assert rounds.needed.kernel


@pytest.mark.parametrize(
    ("percent", "threshold", "said"),
    [("3", None, "--to-find: '3' is not a percentage"), ("2%", 0.03, "does not exceed")],
)
def test_a_slow_down_that_nothing_can_find_is_refused(
    percent: str, threshold: float | None, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        rounds_needed(percent, GPU, threshold)


def test_a_small_slow_down_is_found_by_a_smaller_threshold() -> None:
    write(sweep(0.001), Path("results/a.csv"))
    assert rounds_needed("1%", GPU).threshold == 0.005
