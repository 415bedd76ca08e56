"""Verdicts on launches that wait in the queue of a GPU, which a script replaces here."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fakes import CPU, cut, gemm, measurement, point, variant

from gpubench.backends.arrays import new_elements
from gpubench.backends.cpu.backend import CpuBackend
from gpubench.backends.rotation import ALIGNED_BYTES, set_size
from gpubench.engine.judge.verdict import WrongError
from gpubench.engine.measure.examiner import Examiner
from gpubench.engine.operands.cache import OperandCache
from gpubench.engine.operands.make import make_inputs, make_new_values, new_rows, transposed
from gpubench.engine.outside import on_new_operands
from gpubench.engine.outside import parent_clock as clock
from gpubench.engine.outside.examination import library_note
from gpubench.engine.outside.on_new_operands import FEWER, MAX_LAUNCHES, OnNewOperands
from gpubench.model import OPERATIONS, Cache, Fill, Measurement, Point, Problem, Timer

SEED, LAUNCH_US, REQUEST_S = 7, 20.0, 1e-3
GPU = replace(CPU, backend="cuda", memory_bandwidth_gbytes_per_s=1000.0)


def result(reported_us: float = LAUNCH_US) -> Measurement:
    held = replace(point(size=(40, 24, 32)), timer=Timer.EVENTS)
    return replace(measurement(reported_us, held), seed=SEED)


class Gpu:
    """Answers requests like a process with a GPU.

    Its queue has room for `room` launches. It does not compute rows for which `skips` is true.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        room: int = 256,
        skips: Callable[[int, int], bool] = lambda _copy, _row: False,
    ) -> None:
        self.now_s, self.room, self.skips, self.launches, self.seed = 0.0, room, skips, 0, 0
        self.from_memory, self.slow_until_s, self.bits = False, 0.0, 0
        for module in (clock, on_new_operands):
            monkeypatch.setattr(module, "perf_counter", lambda: self.now_s)
        monkeypatch.setattr(clock, "_scheduled", lambda _task: (0.0, 0.0))

    def __call__(self, method: Callable[..., object], *arguments: Any) -> Any:
        return getattr(self, method.__name__)(*arguments)

    def put_new_operands(
        self, at: Point, launches: int, position: int, count: int, in_queue: bool
    ) -> bool:
        self.problem = at.problem
        self.launches, self.position, self.sets = launches, position, count
        return launches <= self.room or not in_queue

    def launch_on_new_operands(self, seed: int) -> None:
        self.seed = seed
        late = 1.2 if self.from_memory and self.sets > 1 else 1.0
        late *= 1.3 if self.now_s < self.slow_until_s else 1.0
        self.now_s += REQUEST_S + self.launches * late * LAUNCH_US / 1e6

    def read_results(self, copies: list[int], chosen: list[int], position: int) -> bytes:
        assert position == self.position
        problem = self.problem
        values = make_new_values(problem, SEED, Fill.UNIFORM)
        a, b = make_inputs(problem, SEED)
        at = transposed(problem) if self.position else problem
        new = new_rows(at, values, self.seed, copies, chosen)
        rows = (cut(new, self.bits) if self.bits else new) @ (a.T if self.position else b)
        for place, (copy, row) in enumerate(zip(copies, chosen, strict=True)):
            rows[place] *= not self.skips(copy, row)
        return rows.tobytes()


@pytest.mark.parametrize("by_columns", [False, True])
def test_rows_of_new_operands_are_those_in_memory(by_columns: bool) -> None:
    layout = ("A",) if by_columns else ()
    problem = Problem(op="gemm", m=5, n=3, k=7, dtype="float64", column_major=layout)
    values = make_new_values(problem, SEED, Fill.UNIFORM)
    size = set_size((5, 7), 8)
    memory = new_elements(values, 12345, np.arange(3 * size)).reshape(3, size)
    copies, rows = [2, 0, 2], [4, 1, 0]
    expected = [memory[copy, :35].reshape((7, 5) if by_columns else (5, 7)) for copy in copies]
    expected = [(x.T if by_columns else x)[row] for x, row in zip(expected, rows, strict=True)]
    assert np.array_equal(new_rows(problem, values, 12345, copies, rows), expected)
    assert len(np.unique(memory)) > 90


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("layout", [(), ("A", "B"), ("C",)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_new_operands_are_aligned(layout: tuple[str, ...], dtype: str, position: int) -> None:
    starts = set()

    def call(*arrays: Any) -> None:
        starts.add(arrays[position].ctypes.data % ALIGNED_BYTES)
        np.matmul(*arrays[:2], out=arrays[2])

    at = point(variant(call, column_major=layout), size=(7, 5, 3), dtype=dtype)
    problem, backend = at.problem, CpuBackend(CPU)
    operands = OperandCache(backend, SEED)
    examiner = Examiner(backend, operands, lambda _point, kernel: kernel)
    assert not examiner.put_new_operands(at, 4, position, 4, in_queue=True)  # a CPU has no queue
    assert examiner.put_new_operands(at, 4, position, 4, in_queue=False)
    starts.clear()
    examiner.launch_on_new_operands(12345)
    assert len(starts) == 1  # NumPy chose the start of the memory
    results = examiner.read_results(range(4), (4, 1, 0, 3), position)
    values, (a, b) = make_new_values(problem, SEED, Fill.UNIFORM), make_inputs(problem, SEED)
    new_a = transposed(problem) if position else problem
    first = new_rows(new_a, values, 12345, range(4), (4, 1, 0, 3))
    expected = first @ (a.T if position else b)
    assert np.allclose(np.frombuffer(results, dtype).reshape(4, -1), expected, atol=1e-6)


def judged(gpu: Gpu, taken: Measurement) -> float | None:
    return OnNewOperands(gpu, os.getpid(), taken, GPU).judge()


def test_launches_that_take_the_reported_time_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    for slow_s in (0.0, 0.1):  # slow launches are repeated
        gpu.slow_until_s = gpu.now_s + slow_s
        assert judged(gpu, result()) == pytest.approx(1.0)  # without the time of the request
    with pytest.raises(WrongError, match="operands that are new, by the clock of another process"):
        judged(gpu, result(LAUNCH_US / 4))


def test_results_of_another_type_than_the_precisions_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gemm = OPERATIONS["gemm"]
    stated = replace(gemm, output=replace(gemm.output, dtype="float64"))
    monkeypatch.setitem(OPERATIONS._by_name, "gemm", stated)
    gpu = Gpu(monkeypatch)
    read = gpu.read_results
    monkeypatch.setattr(
        gpu,
        "read_results",
        lambda *chosen: np.frombuffer(read(*chosen), np.float32).astype(np.float64).tobytes(),
    )
    assert judged(gpu, result()) == pytest.approx(1.0)


@pytest.mark.parametrize(("elements", "whole"), [(4096, 0), (0, 160), (4096, 156), (4096, 8)])
def test_a_result_with_too_few_bytes_is_wrong(
    elements: int, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_new_operands, "CHECKED_BYTES", 0)
    gpu = Gpu(monkeypatch)
    monkeypatch.setattr(gpu, "read_elements", lambda *_: bytes(elements), raising=False)
    monkeypatch.setattr(gpu, "read_results", lambda *_: bytes(whole))
    at = Problem(op="gemv_t", m=32, n=40, dtype="float32")
    taken = result()
    with pytest.raises(WrongError, match=f"did not compute its result: {whole} bytes at 32x40"):
        judged(gpu, replace(taken, point=replace(taken.point, problem=at)))


def test_the_clocks_agree_on_hot_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, cold = Gpu(monkeypatch), result()
    gpu.from_memory = True
    assert judged(gpu, cold) == pytest.approx(1.2)
    hot = replace(cold, point=replace(cold.point, cache=Cache.HOT))
    assert judged(gpu, hot) == pytest.approx(1.0)
    assert (gpu.launches, gpu.sets) == (256, 1)


def test_if_the_queue_is_too_small_there_are_fewer_launches_or_no_ratio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert judged(Gpu(monkeypatch, room=256 // FEWER), result())
    assert judged(Gpu(monkeypatch, room=0), result()) is None
    gpu, by_cupti = Gpu(monkeypatch, room=0), result()
    by_cupti = replace(by_cupti, point=replace(by_cupti.point, timer=Timer.CUPTI))
    assert judged(gpu, by_cupti) is None
    assert 0 < gpu.launches <= MAX_LAUNCHES  # calls that may wait are launched rarely


@pytest.mark.parametrize(
    ("launch_us", "cache", "ratio"),
    [(20.0, Cache.COLD, None), (60.0, Cache.COLD, 1.0), (20.0, Cache.HOT, 1.0)],
)
def test_fixed_addresses_have_one_set_so_a_short_cold_launch_states_no_ratio(
    monkeypatch: pytest.MonkeyPatch, launch_us: float, cache: Cache, ratio: float | None
) -> None:
    monkeypatch.setitem(globals(), "LAUNCH_US", launch_us)
    gpu, fixed = Gpu(monkeypatch), result(launch_us)
    at = replace(fixed.point, variant=variant(fixed_addresses=True), cache=cache)
    assert judged(gpu, replace(fixed, point=at)) == pytest.approx(ratio)
    assert gpu.sets == 1
    assert (gpu.launches > 1) == (cache == Cache.HOT)


def test_launches_or_rows_that_are_not_computed_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    for room, skips, reason in (
        (0, lambda _copy, _row: True, "the result is all zeros"),
        (256, lambda copy, _row: copy % 2 == 1, "relative error"),
        (256, lambda _copy, row: row % 2 == 1, "relative error"),
    ):
        with pytest.raises(WrongError, match=reason):
            judged(Gpu(monkeypatch, room, skips), result())


def test_a_function_that_rounds_the_new_operand_is_wrong_whichever_operand_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu, at = Gpu(monkeypatch), result()
    at = replace(at, point=replace(at.point, problem=gemm(40, 24, 1000)))
    gpu.bits, kinds = 18, set()
    for _ in range(30):
        with pytest.raises(WrongError, match="was rounded, to about 18 bits") as caught:
            judged(gpu, at)
        kinds.add((gpu.position, str(caught.value)[0]))
    assert kinds == {(0, "A"), (1, "B")}


@pytest.mark.parametrize(
    ("kernels", "noted"),
    [
        (
            "mine; nvjet_tst_128x64 (2 times)",
            "the function runs kernels of a library: nvjet_tst_128x64 (2 times)",
        ),
        (
            "unknown: calling cuBLAS API during stream capture",
            "the function runs kernels of a library",
        ),
        ("mine", ""),
    ],
)
def test_a_function_that_runs_a_library_silently_gets_a_note(kernels: str, noted: str) -> None:
    silent = replace(result(), kernels_run=kernels)
    assert library_note(silent).startswith(noted)
    assert bool(library_note(silent)) == bool(noted)
    stated = replace(silent.point, variant=variant(libraries=("torch",)))
    assert not library_note(replace(silent, point=stated))
