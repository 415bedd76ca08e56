"""What gpubench promises of a GPU, checked on this machine's.

    python benchmarks/checks.py memory           # no leak between 5 points and 500
    python benchmarks/checks.py short-blocking   # a blocking kernel that is too short is noticed
    python benchmarks/checks.py faults           # kernels with faults disturb no other
    python benchmarks/checks.py explain          # `explain` says what the driver says
    python benchmarks/checks.py repeatability first.csv second.csv      # two sweeps of one build

Each prints what it saw, and exits 1 if a bound is broken.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from time import perf_counter

from shared import GPUBENCH, bound, child, point, verdict

from gpubench.backends.cuda.compile import Compiled
from gpubench.model import OPERATIONS, Config, CudaVariant, Device, Launch, Point, Problem, Timing
from gpubench.results.row import Row, read

QUICK = Timing(rounds=1, min_samples=6, min_device_s=0.0, max_wall_s=0.01)
CHECKPOINTS = (5, 50, 500)
"""Points after which the memory in use is read."""

PAGE_BYTES = 2 * 2**20
"""Of the driver: the code of kernels that stay loaded may need one page more."""

SMALL_EDGE = 3
"""Of register_tile: larger ones need local memory, which the driver keeps."""

LAUNCHES, SAMPLES, REPEATS, SAME = 32, 20, 10, 0.02
"""Of a short blocking kernel, and by how much the times may differ."""

FAULTS = Path(__file__).with_name("faults")
GOOD = ("naive", "shared_tile", "cublas")
FAULTY = {kernel.stem: "error" for kernel in sorted(FAULTS.glob("gemm/*.cu"))} | {"wrong": "wrong"}
"""The status of each kernel of `FAULTS` at `FAULTY_EDGE`; at other edges they are right."""

FAULTY_EDGE = "16"
DISTURBED = 0.01

LARGEST_EDGE = 32
"""Of the tiles with one edge that `explain` is checked at: larger ones take minutes to compile."""

LONG_US, CLOSE, FEWEST_CLOSE, MOST_MEDIAN = 10.0, 0.01, 0.99, 0.003
"""99 % of points of 10 µs and more repeat to 1 %, and the median point to 0.3 %."""


def memory() -> bool:
    """Measure a hundred kernels, each at five sizes: the first five points load all operands."""
    from cupy.cuda import runtime

    from gpubench.backends import open_backend
    from gpubench.engine.runner import Runner
    from gpubench.options import read_sweep
    from gpubench.plan.sweep import plan

    backend = open_backend("cuda")
    variants = "naive_uncoalesced,naive,shared_tile,register_tile,cublas"
    sweep = read_sweep({"sizes": "64,128,256,512,1024", "tiles": "1..32", "variants": variants})
    by_kernel: dict[tuple[str, str], list[Point]] = {}
    for of_plan, reason in plan(sweep, "cuda").items():
        name, tile = of_plan.variant.name, of_plan.tile
        large = name == "register_tile" and tile is not None and tile["edge"] > SMALL_EDGE
        if reason is None and not large:
            by_kernel.setdefault((name, str(tile)), []).append(of_plan)
    points = [of_kernel for kernel in by_kernel.values() for of_kernel in kernel]
    backend.compile(points, lambda _built: None)
    backend.warm_up()
    runner, used = Runner(backend, QUICK, 1), {}
    for count, measured in enumerate(islice(points, CHECKPOINTS[-1]), 1):
        if runner.measure(measured).status != "ok":
            raise SystemExit(f"{measured.label} was not measured")
        if count in CHECKPOINTS:
            free, total = runtime.memGetInfo()
            used[count] = total - free
            print(f"after {count:3} points: {used[count]:,} bytes in use")
    added = used[CHECKPOINTS[-1]] - used[CHECKPOINTS[0]]
    return verdict(added <= PAGE_BYTES, f"{added:,} bytes more, at most {PAGE_BYTES:,}")


def short_blocking() -> bool:
    """Let the timer believe that enqueuing takes no time: its blocking kernels end too early."""
    from gpubench.backends.cuda.backend import CudaBackend
    from gpubench.backends.cuda.timer import BlockedBatchTimer

    class ForgetfulTimer(BlockedBatchTimer):
        """Can be made to guess that enqueuing takes a nanosecond."""

        def forget(self) -> None:
            for recent_us in self._enqueue_us.values():
                recent_us.clear()
                recent_us.append(1e-3)

    backend = CudaBackend(0)
    backend.warm_up()
    problem = Problem(op="gemm", m=64, n=64, k=64, dtype="float32")
    kernel = bound(backend, point("shared_tile", "16", problem))
    kernel.run()
    timer = ForgetfulTimer(backend.timers.stream)
    timer.overhead_us = backend.timers.events.overhead_us
    timer.sample(kernel.rotation, LAUNCHES, SAMPLES)
    normal_us = statistics.median(timer.sample(kernel.rotation, LAUNCHES, SAMPLES))
    before, times = timer.void_samples, []
    for _ in range(REPEATS):
        timer.forget()
        times += timer.sample(kernel.rotation, LAUNCHES, SAMPLES)
    void, forced_us = timer.void_samples - before, statistics.median(times)
    print(f"normal: {normal_us:.3f} µs per launch, {before} void samples")
    print(f"blocked too briefly {REPEATS} times: {forced_us:.3f} µs, {void} void samples retaken")
    same = abs(forced_us / normal_us - 1) <= SAME
    return verdict(
        void > 0 and same, f"{void} samples seen and retaken, the time within {SAME:.0%}"
    )


def faults() -> bool:
    """Sweep kernels with faults beside good ones, and the good ones alone. One hangs."""

    def sweep(variants: tuple[str, ...], path: Path) -> tuple[int | None, list[Row]]:
        ended = child(
            (
                *(*GPUBENCH, "sweep", "--device", "cuda", "--sizes", "1024", "--tiles", "8,16,32"),
                *("--kernels", FAULTS, "--variants", ",".join(variants), "--point-limit", "15"),
                *("--output", path),
            )
        )
        return ended.code, read(path)

    with tempfile.TemporaryDirectory() as folder:
        alone = {row.key: row for row in sweep(GOOD, Path(folder, "alone.csv"))[1]}
        code, beside = sweep((*GOOD, *FAULTY), Path(folder, "beside.csv"))
    unexpected, disturbed = 0, 0.0
    for row in beside:
        expected = FAULTY.get(row.variant, "ok") if row.tile == FAULTY_EDGE else "ok"
        detail = row.reason or ""
        if row.median_us and row.key in alone and (alone_us := alone[row.key].median_us):
            change = row.median_us / alone_us - 1
            disturbed = max(disturbed, abs(change))
            detail = f"{row.median_us:.2f} µs, {change:+.2%} from without faults"
        unexpected += row.status != expected
        note = "" if row.status == expected else f" (expected {expected})"
        print(f"{row.variant:18} {row.tile:>3}  {row.status}{note}  {detail}")
    said = verdict(code == 1 and not unexpected, f"exit {code}, {unexpected} unexpected statuses")
    return verdict(disturbed <= DISTURBED, f"good times within {disturbed:.2%}") and said


def explain() -> bool:
    """Compile every launch of every CUDA variant, legal tile and dtype; ask the driver of each."""
    import cupy

    from gpubench.backends.cuda.compile import compile_instance
    from gpubench.backends.cuda.devices import cuda_device
    from gpubench.errors import CompileError

    device = cuda_device(0)
    cupy.cuda.Device(0).synchronize()  # makes the context that kernels are loaded into
    architecture = "sm_{}{}".format(*(device.compute_capability or (0, 0)))
    found = sorted(launches_of_all(device), key=lambda case: -case[1].get("edge", 0))
    print(f"{device.name}, {architecture}: {len(found)} kernels", flush=True)
    started = perf_counter()

    def build(case: tuple[CudaVariant, Config, str, Launch]) -> Compiled | str:
        variant, tile, dtype, launch = case
        try:
            expression = variant.instance(tile, dtype, launch.kernel)
            own, options = variant.architecture(architecture), variant.options(tile, dtype)
            return compile_instance(variant.source, expression, own, options)
        except CompileError as error:
            return str(error)

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the largest tiles, the slowest, come first
        built = list(pool.map(build, found))
    print(f"compiled in {perf_counter() - started:.0f} s", flush=True)
    different = failed = 0
    for (variant, tile, dtype, launch), compiled in zip(found, built, strict=True):
        label = f"{variant.name} {tile} {dtype} {launch.kernel or ''}".strip()
        if isinstance(compiled, str):
            failed += 1
            print(f"{label}: {compiled}")
            continue
        for what in differences(launch, compiled, device):
            different += 1
            print(f"{label}: {what}")
    print(f"kernels compared: {len(found) - failed}; not compiled: {failed}")
    return verdict(not different and not failed, f"differences: {different or 'none'}")


def launches_of_all(device: Device) -> Iterator[tuple[CudaVariant, Config, str, Launch]]:
    """Variant, tile, dtype and launch."""
    from gpubench.engine.single import launch_on
    from gpubench.plan.registry import variants

    for variant in variants():
        if not isinstance(variant, CudaVariant) or variant.tiles is None:
            continue
        k = 1024 if OPERATIONS[variant.op].has_k else 1
        for dtype in variant.dtypes:
            problem = Problem(op=variant.op, dtype=dtype, m=1024, n=1024, k=k)
            for tile in variant.tiles:
                if tile.get("edge", 0) <= LARGEST_EDGE and variant.refuse(tile, problem) is None:
                    for launch in launch_on(variant, tile, problem, device).sequence:
                        yield variant, tile, dtype, launch


def differences(launch: Launch, compiled: Compiled, device: Device) -> Iterator[str]:
    """Each figure of a kernel that `explain` and the driver differ in."""
    from cupy_backends.cuda.api import driver

    from gpubench.backends.cuda.launching import allow_shared_memory, load_function
    from gpubench.hardware.occupancy import occupancy

    function, resources = load_function(compiled), compiled.resources
    allow_shared_memory(function, launch)
    resident = occupancy(device.compute_capability or (0, 0), resources, launch)

    def attribute(name: str) -> int:
        number = getattr(driver, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(driver.funcGetAttribute(number, function.ptr))

    blocks = driver.occupancyMaxActiveBlocksPerMultiprocessor(
        function.ptr, launch.threads_per_block, launch.shared_bytes
    )
    for name, explained, reported in (
        ("registers", resources.registers, attribute("NUM_REGS")),
        ("local bytes", resources.local_bytes, attribute("LOCAL_SIZE_BYTES")),
        ("shared bytes", resources.shared_bytes, attribute("SHARED_SIZE_BYTES")),
        ("blocks a multiprocessor", resident.blocks if resident else -1, int(blocks)),
    ):
        if explained != reported:
            yield f"{name}: explain {explained}, driver {reported}"


def repeatability(first: Path, second: Path) -> bool:
    """Compare two sweeps point by point."""
    again = {row.key: row.median_us for row in read(second)}
    compared = sorted(
        (abs(other_us - row.median_us) / row.median_us, row.median_us, row.label)
        for row in read(first)
        if row.median_us and (other_us := again.get(row.key))
    )
    median = statistics.median(difference for difference, _, _ in compared)
    long = [difference for difference, median_us, _ in compared if median_us >= LONG_US]
    close = sum(difference < CLOSE for difference in long) / len(long)
    print(f"{len(compared)} points; median difference {median:.3%}")
    print(f"{len(long)} points from {LONG_US:g} µs on; {close:.1%} differ by less than 1 %")
    print("\nlargest differences:")
    for difference, median_us, label in reversed(compared[-10:]):
        print(f"  {difference:7.2%}  {label}  {median_us:.2f} µs")
    said = verdict(median <= MOST_MEDIAN, f"median difference at most {MOST_MEDIAN:.1%}")
    return verdict(close >= FEWEST_CLOSE, f"{FEWEST_CLOSE:.0%} of points within 1 %") and said


CHECKS = {
    "memory": memory,
    "short-blocking": short_blocking,
    "faults": faults,
    "explain": explain,
    "repeatability": repeatability,
}


def main() -> int:
    """Run one check; 1 if a bound is broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("check", choices=CHECKS)
    parser.add_argument("files", nargs="*", type=Path)
    asked = parser.parse_args()
    return int(not CHECKS[asked.check](*asked.files))  # type: ignore[operator]


if __name__ == "__main__":
    sys.exit(main())
