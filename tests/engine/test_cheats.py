"""Functions that cheat, measured as a user's: none is `ok` with a false time.

`tests/cheats` has those for a GPU, which `benchmarks/cheats.py` measures.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench.engine.worker import Worker
from gpubench.model import Cache, Point, Problem, Status, Timer, Timing
from gpubench.plan.registry import load

TIMING = Timing(rounds=1, min_samples=6, min_device_s=0.0, max_wall_s=0.2, point_limit_s=300)

HEAD = """
import threading
import time

import numpy as np
from gpubench.model import CallVariant

kept, calls, threads = {}, [], []

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
        kept[key] = a @ b
    c[:] = kept[key]""",
    "keeps_results_by_address": """
    key = a.ctypes.data, b.ctypes.data, a.shape
    if key not in kept:
        kept[key] = a @ b
    c[:] = kept[key]""",
    "returns_where_the_output_is_filled": """
    if not np.isfinite(c).all():
        np.matmul(a, b, out=c)""",
    "computes_half_where_the_output_is_filled": """
    half = len(a) // 2 if np.isfinite(c).all() else 0
    np.matmul(a[half:], b, out=c[half:])""",
    "computes_one_call_in_seven": """
    calls.append(1)
    if len(calls) % 7 == 1:
        np.matmul(a, b, out=c)""",
    "cuts_operands_above_170": """
    np.matmul(*((cut(a), cut(b)) if len(a) > 170 else (a, b)), out=c)""",
    "writes_zeros": """
    c[:] = 0""",
    "reads_a_part_of_k": """
    np.matmul(a[:, :200], b[:200], out=c)""",
    "returns_before_it_has_computed": """
    def later():
        time.sleep(0.002)
        np.matmul(a, b, out=c)
    threads.append(threading.Thread(target=later))
    threads[-1].start()
    for thread in threads[:-1]:
        thread.join()""",
    "overwrites_an_operand": """
    np.matmul(a, b, out=c)
    a[len(a) // 2] = 0""",
    "replaces_the_checks": """
    from gpubench.engine import runner
    from gpubench.engine.judge import probe, verdict, verify
    runner.require_exact = runner.require_independent = lambda *_, **__: None
    verdict.require = verify.require = probe.require = runner.require = lambda *_: None
    c[:] = 0""",
    "replaces_the_clock": """
    import gc
    from gpubench.backends.cpu.backend import CpuTimer
    for timer in [x for x in gc.get_objects() if isinstance(x, CpuTimer)] if not kept else []:
        kept[0] = True
        object.__setattr__(timer, "clock_ns", lambda: time.perf_counter_ns() // 400)
    np.matmul(a, b, out=c)""",
}

HONEST = {
    "multiplies": """
    np.matmul(a, b, out=c)""",
    "multiplies_and_copies": """
    c[:] = a @ b""",
}


def measured(folder: Path, name: str, body: str, cache: Cache) -> tuple[Status, str]:
    path = folder / f"{name}.py"
    path.write_text(HEAD.replace("BODY", body.strip()))
    point = Point(
        variant=load(path, "gemm"),
        tile=None,
        problem=Problem(op="gemm", m=256, n=192, k=320, dtype="float32"),
        cache=cache,
        scope="kernel",
        timer=Timer.HOST,
    )
    with Worker("cpu", Timer.EVENTS) as worker:
        worker.begin(TIMING, 1)
        result = worker.measure(point)
    return result.status, result.reason


@pytest.mark.parametrize("name", CHEATS)
def test_no_function_is_ok_with_a_false_time(name: str, tmp_path: Path) -> None:
    status, reason = measured(tmp_path, name, CHEATS[name], Cache.HOT)
    assert status != Status.OK
    assert reason


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_function_is_ok(name: str, tmp_path: Path) -> None:
    assert measured(tmp_path, name, HONEST[name], Cache.COLD) == (Status.OK, "")
