"""The statistics that judge a fleet, on simulated devices."""

import numpy as np
import pytest

from gpubench.commands.fleet.judge import judge


def times(devices: int = 8, units: int = 6, rounds: int = 3, seed: int = 1) -> np.ndarray:
    """Return logarithms of times. Devices differ by 0.3 %, and their rounds by 0.1 %."""
    rng = np.random.default_rng(seed)
    own = rng.normal(0, 0.003, (devices, units, 1))
    return 5 + own + rng.normal(0, 0.001, (devices, units, rounds))


def test_one_slow_device_is_found_in_its_unit_and_no_other() -> None:
    logs = times()
    logs[2, 4] += np.log(1.06)
    judgement = judge(logs)
    assert np.argwhere(judgement.slow).tolist() == [[2, 4]]
    assert np.exp(judgement.effect[2, 4]) == pytest.approx(1.06, abs=0.01)


def test_a_device_that_is_slow_in_all_units_is_found_in_a_fleet_of_heavy_tails() -> None:
    rng = np.random.default_rng(6)
    logs = 0.0025 * rng.standard_t(3, (64, 16, 1)) + np.zeros((64, 16, 3))
    assert not judge(logs).slow.any()
    logs[2] += np.log(1.05)
    assert judge(logs).slow.any(axis=1).nonzero()[0].tolist() == [2]


def test_a_process_with_the_slower_of_two_speeds_is_no_slow_device() -> None:
    rng = np.random.default_rng(7)
    logs = times(units=2)
    logs[:, 0] += 0.04 * rng.integers(2, size=(8, 3))  # alone, each round is a process
    logs[3, 1] += 0.04  # together, all rounds are one process
    assert judge(logs).slow[3, 1]
    assert not judge(logs, processes=[0, 0]).slow.any()


def test_a_certain_difference_below_the_threshold_is_not_called_slow() -> None:
    logs = times()
    logs[2, 4] += np.log(1.06)
    assert not judge(logs, threshold=0.10).slow.any()


def test_a_faster_device_is_not_slow_and_does_not_make_the_others_slow() -> None:
    logs = times()
    logs[0] -= 0.3
    assert not judge(logs).slow.any()


def test_a_device_whose_own_rounds_disagree_is_ambiguous() -> None:
    logs = times(rounds=3)
    logs[2, 4] += [0.0, 0.12, 0.25]
    judgement = judge(logs)
    assert not judgement.slow.any()
    assert judgement.ambiguous[2, 4]


@pytest.mark.parametrize("devices", [4, 8, 17])
def test_a_device_that_was_disturbed_in_one_round_of_all_units_is_fine(devices: int) -> None:
    logs = times(devices)
    logs[2, :, 1] += np.log(1.3)
    judgement = judge(logs)
    assert not (judgement.slow | judgement.ambiguous).any()
    logs[2] += np.log(1.15)
    assert judge(logs).slow[2].any()


def test_unequal_slow_devices_do_not_hide_one_another() -> None:
    for devices, slowdowns in ((9, (1.06, 1.09, 1.15)), (16, (1.06, 1.08, 1.10, 1.12, 1.15))):
        logs = times(devices)
        logs[: len(slowdowns)] += np.log(slowdowns)[:, None, None]
        assert judge(logs).slow.any(axis=1).nonzero()[0].tolist() == [*range(len(slowdowns))]


def test_a_single_good_device_beyond_the_median_deviation_of_the_others_is_not_slow() -> None:
    logs = times(units=1)
    logs[:, 0] = 5 + np.array([[0.0, 0.0001, 0.0002, 0.0003, 0.0004, 0.05, -0.06, 0.06]]).T
    logs[5] = 5.0005
    judgement = judge(logs)
    assert judgement.ambiguous.any(axis=1).nonzero()[0].tolist() == [7]


def test_of_two_devices_one_is_slow_only_if_good_devices_do_not_differ_that_much() -> None:
    for slowdown, slow in ((1.08, False), (1.25, True)):
        logs = times(devices=2)
        logs[1, 3] += np.log(slowdown)
        judgement = judge(logs)
        assert judgement.slow[1, 3] == slow
        assert judgement.slow.sum() == slow


def test_a_single_device_cannot_be_judged_by_others() -> None:
    judgement = judge(times(devices=1))
    assert np.isnan(judgement.p).all()
    assert not judgement.slow.any()


def test_a_device_without_a_time_in_a_unit_is_left_out_there_alone() -> None:
    logs = times()
    logs[2, 4] += np.log(1.06)
    logs[3, 4] = np.nan
    logs[5, :, 1] = np.nan
    judgement = judge(logs)
    assert np.isnan(judgement.effect[3, 4])
    assert np.argwhere(judgement.slow).tolist() == [[2, 4]]


def test_all_devices_slower_than_before_are_found_where_none_is_slower_than_the_others() -> None:
    before = times(rounds=9)
    now = before[:, :, :3] + np.random.default_rng(2).normal(0, 0.001, (8, 6, 3))
    now[:, 3] += np.log(1.08)
    judgement = judge(now, before)
    assert not judgement.slow.any()
    assert np.argwhere(judgement.slower_than_before).tolist() == [[n, 3] for n in range(8)]
    scattered = before + np.random.default_rng(3).normal(0, 0.2, before.shape)
    assert not judge(now, scattered).slower_than_before.any()  # the earlier rounds scatter too much
    before[0] = np.nan  # a new device has no history
    assert not judge(now, before).slower_than_before[0].any()


def test_half_a_fleet_that_is_slow_has_no_majority_to_compare_with() -> None:
    levels = times()
    levels[:4, 2] += np.log(1.10)
    judgement = judge(levels)
    assert not judgement.slow.any()
    assert judgement.no_majority[:, 2].tolist() == [True] * 4 + [False] * 4
    assert judgement.no_majority.sum() == 4


def test_several_slow_devices_do_not_hide_each_other() -> None:
    levels = times()
    levels[:3, 2] += np.log(1.10)
    judgement = judge(levels)
    assert judgement.slow[:, 2].tolist() == [True] * 3 + [False] * 5


def test_a_unit_whose_devices_differ_more_needs_a_larger_slowdown() -> None:
    levels = times()
    levels[:, 1] += np.random.default_rng(4).normal(0, 0.03, (8, 1))
    judgement = judge(levels)
    assert not judgement.slow.any()
    assert judgement.detectable[1] > 0.10
    assert max(np.delete(judgement.detectable, 1)) < 0.10


def test_units_whose_rounds_scatter_are_measured_longer_and_no_others() -> None:
    from gpubench.commands.fleet.run import MAX_MORE, Turn, host_steps
    from gpubench.commands.fleet.times import UnitTime

    def of_unit(unit: str, phase: str, times_us: list[float]) -> list[UnitTime]:
        return [
            UnitTime(
                host="h", slot=slot, device_uuid=slot, device="d", unit=unit, phase=phase,
                status="ok", time_us=time_us,
            )
            for slot in "ab"
            for time_us in times_us
        ]  # fmt: skip

    def more_steps(times: list[UnitTime]) -> list[list[Turn]]:
        return [*host_steps(["1", "2"], 3, times)][7:]  # after the regular seven steps

    quiet = of_unit("copy", "alone", [100.0, 100.1, 100.2])
    assert more_steps(quiet) == []
    noisy = of_unit("tf32 product", "together", [100.0, 104.0, 98.0])
    (step,) = more_steps([*quiet, *noisy])
    assert {turn[0] for turn in step} == {"1", "2"}
    assert all(turn[1] == "together" and turn[3] == {"tf32 product"} for turn in step)
    assert 3 < step[0][2] <= MAX_MORE
    alone = of_unit("latency", "alone", [100.0, 150.0, 98.0])
    assert len(more_steps(alone)) == 2 * MAX_MORE


def test_units_without_times_or_without_a_second_round_do_not_change_the_verdicts() -> None:
    logs = times(units=8)
    logs[2] += np.log(1.2)
    logs[3, :2] += np.log(1.2)
    logs[:, 4:6] = np.nan
    logs[:, 6, 1:] = np.nan
    judgement = judge(logs, processes=[4, 6, 2, 3, 4, 5, 6, 7])
    timed = [0, 1, 2, 3, 6, 7]
    assert judgement.slow[2].nonzero()[0].tolist() == timed
    assert judgement.slow[3].nonzero()[0].tolist() == [0, 1]
    assert np.isfinite(judgement.detectable).nonzero()[0].tolist() == timed


def test_a_unit_whose_work_in_new_processes_failed_is_judged_by_its_own_noise() -> None:
    logs = times(units=2)
    expected = judge(logs).detectable[1]
    logs[:, 0] = np.nan
    assert judge(logs, processes=[0, 0]).detectable[1] == pytest.approx(expected, rel=0.1)
    logs[:, 1] = logs[:, 1].mean(axis=1, keepdims=True) + np.array([-0.1, 0.0, 0.1])
    assert judge(logs, processes=[0, 0]).detectable[1] > 0.1


def test_fleets_without_units_or_without_devices_have_no_slow_device() -> None:
    for shape in ((2, 0, 1), (2, 3, 1), (0, 0, 1)):
        nothing = np.full(shape, np.nan)
        judgement = judge(nothing, nothing, processes=[*range(shape[1])])
        assert judgement.slow.shape == shape[:2]
        assert not (judgement.slow | judgement.ambiguous | judgement.slower_than_before).any()
        assert np.isnan(judgement.p).all()


def test_a_device_without_times_in_a_large_fleet_is_left_out() -> None:
    logs = times(devices=64, units=18)
    logs[7] = np.nan
    logs[2] += np.log(1.1)
    judgement = judge(logs)
    assert judgement.slow.any(axis=1).nonzero()[0].tolist() == [2]
    assert np.isnan(judgement.effect[7]).all()
