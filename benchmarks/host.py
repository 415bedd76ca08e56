"""Why do CPU and end-to-end times of one build disagree? Threads, placement, sleep, steal.

    python benchmarks/host.py [PART ...]   # siblings, threads, idle, end-to-end; default: all

Each line is one process, and says what it measured: milliseconds (lowest, median, highest), the
CPUs that were busy (CPU time over wall time), the steal over all CPUs in percent, and how often the
scheduler took the CPU away. The product is float32 by NumPy's BLAS. About a minute on 16 CPUs.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

STATE_S = 0.4
"""Seconds of samples in each state."""

PAUSE_S = 0.1
"""Before each product of the state `paused`."""

FEWEST = 5
"""Samples of a state, however long they take."""

SETS = 8
CPUS = sorted(os.sched_getaffinity(0))


def main(parts: list[str]) -> None:
    if parts[:1] == ["child"]:
        return globals()[parts[1]](*json.loads(parts[2]))
    topology()
    known = {"siblings": siblings, "threads": threads, "idle": idle, "end-to-end": end_to_end}
    for part in parts or known:
        print(f"\n== {part}", flush=True)
        known[part]()
    return None


def topology() -> None:
    lscpu = subprocess.run(["lscpu"], check=False, capture_output=True, text=True)  # noqa: S607 # the system's own
    print(lscpu.stdout.partition("\nVuln")[0])
    print("load", Path("/proc/loadavg").read_text().strip())
    print(Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip())
    print("steal and all ticks since boot", ticks())
    for cpu in CPUS:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        print(path.read_text().strip() if path.exists() else "?", end="  ")
    print()


def siblings() -> None:
    """One thread on each CPU in turn, then two threads on pairs: shared cores are slower."""
    for cpu in CPUS[:4] + CPUS[-1:]:
        child("products", [1024, 1, [cpu], ["cold"]])
    half = len(CPUS) // 2
    for pair in {(0, 1), (0, min(2, len(CPUS) - 1)), (0, half)}:
        child("products", [1024, 2, [CPUS[pair[0]], CPUS[pair[1]]], ["cold"]])


def threads() -> None:
    """Each number of threads: free, and confined to as many CPUs, one a core if pairs are cores."""
    counts = [count for count in (1, 2, 4, 8, 16, 32) if count <= len(CPUS)]
    for _repeat in range(2):
        for count in counts:
            states = ["hot", "cold", "paused"]
            child("products", [2048, count, CPUS, states])
            if count < len(CPUS):
                step = len(CPUS) // count
                child("products", [2048, count, CPUS[::step][:count], states])


def idle() -> None:
    """How long idle threads of the BLAS keep CPUs busy, and what that does to others."""
    for timeout in ("26", "4"):  # a power of two of clock ticks
        os.environ["OPENBLAS_THREAD_TIMEOUT"] = timeout
        child("after_all", [timeout])
        child("products", [256, len(CPUS), CPUS, ["hot"]])
        child("products", [1024, len(CPUS), CPUS, ["hot"]])
    del os.environ["OPENBLAS_THREAD_TIMEOUT"]


def end_to_end() -> None:
    """5 MB to a GPU and back, as p100-tiles has it, and which call takes the time."""
    child("transfers", [CPUS])
    child("transfers", [CPUS[:1]])
    code = "import numpy as n; a = n.ones((1024, 1024)); exec('while 1: a @ a')"
    busy = subprocess.Popen([sys.executable, "-c", code])
    print("beside a process whose BLAS uses all CPUs")
    child("transfers", [CPUS])
    busy.kill()


def child(name: str, arguments: list[object]) -> None:
    subprocess.run([sys.executable, __file__, "child", name, json.dumps(arguments)], check=False)


def products(extent: int, count: int, cpus: list[int], states: list[str]) -> None:
    os.sched_setaffinity(0, cpus)  # before the BLAS makes its threads
    import numpy as np
    import threadpoolctl

    random = np.random.default_rng(1)
    sets = [random.random((2, extent, extent), dtype=np.float32) for _ in range(SETS)]
    c = np.empty((extent, extent), np.float32)
    with threadpoolctl.threadpool_limits(count):
        for state in states:

            def sample(index: int, state: str = state) -> float:
                if state == "paused":
                    time.sleep(PAUSE_S)
                a, b = sets[index % SETS if state != "hot" else 0]
                start = time.perf_counter()
                np.matmul(a, b, out=c)
                return time.perf_counter() - start

            where = "free" if len(cpus) == len(CPUS) else f"on {cpus}"
            report(f"{extent} {count:2} threads {state:6} {where}", sample)


def after_all(timeout: str) -> None:
    import numpy as np
    import threadpoolctl

    print([(info["internal_api"], info["version"]) for info in threadpoolctl.threadpool_info()])
    a = np.random.default_rng(1).random((1024, 1024), dtype=np.float32)
    c = np.empty_like(a)
    np.matmul(a, a, out=c)
    spent = []
    for _step in range(40):
        before_s = time.process_time()
        time.sleep(0.01)
        spent.append(time.process_time() - before_s)
    print(
        f"timeout {timeout}: CPU ms in each 10 ms after a product:",
        *(f"{1e3 * s:.0f}" for s in spent),
    )
    for pause_s in (0.5, 0.0):
        times = []
        for _repeat in range(4):
            np.matmul(a, a, out=c)
            time.sleep(pause_s)
            with threadpoolctl.threadpool_limits(1):
                start = time.perf_counter()
                for _call in range(2):
                    np.matmul(a, a, out=c)
                times.append(500 * (time.perf_counter() - start))
        low, middle, high = min(times), statistics.median(times), max(times)
        print(f"1024  1 thread, {pause_s:g} s after all: {low:8.3f} {middle:8.3f} {high:8.3f} ms")


def transfers(cpus: list[int]) -> None:
    os.sched_setaffinity(0, cpus)
    import cupy
    import numpy as np
    from cupy.cuda import runtime

    shapes = [(512, 1024), (1024, 512), (512, 512)]
    hosts = [np.zeros(shape, np.int32) for shape in shapes]
    spent: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[[], object]) -> object:
        start = time.perf_counter()
        value = call()
        spent.setdefault(name, []).append(time.perf_counter() - start)
        return value

    def sample(_index: int) -> float:
        start = time.perf_counter()
        with cupy.cuda.using_allocator(None):
            arrays = [
                timed("malloc", lambda host=host: cupy.empty(host.shape, host.dtype))
                for host in hosts
            ]
            for array, host in zip(arrays[:2], hosts[:2], strict=True):
                timed("copy in", lambda array=array, host=host: array.set(host))
            timed("copy out", lambda: arrays[-1].get(out=hosts[-1]))
            while arrays:
                timed("free", arrays.pop)
        return time.perf_counter() - start

    sample(0)
    spent.clear()
    times = report(f"end to end on {len(cpus)} CPUs", sample, seconds=1.0)
    limit = 2 * statistics.median(times)
    slow = [index for index, took in enumerate(times) if took > limit]
    print(f"   over twice the median: {len(slow)} of {len(times)}, samples {slow[:12]}")
    runtime.deviceSynchronize()
    for name, took in spent.items():
        low, middle, high = (
            1e6 * value for value in (min(took), statistics.median(took), max(took))
        )
        print(
            f"   {name:8} {low:9.1f} {middle:9.1f} {high:9.1f} us, {1e3 * sum(took):7.1f} ms in all"
        )


def report(name: str, sample: Callable[[int], float], seconds: float = STATE_S) -> list[float]:
    """Samples until the time is over, and a line about them."""
    sample(0)
    before, cpu_s = ticks(), 0.0
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < FEWEST or time.perf_counter() - started < seconds:
        cpu_start = time.process_time()
        times.append(sample(len(times)))
        cpu_s += time.process_time() - cpu_start
    wall_s = time.perf_counter() - started
    after = ticks()
    steal = 100 * (after[0] - before[0]) / max(1, after[1] - before[1])
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - switches
    low, middle, high = (
        1e3 * value for value in (min(times), statistics.median(times), max(times))
    )
    print(
        f"{name:44} {low:8.3f} {middle:8.3f} {high:8.3f} ms  n {len(times):4}  "
        f"busy {cpu_s / wall_s:5.2f}  steal {steal:5.2f} %  taken {switches:4}  "
        f"load {Path('/proc/loadavg').read_text().split()[0]}",
        flush=True,
    )
    return times


def ticks() -> tuple[int, int]:
    """Stolen and all clock ticks of all CPUs since boot."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return fields[7], sum(fields)


if __name__ == "__main__":
    main(sys.argv[1:])
