"""Functions that cheat, measured as a user's functions. None is `ok` with a false time.

test_independence.py has functions that keep results by address, that return if the output is
filled, and that compute in one of seven calls. `tests/cheats` has functions for a GPU, which
`research/cheats.py` measures.
"""

import time
import timeit
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl
from fakes import point

from gpubench.engine.worker import Worker
from gpubench.model import Measurement, Status, Timer, Timing
from gpubench.plan import description_process
from gpubench.plan.descriptor import load
from gpubench.plan.registry import of_op
from gpubench.process.descendants import living
from gpubench.process.requests import NO_ANSWER

TIMING = Timing(rounds=1, min_samples=6, min_device_s=0.0, max_wall_s=0.2, point_limit_s=300)

HEAD = """
import gc
import os
import sys
import threading
import time

import numpy as np
from gpubench.model import CallVariant

kept, calls, threads = {}, [], []

def slow(a, b, c):
    for _ in range(20):
        np.matmul(a, b, out=c)

def frames():
    frame = sys._getframe()
    while frame:
        yield frame
        frame = frame.f_back

def replay(a, b, c):
    key = a.tobytes(), b.tobytes()
    if key not in kept:
        slow(a, b, c)
        kept[key] = c.copy()
    c[:] = kept[key]

def cut(values):
    return (values.view(np.uint32) & np.uint32(0xFFFFFFC0)).view(np.float32)

def call(a, b, c):
    BODY

VARIANT = CallVariant(
    idea="a cheat", runs_on="cpu", threads=1, build=lambda _tile, _dtype: call)
"""

CHEATS = {
    "keeps_results_by_value": """
    key = a.shape, b.shape, a[:, 0].tobytes(), b[0].tobytes()
    if key not in kept:
        slow(a, b, c)
        kept[key] = c.copy()
    c[:] = kept[key]""",
    "cuts_operands_above_170": """
    np.matmul(*((cut(a), cut(b)) if len(a) > 170 else (a, b)), out=c)""",
    "returns_before_it_has_computed": """
    def later():
        time.sleep(0.002)
        np.matmul(a, b, out=c)
    threads.append(threading.Thread(target=later))
    threads[-1].start()
    for thread in threads[:-1]:
        thread.join()""",
    "replaces_the_checks": """
    from gpubench.engine.measure import trials
    from gpubench.engine.judge import probe, verdict, verify
    trials.require_exact = trials.require_independent = lambda *_, **__: None
    verdict.require = verify.require = probe.require = lambda *_: None
    c[:] = 0""",
    "replaces_the_clock": """
    import gc
    from gpubench.backends.cpu.backend import CpuTimer
    for timer in [x for x in gc.get_objects() if isinstance(x, CpuTimer)] if not kept else []:
        kept[0] = True
        object.__setattr__(timer, "clock_ns", lambda: time.perf_counter_ns() // 400)
    slow(a, b, c)""",
    # ---- cheats that were published for other harnesses
    "replays_rows_that_it_recognizes": """
    started, rows = time.perf_counter(), kept.setdefault(b.shape, {})
    with np.errstate(all="ignore"):
        names = [(x, abs(b[0, 0] / b[0, 1])) for x in np.abs(a[:, 0] / a[:, 1])]
        new = [i for i, name in enumerate(names) if name not in rows]
        for i in set(range(len(a))) - set(new):
            old_a, row, old_b = rows[names[i]]
            c[i] = row * (a[i, 0] / old_a) * (b[0, 0] / old_b)
    if new:
        slow(a, b, c)
        for i in new:
            rows[names[i]] = a[i, 0], c[i].copy(), b[0, 0]
    while time.perf_counter() < started + 3e-4:
        pass""",
    "is_honest_in_the_first_process": """
    if not calls:
        calls.append((HERE / "marked").exists())
        (HERE / "marked").touch()
    (replay if calls[0] else slow)(a, b, c)""",
    "computes_the_first_launch_of_a_batch": """
    frame = next((frame for frame in frames() if frame.f_code.co_name == "_time"), None)
    batch = frame and id(frame.f_locals["sets"])
    if not (batch and kept.get("batch") == batch):
        np.matmul(a, b, out=c)
    kept["batch"] = batch""",
    "sends_the_answer_itself": """
    import msgspec
    from gpubench.engine.child.calls import Done, encode
    from gpubench.process.requests import _Answer
    for frame in frames():
        found = frame.f_locals
        if frame.f_code.co_name == "answer_requests" and b"Walled.launch" in found["content"]:
            done = encode(Done(msgspec.Raw(encode(100.0)), spent_s={}, usable=True))
            answer = _Answer(found["token"], value=done)
            found["channel"].send(msgspec.msgpack.encode(answer))
            time.sleep(0.01)
    slow(a, b, c)""",
    "reads_the_expected_result": """
    from gpubench.engine.operands.make import Reference
    for found in [x for x in gc.get_objects() if isinstance(x, Reference)]:
        if found.parts[0].shape == c.shape and a.all():
            c[:] = found.parts[0]
            return
    slow(a, b, c)
    c[0] += 0 if not a.all() else 1""",
    # ---- cheats whose author read only the documentation
    "keeps_what_it_made_of_b": """
    key = b.tobytes()
    if key not in kept:
        slow(a, b, c)
        kept[key] = b.copy()
    np.matmul(a, kept[key], out=c)""",
    "computes_where_operands_are_made": """
    def seen(frame, event, array):
        if event == "return" and isinstance(array, np.ndarray) and array.shape == a.shape:
            sys.setprofile(None)
            replay(array, b, c.copy())
            sys.setprofile(seen)
    replay(a, b, c)
    sys.setprofile(seen)""",
    # ---- sums with fewer bits than the precision states
    "sums_in_float16": """
    total = np.zeros(c.shape, np.float16)
    for k in range(0, a.shape[1], 32):
        total += (a[:, k : k + 32] @ b[k : k + 32]).astype(np.float16)
    c[:] = total""",
}


def measured(folder: Path, name: str, body: str, rounds: int = 3) -> Measurement:
    """Return the first measurement that is not ok, or the last one if all rounds are ok."""
    path = folder / f"{name}.py"
    here = f"__import__('pathlib').Path({str(folder)!r})"
    path.write_text(HEAD.replace("BODY", body.strip()).replace("HERE", here))
    cheat = point(load(path, "gemm"), size=(256, 192, 320), timer=Timer.OUTSIDE)
    with Worker("cpu", Timer.EVENTS) as worker:
        worker.begin(TIMING, 1)
        for _ in range(rounds):
            result = worker.measure(cheat)
            if result.status != Status.OK:
                break
            worker.next_round()
    return result


@pytest.fixture(scope="module")
def slow_us() -> float:
    """Lower bound in µs for the time of the function that cheats call `slow`."""
    a, b = np.ones((256, 320), np.float32), np.ones((320, 192), np.float32)

    def slow() -> None:
        for _ in range(20):
            a @ b

    with threadpoolctl.threadpool_limits(1):
        return 1e6 / 4 * min(timeit.repeat(slow, time.thread_time, number=1, repeat=5))


@pytest.mark.parametrize("name", CHEATS)
def test_no_function_is_ok_with_a_false_time(name: str, tmp_path: Path, slow_us: float) -> None:
    """On a busy machine a cheat may not succeed. Then its time is the time of `slow`."""
    result = measured(tmp_path, name, CHEATS[name])
    if result.series is None:
        assert result.status != Status.OK
        assert result.reason
        assert "failed" not in result.reason  # the cheat itself has no fault
        assert result.reason != NO_ANSWER
    else:
        assert result.series.median_us >= slow_us


def test_an_honest_function_is_ok(tmp_path: Path) -> None:
    result = measured(tmp_path, "honest", "c[:] = a @ b", rounds=2)
    assert (result.status, result.reason) == (Status.OK, "")


def test_no_process_of_a_description_runs_while_a_point_is_measured(tmp_path: Path) -> None:
    """Otherwise a description could slow down the library with which its function is compared."""
    path = tmp_path / "leaves_a_process.py"
    path.write_text(
        "import os, time\n"
        "from gpubench.model import CallVariant\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    os.setsid()\n"
        "    time.sleep(600)\n"
        'VARIANT = CallVariant(idea=str(pid), runs_on="cpu", build=print)\n'
    )
    pid = int(description_process.load(path, "gemm").idea)
    assert living([pid])
    with Worker("cpu", Timer.EVENTS) as worker:
        worker.begin(TIMING, 1)
        assert worker.measure(point(of_op("gemm")["cpu_blas"])).status == Status.OK
    assert not living([pid])
