"""What /proc and /sys say about the host while something is measured."""

import os
from pathlib import Path

import pytest

from gpubench.hardware.host import HostWatch
from gpubench.model import Host

AFFINITY = hasattr(os, "sched_getaffinity")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of four CPUs, two threads a core."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3}, raising=False)
    for cpu, siblings in enumerate(("0-1", "0-1", "2-3", "2-3")):
        directory = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        directory.mkdir(parents=True)
        (directory / "thread_siblings_list").write_text(f"{siblings}\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("cpu MHz\t\t: 2000.0\ncache : 1\ncpu MHz\t\t: 3000.0\n")
    ticks(tmp_path, user=1000, idle=5000, steal=7)
    return tmp_path


def ticks(root: Path, *, user: int, idle: int, steal: int) -> None:
    """As the kernel writes them; guest time, the last but one, is within the user's."""
    zeros = "".join(f"cpu{cpu} 0 0 0 0 0 0 0 0 0 0\n" for cpu in (1, 2, 3))
    text = (
        f"cpu  9{user} 9 9 9 9 9 9 9 9 0\ncpu0 {user} 10 20 {idle} 30 0 5 {steal} 400 0\n{zeros}"
        f"cpu4 9{user} 9 9 9 9 9 9 9 9 0\nintr 1 2 3\n"
    )
    (root / "proc/stat").write_text(text)


def test_cores_clock_steal_and_the_load_of_others_are_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter((10.0, 12.0))
    monkeypatch.setattr("gpubench.hardware.host.perf_counter", lambda: next(seconds))
    own = iter((1.0, 3.0))  # one CPU of ours over two seconds
    monkeypatch.setattr("gpubench.hardware.host.process_time", lambda: next(own))
    watch = HostWatch(root)
    ticks(root, user=1500, idle=5220, steal=87)  # five seconds of work, three of them others'
    assert watch.read() == Host(cores=2, mhz=2500.0, steal_percent=10.0, other_load=1.5)


def test_a_system_that_says_nothing_leaves_everything_empty(tmp_path: Path) -> None:
    assert HostWatch(tmp_path).read() == Host()


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="Linux alone has /proc/stat")
def test_this_machine_is_read() -> None:
    host = HostWatch().read()
    assert host.steal_percent is not None
    assert host.other_load is not None
    assert host.other_load >= 0
