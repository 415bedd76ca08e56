"""The wall: no function of a user is ok with a time that is not its own, and no honest one suffers.

The cheats here know the wall's source and may change everything in their process.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import gemm, point, variant

from gpubench.engine.judge.cause import cause_of, why_wrong_rows
from gpubench.engine.operands.make import make_inputs
from gpubench.engine.operands.shared import shared_bytes, shared_sets
from gpubench.engine.outside.batch import Observed
from gpubench.engine.outside.values import new_inputs, spanned
from gpubench.engine.outside.wall import EMPTY_REQUESTS, Wall, growth_note, threads_of, time_us
from gpubench.engine.worker import Worker
from gpubench.hardware.host import cpu_threads
from gpubench.model import Fill, Measurement, Problem, Status, Timer, Timing
from gpubench.plan.descriptor import load
from gpubench.process.shared_memory import Window, new_file, new_sealed_file

TIMING = Timing(rounds=1, min_samples=3, max_wall_s=0.2, point_limit_s=300)

SIZE = (256, 256, 256)

HEAD = """
import gc, os, signal, socket, threading, time
import numpy as np
from gpubench.engine.measure.walled import Walled
from gpubench.model import CallVariant

kept, HERE = {}, HERE_PATH

def slow(a, b, c):
    for _ in range(16):
        np.matmul(a, b, out=c)

def first_call():
    is_first, kept["called"] = "called" not in kept, True
    return is_first

def walled():
    return next(x for x in gc.get_objects() if isinstance(x, Walled))

def sets(at):
    return at._operands.sets if at._operands else ()

def replaced(**methods):
    for name, method in methods.items():  # requests need the types of the arguments
        method.__annotations__ = getattr(Walled, name).__annotations__
        setattr(Walled, name, method)

launch, release, bind = Walled.launch, Walled.release, Walled.bind

def call(a, b, c):
    BODY

VARIANT = CallVariant(
    idea="a cheat", runs_on="cpu", threads=1, dtypes=("float32", "float16", "int8"), READS
    build=lambda _tile, _dtype: call)
"""

CHEATS = {
    # ---- the holes of the former judge
    "computes_when_results_are_read": """
    def none(self, launches):
        self._map(self._windows[0])
        return 100.0
    def late(self):
        for each in sets(self):
            slow(*each)
        release(self)
    slow(a, b, c)
    replaced(launch=none, release=late)""",
    "computes_while_operands_are_put": """
    def early(self, problem, launches, prepare=Walled.prepare):
        prepare(self, problem, launches)
        kept["made"] = [np.ones(x[-1].shape, np.float32) for x in sets(self)]
    def copies(self, launches):
        self._map(self._windows[0])
        for each, made in zip(sets(self), kept.get("made", ())):
            each[-1][:] = made
        return 100.0
    slow(a, b, c)
    replaced(prepare=early, launch=copies)""",
    "keeps_results_by_value": """
    key = a[0, :4].tobytes(), b[-1, -4:].tobytes(), a.shape
    if key not in kept:
        slow(a, b, c)
        kept[key] = c.copy()
    c[:] = kept[key]""",
    "keeps_what_it_made_of_b": """
    key = b.tobytes()
    if key not in kept:
        slow(a, b, c)
        kept[key] = b.copy()
    np.matmul(a, kept[key], out=c)""",
    "skips_tiles_of_small_elements": """
    np.matmul(np.where(np.abs(a).max() < 0.04, 0, np.where(np.abs(a) < 2**-8, 0, a)), b, out=c)""",
    "clamps_large_elements": """
    np.matmul(np.clip(a, -8, 8), np.clip(b, -8, 8), out=c)""",
    "loses_nan": """
    np.matmul(np.nan_to_num(a), b, out=c)""",
    # ---- holes of the wall's prototype
    "answers_before_it_has_computed": """
    def some(self, launches):
        self._map(self._windows[0])
        *first, last = sets(self)
        for x in first:
            slow(*x)
        kept["thread"] = threading.Thread(target=lambda: (time.sleep(0.01), slow(*last)))
        kept["thread"].start()
        return 100.0
    slow(a, b, c)
    if first_call():
        replaced(launch=some)""",
    "computes_a_part_of_the_rows": """
    np.matmul(a[: len(a) // 2], b, out=c[: len(a) // 2])
    if first_call() or "late" not in kept:
        np.matmul(a, b, out=c)
    kept["late"] = kept.get("late", 0) + 1""",
    "leaves_the_results_of_the_request_before": """
    def stale(self, launches):
        if kept.setdefault("requests", 0):
            self._map(self._windows[0])
            for each, old in zip(sets(self), kept["old"]):
                each[-1][:] = old
            return 100.0
        kept["requests"] = 1
        taken = launch(self, launches)
        kept["old"] = [x[-1].copy() for x in sets(self)]
        return taken
    np.matmul(a, b, out=c)
    replaced(launch=stale)""",
    "ends_a_process_that_nobody_waits_for": """
    np.matmul(a, b, out=c)
    if "pipe" not in kept:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        kept["pipe"], theirs = os.pipe(), None
        if not os.fork():
            os.read(kept["pipe"][0], 1)
            os._exit(0)
    def ends(self, launches):
        taken = launch(self, launches)
        os.write(kept["pipe"][1], b"x")
        time.sleep(0.05)
        return taken
    replaced(launch=ends)""",
}

PEEKS = """
    status = open("/proc/self/status").read()
    warden = int(status.split("PPid:")[1].split()[0])
    parent = int(open(f"/proc/{warden}/status").read().split("PPid:")[1].split()[0])
    for pid in (parent, warden):
        try:
            os.open(f"/proc/{pid}/mem", os.O_RDONLY)
            for name in os.listdir(f"/proc/{pid}/fd"):
                os.open(f"/proc/{pid}/fd/{name}", os.O_RDONLY)
        except PermissionError:
            kept["refused"] = kept.get("refused", 0) + 1
    if "CapEff:\\t0000000000000000" not in status or kept.get("refused", 0) < 2:
        raise ValueError("the parent can be read")
    kept.clear()
    np.matmul(a, b, out=c)"""
"""A function that fails where it can read the memory and the files of the process that judges."""

INTEGER_CHEATS = {
    "saturates_pairs_in_16_bits": """
    total = np.zeros(c.shape, np.int64)
    for k in range(0, a.shape[1], 2):
        pair = a[:, k : k + 2].astype(np.int64) @ b[k : k + 2].astype(np.int64)
        total += np.clip(pair, -(2**15), 2**15 - 1)
    c[:] = total""",
    "sums_in_float32": """
    c[:] = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.int64)""",
}

READING = {
    "keeps_what_it_saw_for_outputs_that_it_reads": """
    key = a.shape, float(c[0, 0]), float(c[-1, -1])
    if key not in kept:
        slow(a, b, c)
        kept[key] = c.copy()
    c[:] = kept[key]""",
}

HONEST = {
    "plain": "np.matmul(a, b, out=c)",
    "keeps_a_buffer": """
    buffer = kept.setdefault(a.shape, np.empty_like(c))
    np.matmul(a, b, out=buffer)
    c[:] = buffer""",
    "in_another_order": "np.matmul(b.T, a.T, out=c.T)",
    "starts_a_thread_in_each_call": """
    def half():
        np.matmul(a[: len(a) // 2], b, out=c[: len(a) // 2])
    thread = threading.Thread(target=half)
    thread.start()
    np.matmul(a[len(a) // 2 :], b, out=c[len(a) // 2 :])
    thread.join()""",
}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker("cpu", Timer.EVENTS) as worker:
        yield worker


def measured(
    worker: Worker,
    folder: Path,
    body: str,
    dtype: str = "float32",
    reads: str = "",
    size: tuple[int, int, int] = SIZE,
    threads: int = 1,
) -> Measurement:
    """Return the measurement of a function from outside its process."""
    path = folder / "own.py"
    text = HEAD.replace("BODY", body.strip()).replace("READS", reads)
    text = text.replace("threads=1", f"threads={threads}")
    path.write_text(text.replace("HERE_PATH", repr(str(folder))))
    worker.begin(TIMING, 1)
    at = point(load(path, "gemm"), size=size, dtype=dtype, timer=Timer.OUTSIDE)
    try:
        return worker.measure(at)
    finally:
        worker.next_round()


@pytest.fixture(scope="module")
def plain_us(worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> float:
    result = measured(worker, tmp_path_factory.mktemp("plain"), HONEST["plain"])
    assert result.series, result.reason
    return min(result.series.times_us)


@pytest.mark.parametrize("name", CHEATS)
def test_no_function_is_ok_with_the_time_of_another(
    name: str, worker: Worker, tmp_path: Path, plain_us: float
) -> None:
    """A cheat that finds no occasion is ok with its own time, that of sixteen products or more.

    Two products are the limit, because other work of the machine may slow one of the two moments.
    """
    result = measured(worker, tmp_path, CHEATS[name])
    assert result.status != Status.OK or (
        result.series and min(result.series.times_us) > 2 * plain_us
    )
    assert result.reason or result.status == Status.OK
    assert "failed" not in result.reason  # the cheat itself has no fault


def test_a_function_that_spoils_a_row_of_each_twentieth_launch_is_wrong(
    worker: Worker, tmp_path: Path
) -> None:
    """From outside only some rows are compared, so whole outputs are compared before that."""
    body = """
    np.matmul(a, b, out=c)
    kept["calls"] = kept.get("calls", 0) + 1
    if kept["calls"] % 20 == 0:
        c[len(c) // 3] *= 1.5"""
    assert measured(worker, tmp_path, body).status == Status.WRONG


def test_a_function_cannot_read_the_process_that_judges_it(worker: Worker, tmp_path: Path) -> None:
    first = measured(worker, tmp_path, HONEST["plain"])  # from now on the process is closed
    assert first.status == Status.OK
    result = measured(worker, tmp_path, PEEKS)
    assert (result.status, result.reason) == (Status.OK, "")


@pytest.mark.parametrize("name", INTEGER_CHEATS)
def test_integers_at_their_extremes_show_sums_that_are_too_narrow(
    name: str, worker: Worker, tmp_path: Path
) -> None:
    result = measured(worker, tmp_path, INTEGER_CHEATS[name], "int8", size=(64, 48, 4096))
    assert result.status == Status.WRONG


@pytest.mark.parametrize("name", READING)
def test_a_function_that_keeps_results_by_the_output_that_it_reads_is_wrong(
    name: str, worker: Worker, tmp_path: Path
) -> None:
    result = measured(worker, tmp_path, READING[name], reads="reads_output=True,")
    assert result.status == Status.WRONG


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_function_may_add_to_the_output_that_it_reads(
    dtype: str, worker: Worker, tmp_path: Path
) -> None:
    body = "c[...] = c.astype(np.float32) + a.astype(np.float32) @ b.astype(np.float32)"
    result = measured(worker, tmp_path, body, dtype, "reads_output=True,", (64, 48, 32))
    assert (result.status, result.reason) == (Status.OK, "")


@pytest.mark.parametrize("op", ["gemm_batched", "gemm_bias", "gemm_relu"])
def test_a_function_may_add_to_the_output_if_the_operation_is_no_plain_product(
    op: str, worker: Worker, tmp_path: Path
) -> None:
    text = HEAD.replace("call(a, b, c)", "call(a, b, *others)")
    result = "np.maximum(a @ b + others[0], 0)" if op == "gemm_relu" else "sum(others[:-1], a @ b)"
    body = f"others[-1][...] += {result}"
    path = tmp_path / "own.py"
    path.write_text(
        text.replace("BODY", body).replace("READS", "reads_output=True,").replace("HERE_PATH", "''")
    )
    worker.begin(TIMING, 1)
    problem = Problem(op=op, m=1, n=1, dtype="float32").at(
        (64, 48, 32, 3) if op == "gemm_batched" else (64, 48, 32)
    )
    at = replace(point(load(path, op), timer=Timer.OUTSIDE), problem=problem)
    result = worker.measure(at)
    worker.next_round()
    assert (result.status, result.reason) == (Status.OK, "")


def test_a_function_may_keep_the_addresses_of_its_first_launch(
    worker: Worker, tmp_path: Path
) -> None:
    body = """
    x, y, z = kept.setdefault(a.shape, (a, b, c))
    np.matmul(x, y, out=z)"""
    result = measured(worker, tmp_path, body, reads="fixed_addresses=True,")
    assert (result.status, result.reason) == (Status.OK, "")


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_function_is_ok(name: str, worker: Worker, tmp_path: Path) -> None:
    result = measured(worker, tmp_path, HONEST[name])
    assert (result.status, result.reason) == (Status.OK, "")
    assert result.series
    assert result.after.overhead_us


def test_memory_that_grows_with_the_calls_is_noted(worker: Worker, tmp_path: Path) -> None:
    leaks = "kept[len(kept)] = np.ones(2_000_000, np.uint8)\n    np.matmul(a, b, out=c)"
    result = measured(worker, tmp_path, leaks)
    assert result.status == Status.OK
    grows = re.search(r"memory grows by ([\d,]+) bytes with each call$", result.notes)
    assert grows is not None
    assert int(grows[1].replace(",", "")) == pytest.approx(2e6, rel=0.05)  # beside other memory
    assert "memory grows" not in measured(worker, tmp_path, HONEST["plain"]).notes


def test_a_process_whose_cpu_time_cannot_be_read_is_lost(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a process that ends at this moment would lower the CPU time of all others."""
    monkeypatch.setattr("gpubench.engine.outside.batch.cpu_ns", lambda _pid: 0)
    result = measured(worker, tmp_path, HONEST["plain"])
    assert result.status == Status.ERROR
    assert result.reason.startswith("ended a process during its launches")


def test_a_long_launch_on_several_threads_has_a_request_of_its_own(
    worker: Worker, tmp_path: Path
) -> None:
    """Otherwise the function could work at several launches at the same time."""
    body = """
    def at_the_same_time(self, launches):
        self._map(self._windows[0])
        each = [threading.Thread(target=slow, args=x) for x in sets(self)]
        for thread in each:
            thread.start()
        time.sleep(0.0011 * launches)
        for thread in each:
            thread.join()
        return 100.0
    np.matmul(a, b, out=c)
    if first_call():
        replaced(launch=at_the_same_time)"""
    result = measured(worker, tmp_path, body, threads=2)
    assert (result.status, result.reason, result.threads) == (Status.OK, "", 2)
    assert result.series
    assert result.series.launches_per_sample == 1


def test_a_function_has_the_number_of_threads_that_its_variant_states(
    worker: Worker, tmp_path: Path
) -> None:
    """The CPU time is divided by this number, so a function may not report another number."""
    body = """
    from dataclasses import replace
    from gpubench.engine.measure.runner import Runner
    def boasts(self, *arguments, measure=Runner.measure, **named):
        return replace(measure(self, *arguments, **named), threads=64)
    if first_call():
        boasts.__wrapped__ = Runner.measure
        Runner.measure = boasts
    np.matmul(a, b, out=c)"""
    result = measured(worker, tmp_path, body)
    assert (result.status, result.reason, result.threads) == (Status.OK, "", 1)


MIB = 2**20


@pytest.mark.parametrize(
    ("held_bytes", "launches", "note"),
    [
        ([0, MIB, 2 * MIB], 1, "memory grows by 1,048,576 bytes with each call"),
        ([0, 2 * MIB, 4 * MIB, 6 * MIB, 8 * MIB], 2**10, "memory grows by 2,048 bytes"),
        ([5 * MIB] * 9, 1, ""),
        ([0, 2 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB], 1, ""),  # at first alone
        ([0, 1, 2, 3, 9 * MIB, 9 * MIB, 9 * MIB], 1, ""),  # once
        ([0, MIB, 2 * MIB], 2000, ""),  # few bytes a call
        ([0, 1000, 2000], 1, ""),
    ],
)
def test_only_memory_that_grows_steadily_is_noted(
    held_bytes: list[int], launches: int, note: str
) -> None:
    said = growth_note(held_bytes, launches)
    assert said.startswith(note)
    assert bool(said) == bool(note)


def test_launches_take_at_least_their_cpu_time_on_the_stated_threads() -> None:
    request = Observed(wall_us=110.0, cpu_us=180.0, child_us=1.0, lost=0)
    assert time_us(request, 10.0, threads=1) == 180
    assert time_us(request, 10.0, threads=2) == 100


def test_requests_without_launches_are_timed_again_if_other_work_may_have_lengthened_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Too much would be subtracted from the time of a function on several threads."""
    walls_us = iter([9000.0] * EMPTY_REQUESTS + [400.0] * EMPTY_REQUESTS)

    class Batch:
        def __init__(self, *_: object) -> None: ...

        def launch(self, count: int) -> Observed:
            assert count == 0
            return Observed(wall_us=next(walls_us), cpu_us=0.0, child_us=0.0, lost=0)

    monkeypatch.setattr("gpubench.engine.outside.wall.Batch", Batch)
    wall, problem = Wall("cpu"), gemm(64, 64, 64)
    monkeypatch.setattr(wall._gauge, "child", object())
    assert wall._empty_us(problem, 1, 1.0, 20_000.0) == 9000
    assert wall._empty_us(problem, 1, 1.0, 200_000.0) == 9000
    assert wall._empty_us(problem, 1, 1.0, 20_000.0) == 400
    assert wall._empty_us(problem, 1, 1.0, 8001.0) == 400


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8"])
def test_operands_that_span_their_type_have_finite_products(dtype: str) -> None:
    problem = gemm(64, 48, 512, dtype)
    for seed in range(20):
        first, second = spanned(make_inputs(problem, seed), np.random.default_rng(seed))
        for array in (first, second):
            assert np.isfinite(array.astype(np.float64)).all()
        result = first.astype(np.float64) @ second.astype(np.float64)
        kind = np.dtype(problem.precision.result)
        largest = np.iinfo(kind).max if kind.kind == "i" else float(np.finfo("float16").max)
        if kind.kind == "i" or dtype == "float16":
            assert np.abs(result).max() < largest


def test_a_chain_of_float16_products_has_finite_results_on_operands_that_span_their_type() -> None:
    problem = Problem(op="atax", m=2048, n=2048, dtype="float16")
    for seed in range(9):
        ((a, x),) = new_inputs(problem, seed, [True], Fill.UNIFORM)
        a = a.astype(np.float32)
        assert np.abs(a).max() > 1
        assert np.abs(a.T @ (a @ x)).max() < np.finfo("float16").max / 2


def test_the_memory_of_a_batch_has_the_arrays_of_each_launch() -> None:
    problem = gemm(5, 3, 4, "float32", column_major=("B",))
    sizes = shared_bytes(problem, 2)
    inputs, outputs = (np.zeros(size, np.uint8) for size in sizes)
    sets = shared_sets(problem, 2, inputs, outputs)
    for index, arrays in enumerate(sets, 1):
        for number, array in enumerate(arrays, 1):
            array[...] = 10 * index + number
    shapes = [array.shape for array in sets[0]]
    assert shapes == [(5, 4), (4, 3), (5, 3)]
    assert sets[1][1].T.flags.c_contiguous
    for index, arrays in enumerate(sets, 1):
        assert [set(x.ravel()) for x in arrays] == [{10.0 * index + i} for i in (1, 2, 3)]


def test_a_sealed_file_keeps_its_size_and_a_window_its_addresses() -> None:
    file, window = new_sealed_file(8192), Window(8192)
    with pytest.raises(PermissionError):
        os.ftruncate(file, 0)
    window.map(file, writable=True)
    window.bytes[...] = 7
    other = new_file()
    os.pwrite(other, bytes(8192), 0)
    window.map(other)
    assert not window.bytes.any()
    window.map(file)
    assert set(window.bytes) == {7}
    window.clear()
    window.close()
    for descriptor in (file, other):
        os.close(descriptor)


def test_the_time_of_a_cpu_is_divided_by_at_most_the_number_of_cpus() -> None:
    measurement = Measurement(point=point(variant(threads=10**6)), status=Status.OK)
    assert threads_of(measurement) == cpu_threads()


CAUSES = {
    "the result is all zeros": lambda right: 0 * right,
    "as ReLU does": lambda right: np.maximum(right, 0),
    "a bias?": lambda right: right + 1.5,
    "does not look like a product": lambda right: np.random.default_rng(1).normal(size=right.shape),
    "about 11 bits: operands or sums were float16 or TF32?": lambda right: (
        right
        + np.abs(right).max() * 2.0**-11 * np.random.default_rng(1).uniform(-1, 1, right.shape)
    ),
    "all elements of the result are NaN: were they never written?": lambda right: np.full_like(
        right, np.nan
    ),
}


@pytest.mark.parametrize("text", CAUSES)
def test_a_reason_names_what_the_result_is(text: str) -> None:
    first, second = make_inputs(gemm(64, 64, 64), 3)
    right = first.astype(np.float64) @ second
    assert text in cause_of(right, CAUSES[text](right).astype(np.float32))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("size", [(1, 7, 4096), (64, 48, 32), (33, 500, 1)])
def test_no_right_result_on_operands_that_span_their_type_is_wrong(
    dtype: str, size: tuple[int, int, int]
) -> None:
    problem = gemm(*size, dtype)
    for seed in range(20):
        inputs = spanned(make_inputs(problem, seed), np.random.default_rng(seed))
        output = (inputs[0] @ inputs[1]).astype(problem.precision.result)
        assert why_wrong_rows(problem, inputs, range(size[0]), output)[0] == ""
