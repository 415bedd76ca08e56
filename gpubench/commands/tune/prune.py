"""Finds the compiler's report on a point, and a bound on the point's time, without a launch."""

import math
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from gpubench.backends.cuda import compile as compiler
from gpubench.engine.measure.trials import Instance, instance_of
from gpubench.errors import CompileError
from gpubench.hardware.host import cpu_threads
from gpubench.hardware.metrics import cgma
from gpubench.hardware.occupancy import gpu_of, occupancy
from gpubench.hardware.peaks import peak_gflops
from gpubench.model import CudaVariant, Device, Launch, Point, Resources
from gpubench.plan.descriptor import launch_on

MAX_SPILL_BYTES = 32
"""Maximum number of bytes that a thread of a competitive kernel spills. In the recorded H200 sweeps
(results/h200), some kernels that spill 4 or 16 bytes are the fastest of their variant, or are
slower than the fastest by at most 0.4 %. Every kernel that spills 64 bytes or more takes at least
1.5 times the best time."""


class Builds:
    """Compiles CUDA kernels early, so that the process that measures finds them in the cache.

    On a CPU, and for variants that are not CUDA sources, nothing is compiled.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pool = ThreadPoolExecutor(max(1, cpu_threads() - 1))  # one CPU is for measuring
        self._futures: dict[Instance, Future[Resources]] = {}

    def close(self) -> None:
        """Start no further compilation. Compilations in progress end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def start(self, points: Sequence[Point]) -> None:
        """Compile the kernels of the points, in this order."""
        for point in points:
            if (key := instance_of(point)) not in self._futures and (launch := self.launch(point)):
                self._futures[key] = self._pool.submit(self._build, point, launch)

    def first_ready(self, points: Sequence[Point]) -> int:
        """Wait until a point's kernel is compiled, and return the index of the first such point."""
        futures = [self._futures.get(instance_of(point)) for point in points]
        if None not in futures:
            wait(filter(None, futures), return_when=FIRST_COMPLETED)
        return next(at for at, future in enumerate(futures) if future is None or future.done())

    def resources(self, point: Point) -> Resources | None:
        """Return the compiler's report, or None if nothing is compiled or compiling failed."""
        future = self._futures.get(instance_of(point))
        try:
            return future.result() if future else None
        except CompileError:
            return None

    def launch(self, point: Point) -> Launch | None:
        """Return the launch of a point, or None if the point is not a CUDA kernel on a GPU."""
        variant, tile = point.variant, point.tile
        if not isinstance(variant, CudaVariant) or tile is None or not gpu_of(self._device):
            return None
        return launch_on(variant, tile, point.problem, self._device)

    def least_us(self, point: Point) -> float:
        """Return a lower bound of the point's time, or 0 if no bound is known.

        The busiest multiprocessor computes at least the number of blocks divided by the number of
        multiprocessors, rounded up. No multiprocessor is faster than its peak at the highest clock.
        """
        device, launch = self._device, self.launch(point)
        rate = peak_gflops(device, point.problem.dtype, device.sm_clock_mhz)
        if not launch or not rate:
            return 0.0
        waves = math.ceil(launch.main.blocks / device.multiprocessors) * device.multiprocessors
        return point.problem.flops / rate / 1e3 * waves / launch.main.blocks

    def promising(self, points: Sequence[Point]) -> list[Point]:
        """Return the points, starting with the most promising.

        The default tiles of a variant come first, then points with low bounds. Among equal bounds,
        points with more operations per loaded element come first.
        """
        spaces = {point.variant: point.variant.tiles for point in points}
        defaults = {
            (variant, tile) for variant, space in spaces.items() if space for tile in space.defaults
        }

        def rank(point: Point) -> tuple[bool, float, float]:
            variant, tile = point.variant, point.tile
            reuse = variant.reuse(tile) if variant.reuse and tile is not None else None
            per_element = cgma(point.problem, reuse) if reuse else 0.0
            return (variant, tile) not in defaults, round(self.least_us(point), 3), -per_element

        return sorted(points, key=rank)

    def why_not(self, point: Point, fastest: Point | None, fastest_us: float) -> str | None:
        """Return why a point cannot be the best, or None. `fastest` is the fastest point so far."""
        resources, launch = self.resources(point), self.launch(point)
        if not resources or not launch:
            return None
        capability = self._device.compute_capability
        resident = occupancy(capability, resources, launch.main)
        if resident and not resident.blocks:
            return f"no multiprocessor holds a block: {' and '.join(resident.limited_by)}"
        if fastest is None:
            return None
        fastest_resources = self.resources(fastest)
        if (
            fastest_resources
            and fastest_resources.spill_bytes <= MAX_SPILL_BYTES < resources.spill_bytes
        ):
            return f"spills more than {MAX_SPILL_BYTES} bytes of registers per thread"
        bounds_hold = self.least_us(fastest) < fastest_us
        if bounds_hold and self.least_us(point) > fastest_us:
            return (
                "even at the peak rate, the waves of its blocks take longer than the fastest "
                "configuration took"
            )
        return None

    def _build(self, point: Point, launch: Launch) -> Resources:
        """Compile all kernels of a point, and return the main kernel's report.

        Raises CompileError if a kernel does not compile.
        """
        variant, architecture = point.variant, self._device.architecture
        assert isinstance(variant, CudaVariant)  # noqa: S101 # only a CUDA kernel has a launch
        assert point.tile is not None  # noqa: S101 # a point with a launch has a tile
        used = {
            step.kernel: compiler.compile_instance(
                *variant.compilation(point.tile, point.problem.dtype, architecture, step.kernel)
            ).resources
            for step in launch.sequence
        }
        return used[launch.main.kernel]
