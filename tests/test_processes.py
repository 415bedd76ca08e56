"""All processes of a command end with it, in whatever way it ends."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from commandline import TIMEOUT_S, call, run, running, start
from warm import Fork, Popen

from gpubench.engine.child import supervisor
from gpubench.engine.worker import Worker
from gpubench.errors import NO_MORE_PROCESSES, HostChangedError
from gpubench.hardware import host
from gpubench.model import Timer, Timing
from gpubench.plan import description_process
from gpubench.process import child, descendants
from gpubench.process.child import (
    BOOT,
    end_programs,
    run_program,
    run_with_folder,
    start_program,
)
from gpubench.process.child import start as start_child
from gpubench.process.streams import MAX_LINES, Copier

DAEMON = """
import os
if (middle := os.fork()) == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "{seconds}"])
    os._exit(0)
os.waitpid(middle, 0)
"""
"""Code that starts a daemon, a process whose parent has ended, in a new session."""

FORKER = """
import os, time
def fork(_):
    for _ in range(80):
        if (middle := os.fork()) == 0:
            if os.fork() == 0:
                time.sleep(0.02)
            os._exit(0)
        os.waitpid(middle, 0)
        time.sleep(0.1)
    os._exit(3)
"""
"""Code that starts a daemon ten times a second for eight seconds. Each daemon ends soon."""

KERNEL = """
import time
import numpy as np
from gpubench.model import CallVariant, edges

{started}

def build(tile, dtype):
    def call(a, b, c):
        np.matmul(a, b, out=c)
        {then}
    return call

VARIANT = CallVariant(
    idea="it starts a daemon", tiles=edges(1, 1, because="one is enough"), runs_on="cpu",
    build=build, baseline="", threads=1, dtypes=("float32",),
)
"""

SWEEP_OF_OWN = (
    "sweep", "--device", "cpu", "--kernels", "own", "--variants", "mine", "--sizes", "8",
    "--rounds", "1", "-o", "a.csv",
)  # fmt: skip

ENDS_IN_S = 2.0
SLACK_S = 20.0  # additional time on a loaded machine


@pytest.fixture
def argument(tmp_path: Path) -> str:
    return f"98765{tmp_path.stat().st_ino}"


@pytest.fixture
def program(argument: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that starts a daemon. The program runs behind its own subreaper."""
    code = DAEMON.format(seconds=argument) + "print('x', flush=True); import time; time.sleep(600)"
    command = [sys.executable, "-c", code]
    with start_program(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline()
        yield process
        process.kill()


def opened(pids: list[int]) -> list[int]:
    """Return descriptors of the processes that have not ended yet."""
    descriptors = []
    for pid in pids:
        with suppress(ProcessLookupError):
            descriptors.append(os.pidfd_open(pid))
    return descriptors


def all_ended(ends: list[int]) -> bool:
    """Return whether the processes of these descriptors end in time."""
    until = time.monotonic() + ENDS_IN_S + SLACK_S
    ended = [
        bool(select.select([end], [], [], max(0, until - time.monotonic()))[0]) for end in ends
    ]
    for end in ends:
        os.close(end)
    return all(ended)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux starts processes as forks")
@pytest.mark.parametrize("is_foreign", [False, True])
def test_children_that_measure_start_as_forks_in_these_tests(
    tmp_path: Path, is_foreign: bool
) -> None:
    kernels = tmp_path if is_foreign else None
    environment, _ = supervisor.environment_of_child(os.environ, kernels, "mine")
    assert Fork.forks
    assert Fork.forks.takes([sys.executable, "-P", "-c", BOOT], environment)


def test_a_daemon_is_a_descendant_and_ends_with_the_others(
    program: subprocess.Popen[bytes],
) -> None:
    pids = [program.pid, *descendants.descendants(program.pid)]
    assert len(pids) == 3  # the warden, the program, and the daemon
    assert set(pids) <= set(descendants.descendants())
    assert not set(descendants.descendants(without=[program.pid])) & set(pids)
    assert descendants.living(pids) == pids
    program.terminate()
    program.wait()
    assert program.returncode == -signal.SIGTERM
    assert descendants.living(pids) == []


def test_the_cpu_time_includes_threads_and_children_that_have_ended() -> None:
    work = "import time\nwhile time.thread_time() < 0.05: pass\n"
    code = f"""
import os, threading, sys
thread = threading.Thread(target=exec, args=({work!r}, {{}}))
thread.start(); thread.join()
if os.fork() == 0:
    exec({work!r}); os._exit(0)
os.wait()
print("x", flush=True); sys.stdin.read()
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert process.pid in descendants.descendants()
        assert descendants.cpu_ns(process.pid) > 0.09e9  # 0.01 s of the child may be lost
        assert process.stdin
        process.stdin.close()
    assert descendants.cpu_ns(process.pid) == 0


def test_a_process_of_a_description_ends_with_the_command(tmp_path: Path, argument: str) -> None:
    (tmp_path / "own").mkdir()
    own = tmp_path / "own" / "mine.py"
    own.write_text(KERNEL.format(started="", then=""))
    description_process.load(own, "gemm")  # the process starts before the command
    own.write_text(KERNEL.format(started=DAEMON.format(seconds=argument), then=""))
    done = call(tmp_path, "variants", "--kernels", "own", "--device", "cpu")
    assert done.code == 0
    assert "it starts a daemon" in done.out
    assert running(argument) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_process_that_a_kernel_started_ends_with_a_stopped_sweep(
    tmp_path: Path, argument: str, number: str
) -> None:
    (tmp_path / "own").mkdir()
    text = KERNEL.format(started=DAEMON.format(seconds=argument), then="time.sleep(600)")
    (tmp_path / "own" / "mine.py").write_text(text)
    with start(tmp_path, *SWEEP_OF_OWN) as process:
        while not (tmp_path / "a.csv.partial").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        before = frozenset(descendants.descendants())
        started = opened(descendants.descendants(process.pid))
        assert len(started) >= 2
        process.send_signal(signal.Signals[number])
        assert all_ended(started)
        process.communicate(timeout=TIMEOUT_S)
        # A child that started after `before` was read ends with its warden.
        limit_s = time.monotonic() + TIMEOUT_S
        while new := set(descendants.living(descendants.descendants())) - before:
            assert time.monotonic() < limit_s, new
            time.sleep(0.02)
    assert running(argument) == []
    assert process.returncode == (-signal.SIGKILL if number == "SIGKILL" else 130)
    assert (tmp_path / "a.csv").exists() == (number != "SIGKILL")


@pytest.mark.slow
def test_a_program_of_check_ends_with_it(tmp_path: Path) -> None:
    assert call(tmp_path, "new-kernel", "mine").code == 0
    source = tmp_path / "own" / "gemm" / "mine.cu"
    hangs = "const int row = blockIdx.y * EDGE + threadIdx.y;"
    text = source.read_text().replace(hangs, f"for (volatile int i = 1; i;) {{}}\n  {hangs}")
    assert text != source.read_text()
    source.write_text(text)
    with start(tmp_path, "check", "mine", "--kernels", "own", "--tiles", "1") as process:
        while not (pids := [p for p in descendants.descendants(process.pid) if is_program(p)]):
            assert process.poll() is None, process.communicate()
            time.sleep(0.3)  # listing all processes takes CPU time
        ends = opened(pids)
        process.terminate()
        assert all_ended(ends)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130


def test_a_compiler_that_is_ended_leaves_no_temporary_file_and_a_later_one_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_ended", False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    script = 'touch "$TMPDIR/of-the-compiler"; exec sleep 60'
    with ThreadPoolExecutor(1) as beside:
        ended = beside.submit(run_with_folder, ["sh", "-c", script])
        while not [*tmp_path.rglob("of-the-compiler")]:
            time.sleep(0.001)
        end_programs()
        assert ended.result(TIMEOUT_S).returncode
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as an interrupted command
        try:
            assert beside.submit(run_program, ["sleep", "60"]).result(ENDS_IN_S).returncode
        finally:
            signal.signal(signal.SIGTERM, before)
    assert run_program(["true"]).returncode == 0  # also in the main thread, where git runs
    assert [*tmp_path.iterdir()] == []


def is_program(pid: int) -> bool:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        return words[0].endswith("/program")
    return False


def test_a_stopped_process_uses_no_cpu_time_until_it_continues() -> None:
    code = "import os\nos.fork()\nos.write(1, b'x')\nwhile True: pass"
    warden = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]])"
    with subprocess.Popen(
        [sys.executable, "-c", warden, code], stdout=subprocess.PIPE, process_group=0
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.read(2) == b"xx"
            with descendants.stopped(process.pid):
                pids = descendants.descendants(process.pid)
                wait_until_stopped(pids)
                before = [descendants.cpu_ns(pid) for pid in pids]
                time.sleep(0.1)
                assert [descendants.cpu_ns(pid) for pid in pids] == before
            assert len(pids) == 2
            deadline_s = time.monotonic() + SLACK_S
            while [descendants.cpu_ns(pid) for pid in pids] == before:
                assert time.monotonic() < deadline_s
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def wait_until_stopped(pids: list[int]) -> None:
    """Wait until no thread of the processes runs any more."""
    deadline_s = time.monotonic() + SLACK_S
    while any(") T " not in Path(f"/proc/{pid}/stat").read_text() for pid in pids):
        assert time.monotonic() < deadline_s


def test_a_run_ends_in_a_line_if_a_thread_of_a_waiting_child_is_reniced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A library's threads would work at the changed priority, unlike the child's main thread."""
    threads: list[int] = []
    changed, ended = threading.Event(), threading.Event()

    def renice() -> None:
        threads.append(threading.get_native_id())
        os.setpriority(os.PRIO_PROCESS, threads[0], 15)
        changed.set()
        ended.wait()

    thread = threading.Thread(target=renice)
    with Worker("cpu", Timer.EVENTS) as worker:
        worker.begin(Timing(), 1)
        with worker._child.starting_ahead("cpu", ("",)):
            pass
        ((_, waiting),) = worker._child._waiting
        assert waiting.pid in supervisor.threads(waiting.pid)
        worker.next_round()
        thread.start()
        try:
            assert changed.wait(SLACK_S)
            monkeypatch.setattr(supervisor, "threads", lambda _pid: threads)
            with pytest.raises(HostChangedError, match="the priority of gpubench changed"):
                worker._make_ready()
        finally:
            ended.set()
            thread.join()


def test_a_run_ends_in_a_line_if_the_session_of_a_waiting_child_is_reniced() -> None:
    """Any process of the user may do this, and the child would then yield to other programs."""
    with Worker("cpu", Timer.EVENTS) as worker:
        worker.begin(Timing(), 1)
        with worker._child.starting_ahead("cpu", ("",)):
            pass
        ((_, waiting),) = worker._child._waiting
        assert supervisor.nice_of_session(waiting.pid) == 0
        try:
            Path(f"/proc/{waiting.pid}/autogroup").write_text("19")
        except OSError as error:
            pytest.skip(f"this system does not schedule sessions: {error}")
        worker.next_round()
        with pytest.raises(HostChangedError, match=r"priority of a session .* from 0 to 19"):
            worker._make_ready()


@pytest.mark.parametrize("what", ["CPUs", "priority"])
def test_a_run_whose_scheduling_changes_ends_in_a_line(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A kernel can change it only if gpubench has no more capabilities than the kernel."""
    with Worker("cpu", Timer.EVENTS) as worker:
        cpus, priority = supervisor.scheduling(os.getpid())
        changed = ("[99999]", priority) if what == "CPUs" else (cpus, "policy 0, nice 15")
        assert changed != (cpus, priority)
        worker.begin(Timing(), 1)
        monkeypatch.setattr(supervisor, "scheduling", lambda _pid: changed)
        with pytest.raises(HostChangedError, match=f"the {what} of gpubench changed .* from .* to"):
            worker.warm_up()


@pytest.mark.parametrize(
    ("before", "end"),
    [
        ("warden.MIN_FREE, warden.MAX_USED = 2, 0", "filled the memory of the machine; killed"),
        ("warden.os.fork = lambda: open('/missing')", f"did not start: {NO_MORE_PROCESSES}"),
    ],
)
def test_a_child_that_fills_the_memory_or_cannot_start_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, end: str
) -> None:
    boot = BOOT.replace("watch(int", f"from gpubench.process import warden; {before}; watch(int")
    assert boot != BOOT
    monkeypatch.setattr("gpubench.process.child.BOOT", boot)
    (tmp_path / "holder.py").write_text("import time\ndef hold(_): time.sleep(600)")
    monkeypatch.syspath_prepend(tmp_path)
    child = start_child("holder", "hold", speaker="holder")
    assert child.socket.recv(1) == b""
    assert child.how_it_ended() == end
    child.kill()


def test_a_child_outlives_the_thread_that_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, the processes of references are started by threads, and answer later."""
    (tmp_path / "ready.py").write_text(
        "import os, time\ndef hold(end): os.write(end, b'x'); time.sleep(600)"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", Popen)  # not a fork of another process

    def started() -> child.Child:
        ready = start_child("ready", "hold", speaker="ready")
        assert ready.socket.recv(1) == b"x"
        return ready

    with ThreadPoolExecutor(1) as pool:
        ready = pool.submit(started).result()
    ready.socket.settimeout(1.0)
    with pytest.raises(TimeoutError):  # the child closes its socket when it ends
        ready.socket.recv(1)
    assert not ready.has_ended
    ready.kill()


def test_the_memory_is_also_looked_at_while_daemons_of_the_child_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = "warden.MIN_FREE, warden.MAX_USED = 2, 0"
    boot = BOOT.replace("watch(int", f"from gpubench.process import warden; {before}; watch(int")
    monkeypatch.setattr("gpubench.process.child.BOOT", boot)
    (tmp_path / "forker.py").write_text(FORKER)
    monkeypatch.syspath_prepend(tmp_path)
    child = start_child("forker", "fork", speaker="forker")
    assert child.socket.recv(1) == b""
    assert child.how_it_ended() == "filled the memory of the machine; killed"
    child.kill()


def test_a_child_that_the_system_killed_for_memory_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "killed.py").write_text("import os\ndef end(_): os.kill(os.getpid(), 9)")
    monkeypatch.syspath_prepend(tmp_path)
    for kills, how in ((0, "crashed: Killed (signal 9)"), (1, "filled the memory of the machine")):
        counts = iter((5, 5 + kills))
        monkeypatch.setattr("gpubench.process.child.oom_kills", lambda counts=counts: next(counts))
        child = start_child("killed", "end", speaker="killed")
        assert child.how_it_ended().startswith(how)
        child.kill()


GROUPS = {
    "2": ("0::/a/b", ("max", "current"), "", {"cpu.max": "150000 100000"}),
    "1": (
        "5:cpu,cpuacct:/a/b\n4:memory:/a/b\n0::/",
        ("limit_in_bytes", "usage_in_bytes"),
        "total_",
        {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"},
    ),
}
"""By version of control groups: the list of a process's groups, and the files of these groups."""


@pytest.mark.parametrize("version", GROUPS)
def test_the_memory_and_the_cpus_of_a_container_are_what_its_groups_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    own, (maximum, current), prefix, quota = GROUPS[version]
    trees = {"cpu": tmp_path, "memory": tmp_path}
    if version == "1":
        trees = {name: tmp_path / name for name in trees}
    for tree in trees.values():
        (tree / "a" / "b").mkdir(parents=True, exist_ok=True)  # b has no limits of its own
    for group, limit, used, cached in (("", 2**63 - 4096, 7, 0), ("a", 3 * 2**20, 2**20, 2**19)):
        folder = trees["memory"] / group
        (folder / f"memory.{maximum}").write_text(f"{limit}\n")
        (folder / f"memory.{current}").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\n{prefix}inactive_file {cached}\n")
    read = host.read_text
    monkeypatch.setattr(host, "CGROUPS", tmp_path)
    monkeypatch.setattr(
        host, "read_text", lambda path: own if path == "/proc/self/cgroup" else read(path)
    )
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda _pid: range(8))
    assert host.all_memory_bytes() == 3 * 2**20
    assert host.free_memory_bytes() == 3 * 2**20 - 2**20 + 2**19
    assert host.cpu_threads() == 8
    for name, text in quota.items():
        (trees["cpu"] / "a" / name).write_text(f"{text}\n")
    assert host.cpu_threads() == 2
    assert host.oom_kills() == 0
    events = {"2": "events", "1": "oom_control"}[version]
    (trees["memory"] / "a" / "b" / f"memory.{events}").write_text("oom 4\noom_kill 3\n")
    assert host.oom_kills() == 3


@pytest.mark.parametrize(
    ("text", "free_bytes"),
    [("MemAvailable:    512 kB", 2**19), ("MemAvailable:      0 kB", 0), ("", 2**32)],
)
def test_a_machine_without_free_memory_has_none(
    monkeypatch: pytest.MonkeyPatch, text: str, free_bytes: int
) -> None:
    monkeypatch.setattr(host, "read_text", lambda path: text if path == "/proc/meminfo" else "")
    assert host.free_memory_bytes() == free_bytes


def test_what_a_child_prints_is_cleaned_named_and_bounded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = ["::add-mask::x", "\x1b[2J##[group]y", "##vso[task.setvariable]z", *(100 * ["again"])]
    copier = Copier("my\nkernel")
    os.write(copier.descriptor, "\n".join(lines).encode() + b"\n\xff")
    copier.start()
    copier.finish(TIMEOUT_S)
    first, second, third, *rest = capsys.readouterr().err.splitlines()
    assert first == "[my kernel] ::add-mask::x"  # GitHub obeys only commands at the start of a line
    assert second == "[my kernel] ?[2J# #[group]y"
    assert third == "[my kernel] # #vso[task.setvariable]z"
    assert rest[:-1] == (MAX_LINES - 3) * ["[my kernel] again"]
    assert rest[-1] == f"[my kernel] ({104 - MAX_LINES} more lines, not shown)"


def test_a_line_has_the_name_of_the_kernel_that_printed_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    copier = Copier("a")
    writer = os.dup(copier.descriptor)
    copier.start()
    for name in ("b", "c", "a"):
        copier.speak_as(name)
        os.write(writer, name.encode() + b"\n")
    os.close(writer)
    copier.finish(TIMEOUT_S)
    assert capsys.readouterr().err == "[b] b\n[c] c\n[a] a\n"


HOSTILE = """
import ctypes, json, os, pathlib, signal, sys, threading, time
from gpubench.model import CallVariant, edges

def tried(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return "done"

def write(path):
    return lambda: pathlib.Path(path).write_text("hostile")

def in_other_threads(what):
    # A signal's handler runs in the threads of libraries.
    libc, outcomes = ctypes.CDLL(None), []
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: outcomes.append(tried(what)))
    libc.signal(signal.SIGUSR1, handler)
    for thread in {*os.listdir("/proc/self/task")} - {str(threading.get_native_id())}:
        libc.tgkill(os.getpid(), int(thread), signal.SIGUSR1)
    time.sleep(0.2)
    libc.signal(signal.SIGUSR1, ctypes.c_void_p(1))  # ignore
    return outcomes

program = int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1])
whole = pathlib.Path(os.environ["HOME"]).parent
whole = whole.parent if whole.name == "users" else whole
of_libraries = whole / "shared" / "x.nbi"
moved = pathlib.Path(os.environ["TMPDIR"], "moved")
moved.write_text("hostile")
outcomes = {
    "result": tried(write("{folder}/base.csv")),
    "home": tried(write("{folder}/.bashrc")),
    "cache": tried(write("{cache}/x.nbi")),
    "terminal": tried(write("/dev/tty")),
    "removed": tried(lambda: os.unlink("{folder}/base.csv")),
    "cut": tried(lambda: os.truncate("{folder}/base.csv", 0)),
    "memory": tried(lambda: open(f"/proc/{program}/mem", "r+b")),
    "descriptors": tried(lambda: open(f"/proc/{program}/fd/2", "w")),
    "signal": tried(lambda: os.kill(program, signal.SIGTERM)),
    "libraries": "done" in [
        tried(write(of_libraries)),
        tried(write(whole / "x.nbi")),
        tried(write(whole / "users" / "other")),
        tried((whole / "shared" / ".cupy").mkdir),
        tried(lambda: moved.rename(of_libraries)),
        tried(lambda: os.link(moved, of_libraries)),
        tried(lambda: of_libraries.symlink_to(moved)),
        *in_other_threads(write(of_libraries)),
    ],
    "own": tried(write(os.environ["TMPDIR"] + "/mine")),
    "token": os.environ.get("GH_TOKEN", "none"),
    "files of the job": os.environ.get("GITHUB_ENV", "none"),
}
print(json.dumps(outcomes))
VARIANT = CallVariant(
    idea="hostile", tiles=edges(1, 1, because="of a test"), runs_on="cpu", baseline="", threads=1,
    build=lambda tile, dtype: lambda a, b, c: c.__setitem__(slice(None), a @ b),
)
"""
"""A description that prints what it could access, in both processes that load it."""

HELD = dict.fromkeys(("result", "home", "cache", "removed", "cut", "memory"), "PermissionError")


def test_foreign_code_writes_into_its_own_folder_alone_and_gets_no_token(
    tmp_path: Path, own_caches: Path
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "base.csv").write_text("the base")
    text = HOSTILE.replace("{folder}", str(tmp_path)).replace("{cache}", str(own_caches))
    (tmp_path / "own" / "mine.py").write_text(text)
    secrets = {"GH_TOKEN": "secret", "GITHUB_ENV": str(tmp_path / "env")}
    done = run(tmp_path, *SWEEP_OF_OWN, **secrets)
    assert done.code == 0, done.err
    outcomes = [
        json.loads(line.partition("] ")[2])
        for line in done.err.splitlines()
        if line.startswith(("[mine] {", "[kernels] {"))
    ]
    assert len(outcomes) >= 2
    for outcome in outcomes:
        assert outcome.pop("terminal") in {"OSError", "PermissionError"}
        assert outcome == HELD | {
            "descriptors": "PermissionError", "signal": "PermissionError", "own": "done",
            "token": "none", "files of the job": "none", "libraries": False,
        }  # fmt: skip
    assert (tmp_path / "base.csv").read_text() == "the base"
