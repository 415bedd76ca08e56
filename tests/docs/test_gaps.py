"""`benchmarks/gaps.py` on a fake GPU: each experiment runs, and a failed experiment is recorded."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from newcomer import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))
import gaps

GAP_US, OVERHEAD_US, EXECUTION_US = 1.0, 2.5, 10.0


class FakeStream:
    """A device whose launches take `EXECUTION_US`, with a gap after each."""

    def __init__(self) -> None:
        self.now_us, self.records = 0.0, []
        self.launch_empty = self.launch

    def launch(self) -> None:
        start = round(self.now_us * 1e3)
        record = {"kind": "CONCURRENT_KERNEL", "name": "fake", "start": start}
        self.records.append({**record, "end": start + round(EXECUTION_US * 1e3)})
        self.now_us += EXECUTION_US + GAP_US

    def block(self, microseconds: float) -> None:
        self.now_us += microseconds

    def record_start(self) -> Any:
        return SimpleNamespace(at_us=self.now_us, done=False)

    def record_stop(self) -> Any:
        return SimpleNamespace(at_us=self.now_us + OVERHEAD_US)

    def elapsed_us(self, start: Any, stop: Any) -> float:
        return float(stop.at_us - start.at_us)

    def clock_mhz(self, _start: Any, _stop: Any) -> float:
        return 1980.0

    def synchronize(self) -> None:
        """Everything has run already."""


class FakeBench:
    def __init__(self, *, warm: bool = True) -> None:
        self.stream = FakeStream()
        STREAMS.append(self.stream)
        self.multiprocessors, self.architecture, self.warm = 4, "sm_90", warm
        timers = SimpleNamespace(
            flush=lambda: None,
            allocate_flush_buffer=lambda: None,
            events=SimpleNamespace(overhead_us=OVERHEAD_US),
        )
        device = SimpleNamespace(sm_clock_mhz=1980.0)
        self.backend = SimpleNamespace(timers=timers, warm_up=lambda: None, device=device)

    def product(self, *_case: object) -> gaps.Call:
        return self.stream.launch

    def kernel(self, *_arguments: object) -> gaps.Call:
        return self.stream.launch


STREAMS: list[FakeStream] = []


class FakeActivities:
    def __init__(self, *_kinds: str) -> None:
        self.take()

    def disable(self) -> None:
        """Record nothing."""

    def take(self) -> list[dict[str, Any]]:
        taken = sorted(STREAMS[-1].records, key=lambda one: one["start"])
        STREAMS[-1].records = []
        return [dict(one) for one in taken]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    class Array(np.ndarray):
        data = SimpleNamespace(ptr=0)

        def get(self) -> np.ndarray:
            return np.asarray(self)

    def array(shape: Any, *_dtype: object) -> Any:
        return np.zeros(shape, np.int32).view(Array)

    runtime = SimpleNamespace(profilerStart=lambda: None, profilerStop=lambda: None)
    cupy = SimpleNamespace(
        zeros=array,
        ones=lambda *_: array(1),
        asarray=lambda values: array(values.shape),
        cuda=SimpleNamespace(runtime=runtime),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(gaps, "Bench", FakeBench)
    monkeypatch.setattr(gaps, "Activities", FakeActivities)
    monkeypatch.setattr(gaps, "sleep", lambda _s: None)
    monkeypatch.setattr(gaps, "hold_half", lambda: None)
    monkeypatch.setattr(gaps, "polling", nullcontext)
    monkeypatch.setattr(gaps, "neighbours", nullcontext)


ON_A_FAKE = [
    name
    for name, experiment in gaps.EXPERIMENTS.items()
    if experiment not in gaps.HERE and name != "overhead_by_parts"
]


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("name", ON_A_FAKE)
def test_an_experiment_gives_findings_that_json_can_hold(name: str) -> None:
    findings = list(gaps.EXPERIMENTS[name]())
    assert findings
    assert json.loads(json.dumps(findings))
    assert not [finding for finding in findings if "error" in finding]


@pytest.mark.usefixtures("fake")
def test_gaps_and_overhead_are_what_the_device_has() -> None:
    (finding, *_) = gaps.gap_by_kernel()
    assert finding["gap_us"] == finding["pause_us"] == GAP_US
    assert finding["execution_us"] == EXECUTION_US
    (finding, *_) = gaps.overhead_by_state()
    assert finding["overhead_us"] == OVERHEAD_US
    assert finding["empty_launch_us"] == pytest.approx(EXECUTION_US + GAP_US, abs=0.1)


def test_a_sample_that_the_device_overtook_is_taken_again_behind_a_longer_block() -> None:
    blocked: list[float] = []

    class Slow(FakeStream):
        def block(self, microseconds: float) -> None:
            blocked.append(microseconds)

        def record_start(self) -> Any:
            return SimpleNamespace(at_us=self.now_us, done=blocked[-1] < 300)

    stream = Slow()
    finding = gaps.totals(stream, stream.launch, 2, samples=2, block_us=100)
    assert finding["total_us"] == 2 * (EXECUTION_US + GAP_US) + OVERHEAD_US
    assert blocked == [100, 200, 400, 400]
    with pytest.raises(RuntimeError, match="long enough"):
        gaps.totals(stream, stream.launch, 2, samples=1, block_us=1)


def test_other_processes_run_only_inside_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps.os, "cpu_count", lambda: 2)
    started: list[Any] = []
    popen = gaps.subprocess.Popen

    def start(*words: Any, **options: Any) -> Any:
        started.append(popen(*words, **options))
        return started[-1]

    monkeypatch.setattr(gaps.subprocess, "Popen", start)
    with gaps.neighbours("processes that copy on all CPUs"):
        assert [process.poll() for process in started] == [None, None]
    assert all(process.poll() for process in started)
    monkeypatch.setitem(gaps.NEIGHBOURS, "a process with an idle context", "import no_such_module")
    with pytest.raises(RuntimeError), gaps.neighbours("a process with an idle context"):
        pass


def test_values_of_ncu_have_their_unit_and_no_separators() -> None:
    text = (
        '==PROF== x\n"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n'
        '"0","k","390,100"\n"1","k","390,200"\n'
    )
    values = gaps.ncu_values(text, ("gpu__time_duration.sum", "missing.sum"))
    assert values == {"gpu__time_duration.sum (ns)": [390_100.0, 390_200.0]}
    assert gaps.ncu_values("==ERROR== no", ("gpu__time_duration.sum",)) == {}


def test_an_experiment_that_fails_keeps_its_findings_and_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks() -> Iterator[gaps.Finding]:
        yield {"us": 1.0}
        raise RuntimeError("no GPU")

    def works() -> Iterator[gaps.Finding]:
        yield {"us": 2.0}

    monkeypatch.setattr(gaps, "QUESTIONS", {"overhead": (breaks, works)})
    monkeypatch.setattr(gaps, "HERE", (breaks, works))
    path = tmp_path / "gaps" / "a.json"
    monkeypatch.setattr(sys, "argv", ["gaps.py", "overhead", "-o", str(path)])
    assert gaps.main() == 0
    assert json.loads(path.read_text()) == [
        {"experiment": "breaks", "us": 1.0},
        {"experiment": "breaks", "error": "RuntimeError: no GPU"},
        {"experiment": "works", "us": 2.0},
    ]


def test_an_experiment_in_its_own_process_reports_why_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (finding,) = gaps.answers_of("cublas_calls")
    assert finding["error"].startswith("exit status 1: ")
