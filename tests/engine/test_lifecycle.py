"""The stages of a sweep, from plan to file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from typing import Any

import pytest
from fakes import COPY_GBYTES_PER_S, CPU, Diary, FakeBackend, FakeKernel, matmul, run_sweep, variant

from gpubench.engine import run as run_module
from gpubench.engine.measure.runner import Runner
from gpubench.engine.pool import Watcher
from gpubench.errors import LaunchError, UsageError
from gpubench.model import CORE_DTYPES, CudaVariant, Fill, Measurement, Point, Status, Timing
from gpubench.plan import sweep as plan
from gpubench.plan.schedule import Visit
from gpubench.plan.sweep import Sweep
from gpubench.results import provenance
from gpubench.results import row as table
from gpubench.results.provenance import source_hash
from gpubench.results.result_file import ResultFile, default_path, read_context

SIZES = ((8, 8, 8), (16, 16, 16), (24, 24, 24))


@pytest.fixture
def one_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sweeps use the fake variant, whatever packages are installed."""
    only = variant(matmul, "fake", baseline="fake", dtypes=CORE_DTYPES)
    monkeypatch.setattr(plan, "choose", lambda *_: (only,))


def asked(**facts: Any) -> Sweep:
    return Sweep(
        **{"sizes": SIZES, "device": "cpu", "timing": Timing(rounds=3, max_wall_s=600.0)} | facts
    )


@pytest.mark.usefixtures("one_variant")
def test_every_round_visits_every_point_once_in_an_order_that_the_seed_decides() -> None:
    orders = []
    for seed in (1, 1, 2):
        diary, sizes = Diary(), tuple((n, n, n) for n in range(1, 13))
        run_sweep(asked(sizes=sizes, seed=seed), Runner(FakeBackend()), diary, None)
        orders.append([visit.point for visit in diary.visits])
    assert diary.totals == (12, 36)
    names = ["round 1/3", "round 2/3", "round 3/3"]
    rounds = [[visit.point for visit in diary.visits if visit.name == name] for name in names]
    assert [len(points) for points in rounds] == [12, 12, 12]
    assert len(set(map(frozenset, rounds))) == 1
    assert len(set(map(tuple, rounds))) == 3
    assert [visit.name for visit in diary.visits] == [name for name in names for _ in range(12)]
    assert [at for at, visit in enumerate(diary.visits) if visit.fresh] == [12, 24]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.usefixtures("one_variant")
def test_every_row_is_on_disk_before_the_next_point_is_measured(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "a.csv")
    lines_before: list[int] = []

    class Reader(Watcher):
        def measuring(self, visit: Visit) -> None:
            assert visit.left_s >= 0
            lines_before.append(len((tmp_path / "a.csv.partial").read_text().splitlines()) - 1)

    outcome = run_sweep(asked(), Runner(FakeBackend()), Reader(), file)
    assert lines_before == list(range(9))
    assert outcome.path == tmp_path / "a.csv"
    assert table.read(outcome.path) == outcome.rows
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


class FailingAt16(FakeBackend):
    def run(self, kernel: FakeKernel, launches: int = 1) -> None:
        if kernel.rows == 16:
            raise LaunchError("an illegal memory access was encountered")
        super().run(kernel, launches)


@pytest.mark.usefixtures("one_variant")
def test_a_point_that_failed_is_not_tried_again_and_other_points_continue(tmp_path: Path) -> None:
    diary = Diary()
    outcome = run_sweep(asked(), Runner(FailingAt16()), diary, ResultFile(tmp_path / "a.csv"))
    assert Counter(visit.point.label for visit in diary.visits) == {
        "fake at 8 float32": 3,
        "fake at 16 float32": 1,
        "fake at 24 float32": 3,
    }
    assert [each.status for each in outcome.rows] == ["ok", "error", "ok"]
    assert outcome.rows[1].reason == "an illegal memory access was encountered"
    assert outcome.rows[1].median_us is None
    assert outcome.failed
    assert table.read(tmp_path / "a.csv") == outcome.rows


@pytest.mark.usefixtures("one_variant")
def test_an_unexpected_error_keeps_the_measurements(tmp_path: Path) -> None:
    backend = FakeBackend([10.0] * 1000)  # then the script of times ends, which is an error
    with pytest.raises(StopIteration):
        run_sweep(asked(), Runner(backend), None, ResultFile(tmp_path / "a.csv"))
    assert table.read(tmp_path / "a.csv")
    assert read_context(tmp_path / "a.csv")["options"] == {}  # the file can be continued


@pytest.mark.usefixtures("one_variant")
def test_a_file_that_exists_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("precious")
    backend = FakeBackend()
    with pytest.raises(UsageError, match="exists"):
        run_sweep(asked(), Runner(backend), None, ResultFile(tmp_path / "a.csv"))
    assert backend.events == []
    assert (tmp_path / "a.csv").read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_skip_of_the_plan_is_a_row_with_its_reason() -> None:
    outcome = run_sweep(
        asked(variants=("cpu_naive", "cpu_blas"), dtypes=("int32",), sizes=((8, 8, 8),)),
        Runner(FakeBackend()),
    )
    assert [(each.variant, each.status) for each in outcome.rows] == [
        ("cpu_naive", "ok"),
        ("cpu_blas", "skipped"),
    ]
    assert "has no int32" in outcome.rows[1].reason
    assert not outcome.failed


@pytest.mark.usefixtures("one_variant")
def test_kernels_are_compiled_and_the_device_warmed_up_before_the_first_point() -> None:
    backend = FakeBackend()
    outcome = run_sweep(asked(), Runner(backend))
    what = [event.what for event in backend.events]
    assert sorted(what[:2]) == ["compile", "load"]  # it loads operands of a small result
    assert what[2:5] == ["warm up", "copy", "load"]
    assert {"compiling", "warming up", "sampling"} <= set(outcome.spent_s)


@pytest.mark.usefixtures("one_variant")
def test_a_spent_budget_ends_with_the_fewest_samples_everywhere() -> None:
    noisy = [10.0, 30.0, 90.0] * 30_000
    free = run_sweep(asked(), Runner(FakeBackend(noisy)))
    tight = asked(timing=Timing(rounds=3, budget_s=1e-9))
    outcome = run_sweep(tight, Runner(FakeBackend(noisy)))
    assert [each.samples for each in outcome.rows] == [12, 12, 12]
    assert min(each.samples for each in free.rows) > 18


def test_a_wrong_point_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = variant(lambda _a, _b, _c: None, "lazy")
    monkeypatch.setattr(plan, "choose", lambda *_: (lazy,))
    outcome = run_sweep(asked(), Runner(FakeBackend()))
    assert {each.status for each in outcome.rows} == {Status.WRONG}
    assert {each.gflops for each in outcome.rows} == {None}
    assert outcome.failed


def test_the_default_file_names_time_device_and_operation_and_two_of_a_second_differ() -> None:
    path, other = (default_path("NVIDIA H200 (rev. 2)/" + "x" * 100, "gemm.csv") for _ in "ab")
    assert path != other
    assert path.parent == Path("results")
    stamp, device = path.stem.split("-", 1)
    assert len(stamp) == len("20250101T000000.000000Z")
    assert device.startswith("nvidia-h200-rev-2-x")
    assert device.endswith("x-gemm")
    assert len(path.name) < 100


def test_a_source_hash_changes_with_either_file(tmp_path: Path) -> None:
    def hash_of(py: str, cu: str) -> str:
        (tmp_path / "mine.py").write_text(py)
        (tmp_path / "mine.cu").write_text(cu)
        mine = {"kernel": "mine", "grid": 1, "block": 1, "path": tmp_path / "mine.py"}
        return source_hash(CudaVariant(idea="", **mine))

    hashes = {hash_of("a", "b"), hash_of("A", "b"), hash_of("a", "B")}
    assert len(hashes) == 3
    assert hash_of("a", "b") == hash_of("a", "b")
    assert {len(digits) for digits in hashes} == {12}


def test_a_source_hash_changes_with_a_librarys_version(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.9", "cupy-cuda13x": "14.0"}
    monkeypatch.setattr(provenance, "version", versions.get)
    distributions = {"torch": ["torch"], "cupy": ["cupy-cuda13x"]}
    monkeypatch.setattr(provenance, "packages_distributions", lambda: distributions)
    chosen = ((), ("torch",), ("cupy",), ("torch", "cupy"), ("nowhere",))
    before = [source_hash(variant(libraries=libraries)) for libraries in chosen]
    assert len(set(before)) == len(chosen)
    versions |= {"torch": "2.10", "cupy-cuda13x": "14.1"}
    after = [source_hash(variant(libraries=libraries)) for libraries in chosen]
    assert [new != old for new, old in zip(after, before, strict=True)] == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_a_source_hash_does_not_depend_on_the_order_of_installed_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = {"cuda-bindings": "13.0", "cuda-pathfinder": "1.3"}
    monkeypatch.setattr(provenance, "version", versions.get)
    hashes = set()
    for names in ([*versions], [*versions][::-1]):
        monkeypatch.setattr(
            provenance, "packages_distributions", lambda names=names: {"cuda": names}
        )
        hashes.add(source_hash(variant(libraries=("cuda",))))
    assert len(hashes) == 1


def test_a_commit_is_unknown_if_git_is_too_slow_to_show_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(command: Sequence[str], limit_s: float) -> CompletedProcess[bytes]:
        if "status" in command:
            raise TimeoutExpired(command, limit_s)
        return CompletedProcess(command, 0, b"abc\n", b"")

    monkeypatch.setattr(provenance, "run_program", run)
    assert provenance.package_version.__wrapped__()[1] is None


def test_operands_have_the_sweeps_seed_and_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def remember(_problem: object, seed: int, fill: Fill) -> object:
        drawn.append((seed, fill))
        raise KeyboardInterrupt

    monkeypatch.setattr("gpubench.engine.operands.cache.make_inputs", remember)
    sweep = asked(variants=("cpu_blas",), seed=77, operands=(Fill.INDEX,))
    run_sweep(sweep, Runner(FakeBackend()))
    assert drawn == [(77, Fill.INDEX)]


# ---- resuming


class InterruptedAfter(Runner):
    """Raises Ctrl-C after this number of points."""

    def __init__(self, count: int) -> None:
        super().__init__(FakeBackend(10.0))
        self._left = count
        self.measured: list[str] = []

    def measure(self, point: Point, wall_limit_s: float | None = None) -> Measurement:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        self.measured.append(point.label)
        # A fake takes less than a millisecond, the resolution of its start, and its times are
        # constant. Two rounds would therefore be the same line, unlike those of a real kernel.
        start = f"2026-01-01T00:00:00.{self._left:03}+00:00"
        return replace(super().measure(point, wall_limit_s), started_utc=start)


@pytest.mark.usefixtures("one_variant")
@pytest.mark.parametrize("first", [0, 4, 8])
def test_a_sweep_resumed_anywhere_measures_the_rest_and_no_more(tmp_path: Path, first: int) -> None:
    path = tmp_path / "a.csv"
    begun = InterruptedAfter(first)
    assert run_sweep(asked(), begun, None, ResultFile(path)).interrupted
    rest = InterruptedAfter(99)
    resumed = run_sweep(asked(), rest, None, ResultFile(path, resume=True))
    uninterrupted = InterruptedAfter(99)
    whole = run_sweep(asked(), uninterrupted)
    assert begun.measured + rest.measured == uninterrupted.measured  # in the same order
    timeless = [replace(each, started_utc=None) for each in resumed.rows]
    assert timeless == [replace(each, started_utc=None) for each in whole.rows]
    assert table.read(path) == resumed.rows
    assert [left.name for left in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.usefixtures("one_variant")
def test_ctrl_c_after_the_last_visit_keeps_the_rows_for_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, path = [KeyboardInterrupt], tmp_path / "a.csv"

    def rows(*facts: Any) -> list[table.Row]:
        if built:
            raise built.pop()
        return original(*facts)

    original = run_module._rows
    monkeypatch.setattr(run_module, "_rows", rows)
    outcome = run_sweep(asked(), InterruptedAfter(99), None, ResultFile(path))
    assert outcome.interrupted
    assert table.read(path) == outcome.rows
    rest = InterruptedAfter(99)
    assert run_sweep(asked(), rest, None, ResultFile(path, resume=True)).rows == outcome.rows
    assert not rest.measured


def test_a_sweep_with_a_skip_is_resumed_over_its_own_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    both = asked(variants=("cpu_naive", "cpu_blas"), dtypes=("int32",), sizes=((8, 8, 8),))
    assert run_sweep(both, InterruptedAfter(1), None, ResultFile(path)).interrupted
    resumed = run_sweep(both, InterruptedAfter(99), None, ResultFile(path, resume=True))
    assert [each.status for each in resumed.rows] == ["ok", "skipped"]


@pytest.mark.usefixtures("one_variant")
def test_a_point_that_failed_is_not_tried_again_by_a_resumed_sweep(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"

    class Interrupted(Runner):
        def measure(self, point: Point, wall_limit_s: float | None = None) -> Measurement:
            result = super().measure(point, wall_limit_s)
            if result.status == Status.ERROR:
                self.failed = True
            elif getattr(self, "failed", False):
                raise KeyboardInterrupt
            return result

    assert run_sweep(asked(), Interrupted(FailingAt16()), None, ResultFile(path)).interrupted
    rest = InterruptedAfter(99)
    outcome = run_sweep(asked(), rest, None, ResultFile(path, resume=True))
    assert "fake at 16 float32" not in rest.measured
    assert [each.status for each in outcome.rows] == ["ok", "error", "ok"]


@pytest.mark.parametrize(("op", "copies"), [("gemv", 1), ("gemm", 0)])
def test_a_copy_is_measured_once(monkeypatch: pytest.MonkeyPatch, op: str, copies: int) -> None:
    only = variant(matmul, "fake", op=op, dtypes=CORE_DTYPES)
    monkeypatch.setattr(plan, "choose", lambda *_: (only,))
    backend = FakeBackend(2.0, device=replace(CPU, compute_capability=(9, 0)))
    k = 8 if op == "gemm" else 1
    rows = run_sweep(asked(op=op, sizes=((8, 8, k), (9, 9, k))), Runner(backend)).rows
    assert len([event for event in backend.events if event.what == "copy"]) == copies
    expected = [4 * (n * n + 2 * n) / 2.0 / 1e3 for n in (8, 9)]
    if copies:
        assert [each.gbytes_per_s for each in rows] == pytest.approx(expected)
        shares = [100 * rate / COPY_GBYTES_PER_S for rate in expected]
        assert [each.percent_of_copy for each in rows] == pytest.approx(shares)
    else:
        assert [each.percent_of_copy for each in rows] == [None, None]


@pytest.mark.usefixtures("one_variant")
def test_a_cpu_has_the_measured_rates_as_its_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        FakeBackend,
        "ceilings",
        lambda _self, dtypes, **_kept: {f"measured_{dtype}_fma_gflops": 4.0 for dtype in dtypes},
    )
    (row,) = run_sweep(asked(sizes=((8, 8, 8),)), Runner(FakeBackend(1.0))).rows
    assert row.gflops == pytest.approx(2 * 8**3 / 1e3)
    assert row.percent_of_peak == pytest.approx(100 * row.gflops / 4.0)
