"""A child process measures. Its crashes and hangs become rows, and the sweep continues."""

import errno
import os
import select
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commandline import TIMEOUT_S
from fakes import CPU, measurement, point, variant

from gpubench.engine import worker as module
from gpubench.engine.child import supervisor
from gpubench.engine.child.supervisor import SILENT_VARIABLES
from gpubench.engine.device_lock import lock_device
from gpubench.engine.worker import Worker
from gpubench.errors import ChildLostError, DeviceBusyError, UsageError
from gpubench.model import Cache, Config, Measurement, Point, Status, Timer, Timing
from gpubench.plan.descriptor import load
from gpubench.process.channel import Channel
from gpubench.process.child import Child, start

QUICK = Timing(rounds=1, min_samples=6, min_device_s=0.0, max_wall_s=0.1, point_limit_s=300)

FAULTY = '''
"""Right, but for what its tile asks it to do."""
import ctypes, os, sys, time
import numpy as np
from gpubench.model import CallVariant
from gpubench.model import edges

def build(tile, dtype):
    def call(a, b, c):
        if tile["edge"] == 2:
            ctypes.string_at(0)
        if tile["edge"] == 3:
            time.sleep(60)
        if tile["edge"] == 4:
            os._exit(7)
        if tile["edge"] == 5:
            raise ValueError("an assertion failed\\nin line 2")
        np.matmul(a, b, out=c)
        if tile["edge"] == 7:
            c[-1, -1] += 1
        if tile["edge"] == 8 and len(a) == 8:  # not in the launches on few rows, which come first
            a[:] = 0  # right itself, it spoils the operands of those that come after it
        if tile["edge"] == 21:
            np.array_split = lambda *_: os._exit(9)  # which measuring the copy rate calls
        if tile["edge"] == 22:
            os.environ["HARMED"] = "yes"
        if tile["edge"] == 23 and "HARMED" in os.environ:
            ctypes.string_at(0)
    return call

VARIANT = CallVariant(
    idea="faults", tiles=edges(1, 64, because="enough"), runs_on="cpu", build=build, baseline=""
)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faulty")
    (folder / "faulty.py").write_text(FAULTY)
    return folder


def at(folder: Path, edge: int, name: str = "faulty", cache: Cache = Cache.HOT) -> Point:
    return point(
        load(folder / f"{name}.py", "gemm"),
        size=(8, 8, 8),
        tile=Config.parse(str(edge)),
        cache=cache,
    )


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker("cpu", Timer.EVENTS) as worker:
        worker.begin(QUICK, 1)
        yield worker


@pytest.mark.usefixtures("cold")
def test_silent_variables_are_recorded_and_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SILENT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with Worker("cpu", Timer.EVENTS) as worker:
        recorded = str(worker.device.facts["environment"]).split(";")
        assert "GPUBENCH_CPU_CACHE_MIB=2" in recorded
        assert not [text for text in recorded if text.startswith(SILENT_VARIABLES)]
    monkeypatch.setenv("CUPY_TF32", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("GPUBENCH_TEST", "passed on")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    monkeypatch.setenv("LD_PRELOAD", "/nowhere.so")
    monkeypatch.setenv("NPY_X", 1000 * "x")
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "30")
    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "True")  # as threadpoolctl sets it
    with Worker("cpu", Timer.EVENTS) as worker:
        recorded = str(worker.device.facts["environment"])
        assert recorded.startswith("CUPY_TF32=1;OMP_NUM_THREADS=2;GPUBENCH_CPU_CACHE_MIB=2;")
        # These variables also change times, and the child gets them.
        for text in ("LD_PRELOAD=/nowhere.so", "OPENBLAS_CORETYPE=Prescott", "NPY_X=" + 200 * "x"):
            assert text in recorded.split(";")
        assert "KMP_DUPLICATE_LIB_OK" not in recorded
        child = worker._child.living.pid
        lines = Path(f"/proc/{child}/environ").read_text().split("\0")
    assert not Path(f"/proc/{child}").exists()  # the child ends with its worker
    variables = dict(line.split("=", 1) for line in lines if line)
    assert variables["GPUBENCH_TEST"] == "passed on"
    assert not variables.keys() & set(SILENT_VARIABLES)
    assert variables["OPENBLAS_THREAD_TIMEOUT"] == "4"  # idle threads sleep
    assert variables["OMP_WAIT_POLICY"] == "PASSIVE"


@pytest.mark.slow
def test_a_crash_a_hang_and_an_exit_are_rows_with_their_cause(worker: Worker, folder: Path) -> None:
    reasons = {edge: worker.measure(at(folder, edge)) for edge in (2, 4)}
    worker.begin(replace(QUICK, point_limit_s=1.0), 1)
    reasons[3] = worker.measure(at(folder, 3))
    assert {each.status for each in reasons.values()} == {Status.ERROR}
    assert reasons[2].reason == "crashed: Segmentation fault (signal 11)"
    during = "during the build or the first call"
    assert reasons[3].reason == f"hung: no answer within 1 s, {during}; killed"
    assert reasons[4].reason == "ended by itself with exit code 7"
    worker.begin(QUICK, 1)
    assert worker.measure(at(folder, 1)).status == Status.OK  # in a fresh child


def test_an_error_that_leaves_the_child_whole_costs_no_child(worker: Worker, folder: Path) -> None:
    built = list[int]()
    worker.compile([at(folder, edge) for edge in range(9, 13)], built.append)
    child = worker._child.living.pid
    assert built == [1, 2, 3, 4]  # the kernels are built one by one
    for edge in range(9, 13):
        assert worker.measure(at(folder, edge)).status == Status.OK
    raised = worker.measure(at(folder, 5))
    assert (raised.status, raised.reason) == (
        Status.ERROR,
        "failed while running: ValueError: an assertion failed (faulty.py:17)",
    )
    assert worker.measure(at(folder, 7)).status == Status.WRONG
    assert worker._child.living.pid == child


def test_a_kernel_that_spoils_operands_harms_no_other(worker: Worker, folder: Path) -> None:
    spoiler = worker.measure(at(folder, 8, cache=Cache.COLD))
    # Its own result is wrong only if a set of operands is used again among the checked launches.
    assert spoiler.status in {Status.OK, Status.WRONG}
    after = worker.measure(at(folder, 1, cache=Cache.COLD))
    assert (after.status, after.max_relative_error) == (Status.OK, pytest.approx(0, abs=1e-6))


def test_a_variant_that_repeatedly_ends_its_child_is_skipped_unless_a_point_is_right_between(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FAULTS", 2)
    faulty = variant(name="faulty")
    good, crashing = point(faulty, size=(8, 8, 8)), point(faulty, size=(9, 9, 9))

    def attempt(at: Point, _limit_s: float | None) -> tuple[Measurement, bool]:
        return measurement(at=at) if at != crashing else failed, at == crashing

    failed = Measurement(point=crashing, status=Status.ERROR, reason="crashed")
    monkeypatch.setattr(worker, "_attempt", attempt)
    outcomes = [worker.measure(each) for each in (crashing, good, crashing, crashing, crashing)]
    assert [each_outcome.status for each_outcome in outcomes] == [
        Status.ERROR,
        Status.OK,
        Status.ERROR,
        Status.ERROR,
        Status.SKIPPED,
    ]
    assert "2 points of faulty in a row" in outcomes[-1].reason
    assert worker.measure(good).status == Status.SKIPPED  # further points are skipped
    assert worker.measure(point(variant(name="other"))).status == Status.OK


def test_a_point_that_crashes_after_another_is_tried_again(worker: Worker, folder: Path) -> None:
    assert worker.measure(at(folder, 22)).reason == ""
    crashed = worker.measure(at(folder, 23))
    assert crashed.status == Status.OK
    assert crashed.reason == (
        "right in a second process; the first process crashed: Segmentation fault (signal 11); "
        "the fault is in faulty 22 at 8 float32, which was measured before, or in the point itself"
    )
    assert worker.measure(at(folder, 23)).reason == ""  # this process is new


@pytest.mark.slow
def test_a_child_lost_at_another_request_is_an_error(worker: Worker, folder: Path) -> None:
    worker.measure(at(folder, 21))
    with pytest.raises(ChildLostError, match="the measuring process ended by itself with exit"):
        worker.ceilings(())
    assert worker.ceilings(())["measured_copy_gbytes_per_s"] > 0  # a new child measures


def test_a_rate_is_kept_unless_the_child_may_have_run_foreign_code(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def kept(kernels: Path | None) -> bool:
        with Worker("cpu", Timer.EVENTS, kernels) as worker:
            assert worker.ceilings(())["measured_copy_gbytes_per_s"] > 0
        return any(tmp_path.glob("cache/gpubench/rates/*"))

    assert not kept(folder)
    assert kept(None)


@pytest.mark.parametrize("kept", [False, True])
def test_a_function_cannot_change_the_rates_that_later_sweeps_use(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "gemm").mkdir()
    path = tmp_path / "gemm" / "liar.py"
    path.write_text(
        """
from gpubench.backends.cpu.gauge import COPY, CpuGauge
from gpubench.model import CallVariant

def build(*_):
    CpuGauge.ceilings = lambda *_: {COPY: 1e9}
    return lambda a, b, c: c.__setitem__(..., a @ b)

VARIANT = CallVariant(idea="a cheat", runs_on="cpu", build=build)
"""
    )
    with Worker("cpu", Timer.EVENTS, tmp_path) as worker:
        worker.begin(Timing(), 1)
        worker.compile([point(load(path, "gemm"))], lambda _count: None)
        assert 0 < worker.ceilings((), kept)["measured_copy_gbytes_per_s"] < 1e6


def test_phases_of_all_children_are_added_up(worker: Worker, folder: Path) -> None:
    worker.measure(at(folder, 1))
    once = worker.spent_s["sampling"]
    worker.next_round()  # a new child
    worker.measure(at(folder, 1))
    assert worker.spent_s["sampling"] > once > 0
    assert worker.spent_s["starting"] > 0  # the start of the second child


def test_later_children_start_early(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Child] = []

    def recorded(*words: str, **options: Any) -> Child:
        started.append(start(*words, **options))
        return started[-1]

    monkeypatch.setattr(supervisor, "start", recorded)
    rounds = replace(QUICK, rounds=3)
    with Worker("cpu", Timer.EVENTS) as worker:
        worker.begin(rounds, 1)
        worker.compile([at(folder, 1)], lambda _count: None)
        (_, second), (_, third) = worker._child._waiting
        worker.next_round()
        assert worker.measure(at(folder, 1)).status == Status.OK
        assert worker._child.child is second
        os.kill(third.process.pid, signal.SIGKILL)  # a child that dies while it waits is replaced
        os.waitid(os.P_PID, third.process.pid, os.WEXITED | os.WNOWAIT)
        worker.next_round()
        assert worker.measure(at(folder, 1)).status == Status.OK
        assert worker._child.child is not third
        worker.compile([at(folder, 1)], lambda _count: None)
        assert len(worker._child._waiting) == 2
        worker.next_round()
        assert worker.measure(at(folder, 1)).status == Status.OK
        monkeypatch.setattr(supervisor, "START_LIMIT_S", 0.0)
        worker.compile([at(folder, 1)], lambda _count: None)
        assert len(worker._child._waiting) == 1  # a child that does not start in time is killed
    assert all(child.has_ended for child in started)


STARTER = """
import os, socket, time
def begin(descriptor):
    if started := os.fork():
        socket.socket(fileno=descriptor).send(str(started).encode())
    time.sleep(600)  # longer than the test waits
"""


def test_a_killed_child_ends_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "starter.py").write_text(STARTER)
    monkeypatch.syspath_prepend(tmp_path)
    child = start("starter", "begin", speaker="starter")
    ended = os.pidfd_open(int(child.socket.recv(99)))
    child.kill()
    assert select.select([ended], [], [], TIMEOUT_S)[0]
    os.close(ended)


def test_a_child_without_its_device_or_that_cannot_start_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match="--timer cupti is only for cuda; cpu is timed by host"):
        Worker("cpu", Timer.CUPTI)
    monkeypatch.setattr("gpubench.process.child.BOOT", "import sys; sys.exit(3)")
    with pytest.raises(ChildLostError, match="the measuring process ended by itself"):
        Worker("cpu", Timer.EVENTS)


@pytest.mark.slow
def test_a_child_lost_while_it_compiles_costs_its_point_alone(worker: Worker, folder: Path) -> None:
    (folder / "builder.py").write_text(
        FAULTY.replace("    def call(", "    os._exit(3)\n    def call(")
    )
    bad = at(folder, 1, "builder")
    worker.compile([bad], lambda _built: None)
    assert worker.measure(at(folder, 1)).status == Status.OK
    assert worker.measure(bad).reason == "ended by itself with exit code 3"


# ---- one sweep per GPU

GPU = replace(CPU, backend="cuda", name="NVIDIA T1", facts={"uuid": "GPU-test-0001"})


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("gpubench.engine.device_lock.LOCKS", tmp_path)
    return tmp_path


def test_a_second_sweep_on_a_gpu_is_told_who_holds_it_and_since_when(locks: Path) -> None:
    path = locks / "gpubench-GPU-test-0001.lock"
    path.write_text("process 1 since 2025-01-01, which has ended, with a longer text\n")
    with ExitStack() as first, ExitStack() as second:
        lock_device(GPU, first)
        assert path.read_text().startswith(f"process {os.getpid()} ")
        assert "longer text" not in path.read_text()
        with pytest.raises(DeviceBusyError) as refused:
            lock_device(GPU, second)
        assert f"NVIDIA T1 is being measured by process {os.getpid()} since 2" in str(refused.value)
        first.close()
        assert lock_device(GPU, second) == ""
    assert list(locks.iterdir()) == [path]


def test_gpus_are_locked_one_by_one_and_cpus_not_at_all(locks: Path) -> None:
    with ExitStack() as held:
        for device in (GPU, replace(GPU, facts={"uuid": "GPU-2"}), CPU, CPU):
            assert lock_device(device, held) == ""
    assert len(list(locks.iterdir())) == 2


def test_a_file_that_is_no_lock_is_left_unchanged_and_named(locks: Path) -> None:
    path = locks / "gpubench-GPU-test-0001.lock"
    (locks / "precious").write_text("precious")
    for put in (lambda: path.symlink_to("precious"), lambda: os.mkfifo(path), path.mkdir):
        put()
        why = lock_device(GPU, ExitStack())
        assert why.startswith(f"the GPU is not locked against other sweeps: {path}: ")
        path.rmdir() if path.is_dir() else path.unlink()
    assert (locks / "precious").read_text() == "precious"


@pytest.mark.usefixtures("locks")
def test_a_full_disk_is_no_reason_not_to_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with ExitStack() as held:
        assert lock_device(GPU, held) == ""
        with pytest.raises(DeviceBusyError, match="by another gpubench"):
            lock_device(GPU, held)


def test_children_that_were_started_ahead_for_a_folder_serve_its_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = list[Child]()

    def recorded(*words: str, **options: Any) -> Child:
        started.append(start(*words, **options))
        return started[-1]

    monkeypatch.setattr(supervisor, "start", recorded)
    folders = {tmp_path / "used": ["mine"], tmp_path / "unused": ["mine"]}
    supervisor.start_ahead("cpu", Timer.EVENTS, folders, "cpu", 1)
    serving = supervisor.supervisor_of("cpu", Timer.EVENTS, tmp_path / "used")
    try:
        assert serving.child is started[0]  # this child has opened its device
        assert serving.owner == "mine"
        assert serving.open().device.backend == "cpu"
        assert serving.child is started[0]
    finally:
        serving.end_all()
        supervisor.end_ahead()
    assert [each.has_ended for each in started] == [True, True]


def test_a_child_that_is_started_only_when_a_device_is_opened_ahead_lives_on(
    tmp_path: Path,
) -> None:
    """No child waits if the waiting child was killed, or could not open the device."""
    supervisor.start_ahead("cpu", Timer.EVENTS, {tmp_path: ["mine"]}, "cpu", 0)
    serving = supervisor.supervisor_of("cpu", Timer.EVENTS, tmp_path)
    try:
        with pytest.raises(TimeoutError):  # the child closes the channel when it ends
            Channel(serving.living.socket).receive(1.0)
        assert not serving.living.has_ended
    finally:
        serving.end_all()


def test_a_child_that_is_lost_is_no_reason_to_let_the_next_one_write_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Foreign code that runs already could end the child or slow it down."""
    folders = list[Path | None]()

    def recorded(*words: str, **options: Any) -> Child:
        folders.append(options["folder"])
        return start(*words, **options)

    monkeypatch.setattr(supervisor, "start", recorded)
    serving = supervisor.Supervisor("cpu", Timer.EVENTS, tmp_path)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(supervisor, "START_LIMIT_S", 0.0)
            with pytest.raises(ChildLostError):
                serving.open()
        serving.open()
    finally:
        serving.end_all()
    assert len(folders) == 2
    assert None not in folders
    assert not serving.unkept
