"""`gpubench fleet`: with fake devices in this process, and from rows to verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest
from distributed import Client, LocalCluster, get_worker
from fakes import FakeBackend
from rich.console import Console

from gpubench.backends import find_devices
from gpubench.commands.fleet import run, units
from gpubench.commands.fleet.judge import Limits
from gpubench.commands.fleet.run import earlier_rows, merged, run_fleet
from gpubench.commands.fleet.units import (
    ALONE,
    Asked,
    Products,
    Report,
    measure_units,
    unit_of,
)
from gpubench.commands.fleet.verdicts import Fleet, Verdict, assess
from gpubench.commands.fleet.view import as_json, as_tables
from gpubench.engine import runner
from gpubench.engine.cluster import Member
from gpubench.engine.executor import InProcess
from gpubench.errors import DeviceBusyError
from gpubench.model import Device, Health, Status
from gpubench.results import store
from gpubench.results.row import read

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
    """Of a device whose units take 100 µs, times a factor; `facts` are columns of its rows."""
    rng = np.random.default_rng((seed, number))
    device = replace(GPU, facts={"uuid": f"GPU-{number}", "slot": f"0000:{number:02}:00.0"})
    rows = []
    for unit in UNITS:
        own = rng.normal(0, 0.002)
        for _ in range(3):
            time_us = 100 * float(np.exp(own + rng.normal(0, 0.001)))
            time_us *= (factors or {}).get(unit, 1.0)
            usual = {"sm_mhz": 1980.0, "temperature_c": 50.0, "host": "node1"}
            row = units._part_row(unit, time_us, Health(), device, f"2026-01-0{seed + 1}")
            where = {"state": "alone", "slot": device.facts["slot"]}
            rows.append(replace(row, **(where | usual | facts)))
    member = Member(str(number), "node1", device, "abc")
    usual_configuration = {"driver": "580.1", "vbios": "96.00", "ecc_errors_uncorrected": 0}
    return Report(
        member, rows, {"float32 product": {1: bits}}, usual_configuration | (configuration or {})
    )


def fleet(*special: Report, devices: int = 8) -> list[Report]:
    """Good devices and these."""
    numbers = {one.member.name for one in special}
    return [*special, *(report(n) for n in range(devices) if str(n) not in numbers)]


def of(found: Fleet, number: int) -> Any:
    return next(device for device in found.devices if device.uuid == f"GPU-{number}")


def printed(found: Fleet) -> str:
    screen = Console(width=160)
    with screen.capture() as capture:
        screen.print(as_tables(found))
    return capture.get()


def test_a_good_fleet_is_fine() -> None:
    found = assess(fleet())
    assert {device.verdict for device in found.devices} == {Verdict.FINE}
    assert found.exit_code == 0
    assert found.differences == {}
    assert "8 devices: 8 fine" in printed(found)


def test_a_slow_device_comes_first_with_what_may_explain_it() -> None:
    slow = report(
        3,
        {"copy": 1.2},
        {"vbios": "95.00", "ecc_errors_uncorrected": 2},
        sm_mhz=1410.0,
        temperature_c=83.0,
        throttle="thermal slowdown",
    )
    found = assess(fleet(slow))
    assert found.exit_code == 1
    first = found.devices[0]
    assert (first.uuid, first.verdict) == ("GPU-3", Verdict.SLOW)
    (unit,) = [unit for unit in first.units if unit.verdict == Verdict.SLOW]
    assert unit.unit == "copy"
    assert unit.percent_of_others == pytest.approx(100 / 1.2, abs=1)
    assert set(first.reasons) == {
        "clock 1410 MHz in copy, others 1980",
        "83 °C, others 50",
        "thermal slowdown",
        "vbios 95.00, others 96.00",
        "ecc errors uncorrected: 2",
    }
    assert found.differences == {
        "vbios": {
            "95.00": ["node1 0000:03:00.0"],
            "96.00": [f"node1 0000:0{n}:00.0" for n in range(8) if n != 3],
        }
    }
    text = printed(found)
    assert "copy, alone: " in text
    assert "Configurations differ" in text
    assert json.loads(as_json(found))["devices"][0]["reasons"] == list(first.reasons)
    plain = assess(fleet(report(3, {"copy": 1.2})))
    assert plain.devices[0].reasons[0].startswith("no reason found")


def test_a_product_whose_bits_differ_is_wrong_on_the_device_that_is_alone_with_them() -> None:
    found = assess(fleet(report(5, bits=8)))
    assert of(found, 5).verdict == Verdict.WRONG
    assert [d.verdict for d in found.devices].count(Verdict.WRONG) == 1
    assert found.exit_code == 1
    both = assess([report(0, bits=7), report(1, bits=8)])
    assert {device.verdict for device in both.devices} == {Verdict.WRONG}
    assert "none is known right" in both.devices[0].reasons[0]


def test_a_unit_that_fails_makes_a_device_wrong_and_a_lost_worker_leaves_it_unknown() -> None:
    broken = report(2)
    broken.rows[0] = replace(broken.rows[0], status=Status.ERROR, reason="illegal access")
    lost = report(4)._replace(rows=[], bits={}, configuration={}, error="its worker is gone")
    found = assess(fleet(broken, lost))
    assert of(found, 2).verdict == Verdict.WRONG
    assert of(found, 2).reasons == ("copy: illegal access",)
    assert (of(found, 4).verdict, of(found, 4).reasons) == (
        Verdict.UNKNOWN,
        ("its worker is gone",),
    )
    assert assess(fleet(lost)).exit_code == 3


def test_one_device_alone_is_judged_by_its_own_history_or_not_at_all() -> None:
    alone = assess([report(0)])
    assert alone.exit_code == 3
    assert "nothing to compare it with" in alone.devices[0].reasons[0]
    before = [row for seed in range(4) for row in report(0, seed=0, bits=seed).rows]
    assert assess([report(0)], before).exit_code == 0
    slower = assess([report(0, {"latency": 1.15})], before)
    assert slower.exit_code == 1
    worst = slower.devices[0].worst
    assert worst
    assert (worst.unit, worst.since_before) == ("latency", True)
    assert "of its own before speed" in printed(slower)


def test_what_is_kept_is_a_row_for_each_device_and_unit_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(store.VARIABLE, str(tmp_path))
    reports = fleet()
    rows = merged(row for one in reports for row in one.rows)
    assert len(rows) == 8 * len(UNITS)
    assert all(row.rounds == 3 for row in rows)
    store.save(rows, run.NAME)
    assert sorted(map(unit_of, earlier_rows(reports))) == sorted(map(unit_of, rows))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=4, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as workers,
        Client(workers) as client,
    ):
        yield client


@pytest.fixture
def measuring(
    cluster: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[dict[int, float]], tuple[Fleet | None, Path]]:
    """Runs the command's work on fake devices, of which some take longer by a factor."""
    device = find_devices("cpu")[0][0]
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "store"))
    monkeypatch.setattr(runner, "probe_problems", lambda of, _: [of.problem])
    monkeypatch.setitem(units.PRODUCTS, "cpu", Products("cpu_blas", 16, ("float32",)))

    @contextmanager
    def connected(*_: object) -> Iterator[Client]:
        yield cluster

    monkeypatch.setattr(run, "connected", connected)
    monkeypatch.setattr("gpubench.engine.cluster.devices_of", lambda _name: [device])

    def measure(factors: dict[int, float]) -> tuple[Fleet | None, Path]:
        @contextmanager
        def opened(*_: object) -> Iterator[InProcess]:
            factor = factors.get(int(get_worker().name), 1.0)
            if not factor:
                raise DeviceBusyError("it is being measured by another")
            yield InProcess(FakeBackend(10.0 * factor, device=device))

        monkeypatch.setattr(units, "Worker", opened)
        path = tmp_path / "fleet.csv"
        return run_fleet("local", "cpu", rounds=3, limits=Limits(), output=path, force=True)

    return measure


def test_every_device_is_measured_alone_and_together_and_every_row_is_on_disk(
    measuring: Callable[[dict[int, float]], tuple[Fleet | None, Path]],
) -> None:
    found, path = measuring({2: 1.3})
    assert found
    rows = read(path)
    assert len(rows) == 4 * 2 * 3 * 2  # devices, units, rounds, phases
    assert {(row.state, row.slot) for row in rows} == {
        (phase, str(n)) for phase in ("alone", "together") for n in range(4)
    }
    assert [(d.slot, d.verdict) for d in found.devices if d.verdict != Verdict.FINE] == [
        ("2", Verdict.SLOW)
    ]
    again, _ = measuring(dict.fromkeys(range(4), 1.3))  # all are slower than in the run before
    assert again
    assert {d.slot for d in again.devices if d.verdict == Verdict.SLOW} == {"0", "1", "3"}
    busy, _ = measuring({1: 0.0})
    assert busy
    verdicts = {d.slot: (d.verdict, d.reasons) for d in busy.devices}
    assert verdicts["1"] == (Verdict.UNKNOWN, ("it is being measured by another",))


def test_a_device_is_held_from_one_turn_to_the_next_in_a_process_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    did: list[str] = []

    class Holding(InProcess):
        def __enter__(self) -> Self:
            did.append("take")
            return self

        def __exit__(self, *_: object) -> None:
            did.append("give back")

        def next_round(self) -> None:
            did.append("new process")

    found = Report(Member("0", "node1", GPU, "abc"), [], {}, {})
    monkeypatch.setattr("distributed.get_worker", lambda: SimpleNamespace(name=0))
    monkeypatch.setattr(units, "Worker", lambda *_: Holding(FakeBackend(10.0)))
    monkeypatch.setattr(units, "_measure", lambda *_: did.append("turn") or found)
    turns = [Asked("cuda", ALONE, 1, 1, more) for more in (True, True, False)]
    assert [measure_units(asked) for asked in turns] == [found] * 3
    kept = ["turn", "new process"]
    assert did == ["take", *kept, *kept, "turn", "give back"]
    did.clear()
    monkeypatch.setattr(units, "KEPT_S", 0.05)  # whoever asked has gone
    measure_units(turns[0])
    while "give back" not in did:
        sleep(0.01)
    assert did == ["take", *kept, "give back"]


def test_a_worker_that_is_gone_costs_its_own_reports_and_nobody_waits_for_it() -> None:
    class Future:
        def add_done_callback(self, _call: object) -> None:
            """It never is."""

    asked: list[str] = []
    cancelled: list[object] = []

    def submit(_work: object, _asked: object, workers: list[str], **_: object) -> Future:
        asked.extend(workers)
        return Future()

    client: Any = SimpleNamespace(
        status="running",
        submit=submit,
        cancel=cancelled.extend,
        scheduler_info=lambda **_: {"workers": {}},
    )
    member = Member("0", "node1", GPU, "abc")
    reports: list[Report] = []
    run.measure_all(client, {"tcp://a": member}, "cuda", 3, lambda one, _left: reports.append(one))
    assert asked == ["tcp://a"]  # of three rounds
    assert [one.error for one in reports] == ["its worker is gone"]
    assert len(cancelled) == 1
