"""Measurements become rows with merged rounds, rates and baselines."""

from dataclasses import replace
from typing import Any

import pytest
from fakes import CPU, FAKE, FakeBackend, measured, measurement, point, row, series, variant

from gpubench.commands.compare_cublas.sustained_pairs import _filled
from gpubench.engine import prepare as preparing
from gpubench.engine.measure.runner import Runner
from gpubench.engine.measurements import Measurements, Place
from gpubench.engine.pool import LocalPool
from gpubench.engine.run import _rows
from gpubench.hardware.architectures import example
from gpubench.model import (
    Cache,
    Config,
    CudaVariant,
    Device,
    Health,
    Launch,
    Measurement,
    PairedTimes,
    Resources,
    Series,
    State,
    Status,
    Timer,
    edges,
)
from gpubench.plan import sweep as plan
from gpubench.plan.problems import ListedProblem
from gpubench.results.row import COLUMNS, Row
from gpubench.results.rows import build_rows

H200 = replace(
    example("sm_90"),
    versions={
        "driver": "580.1",
        "cuda": "13.0",
        "cupy": "14.2.0",
        "nvrtc": "13.0",
        "blas": "cuBLAS 13.1.0",
    },
    facts={"uuid": "GPU-1", "environment": "CUPY_TF32=1"},
)

TILED = CudaVariant(
    idea="a fake",
    tiles=edges(1, 32, because="of a test"),
    launch=lambda tile, _problem: Launch(grid=(2, 3), block=(tile["edge"], tile["edge"])),
    reuse=lambda tile: (tile["edge"], tile["edge"]),
    name="tiled",
    op="gemm",
    path=FAKE.path,
)


def on_gpu(**facts: Any) -> Measurement:
    return Measurement(
        **{
            "point": point(
                TILED, size=(1024, 1024, 1024), tile=Config.parse("16"), cache=Cache.HOT
            ),
            "status": Status.OK,
            "series": series(100.0),
            "resources": Resources(registers=32, local_bytes=0, spill_bytes=0, shared_bytes=2048),
            "device_uuid": "GPU-1",
            "launch": Launch(grid=(64, 64), block=(16, 16), shared_bytes=100),
        }
        | facts
    )


def row_on_gpu(**facts: Any) -> Row:
    return row(on_gpu(**facts), H200, "abc")


def test_a_row_has_the_point_the_device_and_the_causes_of_its_speed() -> None:
    gflops = 2 * 1024**3 / 100e-6 / 1e9
    expected = {
        "variant": "tiled",
        "tile": "16",
        "label": "tiled 16 at 1024 float32",
        "round_medians_us": (100.0,),
        "gflops": gflops,
        "percent_of_peak": 100 * gflops / 66_908,
        "registers": 32,
        "shared_bytes": 2148,
        "threads_per_block": 256,
        "blocks": 4096,
        "occupancy": 1.0,
        "cgma": 16,
        "arithmetic_intensity": 1024 / 6,
        "device": "NVIDIA H200",
        "compute_capability": "9.0",
        "device_uuid": "GPU-1",
        "driver": "580.1",
        "cuda": "13.0",
        "cupy": "14.2.0",
        "nvrtc": "13.0",
        "library": "cuBLAS 13.1.0",
        "environment": "CUPY_TF32=1",
        "source_hash": "abc",
    }
    built_row = row_on_gpu()
    assert built_row.gpubench
    for name, value in expected.items():
        near = value if isinstance(value, str) else pytest.approx(value, rel=0.02)
        assert getattr(built_row, name) == near, name


def test_a_row_counts_spills_and_the_warps_they_leave_room_for() -> None:
    spilling = Resources(registers=255, local_bytes=440, spill_bytes=736, shared_bytes=0)
    built_row = row_on_gpu(resources=spilling, launch=Launch(grid=(8, 8), block=(8, 8)))
    assert (built_row.local_bytes, built_row.spill_bytes, built_row.occupancy) == (440, 736, 8 / 64)
    routine = row_on_gpu(resources=None, launch=None)
    assert {routine.registers, routine.spill_bytes, routine.occupancy, routine.blocks} == {None}


def test_a_row_says_which_algorithms_of_a_library_and_which_gpus_ran() -> None:
    names = ("heuristic 3 of 8, tuned", "heuristic 3 of 8, tuned", "heuristic 1 of 8, not tuned")
    uuids = ("GPU-1", "GPU-2", "GPU-1")
    rounds = [on_gpu(algorithm=a, device_uuid=u) for a, u in zip(names, uuids, strict=True)]
    built_row = row_of(*rounds, device=H200)
    assert built_row.algorithm == "heuristic 3 of 8, tuned;heuristic 1 of 8, not tuned"
    assert built_row.device_uuid == "GPU-1;GPU-2"
    assert row_on_gpu().algorithm is None


def test_a_row_has_the_largest_error_of_its_rounds() -> None:
    rounds = [
        on_gpu(max_relative_error=error, largest_error=error, rms_error=error / 2)
        for error in (2**-20, 2**-10, 2**-30)
    ]
    built_row = row_of(*rounds, device=H200)
    assert built_row.max_relative_error == 2**-10
    assert (built_row.error_max_bits, built_row.error_rms_bits) == (10, 11)


def test_a_row_has_the_energy_of_an_operation() -> None:
    at = point(TILED, size=(100, 100, 50), tile=Config.parse("16"), state=State.SUSTAINED)
    rounds = [on_gpu(point=at, series=replace(series(), joules=joules)) for joules in (2e-6, 4e-6)]
    row = build_rows({at: rounds}, H200, {TILED: "abc"})[0]
    assert (row.state, row.joules) == ("sustained", 3e-6)
    assert row.pj_per_operation == pytest.approx(3)  # the point has a million operations


def with_overheads(
    *overheads_us: float, sample_us: float = 100.0, timer: Timer = Timer.EVENTS
) -> Row:
    """Return a row with a round for each overhead, whose samples have 10 launches."""
    at = point(TILED, size=(64, 64, 64), tile=Config.parse("16"), timer=timer)
    samples = Series(times_us=(sample_us / 10,) * 6, launches_per_sample=10, stop_reason="precise")
    rounds = [on_gpu(point=at, series=samples, after=Health(overhead_us=us)) for us in overheads_us]
    return row_of(*rounds, device=H200)


@pytest.mark.parametrize(("timer", "overhead_us"), [(Timer.EVENTS, 2.2), (Timer.CUPTI, None)])
def test_a_row_has_the_overhead_of_its_timer(timer: Timer, overhead_us: float | None) -> None:
    built_row = with_overheads(2.1, 2.3, 2.2, timer=timer)
    assert (built_row.status, built_row.overhead_us) == (Status.OK, overhead_us)


@pytest.mark.parametrize(("spread_us", "sample_us"), [(1.01, 100.0), (10.1, 1000.0)])
def test_rounds_with_different_overheads_have_no_time(spread_us: float, sample_us: float) -> None:
    refused = with_overheads(2.2, 2.2 + spread_us, 2.3, sample_us=sample_us)
    assert refused.status == Status.ERROR
    assert refused.reason.startswith(f"the rounds subtracted 2.20 to {2.2 + spread_us:.2f} µs")
    assert (refused.median_us, refused.round_medians_us, refused.gflops) == (None, (), None)
    taken = with_overheads(2.2, 2.2 + 0.98 * spread_us, 2.3, sample_us=sample_us)
    assert taken.status == Status.OK


def test_a_round_that_failed_is_the_reason_whatever_the_overheads() -> None:
    at = point(TILED, tile=Config.parse("16"), timer=Timer.EVENTS)
    overheads = (Health(overhead_us=2.2), Health(overhead_us=9.9))
    right = [on_gpu(point=at, series=series(1.0), after=health) for health in overheads]
    wrong = replace(right[0], status=Status.WRONG, reason="it is wrong", series=None)
    built_row = build_rows({at: [*right, wrong]}, H200, {TILED: "abc"})[0]
    assert (built_row.status, built_row.reason, built_row.median_us) == (
        Status.WRONG,
        "it is wrong",
        None,
    )


def test_a_note_that_differs_between_rounds_in_its_number_is_said_once() -> None:
    at = point(TILED, tile=Config.parse("16"))
    notes = [f"allocates memory ({count:,} bytes seen)" for count in (2024, 196, 71)]
    copies = Launch(grid=(1,), block=(32,), note="copies A first")
    rounds = [on_gpu(point=at, notes=note, launch=copies) for note in [*notes, "timed in a graph"]]
    built_row = build_rows({at: rounds}, H200, {TILED: "abc"})[0]
    assert built_row.notes == "copies A first;allocates memory (2,024 bytes seen);timed in a graph"


def test_a_row_keeps_the_hottest_moment_every_throttle_and_the_median_of_clocks() -> None:
    before = Health(temperature_c=60, power_w=700, throttle=("power cap",))
    hot = Health(nvml_sm_mhz=1980, temperature_c=70, power_w=300, throttle=("thermal slowdown",))
    afters = (replace(hot, sm_mhz=990), Health(sm_mhz=1980, temperature_c=50), Health(sm_mhz=900))
    built_row = row_of(*(on_gpu(before=before, after=after) for after in afters), device=H200)
    assert (built_row.temperature_c, built_row.power_w) == (70, 700)
    assert built_row.throttle == "power cap;thermal slowdown"
    assert (built_row.sm_mhz, built_row.nvml_sm_mhz, built_row.memory_mhz) == (990, 1980, None)
    assert built_row.percent_of_peak_at_clock == pytest.approx(2 * built_row.percent_of_peak)


def test_a_row_without_times_has_no_rates() -> None:
    built_row = row_on_gpu(status=Status.WRONG, reason="relative error 1", series=None)
    assert (built_row.status, built_row.reason) == ("wrong", "relative error 1")
    assert {
        built_row.gflops,
        built_row.gbytes_per_s,
        built_row.percent_of_peak,
        built_row.median_us,
    } == {None}
    assert {built_row.samples, built_row.rounds, built_row.percent_of_peak_at_clock} == {None}


# ---- rounds and baselines


def row_of(*rounds: Measurement, device: Device = CPU) -> Row:
    """Return the row of one point with several rounds."""
    (point,) = {taken.point for taken in rounds}
    return build_rows({point: rounds}, device, {point.variant: "abc"})[0]


def rows_of(*measurements: Measurement) -> list[Row]:
    """Return the rows of several points, which were measured once each."""
    hashes = {taken.point.variant: "abc" for taken in measurements}
    return build_rows({taken.point: [taken] for taken in measurements}, CPU, hashes)


def test_rounds_merge_into_their_median() -> None:
    merged = row_of(*(measurement(median) for median in (10.0, 14.0, 12.0)))
    assert merged.median_us == 12.0
    assert merged.rounds == 3
    assert merged.round_medians_us == (10.0, 14.0, 12.0)
    assert (merged.samples, merged.min_us) == (30, 10.0)
    assert merged.gflops == measured(12.0).gflops
    assert merged.gbytes_per_s == measured(12.0).gbytes_per_s


def test_the_interval_is_that_of_the_rounds_and_there_is_none_below_three() -> None:
    three = row_of(*(measurement(median) for median in (10.0, 14.0, 12.0)))
    assert (three.ci_low_us or 99) < 10.0
    assert (three.ci_high_us or 0) > 14.0
    two = row_of(*(measurement(median) for median in (10.0, 14.0)))
    assert (two.ci_low_us, two.ci_high_us, two.half_interval) == (None, None, None)


BLAS, OTHER = variant(name="blas", baseline="blas"), variant(name="other", baseline="blas")


def test_percent_of_blas_refers_to_the_baseline_of_the_same_problem() -> None:
    rows = rows_of(
        measurement(10.0, point(BLAS)),
        measurement(40.0, point(OTHER)),
        measurement(20.0, point(BLAS, cache=Cache.HOT)),
        measurement(20.0, point(OTHER, cache=Cache.HOT)),
        measurement(99.0, point(OTHER, size=(9, 9, 9))),
        Measurement(point=point(OTHER, dtype="float64"), status=Status.ERROR, reason="x"),
    )
    assert [row.percent_of_blas for row in rows] == [100, 25, 100, 100, None, None]


def test_the_faster_of_a_blas_and_its_tuned_call_is_the_baseline() -> None:
    tuned = variant(name="tuned", baseline="blas", tunes="blas")
    rows = rows_of(
        measurement(20.0, point(BLAS)),
        measurement(10.0, point(tuned)),
        measurement(40.0, point(OTHER)),
        measurement(20.0, point(BLAS, cache=Cache.HOT)),
        Measurement(point=point(tuned, cache=Cache.HOT), status=Status.ERROR, reason="x"),
        measurement(40.0, point(OTHER, cache=Cache.HOT)),
    )
    assert [row.percent_of_blas for row in rows] == [50, 100, 25, 100, None, 50]


@pytest.mark.parametrize("failed", [False, True])
def test_every_column_has_a_value_if_all_is_known_and_a_failed_point_lacks_times_only(
    failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "choose", lambda *_: (replace(TILED, baseline="tiled"),))
    monkeypatch.setattr(preparing, "package_version", lambda: ("abc", "def+"))
    listed = ListedProblem(name="ffn", m=64, n=64, k=64, dtype="float32")
    asked = {"sizes": (listed.size,), "problems": (listed,), "options": {"sizes": "a.csv"}}
    device = replace(H200, facts=H200.facts | {"measured_copy_gbytes_per_s": 50.0})
    job = preparing.prepare(plan.Sweep(tiles=("16",), **asked), device)
    numbers = (
        "sm_mhz",
        "host_us",
        "overhead_us",
        "nvml_sm_mhz",
        "memory_mhz",
        "temperature_c",
        "power_w",
    )
    once = ("threads", "seed", "clock_ratio", "first_call_s")
    texts = ("reason", "algorithm", "code_hash", "kernels_run", "notes", "started_utc")
    full = on_gpu(
        **dict.fromkeys(texts, "text") | dict.fromkeys(once, 1),
        point=job.points[0],
        status=Status.WRONG if failed else Status.OK,
        max_relative_error=0.0,
        largest_error=2.0**-20,
        rms_error=2.0**-22,
        series=None if failed else replace(series(), joules=1e-3),
        after=Health(**dict.fromkeys(numbers, 1.0), throttle=("power cap",)),
    )
    taken = Measurements(job)
    for slot in ("slot 1", "slot 2", "slot 2", "slot 2"):
        taken.add(Place("host", slot, "GPU-1").put_into(full))
    (row,) = _rows(job, LocalPool(Runner(FakeBackend(device=device))), taken)
    if not failed:
        times_us = {"times_us": (1.0, 1.0), "library_times_us": (1.0, 1.0)}
        paired = PairedTimes(**times_us, joules=1.0, library_joules=1.0)
        row = _filled(row, row, [paired, paired])
    lacking = {"time", "rates", "pairs"} if failed else set()
    columns = [each.name for each in COLUMNS if each.metadata["group"] not in lacking]
    of_times = ["joules", "pj_per_operation", "percent_of_devices"] if failed else []
    empty = [name for name in columns if getattr(row, name) is None]
    assert empty == of_times, (
        "set the columns in gpubench/results/rows.py, or give this test the measurement they need"
    )
