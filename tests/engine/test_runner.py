"""A point becomes a measurement, and an error becomes the status of the measurement."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from fakes import CPU, FakeBackend, FakeKernel, matmul, measurement, point, row, variant

from gpubench.backends import Routine
from gpubench.backends.rotation import OperandSets
from gpubench.engine.measure.runner import Runner
from gpubench.engine.measure.visits import COOLING_S
from gpubench.engine.operands.make import verifying_bytes
from gpubench.errors import CompileError, DoesNotFitError, LaunchError
from gpubench.hardware.architectures import example
from gpubench.model import (
    CORE_DTYPES,
    Cache,
    Fill,
    Health,
    Launches,
    Point,
    State,
    Status,
    Timer,
    Timing,
)
from gpubench.plan.registry import of_op


def runner(backend: FakeBackend, **policy: float) -> Runner:
    timing = Timing(**{"max_wall_s": 600.0} | policy)  # a busy machine changes nothing
    return Runner(backend, timing, seed=1, sleep=lambda _seconds: None)


def test_a_long_launch_is_verified_by_its_first_sample() -> None:
    backend = FakeBackend(30_000.0)
    result = runner(backend).measure(point())
    first, *_ = [event for event in backend.events if event.whole]
    assert (first.what, first.launches, first.count) == ("sample", 1, 1)
    taken = sum(event.count for event in backend.events_of("sample"))
    assert taken == len(result.series.times_us)


def test_a_long_launch_with_a_wrong_result_is_sampled_once_and_has_no_time() -> None:
    backend = FakeBackend(30_000.0)
    result = runner(backend).measure(point(variant(leaves_out_the_edge_of_large_results)))
    assert (result.status, result.series) == (Status.WRONG, None)
    assert all(event.count == event.launches == 1 for event in backend.events_of("sample"))


@pytest.mark.parametrize("libraries", [(), ("jax",)])
def test_a_function_that_may_compile_is_called_once_before_the_limit_to_measure_begins(
    libraries: tuple[str, ...],
) -> None:
    backend, launches_before = FakeBackend(10.0), list[int]()

    def on_ready() -> None:
        launches_before.append(len(backend.events_of("run")))

    measuring = Runner(backend, Timing(max_wall_s=600.0), on_ready=on_ready)
    at = point(variant(libraries=libraries))
    assert (measuring.measure(at).first_call_s is None) == (not libraries)
    assert launches_before == [len(libraries)]
    assert measuring.measure(at).first_call_s is None


def test_a_probe_is_launched_twice_because_a_launch_may_leave_data() -> None:
    last, repeats = np.zeros(0), 0

    def leaves(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        nonlocal last, repeats
        repeats, last = (repeats + 1 if np.array_equal(a, last) else 0), a.copy()
        c[...] = a @ b + (repeats == 2 and a.shape == (64, 64))  # wrong after two launches

    measured_point = runner(FakeBackend()).measure(point(variant(leaves), size=(64, 48, 320)))
    assert measured_point.status == Status.WRONG
    assert measured_point.reason.startswith("exact probe at 64x48x64")


def test_a_point_of_ones_is_verified_on_uniform_operands_too() -> None:
    def loses_a_product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        first = int(a.all() and b.all() and len(np.unique(a)) > 99)  # 0 for a probe
        c[...] = a[:, first:] @ b[first:]

    of_ones = point(variant(loses_a_product), operands=Fill.ONES)
    assert runner(FakeBackend()).measure(of_ones).status == Status.WRONG


class AnyVariant(FakeBackend):
    """A backend that also accepts compiled kernels, and runs NumPy's product for them."""

    def bind(self, asked_point: Point, *arguments: Any, **rows: Any) -> FakeKernel:
        return super().bind(replace(asked_point, variant=variant()), *arguments, **rows)


def test_a_later_process_launches_on_few_rows_first_unless_the_launch_is_short() -> None:
    source = of_op("gemm")["naive"]
    for own, time_us, expected in (
        (variant(), 10.0, 1),
        (variant(), 5000.0, 1),
        (source, 10.0, 0),
        (source, 5000.0, 1),
    ):
        backend, here = AnyVariant(time_us), point(own)
        earlier = measurement(time_us, here)
        assert runner(backend).measure(here, earlier=earlier).status == Status.OK
        assert len(backend.events_of("run", whole=False)) == expected


def test_a_later_process_loads_a_kernel_once_for_all_sizes() -> None:
    backend = AnyVariant(5000.0)
    it = runner(backend)
    for size in ((64, 48, 32), (128, 48, 32)):
        here = point(of_op("gemm")["naive"], size=size)
        assert it.measure(here, earlier=measurement(5000.0, here)).status == Status.OK
    assert len(backend.events_of("run", whole=False)) == 1


def test_a_small_result_is_compared_while_kernels_compile() -> None:
    is_loaded = Event()

    class Compiling(FakeBackend):
        def compile(self, *arguments: Any) -> None:
            assert is_loaded.wait(60)
            super().compile(*arguments)

        def load(self, *arguments: Any, **policy: bool) -> OperandSets:
            is_loaded.set()
            return super().load(*arguments, **policy)

    backend, built = Compiling(), []
    runner(backend).compile([point()], built.append)
    assert built == [1]
    assert backend.loaded[0].problem.m < 64


def test_too_little_memory_for_the_small_result_is_reported_by_each_point() -> None:
    class Full(FakeBackend):
        def bytes_free(self) -> int:
            return 0

    it, built = runner(Full()), []
    it.compile([point()], built.append)
    assert built == [1]
    assert it.measure(point()).status == Status.SKIPPED


def test_a_point_is_verified_once_and_timed_every_round() -> None:
    backend = FakeBackend()
    it = runner(backend)
    first = it.measure(point())
    runs, taken = len(backend.events_of("run")), len(backend.events_of("sample"))
    second = it.measure(point())
    assert len(backend.events_of("run")) == runs
    assert len(backend.events_of("sample")) == 2 * taken
    assert second.max_relative_error == first.max_relative_error
    assert second.series == first.series
    assert second.started_utc > first.started_utc  # a repeated round has the same time


def test_what_an_earlier_kernel_set_for_the_caches_is_undone_before_each_visit() -> None:
    backend = FakeBackend()
    it = runner(backend)
    for _ in range(2):
        before = len(backend.events)
        it.measure(point())
        what = [event.what for event in backend.events[before:] if event.what != "load"]
        assert what.index("reset caches") == 0


def test_a_measurement_says_which_algorithm_and_which_code_ran() -> None:
    facts = {"chosen": "heuristic 2 of 8, tuned", "code_hash": "0123456789ab"}

    class Tuned(FakeBackend):
        def bind(self, *arguments: Any, **rows: Any) -> FakeKernel:
            return replace(super().bind(*arguments, **rows), routine=Routine(**facts))

    for backend, expected in ((Tuned(), tuple(facts.values())), (FakeBackend(), ("", ""))):
        measured = runner(backend).measure(point())
        assert (measured.algorithm, measured.code_hash) == expected
        assert row(measured, CPU, "").code_hash == (expected[1] or None)


def writes_nothing(_a: np.ndarray, _b: np.ndarray, _c: np.ndarray) -> None:
    pass


def leaves_out_the_edge(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    c[:-1] = (a @ b)[:-1]


def leaves_out_the_edge_of_large_results(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    is_probe = not (a.all() and b.all()) or set(np.unique(b)) == {-1, 1}
    (matmul if is_probe else leaves_out_the_edge)(a, b, c)


def adds_to_what_was_there(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    c += a @ b


def overwrites_an_operand(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    b[0] = 0
    np.matmul(a, b, out=c)


def divides_by_zero(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    np.matmul(a, b, out=c)
    c[3, 4] = np.nan if c.dtype.kind == "f" else 0


WRONG = (
    writes_nothing,
    leaves_out_the_edge,
    adds_to_what_was_there,
    overwrites_an_operand,
    divides_by_zero,
)


def test_a_wrong_result_is_never_timed() -> None:
    for dtype, wrong in itertools.product(CORE_DTYPES, WRONG):
        backend = FakeBackend()
        it = runner(backend)
        for _ in range(2):
            result = it.measure(point(variant(wrong), dtype=dtype))
            assert result.status == Status.WRONG
            assert result.reason
            assert result.series is None
        assert backend.events_of("sample") == []


@pytest.mark.parametrize(
    ("where", "error", "status"),
    [
        ("bind", CompileError("kernel.cu(3): error: expected a ';'"), Status.ERROR),
        ("run", LaunchError("an illegal memory access was encountered"), Status.ERROR),
        ("sample", LaunchError("no gate held"), Status.ERROR),
        ("bind", DoesNotFitError("out of device memory"), Status.SKIPPED),
        ("run", DoesNotFitError("out of device memory"), Status.SKIPPED),
    ],
)
def test_a_failure_has_its_status_and_reason(where: str, error: Exception, status: Status) -> None:
    backend = FakeBackend()
    it = runner(backend)
    backend.fail[where] = error
    result = it.measure(point())
    assert (result.status, result.reason, result.series) == (status, str(error), None)
    backend.fail.clear()
    assert it.measure(point(variant(name="next"))).status == Status.OK


def test_a_point_that_just_fits_is_measured_and_another_is_skipped_before_it_is_loaded() -> None:
    backend = FakeBackend()
    problem = point().problem
    backend.free = backend.bytes_needed(problem, cold=True) + verifying_bytes(problem)
    assert runner(backend).measure(point()).status == Status.OK
    full = FakeBackend(bytes_free=backend.free - 1)
    result = runner(full).measure(point())
    assert result.status == Status.SKIPPED
    hot = full.bytes_needed(problem, cold=False) + verifying_bytes(problem)
    assert result.reason.endswith(f"{full.free:,} are free; --cache hot needs {hot:,}")
    assert full.events == []
    tiny = FakeBackend(bytes_free=hot - 1)
    assert runner(tiny).measure(point()).reason.endswith(f"only {tiny.free:,} are free")


@pytest.mark.parametrize(("launch_s", "parts"), [(20, {1, 64 // 16}), (1000, {1})])
def test_too_slow_a_launch_is_skipped_with_its_estimate(launch_s: int, parts: set[int]) -> None:
    backend = FakeBackend(launch_s * 1e6)
    result = runner(backend, launch_limit_s=10.0).measure(point())
    assert (result.status, result.series) == (Status.SKIPPED, None)
    assert result.reason == f"estimated {launch_s:,} s a launch, over --launch-limit 10"
    assert not backend.events_of("run")
    assert not backend.events_of("sample")
    # Two parts predict the same time, so the third part is not launched.
    assert {event.rows for event in backend.events_of("sample", whole=False)} == parts
    just_under = runner(FakeBackend(9.9e6), launch_limit_s=10.0).measure(point())
    assert (just_under.status, just_under.series.median_us) == (Status.OK, 9.9e6)


def test_a_first_launch_that_loads_code_is_not_taken_for_a_slow_kernel() -> None:
    backend = FakeBackend(itertools.chain([60e6], itertools.repeat(10.0)))
    assert runner(backend).measure(point()).status == Status.OK


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("before", [0, 1])
def test_a_delay_of_the_host_does_not_make_a_short_kernel_slow(rounds: int, before: int) -> None:
    # The probes show the kernel's time, so a much longer first launch has another cause.
    next_us: list[float] = []

    def script() -> Iterator[float]:
        while True:
            yield next_us.pop() if next_us else 10.0

    backend = FakeBackend(script())
    it = runner(backend, rounds=rounds)
    for _ in range(before):
        it.measure(point())
    backend.at_sampling = lambda: next_us.append(150_000.0)
    series = it.measure(point()).series
    assert series.launches_per_sample == 10
    assert len(series.times_us) >= 6
    assert max(series.times_us) == 10.0


def test_rounds_together_take_ten_samples_and_fifty_milliseconds() -> None:
    for rounds, launch_us in itertools.product(
        [1, 3, 10], [0.5, 3.0, 10.0, 400.0, 5_000.0, 20_000.0, 99_000.0]
    ):
        it = runner(FakeBackend(launch_us), rounds=rounds)
        results = [it.measure(point()).series for _ in range(rounds)]
        assert sum(len(each.times_us) for each in results) >= 10
        assert sum(each.device_s for each in results) >= 0.0499
        assert min(len(each.times_us) for each in results) >= 2


@pytest.mark.parametrize(("time_us", "status"), [(0.09, Status.WRONG), (0.11, Status.OK)])
def test_a_time_that_no_device_can_reach_is_wrong(time_us: float, status: Status) -> None:
    device = replace(example("sm_90"), backend="cpu")
    result = runner(FakeBackend(time_us, device=device)).measure(point(size=(256, 256, 256)))
    assert result.status == status
    if status == Status.WRONG:
        assert result.series is None
        assert result.reason.startswith("0.09 µs a launch, but the device needs at least ")


SLOW, FINE = Health(throttle=("thermal slowdown",)), Health(throttle=("power cap",))


@pytest.mark.parametrize(
    ("healths", "waits", "after"),
    [([FINE, SLOW, FINE, FINE], COOLING_S[:1], FINE), (itertools.repeat(SLOW), COOLING_S, SLOW)],
    ids=["recovers", "stays slow"],
)
def test_a_slowed_down_device_gets_time_to_cool_and_the_point_is_timed_again(
    healths: Iterable[Health], waits: Sequence[float], after: Health
) -> None:
    waited: list[float] = []
    it = Runner(FakeBackend(healths=healths), Timing(), seed=1, sleep=waited.append)
    result = it.measure(point())
    assert waited == list(waits)
    assert (result.status, result.after) == (Status.OK, after)


def test_operands_are_loaded_once_for_each_state_of_the_cache() -> None:
    backend = FakeBackend()
    it = runner(backend)
    for name, cache in itertools.product(("one", "two", "one"), (Cache.COLD, Cache.HOT)):
        it.measure(point(variant(name=name), cache=cache))
    assert [event.count for event in backend.events if event.what == "load"] == [3, 1]


def test_earlier_operands_make_room_for_the_next_ones() -> None:
    backend = FakeBackend()
    it = runner(backend)
    it.measure(point())
    backend.free = 500_000  # less than twice the size of the next operands
    it.measure(point(size=(65, 48, 32)))
    backend.free = 2**40
    it.measure(point())
    loads = [event.rows for event in backend.events if event.what == "load"]
    assert loads == [64, 65, 64]


def test_a_phase_does_not_include_the_phases_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubench.engine.measure.phases.perf_counter", itertools.count().__next__)
    it = runner(FakeBackend())
    with it._phase("sampling"), it._phase("verifying"):
        pass
    assert it.spent_s == {"sampling": 2, "verifying": 1}


class Threaded(FakeBackend):
    """A CPU with four threads, on which two threads are fastest."""

    def bind(self, *arguments: Any, **options: Any) -> FakeKernel:
        return replace(super().bind(*arguments, **options), thread_counts=(4, 2, 1))

    def sample(self, kernel: FakeKernel, launches: int, count: int) -> list[float]:
        slower = {4: 2.0, 2: 1.0, 1: 3.0}[kernel.thread_counts[0]]
        return [slower * time_us for time_us in super().sample(kernel, launches, count)]


def test_a_point_is_timed_on_the_fastest_number_of_threads_chosen_once() -> None:
    backend = Threaded(10.0)
    it = runner(backend)
    first = it.measure(point())
    assert (first.threads, first.series.median_us) == (2, 10.0)
    taken = len(backend.events)
    second = it.measure(point())
    assert (second.threads, second.series.median_us) == (2, 10.0)
    assert len(backend.events) - taken < taken


def test_a_later_process_takes_over_the_number_of_threads() -> None:
    earlier = replace(runner(Threaded(10.0)).measure(point()), threads=1)
    later = runner(Threaded(10.0)).measure(point(), earlier=earlier)
    assert (later.threads, later.series.median_us) == (1, 30.0)


def test_a_slow_launch_on_other_threads_is_no_sample() -> None:
    class Slow(Threaded):
        def run(self, kernel: FakeKernel, launches: int = 1) -> float:  # type: ignore[override]
            super().run(kernel, launches)
            return 9e6

    series = runner(Slow(2e6)).measure(point()).series
    assert set(series.times_us) == {2e6}


# ---- sustained launches


def test_a_sustained_point_is_verified_then_launched_without_a_pause_and_checked_again() -> None:
    backend = FakeBackend(20.0)
    result = runner(backend).measure(point(state=State.SUSTAINED))
    assert (result.status, result.series.median_us, result.series.joules) == ("ok", 20.0, 0.5)
    whole = [event.what for event in backend.events if event.whole]
    assert whole[0] == "run"
    assert whole[-1] == "sustain"
    assert "sample" not in whole


def test_a_kernel_that_goes_wrong_only_in_a_long_run_is_seen() -> None:
    backend = FakeBackend()
    late: list[bool] = []

    def product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        matmul(a, b, c)
        if any(event.what == "sustain" for event in backend.events):
            late.append(True)
            c[0, 0] += 1

    result = runner(backend).measure(point(variant(product), state=State.SUSTAINED))
    assert late
    assert result.status == Status.WRONG


def test_a_cache_that_must_be_flushed_leaves_no_sustained_point() -> None:
    class Flushing(FakeBackend):
        def load(self, *arguments: Any, **facts: Any) -> Any:
            operands = super().load(*arguments, **facts)
            return replace(operands, policy=replace(operands.policy, flush=True))

    result = runner(Flushing()).measure(point(state=State.SUSTAINED))
    assert (result.status, result.reason) == (
        Status.SKIPPED, "flushing the cache would let the GPU cool: use --cache hot",
    )  # fmt: skip


def test_launches_waited_for_have_the_hosts_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = replace(point(variant(path=Path("theirs.py"))), timer=Timer.EVENTS)
    limits: list[bool] = []
    monkeypatch.setattr(
        "gpubench.engine.measure.trials.require_independent",
        lambda *_, by_events, **_others: limits.append(by_events),
    )
    for launches in (Launches.ALONE, Launches.WAITED):
        runner(FakeBackend()).measure(replace(theirs, launches=launches))
    assert limits == [True, False]
