"""Functions of users run in their own process; another process judges them and notes faults."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import CPU, measurement, point, variant

from gpubench.engine.judge.verdict import WrongError, as_judged
from gpubench.engine.measure.examiner import Examiner
from gpubench.engine.outside import examination
from gpubench.engine.outside.examination import Examination
from gpubench.engine.worker import Worker
from gpubench.errors import ChildLostError
from gpubench.model import Cache, Measurement, Point, Status, Timer, Timing
from gpubench.plan.descriptor import load
from gpubench.plan.registry import of_op
from gpubench.plan.schedule import InRounds, Rounds
from gpubench.plan.scrutiny import owner_of
from gpubench.results.rows import build_rows

QUICK = Timing(rounds=1, min_samples=6, min_device_s=0.0, max_wall_s=0.1, point_limit_s=300)

LIVING = SimpleNamespace(pid=0)

SOURCE = """
import os, signal, traceback
import numpy as np
from gpubench.model import CallVariant

def call(a, b, c):
    {body}

VARIANT = CallVariant(idea="a test", runs_on="cpu", build=lambda *_: call, baseline="")
"""

CALLS = {
    "honest": "np.matmul(a, b, out=c)",
    "unchecked": """
    if len(a) % 64:
        raise ValueError("M is not a multiple of 64")
    np.matmul(a, b, out=c)""",
    "careless": "np.matmul(a, b, out=c); c[-1] *= 1 + (len(a) % 2)",
    "crashes_once": """
    if not os.path.exists(__file__ + ".flag"):
        open(__file__ + ".flag", "x").close()
        os.kill(os.getpid(), signal.SIGSEGV)
    np.matmul(a, b, out=c)""",
    "hungry": """
    if "in probe_outputs" in "".join(traceback.format_stack()):  # another process's check
        raise MemoryError("Tried to allocate 2.00 GiB")
    np.matmul(a, b, out=c)""",
    "fragile": """
    if len(a) % 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    np.matmul(a, b, out=c)""",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gemm").mkdir()
    for name, body in CALLS.items():
        (tmp_path / "gemm" / f"{name}.py").write_text(SOURCE.format(body=body.strip()))
    return tmp_path / "gemm"


@pytest.fixture(scope="module")
def shared() -> Iterator[Worker]:
    with Worker("cpu", Timer.EVENTS) as worker:
        yield worker


@pytest.fixture
def worker(shared: Worker) -> Worker:
    shared.begin(QUICK, 1)
    return shared


def at(folder: Path, name: str, size: int = 64) -> Point:
    own = load(folder / f"{name}.py", "gemm")
    return point(own, size=(size, size, size), cache=Cache.HOT)


def test_a_function_shares_no_process_with_another_variant(worker: Worker, folder: Path) -> None:
    assert owner_of(of_op("gemm")["cpu_blas"]) == ""
    pids = []
    for name in ("honest", "careless"):
        assert worker.measure(at(folder, name)).status == Status.OK
        pids.append(worker._child.living.pid)
    assert pids[0] != pids[1]


def test_two_operations_may_have_functions_with_the_same_name(folder: Path) -> None:
    path = folder / "honest.py"
    assert owner_of(load(path, "gemm")) != owner_of(load(path, "gemm_batched"))


def test_functions_whose_bits_are_compared_share_no_process(worker: Worker, folder: Path) -> None:
    worker.next_round()
    pids = []
    for name in ("honest", "careless"):
        worker.row_digests(at(folder, name), 64, 1, 1)
        pids.append(worker._child.living.pid)
    assert pids[0] != pids[1]


def test_a_crash_is_not_blamed_on_a_function_in_another_process(
    worker: Worker, folder: Path
) -> None:
    assert worker.measure(at(folder, "honest")).status == Status.OK
    result = worker.measure(at(folder, "crashes_once"))
    assert result.status == Status.OK
    assert result.reason == (
        "right in a second process; the first process crashed: Segmentation fault (signal 11)"
    )


def test_a_function_that_lacks_memory_is_skipped(worker: Worker, folder: Path) -> None:
    """A check by another process may need more memory than the launches before."""
    result = worker.measure(at(folder, "hungry"))
    assert (result.status, result.series) == (Status.SKIPPED, None)
    assert result.reason == "out of memory: Tried to allocate 2.00 GiB"


def test_a_fault_at_other_sizes_is_only_a_note(worker: Worker, folder: Path) -> None:
    notes = {}
    for name in ("honest", "unchecked", "careless", "fragile"):
        result = worker.measure(at(folder, name))
        assert result.status == Status.OK, name
        notes[name] = result.notes
    assert notes["honest"] == ""
    assert notes["unchecked"].startswith("right at this size; at 149x157x139: ")
    assert notes["careless"] == (
        "right at this size; wrong at 149x157x139: the kernel does not check its bounds"
    )
    assert notes["fragile"].startswith("right at this size; crashed: ")


def test_the_points_of_a_function_are_measured_in_one_row(folder: Path) -> None:
    ours = point(of_op("gemm")["cpu_blas"], size=(8, 8, 8), cache=Cache.HOT)
    mixed = [at(folder, "honest"), ours, at(folder, "careless"), at(folder, "honest", 128)]
    for seed in range(20):
        order = visited(Rounds(mixed, Timing(rounds=1), seed))
        assert len(list(groupby(order, key=lambda point: point.variant.name))) == 3


def test_the_points_of_a_problem_take_turns_if_they_are_compared() -> None:
    sizes = [(size, size, size) for size in (8, 16, 24, 32)]
    points = [point(variant(name=name), size=size) for name in ("a", "b") for size in sizes]
    for seed in range(20):
        strategy = InRounds(whole_problems=True)
        order = visited(Rounds(points, Timing(rounds=1), seed, strategy=strategy))
        assert len(list(groupby(order, key=lambda point: point.problem))) == len(sizes)


def test_a_baseline_is_not_measured_at_a_problem_where_all_kernels_failed() -> None:
    names = [variant(name=name) for name in ("broken", "right", "blas")]
    points = [point(each, size=(n, n, n)) for each in names for n in (8, 16)]
    points = [each for each in points if each.variant.name != "right" or each.problem.m == 16]
    strategy = InRounds(whole_problems=True, baselines={"blas"})
    for seed in range(40):
        fails_in = {8: 1, 16: (1, 5)[seed % 2]}  # the last round may be half done
        rounds = Rounds(points, Timing(rounds=5), seed, strategy=strategy)
        rounds_by_point: defaultdict[Point, list[Measurement]] = defaultdict(list)
        for visit in rounds.each(rounds_by_point):
            number = len(rounds_by_point[visit.point]) + 1
            fails = (
                visit.point.variant.name == "broken" and number == fails_in[visit.point.problem.m]
            )
            status = Status.WRONG if fails else Status.OK
            rounds_by_point[visit.point].append(replace(measurement(at=visit.point), status=status))
        counts = {(p.variant.name, p.problem.m): len(taken) for p, taken in rounds_by_point.items()}
        assert counts.pop(("blas", 8), 0) <= 1
        failing = {("broken", n): number for n, number in fails_in.items()}
        assert counts == {**failing, ("right", 16): 5, ("blas", 16): 5}


def visited(rounds: Rounds) -> list[Point]:
    """Return the points in the order of the visits."""
    rounds_by_point: defaultdict[Point, list[Measurement]] = defaultdict(list)
    for visit in rounds.each(rounds_by_point):
        rounds_by_point[visit.point].append(measurement(at=visit.point))
    return list(rounds_by_point)


def test_each_measurement_of_a_function_has_a_new_seed(worker: Worker, folder: Path) -> None:
    rounds = []
    for _ in range(2):
        rounds.append(worker.measure(at(folder, "honest")))
        worker.next_round()
    first, second = rounds
    assert first.seed != second.seed
    assert None not in {first.seed, second.seed}
    clocks = []
    for ratio in (1.0, 1.2):
        timed = [replace(taken, clock_ratio=ratio) for taken in rounds]
        row = build_rows({first.point: timed}, CPU, {first.point.variant: ""})[0]
        assert row.round_seeds == f"{first.seed};{second.seed}"
        clocks.append(row.clock)
    assert clocks == ["parent", "child"]
    assert None not in {first.clock_ratio, second.clock_ratio}
    ours = point(of_op("gemm")["cpu_blas"])
    plain = worker.measure(ours)
    assert (plain.status, plain.seed, plain.clock_ratio) == (Status.OK, None, None)


@pytest.mark.parametrize(("examined_in", "functions"), [(1, True), (1, False), (10, True)])
def test_a_library_is_timed_by_the_other_clock_beside_functions_that_are_judged(
    examined_in: int, functions: bool, worker: Worker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = point(of_op("gemm")["cpu_blas"], size=(64, 64, 64))
    monkeypatch.setattr(
        worker._examination, "with_clock_ratio", lambda result, *_: replace(result, clock_ratio=1.1)
    )
    worker.begin(replace(QUICK, examined_in=examined_in), 1)
    worker.compile([ours, *([at(folder, "honest")] if functions else [])], lambda _count: None)
    is_timed = functions and examined_in == 1
    assert worker.measure(ours).clock_ratio == (1.1 if is_timed else None)


def test_a_fault_that_load_can_cause_must_occur_three_times_and_other_faults_once(
    worker: Worker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, right = WrongError("it was late", may_be_load=True), None
    left: list[WrongError | None] = []
    mine = at(folder, "honest")

    def examine(result: Measurement, *_: Any, **_kind: Any) -> tuple[Measurement, bool]:
        wrong = left.pop(0)
        return (as_judged(result, wrong), wrong.may_be_load) if wrong else (result, False)

    monkeypatch.setattr(worker, "_attempt", lambda *_: (measurement(at=mine), False))
    monkeypatch.setattr(worker._examination, "judge", examine)
    for observed, status in (
        ([late, late, late], Status.WRONG),
        ([late, late, right], Status.OK),
        ([WrongError("nothing")], Status.WRONG),
        ([right], Status.OK),
    ):
        left[:] = observed
        assert worker.measure(mine).status == status
        assert not left


@pytest.mark.parametrize(("examined_in", "counts"), [(1, {40}), (2, set(range(3, 38)))])
def test_a_policy_says_how_many_measurements_of_cuda_sources_the_clock_examines(
    examined_in: int, counts: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    naive = of_op("gemm")["naive"]
    result = measurement(at=point(replace(naive, path=tmp_path / "mine.py")))
    child: Any = SimpleNamespace(
        living=SimpleNamespace(pid=0), usable=True, request=lambda *_, **_limit: ""
    )
    monkeypatch.setattr(examination, "require_time", lambda *_, **_kind: 1.0)
    examine = Examination(child, CPU).judge
    timing = Timing(examined_in=examined_in)
    examined = [examine(result, timing, is_first=False)[0].clock_ratio for _ in range(40)]
    assert examined.count(1.0) in counts
    assert examine(result, Timing(examined_in=10**9), is_first=True)[0].clock_ratio == 1.0


def test_an_instance_is_launched_at_an_unusual_size_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, notes = replace(of_op("gemm")["naive"], path=tmp_path / "mine.py"), iter(["wrong there"])
    child: Any = SimpleNamespace(living=LIVING, usable=True, request=lambda *_: next(notes))
    monkeypatch.setattr(examination, "require_time", lambda *_, **_kind: 1.0)
    examine = Examination(child, CPU).judge
    for n in (64, 128):
        taken = measurement(at=point(mine, size=(n, n, n)))
        assert examine(taken, Timing(), is_first=True)[0].notes == "wrong there"


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_variant_that_ended_its_child_at_an_unusual_size_is_not_launched_there_again(
    is_lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    naive = of_op("gemm")["naive"]
    asked: list[Any] = []

    def request(_limit_s: float, method: Any, *_arguments: Any) -> str:
        asked.append(method)
        if is_lost:
            raise ChildLostError("crashed")
        return "at fault"

    child: Any = SimpleNamespace(living=LIVING, usable=False, request=request, end=lambda: None)
    monkeypatch.setattr(examination, "require_time", lambda *_, **_kind: 1.0)
    examine = Examination(child, CPU).judge
    for tile in naive.tiles.defaults[:2]:
        at = replace(point(replace(naive, path=tmp_path / "mine.py")), tile=tile)
        examine(measurement(at=at), Timing(), is_first=True)
    assert asked == [Examiner.at_unusual_size]
