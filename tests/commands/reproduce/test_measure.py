"""An experiment's sweeps, run one after the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import CPU, Event, FakeBackend, FakeKernel

from gpubench.backends.rotation import OperandSets
from gpubench.commands.reproduce.compare import Reproduction
from gpubench.commands.reproduce.experiment import read_experiment
from gpubench.commands.reproduce.run import LoopCache, reproduce, with_pace
from gpubench.engine.pool import LocalPool, Watcher
from gpubench.engine.runner import Runner
from gpubench.model import Device, Point
from gpubench.results import row as table
from gpubench.results.output import Output

GPU = Device(backend="cuda", name="Fake GPU", compute_capability=(9, 0), multiprocessors=2)

TEXT = """
title = "Loops"
source = "here"

[[sweep]]
device = "cpu"
variants = ["cpu_blas", "cpu_blas_parallel"]
sizes = [8, 16]

[[sweep]]
device = "cpu"
remember = true
variants = ["cpu_naive"]
sizes = [8, 16]

[[sweep]]
device = "cuda"
variants = ["naive", "shared_tile"]
sizes = [8]
tiles = [4]

[[sweep]]
device = "cpu"
when = "without-gpu"
variants = ["cpu_tile"]
sizes = [8]
tiles = [4]
"""


class FakeGpu(FakeBackend):
    """Runs any variant as NumPy's product."""

    def bind(self, of: Point, operands: OperandSets, rows: int | None = None) -> FakeKernel:
        return FakeKernel(
            backend=self,
            point=of,
            call=lambda a, b, c: np.matmul(a, b, out=c),
            operands=operands,
            rows=of.problem.m if rows is None else rows,
            max_launches=8,
        )


def ran(
    folder: Path,
    *,
    gpu: bool = False,
    rounds: int | None = None,
    budget_s: float | None = None,
    **backends: Any,
) -> Any:
    path = folder / "mine.toml"
    path.write_text(TEXT)
    out = folder / "out"
    out.mkdir(exist_ok=True)
    messages: list[str] = []
    given = {"cpu": FakeBackend(), **({"cuda": FakeGpu(device=GPU)} if gpu else {})} | backends
    executors = {name: LocalPool(Runner(backend)) for name, backend in given.items()}
    done = reproduce(
        *(
            read_experiment(path),
            executors,
            Watcher(),
            Output(out / "mine.csv", overwrite=True),
            messages.append,
        ),
        LoopCache(folder=folder / "loops", numba="1.0"),
        rounds=rounds,
        budget_s=budget_s,
        force=True,
    )
    return done, messages, given


def variants_of(done: Reproduction) -> list[tuple[str, str]]:
    return [(one.variant, one.size) for one in done.rows]


BLAS = [("cpu_blas", "8"), ("cpu_blas_parallel", "8"), ("cpu_blas", "16")]
BLAS += [("cpu_blas_parallel", "16")]
LOOPS = [("cpu_naive", "8"), ("cpu_naive", "16")]


@pytest.mark.slow
def test_without_a_gpu_the_cpus_sweeps_run_and_what_stands_in_for_it(tmp_path: Path) -> None:
    done, messages, _ = ran(tmp_path)
    assert variants_of(done) == [*BLAS, *LOOPS, ("cpu_tile", "8")]
    assert not done.interrupted
    assert not done.failed
    assert [one.name for one in done.devices] == [CPU.name]
    assert messages[0] == "mine, sweep 1 of 3: cpu_blas, cpu_blas_parallel (gemm, float32)"


def test_with_a_gpu_its_sweeps_run_on_it_and_nothing_stands_in(tmp_path: Path) -> None:
    done, _, backends = ran(tmp_path, gpu=True)
    assert variants_of(done) == [*BLAS, *LOOPS, ("naive", "8"), ("shared_tile", "8")]
    assert {one.variant for one in done.rows if one.device == GPU.name} == {"naive", "shared_tile"}
    assert [one.name for one in done.devices] == [CPU.name, GPU.name]
    assert {e.point.variant.name for e in backends["cuda"].events if e.point} == {
        "naive",
        "shared_tile",
    }


def test_all_rows_are_in_one_file_at_the_end_and_what_a_sweep_measured_beside_it(
    tmp_path: Path,
) -> None:
    done, _, _ = ran(tmp_path)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("mine.csv", *(f"mine.sweep-{number}.csv.partial" for number in (1, 2, 3))),
    ]
    assert table.read(tmp_path / "out" / "mine.csv") == done.rows


def test_slow_loops_are_measured_once_on_a_machine(tmp_path: Path) -> None:
    first, messages, _ = ran(tmp_path)
    assert any("slow loops" in line for line in messages)
    again, messages, backends = ran(tmp_path, cpu=FakeBackend(77.0))
    assert any("measured on this machine before" in line for line in messages)
    assert {e.point.variant.name for e in backends["cpu"].events if e.point} == {
        "cpu_blas",
        "cpu_blas_parallel",
        "cpu_tile",
    }
    assert variants_of(again) == variants_of(first)
    loops = [one for one in first.rows if one.variant == "cpu_naive"]
    assert [one for one in again.rows if one.variant == "cpu_naive"] == loops


def test_only_the_sizes_that_are_missing_are_measured(tmp_path: Path) -> None:
    first, _, _ = ran(tmp_path)
    kept = {table.read(path)[0].size: path for path in (tmp_path / "loops").iterdir()}
    kept["8"].unlink()
    again, _, _ = ran(tmp_path, cpu=FakeBackend(77.0))
    times = {one.size: one.median_us for one in again.rows if one.variant == "cpu_naive"}
    assert times == {"16": 10.0, "8": 77.0}
    assert len(again.rows) == len(first.rows)


def test_another_cpu_measures_for_itself(tmp_path: Path) -> None:
    ran(tmp_path)
    other = FakeBackend(77.0, device=replace(CPU, name="Other CPU"))
    done, _, _ = ran(tmp_path, cpu=other)
    assert {one.median_us for one in done.rows} == {77.0}


def test_a_slow_loop_is_launched_three_times_and_the_verified_launch_is_one(tmp_path: Path) -> None:
    class Slow(FakeBackend):
        """The verified launch is a sample, as on a real CPU."""

        def run(self, kernel: FakeKernel, launches: int = 1) -> float:  # type: ignore[override]
            super().run(kernel, launches)
            return 2e6

    _, _, backends = ran(tmp_path, cpu=Slow(2e6))

    def launches(name: str) -> list[Event]:
        return [
            event
            for what in ("run", "sample")
            for event in backends["cpu"].events_of(what)
            if event.point and event.point.variant.name == name and event.point.problem.m == 16
        ]

    assert [event.what for event in launches("cpu_naive")] == ["run", "sample", "sample"]


def test_a_loop_whose_rounds_disagree_is_measured_again_next_time(tmp_path: Path) -> None:
    class Disturbed(FakeBackend):
        """From launch to launch twice as slow."""

        def sample(self, kernel: FakeKernel, launches: int, count: int) -> list[float]:
            loops = [e for e in self.events_of("sample") if e.point == kernel.point]
            factor = 2.0 ** (len(loops) // 3)
            return [factor * time_us for time_us in super().sample(kernel, launches, count)]

    first, _, _ = ran(tmp_path, cpu=Disturbed())
    assert all(one.unstable for one in first.rows if one.variant == "cpu_naive")
    again, messages, _ = ran(tmp_path)
    assert not any("measured on this machine before" in line for line in messages)
    assert {one.median_us for one in again.rows if one.variant == "cpu_naive"} == {10.0}


def test_rounds_and_budget_are_passed_on(tmp_path: Path) -> None:
    done, _, _ = ran(tmp_path, rounds=2, budget_s=60)
    rounds = {one.variant: one.rounds for one in done.rows}
    assert rounds == {"cpu_blas": 2, "cpu_blas_parallel": 2, "cpu_naive": 3, "cpu_tile": 2}


def test_a_budget_is_divided_by_points(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TEXT)
    todo = read_experiment(tmp_path / "mine.toml").sweeps_for(gpu=False)
    paced = with_pace([sweep for sweep, _ in todo], None, 70)
    budgets = [(sweep.variants[0], sweep.timing.budget_s) for sweep in paced]
    assert budgets == [("cpu_blas", 40), ("cpu_naive", 20), ("cpu_tile", 10)]


def test_ctrl_c_ends_the_experiment_and_keeps_what_was_measured(tmp_path: Path) -> None:
    def press() -> None:
        raise KeyboardInterrupt

    backend = FakeGpu(device=GPU)
    backend.at_sampling = press
    done, _, _ = ran(tmp_path, gpu=True, cuda=backend)
    assert done.interrupted
    assert variants_of(done) == [*BLAS, *LOOPS]
    assert table.read(tmp_path / "out" / "mine.csv") == done.rows


def test_a_wrong_kernel_fails_the_experiment_and_is_not_remembered(tmp_path: Path) -> None:
    class Wrong(FakeBackend):
        def run(self, kernel: FakeKernel, _launches: int = 1) -> None:
            self.events.append(Event("run", kernel.point, kernel.rows))

    done, _, _ = ran(tmp_path, cpu=Wrong())
    assert done.failed
    assert {one.status for one in done.rows} == {"wrong"}
    assert list((tmp_path / "loops").glob("*")) == []
