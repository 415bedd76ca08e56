"""Measurements are kept by their place (host, slot and device)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import CPU, Diary, FakeBackend, matmul, measurement, variant

from gpubench.engine.measure.runner import Runner
from gpubench.engine.measurements import Measurements, Place
from gpubench.engine.pool import LocalPool
from gpubench.engine.prepare import Job, prepare
from gpubench.engine.run import run
from gpubench.model import Timing
from gpubench.plan import sweep as plan
from gpubench.plan.sweep import Sweep
from gpubench.results.result_file import ResultFile

FIRST, SECOND = Place("host", "0000:01:00.0", "GPU-1"), Place("host", "0000:02:00.0", "GPU-2")


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job of three points in two rounds, with the baseline."""
    blas = variant(matmul, "blas", baseline="blas")
    monkeypatch.setattr(plan, "choose", lambda *_: (blas,))
    sizes = ((8, 8, 8), (16, 16, 16), (24, 24, 24))
    return prepare(Sweep(sizes=sizes, timing=Timing(rounds=2, max_wall_s=600.0)), CPU)


def test_a_place_is_put_into_a_measurement_and_read_from_it() -> None:
    assert Place.of(FIRST.put_into(measurement())) == FIRST
    facts = {"uuid": "GPU-1", "slot": "0000:01:00.0"}
    assert Place.here(replace(CPU, facts=facts), slot="worker 3")[1:] == FIRST[1:]
    assert Place.here(CPU, slot="worker 3")[1:] == ("worker 3", "")


def test_rounds_of_two_places_do_not_finish_a_point_together(job: Job) -> None:
    measurements = Measurements(job)
    point = job.points[0]
    measurements.add(FIRST.put_into(measurement(10.0, point)))
    measurements.add(SECOND.put_into(measurement(11.0, point)))
    assert not measurements.is_finished(point)
    measurements.add(SECOND.put_into(replace(measurement(12.0, point), started_utc="later")))
    assert measurements.is_finished(point)
    assert len(measurements.known_at(Place("host", "2", "GPU-3"))[point]) == 2  # finished elsewhere
    here, there = measurements.known_at(FIRST), measurements.known_at(SECOND)
    assert [taken.device_uuid for taken in there[point]] == ["GPU-2", "GPU-2"]
    assert len(here[point]) == 1
    assert here[job.points[1]] == ()


def test_a_repeated_round_is_not_new(job: Job) -> None:
    measurements = Measurements(job)
    taken = FIRST.put_into(measurement(10.0, job.points[0]))
    assert measurements.is_new(taken)
    measurements.add(taken)
    assert not measurements.is_new(taken)
    assert measurements.is_new(replace(taken, started_utc="later"))
    assert measurements.is_new(SECOND.put_into(taken))


def test_a_sweep_resumed_on_another_gpu_mixes_no_rounds(job: Job, tmp_path: Path) -> None:
    def pool(place: Place, time_us: float) -> LocalPool:
        facts: dict[str, Any] = {"uuid": place.device_uuid, "slot": place.slot}
        device = replace(CPU, facts=facts)
        return LocalPool(Runner(FakeBackend(time_us, device=device)))

    path = tmp_path / "a.csv"
    first = run(job, pool(FIRST, 10.0), Diary(stop_after=4), ResultFile(path))
    assert first.interrupted
    outcome = run(job, pool(SECOND, 20.0), file=ResultFile(path, resume=True))
    assert not outcome.interrupted
    assert all(row.rounds == 2 for row in outcome.rows)
    times_us = {row.device_uuid: row.median_us for row in outcome.rows}
    assert times_us == {"GPU-1": 10.0, "GPU-2": 20.0}
