"""`gpubench fleet`: measuring fake devices in this process, and verdicts from rows."""

import csv
import json
import re
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest
from dask_workers import dask_workers
from distributed import Client
from fakes import FakeBackend, FakeKernel, measurement
from samples import printed

from gpubench.backends import first_device
from gpubench.commands.fleet import run, times, units
from gpubench.commands.fleet.run import run_fleet
from gpubench.commands.fleet.units import ALONE, TOGETHER, Asked, Products, Report, unit_time
from gpubench.commands.fleet.verdicts import Fleet, FleetVerdict, assess
from gpubench.commands.fleet.view import as_json, as_tables
from gpubench.engine import cluster
from gpubench.engine.cluster import Member
from gpubench.engine.measure.runner import Runner
from gpubench.engine.measurements import Place
from gpubench.engine.pool import LocalPool
from gpubench.errors import (
    ChildLostError,
    DeviceBusyError,
    LaunchError,
    OutputLostError,
    PeerLostError,
    UsageError,
)
from gpubench.model import Device, Health
from gpubench.results import store

GPU = Device(backend="cuda", name="Fake GPU")
UNITS = ("copy", "latency", "to device", "from device")


def report(
    number: int,
    factors: dict[str, float] | None = None,
    configuration: dict[str, Any] | None = None,
    bits: int = 7,
    seed: int = 0,
    **facts: Any,
) -> Report:
    """Return the report of a device whose units take 100 µs times a factor.

    `facts` are columns of its rows.
    """
    rng = np.random.default_rng((seed, number))
    device = replace(GPU, facts={"uuid": f"GPU-{number}", "slot": f"0000:{number:02}:00.0"})
    rows = []
    for unit in UNITS:
        own = rng.normal(0, 0.002)
        for _ in range(3):
            time_us = 100 * float(np.exp(own + rng.normal(0, 0.001)))
            time_us *= (factors or {}).get(unit, 1.0)
            usual = {"sm_mhz": 1980.0, "temperature_c": 50.0}
            place = Place("node1", device.facts["slot"], device.facts["uuid"])
            at = {"health": Health(), "started_utc": f"2026-01-0{seed + 1}"}
            time = unit_time(unit, ALONE, place, device, time_us=time_us, **at)
            rows.append(msgspec.structs.replace(time, **(usual | facts)))
    member = Member(str(number), "node1", device, "abc")
    usual_configuration = {"driver": "580.1", "vbios": "96.00", "ecc_errors_uncorrected": 0}
    return Report(
        member, rows, {"float32 product": {1: {bits}}}, usual_configuration | (configuration or {})
    )


def fleet(*special: Report, devices: int = 8) -> list[Report]:
    """Return these reports, and reports of good devices."""
    numbers = {report_of.member.name for report_of in special}
    return [*special, *(report(n) for n in range(devices) if str(n) not in numbers)]


def of(assessed: Fleet, number: int) -> Any:
    return next(device for device in assessed.devices if device.uuid == f"GPU-{number}")


def test_devices_of_equal_speed_are_fine_and_the_exit_code_is_0() -> None:
    assessed = assess(fleet())
    assert {device.verdict for device in assessed.devices} == {FleetVerdict.FINE}
    assert assessed.exit_code == 0
    assert assessed.differences == {}
    assert "8 devices: 8 fine" in printed(as_tables(assessed))


def test_a_slow_device_comes_first_with_what_may_explain_it() -> None:
    why = {"sm_mhz": 1410.0, "temperature_c": 83.0, "throttle": "thermal slowdown"}
    slow = report(3, {"copy": 1.2}, {"vbios": "95.00", "ecc_errors_uncorrected": 2}, **why)
    assessed = assess(fleet(slow))
    assert assessed.exit_code == 1
    first = assessed.devices[0]
    assert (first.uuid, first.verdict) == ("GPU-3", FleetVerdict.SLOW)
    (unit,) = [unit for unit in first.units if unit.verdict == FleetVerdict.SLOW]
    assert unit.unit == "copy"
    assert unit.percent_of_others == pytest.approx(100 / 1.2, abs=1)
    assert set(first.reasons) == {
        "clock 1410 MHz in copy, on other devices 1980",
        "83 °C, other devices 50",
        "thermal slowdown",
        "vbios 95.00, other devices 96.00",
        "ecc errors uncorrected: 2",
    }
    assert assessed.differences == {
        "vbios": {
            "95.00": ["node1 0000:03:00.0"],
            "96.00": [f"node1 0000:0{n}:00.0" for n in range(8) if n != 3],
        }
    }
    text = printed(as_tables(assessed))
    assert "copy, alone: " in text
    assert "Configurations differ" in text
    assert json.loads(as_json(assessed))["devices"][0]["reasons"] == list(first.reasons)
    plain = assess(fleet(report(3, {"copy": 1.2})))
    assert plain.devices[0].reasons[0].startswith("no reason found")


def test_a_product_whose_bits_differ_is_wrong_on_the_device_that_is_alone_with_them() -> None:
    assessed = assess(fleet(report(5, bits=8)))
    assert of(assessed, 5).verdict == FleetVerdict.WRONG
    assert [d.verdict for d in assessed.devices].count(FleetVerdict.WRONG) == 1
    assert assessed.exit_code == 1
    both = assess([report(0, bits=7), report(1, bits=8)])
    assert {device.verdict for device in both.devices} == {FleetVerdict.WRONG}
    assert "no bits have a majority" in both.devices[0].reasons[0]


def test_bits_that_two_values_share_equally_have_no_majority_in_any_order() -> None:
    unsteady = report(0, bits=7)
    unsteady = unsteady._replace(bits={}), unsteady, report(0, bits=8)
    reports = [*unsteady, report(1, bits=7), report(2, bits=8)]
    for ordered in (reports, reports[::-1]):
        assessed = assess(ordered)
        assert {device.verdict for device in assessed.devices} == {FleetVerdict.WRONG}


def test_the_reasons_of_a_slow_device_have_the_order_of_its_rounds() -> None:
    causes = [f"cause {number}" for number in range(9)]
    slow = report(3, {"copy": 1.2})
    slow.times[:3] = [
        msgspec.structs.replace(slow.times[number % 3], throttle=cause)
        for number, cause in enumerate(causes)
    ]
    assert assess(fleet(slow)).devices[0].reasons == tuple(causes)


def test_a_unit_that_fails_makes_a_device_wrong_and_a_lost_worker_leaves_it_unknown() -> None:
    broken = report(2)
    broken.times[0] = msgspec.structs.replace(
        broken.times[0], status="error", reason="illegal access", time_us=None
    )
    lost = report(4)._replace(
        times=[], bits={}, configuration={}, error="the worker left the cluster"
    )
    assessed = assess(fleet(broken, lost))
    assert of(assessed, 2).verdict == FleetVerdict.WRONG
    assert of(assessed, 2).reasons == ("copy: illegal access",)
    gone = of(assessed, 4)
    assert (gone.verdict, gone.reasons) == (FleetVerdict.UNKNOWN, ("the worker left the cluster",))
    assert assess(fleet(lost)).exit_code == 3


BUSY = "Fake GPU is being measured by process 7"


def failing(device_report: Report, *units: str) -> Report:
    """Return a report of a device on which some units fail."""
    return device_report._replace(
        times=[
            msgspec.structs.replace(time, status="error", reason="illegal access", time_us=None)
            if time.unit in units
            else time
            for time in device_report.times
        ]
    )


def busy(device_report: Report, rounds: int = 0) -> Report:
    """Return a report of a device that was in use. It measured only some rounds of each unit."""
    nothing: dict[str, Any] = {} if rounds else {"bits": {}, "configuration": {}}
    starts = range(0, len(device_report.times), 3)
    timed = [time for at in starts for time in device_report.times[at : at + rounds]]
    return device_report._replace(times=timed, error=BUSY, **nothing)


def require_readable(assessed: Fleet) -> str:
    """Require standard JSON. Return the text of the tables."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    content = json.loads(as_json(assessed), parse_constant=refuse)
    assert content["exit_code"] == assessed.exit_code
    assert len(content["devices"]) == len(assessed.devices)
    return printed(as_tables(assessed))


@pytest.mark.parametrize("devices", [1, 2, 8])
@pytest.mark.parametrize("seeds", [0, 3])
def test_devices_that_are_all_in_use_are_unknown(devices: int, seeds: int) -> None:
    before = [time for n in range(devices) for seed in range(seeds) for time in report(n).times]
    assessed = assess([busy(report(n)) for n in range(devices)], before)
    assert {(d.verdict, d.reasons) for d in assessed.devices} == {(FleetVerdict.UNKNOWN, (BUSY,))}
    assert assessed.exit_code == 3
    assert assessed.detectable == {}
    assert f"{devices} unknown" in require_readable(assessed)


def test_a_fleet_without_reports_has_no_verdicts() -> None:
    assessed = assess([])
    assert (assessed.devices, assessed.exit_code) == ([], 3)
    require_readable(assessed)


def test_the_only_other_device_of_a_device_in_use_is_judged_by_its_earlier_runs() -> None:
    reports = [report(0), busy(report(1))]
    alone = assess(reports)
    assert {device.verdict for device in alone.devices} == {FleetVerdict.UNKNOWN}
    assert "no other device was measured, no earlier run" in of(alone, 0).reasons[0]
    before = [time for _ in range(3) for time in report(0).times]
    assert of(assess(reports, before), 0).verdict == FleetVerdict.FINE
    slower = of(assess([report(0, {"copy": 1.2}), busy(report(1))], before), 0)
    assert slower.verdict == FleetVerdict.SLOW
    assert slower.reasons == ("no reason found: no other device was measured",)


@pytest.mark.parametrize("devices", [2, 8])
@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_rounds_that_failed_on_all_devices_leave_them_unknown(devices: int, rounds: int) -> None:
    slow = {"latency": 1.3}
    reports = [busy(report(n, slow if n == 1 else {}), rounds) for n in range(devices)]
    assessed = assess(reports)
    require_readable(assessed)
    expected = FleetVerdict.SLOW if rounds == 2 else FleetVerdict.UNKNOWN
    assert of(assessed, 1).verdict == expected
    assert {d.verdict for d in assessed.devices[1:]} == {FleetVerdict.UNKNOWN}
    assert all(BUSY in device.reasons for device in assessed.devices)


@pytest.mark.parametrize("devices", [2, 8])
def test_a_device_that_has_a_single_round_is_not_called_slow(devices: int) -> None:
    reports = [report(n) for n in range(1, devices)]
    assessed = assess([busy(report(0, dict.fromkeys(UNITS, 1.3)), rounds=1), *reports])
    assert (of(assessed, 0).verdict, of(assessed, 0).reasons) == (FleetVerdict.UNKNOWN, (BUSY,))
    assert assessed.exit_code == 3


@pytest.mark.parametrize("failed", [("copy",), UNITS])
@pytest.mark.parametrize("devices", [1, 2, 8])
def test_a_unit_that_fails_on_all_devices_makes_them_wrong(
    devices: int, failed: tuple[str, ...]
) -> None:
    slow = report(1, {"latency": 1.3})
    reports = [report(0), *(slow if n == 1 else report(n) for n in range(1, devices))]
    assessed = assess([failing(each, *failed) for each in reports])
    assert {device.verdict for device in assessed.devices} == {FleetVerdict.WRONG}
    assert assessed.exit_code == 1
    text = require_readable(assessed)
    assert "copy: illegal access" in text
    assert ("latency, alone: " in text) == (devices > 1 and "latency" not in failed)


def test_one_device_alone_is_judged_by_its_own_history_or_not_at_all() -> None:
    alone = assess([report(0)])
    assert alone.exit_code == 3
    assert "nothing to compare the device with" in alone.devices[0].reasons[0]
    before = [row for seed in range(4) for row in report(0, seed=0, bits=seed).times]
    assert assess([report(0)], before).exit_code == 0
    slower = assess([report(0, {"latency": 1.15})], before)
    assert slower.exit_code == 1
    worst = slower.devices[0].worst
    assert worst
    assert (worst.unit, worst.since_before) == ("latency", True)
    assert "of its own earlier speed" in printed(as_tables(slower))
    both = assess(fleet(report(0, {"latency": 1.15})), before).devices[0]
    assert both.worst
    assert (both.verdict, both.worst.since_before) == (FleetVerdict.SLOW, False)  # than others


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-40],
        lambda text: text.replace(b'"phase":', b'"phase":' + b"[" * 3000, 1),
        lambda text: re.sub(rb'"time_us":[\d.]+', b'"time_us":-1.0', text),
    ],
    ids=["cut", "nested", "negative"],
)
def test_a_damaged_earlier_run_is_passed_over_and_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[bytes], bytes],
) -> None:
    monkeypatch.setenv(store.VARIABLE, str(tmp_path))
    kept = [time for device_report in fleet() for time in device_report.times]
    times.keep(kept)
    times.keep(kept)
    assert [*times.earlier(kept, runs=1)] == kept
    another = msgspec.structs.replace(kept[0], device="Another GPU")
    assert [*times.earlier([*kept, another], runs=9)] == [*kept, *kept]
    assert not capsys.readouterr().err
    assert store.names() == []  # 'diff --against' does not accept runs of fleets
    (first, _second) = store.saved(times.NAME, GPU.name, times.SUFFIX)
    first.write_bytes(damage(first.read_bytes()))
    assert [*times.earlier(kept, runs=9)] == kept
    assert f"{first} is skipped: not a run of gpubench fleet" in capsys.readouterr().err


def test_newer_runs_of_other_devices_hide_no_earlier_run_of_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(store.VARIABLE, str(tmp_path))
    own = [report(0, seed=seed).times for seed in range(3)]
    for run_times in (*own, *(report(1, seed=seed).times for seed in range(4))):
        times.keep(run_times)
    assert [*times.earlier(report(0).times, runs=2)] == [*own[2], *own[1]]


def test_runs_in_which_a_device_failed_hide_no_earlier_run_of_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(store.VARIABLE, str(tmp_path))
    times.keep(report(0).times)
    for _ in range(3):
        times.keep(failing(report(0), *UNITS).times)
    times.keep([])
    assert [*times.earlier(report(0).times, runs=2)] == report(0).times
    assert not [*times.earlier([], runs=2)]


@pytest.fixture(scope="module")
def four_workers() -> Iterator[Client]:
    with dask_workers(4) as client:
        yield client


@pytest.fixture
def measuring(
    four_workers: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[dict[int, float]], tuple[Fleet | None, Path | None]]:
    """Return a function that runs the command on fake devices; its factors slow some of them."""
    device = first_device("cpu")
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "store"))
    monkeypatch.setitem(units.PRODUCTS, "cpu", Products("cpu_blas", 16, ("float32",)))

    @contextmanager
    def connected(*_: object) -> Iterator[Client]:
        yield four_workers

    monkeypatch.setattr(run, "connected", connected)
    monkeypatch.setattr("gpubench.engine.cluster.devices_of", lambda _name: [device])

    def measure(factors: dict[int, float]) -> tuple[Fleet | None, Path | None]:
        @contextmanager
        def opened(_device: str, slot: str) -> Iterator[LocalPool]:
            factor = factors.get(int(slot), 1.0)
            if not factor:
                raise DeviceBusyError("it is being measured by another")
            yield LocalPool(Runner(FakeBackend(10.0 * factor, device=device)), slot)

        monkeypatch.setattr(units, "local_pool", opened)
        path = tmp_path / "fleet.csv"
        return run_fleet("local", "cpu", rounds=3, threshold=0.03, output=path, force=True)

    return measure


def test_every_device_is_measured_alone_and_together_and_every_row_is_on_disk(
    measuring: Callable[[dict[int, float]], tuple[Fleet | None, Path | None]],
) -> None:
    assessed, path = measuring({2: 1.3})
    assert assessed
    assert path
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 4 * 2 * 3 * 2  # devices × units × rounds × phases
    assert {(row["phase"], row["slot"]) for row in rows} == {
        (phase, str(n)) for phase in ("alone", "together") for n in range(4)
    }
    assert [(d.slot, d.verdict) for d in assessed.devices if d.verdict != FleetVerdict.FINE] == [
        ("2", FleetVerdict.SLOW)
    ]
    again, _ = measuring(dict.fromkeys(range(4), 1.3))  # all are slower than before
    assert again
    assert {d.slot for d in again.devices if d.verdict == FleetVerdict.SLOW} == {"0", "1", "3"}
    busy, _ = measuring({1: 0.0})
    assert busy
    verdicts = {d.slot: (d.verdict, d.reasons) for d in busy.devices}
    assert verdicts["1"] == (FleetVerdict.UNKNOWN, ("it is being measured by another",))


def test_a_fleet_in_use_replaces_no_file_and_prints_the_reason_once_per_device(
    measuring: Callable[[dict[int, float]], tuple[Fleet | None, Path | None]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "fleet.csv").write_text("of an earlier run")
    assessed, path = measuring(dict.fromkeys(range(4), 0.0))
    assert assessed
    assert (assessed.exit_code, len(assessed.devices)) == (3, 4)
    assert {(d.verdict, d.reasons) for d in assessed.devices} == {
        (FleetVerdict.UNKNOWN, ("it is being measured by another",))
    }
    assert path is None
    assert (tmp_path / "fleet.csv").read_text() == "of an earlier run"
    assert not store.directory().exists()
    messages = [line for line in capsys.readouterr().err.splitlines() if "by another" in line]
    assert len(messages) == len(set(messages)) == 4
    again, _ = measuring({})  # an empty run is no earlier run
    assert again
    assert {device.verdict for device in again.devices} == {FleetVerdict.FINE}


def test_verdicts_are_given_if_the_times_cannot_be_kept(
    measuring: Callable[[dict[int, float]], tuple[Fleet | None, Path | None]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "file"))
    assessed, _ = measuring({})
    assert assessed
    assert assessed.exit_code == 0
    what = (
        f"later runs cannot be compared with this run: {store.VARIABLE}: cannot make the directory"
    )
    assert what in capsys.readouterr().err


def test_a_full_disk_is_reported_with_the_name_of_the_file(
    measuring: Callable[[dict[int, float]], tuple[Fleet | None, Path | None]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def show(*_: object) -> None:  # called after the first turn was written
        resource.setrlimit(resource.RLIMIT_FSIZE, (9, limits[1]))

    monkeypatch.setattr(run.Steps, "show", show)
    path = tmp_path / "fleet.csv"
    try:
        with pytest.raises(OutputLostError, match=f"cannot write {path}: File too large"):
            measuring({})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(path.read_text().splitlines()) > 1


@pytest.mark.parametrize(("phase", "rounds"), [(ALONE, 1), (TOGETHER, 3)])
def test_a_turn_has_each_unit_once_a_round_without_the_units_at_its_ends(
    monkeypatch: pytest.MonkeyPatch, phase: str, rounds: int
) -> None:
    monkeypatch.setitem(units.PRODUCTS, "cpu", Products("cpu_blas", 16, ("float32", "float64")))
    backend = FakeBackend(10.0)
    asked = Asked("cpu", phase, rounds, seed=1)
    report = units._measure(asked, LocalPool(Runner(backend), "0"), "0")
    assert Counter(time.unit for time in report.times) == dict.fromkeys(
        ("float32 product", "float64 product", "copy"), rounds
    )
    assert {time.phase for time in report.times} == {phase}
    assert all(time.time_us == pytest.approx(10.0) for time in report.times)
    assert len(report.verified) == 2
    assert report.configuration == {"vbios": "1.0"}


class FailingInFloat64(FakeBackend):
    """A backend whose launches fail in float64."""

    def run(self, kernel: FakeKernel, launches: int = 1) -> None:
        if kernel.point.problem.dtype == "float64":
            raise LaunchError("illegal access")
        super().run(kernel, launches)


def test_a_product_that_fails_is_reported_once_and_the_other_units_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(units.PRODUCTS, "cpu", Products("cpu_blas", 16, ("float32", "float64")))

    pool = LocalPool(Runner(FailingInFloat64(10.0)), "0")
    report = units._measure(Asked("cpu", ALONE, 3, seed=1), pool, "0")
    assert Counter((time.unit, time.status) for time in report.times) == {
        ("float32 product", "ok"): 3,
        ("float64 product", "error"): 1,
        ("copy", "ok"): 3,
    }
    (failed,) = [time for time in report.times if time.status == "error"]
    assert (failed.reason, failed.time_us) == ("illegal access", None)


class LostInThirdRound(FakeBackend):
    """A backend whose process is lost when it measures the parts for the third time."""

    measured = 0

    def parts(self) -> Any:
        self.measured += 1
        if self.measured == 3:
            raise ChildLostError("crashed")
        return super().parts()


def test_rounds_before_the_process_was_lost_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(units.PRODUCTS, "cpu", Products("cpu_blas", 16, ("float32",)))
    pool = LocalPool(Runner(LostInThirdRound(10.0)), "0")
    report = units._measure(Asked("cpu", TOGETHER, 3, seed=1), pool, "0")
    assert report.error == "the measuring process crashed"
    assert Counter(time.unit for time in report.times) == {"float32 product": 1, "copy": 1}


def test_bits_that_differ_only_in_an_early_round_of_a_turn_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(units.PRODUCTS, "cpu", Products("cpu_blas", 16, ("float32",)))
    turn = units._Turn(
        Asked("cpu", TOGETHER, 3, seed=1), LocalPool(Runner(FakeBackend(10.0)), "0"), "0"
    )
    (point,) = turn.job.points
    for number in (7, 8, 7):
        turn.measured(replace(measurement(10.0, point), fingerprints={1: number}))
    assert turn.report().bits == {"float32 product": {1: {7, 8}}}
    unsteady = report(5)._replace(bits=turn.report().bits)
    assert of(assess(fleet(unsteady)), 5).verdict == FleetVerdict.WRONG


def test_a_product_that_fails_in_a_round_that_does_not_count_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(units.PRODUCTS, "cpu", Products("cpu_blas", 16, ("float32", "float64")))

    pool = LocalPool(Runner(FailingInFloat64(10.0)), "0")
    report = units._measure(Asked("cpu", TOGETHER, 3, seed=1), pool, "0")
    (failed,) = [time for time in report.times if time.status == "error"]
    assert (failed.unit, failed.reason) == ("float64 product", "illegal access")


def test_a_worker_that_is_gone_costs_its_own_reports_and_nobody_waits_for_it() -> None:
    client = Mock(status="running")  # its tasks never end
    client.sync.return_value = {"workers": {}}
    reports: list[Report] = []
    workers = {"tcp://a": Member("0", "node1", GPU, "abc")}
    run.FleetRun(client, workers, "cuda", 3, lambda lost, *_: reports.append(lost)).measure()
    (asked,) = client.submit.call_args_list  # one request for three rounds
    assert asked.kwargs["workers"] == ["tcp://a"]
    assert [lost.error for lost in reports] == ["the worker left the cluster"]
    cancelled = [future for each in client.cancel.call_args_list for future in each.args[0]]
    assert cancelled == [client.submit.return_value]


def test_devices_without_a_turn_are_reported_if_the_connection_ends() -> None:
    client = Mock(status="closed")
    reports: list[Report] = []
    workers = {f"tcp://{n}": Member(n, f"node{n}", GPU, "abc") for n in "01"}
    run.FleetRun(client, workers, "cuda", 3, lambda lost, *_: reports.append(lost)).measure()
    assert not client.submit.called
    assert [(lost.member.name, lost.error) for lost in reports] == [
        ("0", "the connection to the scheduler ended"),
        ("1", "the connection to the scheduler ended"),
    ]


def test_a_silent_worker_costs_its_own_reports_and_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "SILENT_S", -1.0)
    client = Mock(status="running")  # its tasks never end
    client.sync.side_effect = [{"workers": {"tcp://a": {"last_seen": 0.0}}}]
    reports: list[Report] = []
    workers = {"tcp://a": Member("0", "node1", GPU, "abc")}
    run.FleetRun(client, workers, "cuda", 3, lambda lost, *_: reports.append(lost)).measure()
    assert [lost.error for lost in reports] == ["the worker has been silent for 25 s"]


def test_devices_are_unknown_if_the_scheduler_no_longer_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = Mock(side_effect=[PeerLostError("the scheduler has not answered for 15 s")])
    monkeypatch.setattr(run, "present", silent)
    reports: list[Report] = []
    workers = {f"tcp://{n}": Member(n, "node1", GPU, "abc") for n in "01"}
    run.FleetRun(
        Mock(status="running"), workers, "cuda", 3, lambda lost, *_: reports.append(lost)
    ).measure()
    assert {lost.member.name for lost in reports} == {"0", "1"}
    assert {lost.error for lost in reports} == {"the scheduler has not answered for 15 s"}
    assert assess(reports).exit_code == 3


def test_a_turn_without_a_report_has_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Mock(side_effect=[None, PeerLostError("the connection to the scheduler ended")])
    monkeypatch.setattr(run, "result_of", result)
    reports = [run._report(Mock(), Member("0", "node1", GPU, "abc")) for _ in range(2)]
    assert [lost.error for lost in reports] == [
        "the worker left the cluster before it sent its report",
        "the connection to the scheduler ended",
    ]


def test_a_worker_that_does_not_answer_at_the_start_is_unknown(
    measuring: Callable[[dict[int, float]], tuple[Fleet | None, Path | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_all = run.members

    def without_the_first(*cluster: Any) -> Any:
        (address, member), *others = of_all(*cluster)[0].items()
        nobody = Member(member.name, member.hostname, Device(backend="", name=""), "")
        return dict(others), {address: (nobody, "it has not answered for 30 s")}

    monkeypatch.setattr(run, "members", without_the_first)
    assessed, _ = measuring({})
    assert assessed
    assert [d.reasons for d in assessed.devices if d.verdict == FleetVerdict.UNKNOWN] == [
        ("it has not answered for 30 s",)
    ]
    assert assessed.exit_code == 3


def test_no_worker_at_the_start_has_not_the_exit_code_of_a_slow_device(
    measuring: Callable[[dict[int, float]], tuple[Fleet | None, Path | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "members", Mock(side_effect=PeerLostError("--on: no worker is left")))
    with pytest.raises(UsageError, match="no worker is left") as ended:
        measuring({})
    assert ended.value.exit_code == 2


def test_a_worker_that_is_gone_is_noticed_while_turns_of_other_workers_end() -> None:
    client = Mock(status="running")
    client.sync.side_effect = [{"workers": {"tcp://a": {"last_seen": 0.0}}}, {"workers": {}}]
    workers = {"tcp://a": Member("0", "node1", GPU, "abc")}
    fleet_run = run.FleetRun(client, workers, "cuda", 3, lambda *_: None)

    def end_turns() -> None:
        for _ in range(80):
            fleet_run._ended.put(None)
            if done.wait(0.1):
                break

    done, others = Event(), Thread(target=end_turns)
    others.start()
    fleet_run.measure()
    assert others.is_alive()
    done.set()
    others.join()


def test_a_dry_run_lists_the_units_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "devices_of", lambda _: [GPU, GPU])
    run.foresee("local", "auto", rounds=3, output=None)
    out = capsys.readouterr().out
    assert "2 devices (Fake GPU), 8 turns; nothing is run" in out
    assert "float32 product" in out
    run.foresee("tcp://nowhere:1", "cpu", rounds=3, output=Path("fleet.csv"))
    out = capsys.readouterr().out
    assert "the workers of tcp://nowhere:1: 3 rounds on each; nothing is run" in out
    assert out.rstrip().endswith("would write: fleet.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("devices", "said"), [(1, "about 3:00"), (2, "about 11:00")])
def test_a_dry_run_counts_the_time_of_turns_together_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], devices: int, said: str
) -> None:
    monkeypatch.setattr(run, "devices_of", lambda _: [GPU] * devices)
    monkeypatch.setattr(run, "products", Mock())
    run.products.return_value.forecast.return_value.expected_s = 60.0  # type: ignore[attr-defined]
    run.foresee("local", "auto", rounds=3, output=None)
    out = " ".join(capsys.readouterr().out.split())
    assert said in out  # alone: a round of each device in turn; together: five rounds of all
