"""Outputs in memory of another process: CUDA IPC on a GPU, here a dictionary in one process."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import CPU, gemm, measurement, point, variant

from gpubench.backends.cpu.backend import CpuBackend
from gpubench.engine.judge.verdict import WrongError
from gpubench.engine.measure.examiner import Examiner
from gpubench.engine.measure.keeper import Keeper
from gpubench.engine.operands.cache import OperandCache
from gpubench.engine.outside import on_new_operands
from gpubench.engine.outside.examination import Examination
from gpubench.engine.outside.on_new_operands import OnNewOperands
from gpubench.engine.outside.wall import Wall
from gpubench.errors import ChildLostError, LaunchError
from gpubench.model import Cache, Measurement, Status, Timer, Timing
from gpubench.results.rows import build_rows

SEED = 7
GPU = replace(CPU, backend="cuda", memory_bandwidth_gbytes_per_s=1000.0)


class Memory:
    """A stand-in for a GPU's memory. `fails` names the function that fails."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.exported, self._numbers = fails, dict[bytes, Any](), count()

    def export(self, size: int) -> tuple[bytes, Any]:
        if self.fails == "export":
            raise LaunchError("cudaErrorNotSupported: operation not supported")
        handle = bytes([next(self._numbers)])
        self.exported[handle] = np.zeros(size, np.uint8)
        return handle, self.exported[handle]

    def open(self, handle: bytes, size: int) -> Any:
        if self.fails == "open":
            raise LaunchError("cudaErrorMapBufferObjectFailed: mapping failed")
        return self.exported[handle][:size]


class Gpu(CpuBackend):
    """A CPU backend whose launches wait for their seed."""

    ipc: Any = None

    def hold(
        self, memory: Any, values: Any, kernel: Any, launches: int, *, in_queue: bool
    ) -> Callable[[int], None] | None:
        assert in_queue
        return super().hold(memory, values, kernel, launches, in_queue=False)


def product(a: Any, b: Any, c: Any) -> None:
    np.matmul(a, b, out=c)


FUNCTIONS = {
    "gemv": lambda a, x, y: np.matmul(a, x, out=y),
    "gemv_t": lambda a, x, y: np.matmul(a.T, x, out=y),
    "atax": lambda a, x, y: np.matmul(a.T, a @ x, out=y),
    "gemm_relu": lambda a, b, bias, c: np.maximum(a @ b + bias, 0, out=c),
}


class Two:
    """The process that runs a function and the process that keeps outputs, as two objects."""

    def __init__(self, function: Any, memory: Memory, op: str = "gemm", **at: Any) -> None:
        variant_at = variant(function, path=Path("/own/mine.py"), op=op)
        self.point = replace(point(variant_at, **{"size": (40, 24, 32)} | at), timer=Timer.EVENTS)
        backend, self.asked = Gpu(CPU), list[str]()
        backend.ipc = memory
        operands = OperandCache(backend, SEED)
        self.examiner = Examiner(backend, operands, lambda _point, kernel: kernel)
        self.keeper = Keeper(backend)

    @property
    def result(self) -> Measurement:
        return replace(measurement(1e4, self.point), seed=SEED)

    def request(self, method: Any, *arguments: Any) -> Any:
        self.asked.append(method.__name__)
        return method(self.examiner, *arguments)

    def keep(self, method: Any, *arguments: Any) -> Any:
        return method(self.keeper, *arguments)

    def judged(self, *, walled: bool = True) -> OnNewOperands:
        new = OnNewOperands(
            self.request, os.getpid(), self.result, GPU, self.keep if walled else None
        )
        assert new.judge() is not None
        return new


def examination_of(two: Two) -> Examination:
    def request(_limit_s: float, method: Any, *arguments: Any) -> Any:
        return "" if method is Examiner.at_unusual_size else two.request(method, *arguments)

    child: Any = SimpleNamespace(
        living=SimpleNamespace(pid=os.getpid()), usable=True, request=request
    )
    return Examination(child, GPU, lambda _limit_s, *asked: two.keep(*asked))


@pytest.mark.parametrize("cache", list(Cache))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", [(), ("A", "C")])
def test_rows_are_read_by_the_process_that_does_not_run_the_function(
    layout: tuple[str, ...], dtype: str, cache: Cache
) -> None:
    for _ in range(4):  # the new operand is random
        two = Two(product, Memory(), dtype=dtype)
        problem = replace(two.point.problem, column_major=layout)
        two.point = replace(two.point, problem=problem, cache=cache)
        assert two.judged().why_open == ""
        assert "read_results" not in two.asked


@pytest.mark.parametrize("bytes_before_the_clock_stops", [2**20, 0])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_a_result_whose_rows_do_not_follow_from_rows_of_operands_is_read_as_a_whole(
    op: str, bytes_before_the_clock_stops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_new_operands, "CHECKED_BYTES", bytes_before_the_clock_stops)

    def squared(*arrays: Any) -> None:
        FUNCTIONS[op](*arrays)
        arrays[-1][...] **= 2

    for function, is_right in ((FUNCTIONS[op], True), (squared, False)):
        two = Two(function, Memory(), op=op)
        with nullcontext() if is_right else pytest.raises(WrongError):
            new = two.judged()
            assert (new.why_open, new._rows) == ("", [])


def test_elements_of_a_large_result_are_read_before_the_clock_stops_and_do_not_change_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(on_new_operands, "CHECKED_BYTES", 0)
    two, read = Two(FUNCTIONS["gemm_relu"], Memory(), op="gemm_relu"), Keeper.read_results

    def written_later(self: Keeper, *chosen: Any) -> bytes:
        self._outputs[chosen[0][0]] += 1
        return read(self, *chosen)

    monkeypatch.setattr(Keeper, "read_results", written_later)
    with pytest.raises(WrongError, match="was not written when its launch had ended"):
        two.judged()


def test_results_that_are_computed_when_they_are_read_are_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The timed request computes nothing, and the rows are computed when they are read."""
    two = Two(product, Memory())
    launch, read, seeds = Examiner.launch_on_new_operands, Examiner.read_results, [0]

    def lazy_launch(_self: Any, seed: int) -> None:
        seeds.append(seed)

    def lazy_read(self: Any, *chosen: Any) -> bytes:
        launch(self, seeds[-1])
        return read(self, *chosen)

    monkeypatch.setattr(Examiner, "launch_on_new_operands", lazy_launch)
    monkeypatch.setattr(Examiner, "read_results", lazy_read)
    two.judged(walled=False)
    with pytest.raises(WrongError, match="was not written when its launch had ended"):
        two.judged()


def test_results_of_earlier_operands_are_wrong() -> None:
    kept: dict[Any, Any] = {}

    def keeps(a: Any, b: Any, c: Any) -> None:
        c[...] = kept.setdefault((a.ctypes.data, b.ctypes.data), a @ b)

    with pytest.raises(WrongError, match="relative error"):
        Two(keeps, Memory()).judged()


def test_the_last_launch_is_always_among_those_whose_rows_are_read() -> None:
    def read_last(self: OnNewOperands) -> tuple[int, int]:
        self._read_results()
        return self._copies[0], self._sets - 1

    new = Two(product, Memory()).judged()
    last, expected = read_last(new)
    assert (last, len(new._copies)) == (expected, 16)


@pytest.mark.parametrize(
    ("fails", "text"), [("export", "cudaErrorNotSupported"), ("open", "MapBufferObjectFailed")]
)
def test_without_ipc_the_function_keeps_its_outputs_and_the_reason_is_known(
    fails: str, text: str
) -> None:
    two = Two(product, Memory(fails))
    assert text in two.judged().why_open
    assert "read_results" in two.asked


@pytest.mark.parametrize(("fails", "clock"), [("", "parent"), ("open", "own")])
def test_a_row_says_whether_another_process_had_the_results(fails: str, clock: str) -> None:
    two = Two(product, Memory(fails))
    result, _ = examination_of(two).judge(two.result, Timing(), is_first=True)
    assert (result.status, result.is_walled) == (Status.OK, not fails)
    row = build_rows({result.point: [result]}, GPU, {result.point.variant: ""})[0]
    assert row.clock == clock
    assert ("no other process confirms this time: cuda" in (row.notes or "")) == bool(fails)


def test_a_library_beside_a_function_is_timed_in_the_same_way() -> None:
    two, timing = Two(product, Memory()), Timing()
    ours = replace(two.result, seed=None)
    timed = examination_of(two).with_clock_ratio(ours, timing, SEED)
    assert timed.clock_ratio is not None
    assert (timed.status, timed.seed, timed.is_walled) == (Status.OK, None, None)
    assert "read_results" not in two.asked
    tuned = replace(ours.point.variant, tune=lambda *_: (product, ""))
    others = [
        replace(ours, status=Status.WRONG),
        replace(ours, point=replace(ours.point, variant=tuned)),
    ]
    for other in others:
        assert examination_of(two).with_clock_ratio(other, timing, SEED) == other
    wrong = Two(lambda a, b, c: np.matmul(a, 2 * b, out=c), Memory())
    assert examination_of(wrong).with_clock_ratio(wrong.result, timing, SEED).clock_ratio is None


def test_memory_is_exported_again_only_if_it_is_too_small() -> None:
    memory = Memory()
    two = Two(product, memory)
    handles = [two.keeper.keep(gemm(size, 8, 8), 4)[0] for size in (64, 32, 100, 4096)]
    assert [handles.index(each) for each in handles] == [0, 0, 2, 3]


def test_a_keeping_process_that_failed_is_not_tried_again() -> None:
    wall = Wall("cpu")
    try:
        for _ in range(2):
            with pytest.raises(ChildLostError, match="has no memory that another process can open"):
                wall.keep(60, Keeper.keep, gemm(8, 8, 8), 1)
            assert wall._gauge.child is None
    finally:
        wall.end()
