"""What needs no launch: the kernels' compiler reports and bounds, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from gpubench.backends.cuda.compile import compile_instance
from gpubench.errors import CompileError
from gpubench.hardware.host import cpu_threads
from gpubench.hardware.metrics import cgma
from gpubench.hardware.occupancy import LIMITS, WARP, occupancy
from gpubench.hardware.peaks import peak_gflops
from gpubench.model import Config, CudaVariant, Device, Gpu, Launch, Point, Resources
from gpubench.plan.descriptor import described_by

MAX_SPILL_BYTES = 32
"""Of a thread. In the recorded H200 sweeps (results/h200) kernels that spill 4 or 16 bytes are the
fastest of their variant or within 0.4 % of it at some size; from 64 bytes on none comes closer than
1.5 times its time."""

Instance = tuple[CudaVariant, Config, str]


class Builds:
    """Compiles CUDA kernels here, while another process measures, which finds them in the cache.

    Without a GPU's capability, and for what is no CUDA source, everything is ready at once.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        capability = device.compute_capability
        self._architecture = "sm_{}{}".format(*capability) if capability else ""
        self._pool = ThreadPoolExecutor(max(1, cpu_threads() - 1))  # one is left to measure
        self._futures: dict[Instance, Future[Resources]] = {}

    def close(self) -> None:
        """Stop compiling; what is being compiled ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def start(self, points: Sequence[Point]) -> None:
        """Compile what the points need, in this order."""
        for point in points:
            if (key := self._key(point)) and key not in self._futures:
                self._futures[key] = self._pool.submit(self._build, point)

    def first_ready(self, points: Sequence[Point]) -> int:
        """The index of the first point whose kernel is built; waits until there is one."""
        while True:
            building = []
            for index, point in enumerate(points):
                future = self._future(point)
                if future is None or future.done():
                    return index
                building.append(future)
            wait(building, return_when=FIRST_COMPLETED)

    def resources(self, point: Point) -> Resources | None:
        """What the compiler reports; None where none does, or it failed: measuring will say how."""
        future = self._future(point)
        try:
            return future.result() if future else None
        except CompileError:
            return None

    def launch(self, point: Point) -> Launch | None:
        """The launch of the kernel that bears the variant's name; None for what has none."""
        launch = self._launch(point)
        return launch and launch.main

    def _launch(self, point: Point) -> Launch | None:
        limits = LIMITS.get(self._device.compute_capability or (0, 0))
        variant, tile = point.variant, point.tile
        if not isinstance(variant, CudaVariant) or tile is None or limits is None:
            return None
        gpu = Gpu(
            multiprocessors=self._device.multiprocessors,
            threads_per_multiprocessor=limits.warps * WARP,
        )
        with described_by(variant.path):
            return variant.launch_on(gpu, tile, point.problem)

    def least_us(self, point: Point) -> float:
        """A time that the point cannot be below; 0: nothing is known.

        Some multiprocessor computes the grid's blocks over the multiprocessors, rounded up, and no
        faster than its peak at the highest clock.
        """
        device, launch = self._device, self.launch(point)
        rate = peak_gflops(device, point.problem.dtype, device.sm_clock_mhz)
        if not launch or not rate:
            return 0.0
        waves = math.ceil(launch.blocks / device.multiprocessors) * device.multiprocessors
        return point.problem.flops / rate / 1e3 * waves / launch.blocks

    def promising(self, points: Sequence[Point]) -> list[Point]:
        """The points, first those that are likely to be fast: the author's, then by their bounds.

        Of equal bounds the one that computes more for each element it loads.
        """
        spaces = {point.variant: point.variant.tiles for point in points}
        authors = {
            (variant, tile) for variant, space in spaces.items() if space for tile in space.defaults
        }

        def rank(point: Point) -> tuple[bool, float, float]:
            variant, tile = point.variant, point.tile
            reuse = variant.reuse(tile) if variant.reuse and tile else None
            each = cgma(point.problem, reuse) if reuse else 0.0
            return (variant, tile) not in authors, round(self.least_us(point), 3), -each

        return sorted(points, key=rank)

    def why_not(self, point: Point, fastest: Point | None, fastest_us: float) -> str | None:
        """Why a point cannot be the best, or None; `fastest` was measured."""
        resources, launch = self.resources(point), self.launch(point)
        if not resources or not launch:
            return None
        capability = self._device.compute_capability
        resident = occupancy(capability, resources, launch)
        if resident and not resident.blocks:
            return f"no multiprocessor holds a block: {' and '.join(resident.limited_by)}"
        if fastest is None:
            return None
        others = self.resources(fastest)
        if others and others.spill_bytes <= MAX_SPILL_BYTES < resources.spill_bytes:
            return f"spills more than {MAX_SPILL_BYTES} bytes of registers a thread"
        bounds_hold = self.least_us(fastest) < fastest_us
        if bounds_hold and self.least_us(point) > fastest_us:
            return "its waves take longer at the peak than the fastest was measured to take"
        return None

    def _key(self, point: Point) -> Instance | None:
        if not isinstance(point.variant, CudaVariant) or point.tile is None:
            return None
        return (point.variant, point.tile, point.problem.dtype) if self._architecture else None

    def _future(self, point: Point) -> Future[Resources] | None:
        key = self._key(point)
        return self._futures.get(key) if key else None

    def _build(self, point: Point) -> Resources:
        """Compile every kernel of a point: what the main one uses. Raises CompileError."""
        variant, tile, launch = point.variant, point.tile, self._launch(point)
        if not isinstance(variant, CudaVariant) or tile is None or launch is None:
            raise CompileError(f"{point.label} is nothing to compile")
        used = {
            step.kernel: compile_instance(
                variant.source,
                variant.instance(tile, point.problem.dtype, step.kernel),
                variant.architecture(self._architecture),
                variant.options(tile, point.problem.dtype),
            ).resources
            for step in launch.sequence
        }
        return used[launch.main.kernel]
