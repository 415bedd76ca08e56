"""A sweep ends in spite of faulty kernels, and each of them spoils only its own points."""

import os
import select
import signal
import time
from pathlib import Path

import pytest
from commandline import TIMEOUT_S, call, running, start

from gpubench.results.row import Row, read

pytestmark = pytest.mark.slow

KERNEL = """
import ctypes, os, signal, subprocess, sys, time
import numpy as np
from gpubench.model import CallVariant, edges

DONE = []
{before}

def build(tile, dtype):
    {building}
    def call(a, b, c):
        np.matmul(a, b, out=c)
        {call}
    return call

VARIANT = CallVariant(
    idea="an accident", tiles=edges(1, 1, because="one is enough"), runs_on="cpu", build=build,
    baseline="", threads=1,
)
"""


def command(folder: Path, *flags: str, **kernels: dict[str, str]) -> list[str]:
    """Return a command that sweeps kernels with these parts, and `cpu_blas`, at a small size."""
    (folder / "own").mkdir()
    for name, parts in kernels.items():
        text = KERNEL.format(**{"before": "", "building": "", "call": ""} | parts)
        (folder / "own" / f"{name}.py").write_text(text)
    return [
        "sweep", "--device", "cpu", "--kernels", "own", "-o", "a.csv", "--point-limit", "30",
        "--variants", ",".join([*kernels, "cpu_blas"]), "--sizes", "64", "--rounds", "1", *flags,
    ]  # fmt: skip


def sweep(folder: Path, *flags: str, **kernels: dict[str, str]) -> tuple[int, dict[str, Row]]:
    """Run the command; return its exit code, and its rows by variant."""
    code = call(folder, *command(folder, *flags, **kernels)).code
    return code, {str(row.variant): row for row in read(folder / "a.csv")}


def test_kernels_that_fork_or_write_into_all_files_spoil_own_points_only(tmp_path: Path) -> None:
    kernels = {
        "forks": "DONE or DONE.append(os.fork()); time.sleep(0.004)",
        "forks_always": "os.fork(); time.sleep(0.004)",
        "writes": "[ctypes.CDLL(None).write(file, b'hello, world', 12) for file in range(3, 64)]",
    }
    parts = {name: {"call": call} for name, call in kernels.items()}
    code, rows = sweep(tmp_path, "--seed", "0", **parts)  # this seed puts `forks` before cpu_blas
    assert (code, rows["cpu_blas"].status) == (1, "ok")
    assert (rows["forks"].median_us or 0) > 4000 > (rows["cpu_blas"].median_us or 4000)
    assert rows["writes"].status == "error"
    assert (rows["writes"].reason or "").startswith("sent data that is not an answer; killed")
    # The first copies of the process may end before, during or after the timed launches.
    of_copies = ("ended by itself", "ended a process during its launches")
    assert (rows["forks_always"].reason or "").startswith(of_copies) or (
        rows["forks_always"].status == "ok" and (rows["forks_always"].median_us or 0) > 4000
    )


def test_a_patched_clock_times_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("perf_counter", "perf_counter_ns"):  # this process also runs the description
        monkeypatch.setattr(time, name, getattr(time, name))
    patches = "ago = time.perf_counter_ns\ntime.perf_counter = lambda: {0}\n"
    patches += "time.perf_counter_ns = lambda: {0}"
    kernels = {
        name: {"before": patches.format(reading), "call": "time.sleep(1e-3)"}
        for name, reading in {"stopped": "0", "backwards": "-ago()"}.items()
    }
    code, rows = sweep(tmp_path, **kernels)
    assert code == 0
    for name in kernels:
        assert 1000 < (rows[name].median_us or 0) < 100_000
    assert (rows["cpu_blas"].min_us or 0) > 0


def test_a_build_that_hangs_ends_at_the_point_limit(tmp_path: Path) -> None:
    hangs = {"building": "time.sleep(600)"}  # longer than the test waits for `sweep`
    code, rows = sweep(tmp_path, "--point-limit", "1", mine=hangs)
    assert code == 1
    assert "cpu_blas" in rows  # on a loaded machine, it may exceed the limit too
    assert rows["mine"].reason == (
        "hung: no answer within 1 s, during the build or the first call; killed"
    )


def test_a_function_that_hangs_alone_in_its_process_is_not_called_again(tmp_path: Path) -> None:
    hangs = {"call": "print('begun', flush=True); time.sleep(600)"}
    done = call(tmp_path, *command(tmp_path, "--point-limit", "4", mine=hangs))
    assert done.err.count("begun") == 1
    assert "hung: no answer within 4 s" in done.err


@pytest.mark.parametrize("ended_by", ["itself", "a kill"])
def test_a_process_of_a_kernel_does_not_outlive_the_sweep(tmp_path: Path, ended_by: str) -> None:
    seconds = f"98765{tmp_path.stat().st_ino}"
    starts = f"DONE or DONE.append(subprocess.Popen(['sleep', '{seconds}']))"
    hangs = "; time.sleep(600)" if ended_by == "a kill" else ""
    with start(tmp_path, *command(tmp_path, mine={"call": starts + hangs})) as process:
        while not (started := running(seconds)):
            assert process.poll() is None
            time.sleep(0.05)
        ended = [os.pidfd_open(pid) for pid in started]
        if hangs:
            process.kill()
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == (-signal.SIGKILL if hangs else 0)
    for descriptor in ended:
        assert select.select([descriptor], [], [], TIMEOUT_S)[0]
        os.close(descriptor)
    assert running(seconds) == []


def test_a_kernel_that_closes_its_streams_or_prints_into_none_is_measured(tmp_path: Path) -> None:
    prints = "print('x' * 9999, flush=True); sys.stderr.write('y'); os.closerange(1, 3)"
    with start(tmp_path, *command(tmp_path, mine={"call": prints})) as process:
        process.stderr.close()
        process.stderr = None
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 74  # the progress could not be written
    assert {row.status for row in read(tmp_path / "a.csv")} == {"ok"}
    assert out.endswith("\na.csv\n")
