"""The sweeps of an experiment run one after another."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import CPU, FAKE, Event, FakeBackend, FakeKernel

from gpubench.backends.rotation import OperandSets
from gpubench.commands.reproduce.compare import Reproduction
from gpubench.commands.reproduce.experiment import read_experiment
from gpubench.commands.reproduce.run import reproduce
from gpubench.engine.measure.runner import Runner
from gpubench.engine.pool import LocalPool, Watcher
from gpubench.model import Device, Point
from gpubench.options import read_sweep

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
rounds = 3
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


class Fake(FakeBackend):
    """A backend that runs any variant as NumPy's product."""

    def bind(
        self, asked_point: Point, operands: OperandSets, rows: int | None = None
    ) -> FakeKernel:
        as_numpy = replace(asked_point, variant=replace(FAKE, name=asked_point.variant.name))
        return replace(super().bind(as_numpy, operands, rows), point=asked_point)


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def loops(folder: Path) -> list[Path]:
    """Return the files of slow loops in the cache."""
    return list((folder / "cache" / "gpubench" / "loops").glob("*"))


def ran(folder: Path, *, gpu: bool = False, **options: Any) -> Any:
    """Run the experiment on fake backends. Further arguments are options of the command."""
    path = folder / "mine.toml"
    path.write_text(TEXT)
    backends: dict[str, Any] = {"cpu": options.pop("cpu", Fake())}
    if gpu:
        backends["cuda"] = options.pop("cuda", Fake(device=GPU))
    pools = {name: LocalPool(Runner(backend)) for name, backend in backends.items()}
    (folder / "out").mkdir(exist_ok=True)
    asked = read_sweep(options)
    done = reproduce(read_experiment(path), pools, folder / "out", asked, Watcher(), force=True)
    return done, backends


def variants_of(done: Reproduction) -> list[tuple[str, str]]:
    return [(row.variant, row.size) for row in done.rows]


BLAS = [("cpu_blas", "8"), ("cpu_blas_parallel", "8"), ("cpu_blas", "16")]
BLAS += [("cpu_blas_parallel", "16")]
LOOPS = [("cpu_naive", "8"), ("cpu_naive", "16")]


def test_with_a_gpu_its_sweeps_run_on_it_and_nothing_stands_in(tmp_path: Path) -> None:
    done, backends = ran(tmp_path, gpu=True)
    assert variants_of(done) == [*BLAS, *LOOPS, ("naive", "8"), ("shared_tile", "8")]
    assert {row.variant for row in done.rows if row.device == GPU.name} == {"naive", "shared_tile"}
    assert [device.name for device in done.devices] == [CPU.name, GPU.name]
    names = {event.point.variant.name for event in backends["cuda"].events if event.point}
    assert names == {"naive", "shared_tile"}


def test_slow_loops_are_measured_once_on_a_machine_unless_the_file_is_damaged(
    tmp_path: Path,
) -> None:
    first, _ = ran(tmp_path)
    again, backends = ran(tmp_path, cpu=Fake(77.0))
    assert "cpu_naive" not in {e.point.variant.name for e in backends["cpu"].events if e.point}
    assert variants_of(again) == variants_of(first)
    kept = [row for row in first.rows if row.variant == "cpu_naive"]
    assert [row for row in again.rows if row.variant == "cpu_naive"] == kept
    (path,) = loops(tmp_path)
    for text in ("nonsense", "op,variant\ngemm,naive\n"):
        path.write_text(text)
        done, _ = ran(tmp_path, cpu=Fake(77.0))
        assert {row.median_us for row in done.rows} == {77.0}
    other, _ = ran(tmp_path, cpu=Fake(88.0, device=replace(CPU, name="Other CPU")))
    assert {row.median_us for row in other.rows} == {88.0}


def test_a_loop_whose_rounds_disagree_is_measured_again_next_time(tmp_path: Path) -> None:
    class Disturbed(Fake):
        """A backend on which each launch takes twice as long as the previous launch."""

        def sample(self, kernel: FakeKernel, launches: int, count: int) -> list[float]:
            samples = [e for e in self.events_of("sample") if e.point == kernel.point]
            factor = 2.0 ** (len(samples) // 3)
            return [factor * time_us for time_us in super().sample(kernel, launches, count)]

    first, _ = ran(tmp_path, cpu=Disturbed())
    assert all(row.unstable for row in first.rows if row.variant == "cpu_naive")
    again, _ = ran(tmp_path)
    assert {row.median_us for row in again.rows if row.variant == "cpu_naive"} == {10.0}


def test_rounds_are_passed_on_and_a_budget_is_divided_by_points(tmp_path: Path) -> None:
    done, _ = ran(tmp_path, rounds=2, budget=70)
    budgets = {row.variant: row.options.split("--budget ")[-1] for row in done.rows}
    assert (budgets["cpu_blas"], budgets["cpu_tile"]) == ("40", "10")
    rounds = {row.variant: row.rounds for row in done.rows}
    assert rounds == {"cpu_blas": 2, "cpu_blas_parallel": 2, "cpu_naive": 3, "cpu_tile": 2}


def test_ctrl_c_ends_the_experiment_and_keeps_what_was_measured(tmp_path: Path) -> None:
    def press() -> None:
        raise KeyboardInterrupt

    backend = Fake(device=GPU)
    backend.at_sampling = press
    done, _ = ran(tmp_path, gpu=True, cuda=backend)
    assert done.interrupted
    assert variants_of(done) == [*BLAS, *LOOPS]


def test_a_wrong_kernel_fails_the_experiment_and_is_not_remembered(tmp_path: Path) -> None:
    class Wrong(Fake):
        def run(self, kernel: FakeKernel, _launches: int = 1) -> None:
            self.events.append(Event("run", kernel.point, kernel.rows))

    done, _ = ran(tmp_path, cpu=Wrong())
    assert done.failed
    assert {row.status for row in done.rows} == {"wrong"}
    assert loops(tmp_path) == []
