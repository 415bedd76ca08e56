"""The figures of one kernel launch that `gpubench explain` shows. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isclose, prod

from gpubench.commands.explain.sass import InnerLoop
from gpubench.hardware.metrics import cgma
from gpubench.hardware.occupancy import (
    LIMITS,
    WARP,
    Occupancy,
    Waves,
    occupancy,
    registers_allowed,
    waves,
)
from gpubench.hardware.peaks import CORES, find_peak
from gpubench.hardware.roofline import Roofline, roofline
from gpubench.model import ITEM_BYTES, Config, CudaVariant, Device, Gpu, Launch, Problem, Resources

PROBE_EXTENT = 2**28
"""M and N of a result so large that a grid's rounding up is negligible."""

MAX_ACCUMULATORS = 2**14
"""More than any thread has: the grid does not grow with the result (a persistent kernel's)."""

FIRST_OF_FOUR_SCHEDULERS = (7, 0)
ISSUED_PER_CLOCK = 128
"""From that capability on four schedulers issue an instruction of a warp each clock (CUDA
Programming Guide, compute capabilities), so 128 threads advance by one instruction."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One launch of a kernel, compiled for one architecture, at one size.

    What is not known is None. Figures of the whole problem stand with its first launch.
    """

    variant: CudaVariant
    tile: Config
    problem: Problem
    architecture: str
    device: Device
    """The GPU whose multiprocessors, clock and bandwidth count; without a name none is known."""

    resources: Resources
    launch: Launch
    step: int
    """0 for the first of the variant's launches."""

    steps: int
    """How many launches compute the result."""

    registers_allowed: int | None
    """The most registers of a thread in a block of this many threads."""

    accumulators: int | None
    """Elements of the result that a thread computes."""

    occupancy: Occupancy | None
    waves: Waves | None
    cgma: float | None
    """Operations per element that the kernel loads from or stores to global memory."""

    cgma_flop_per_byte: float | None
    """The same per byte."""

    roofline: Roofline | None
    inner_loop: InnerLoop | None
    issue_bound: float | None
    """The largest fraction of the roofline's peak that the inner loop can reach, as each scheduler
    issues one instruction of any kind a clock; 0 to 1."""

    measured_us: float | None
    """Median time per launch, if it was measured."""

    @property
    def label(self) -> str:
        """`shared_tile 16 at 1024 float32`, and which of several launches."""
        label = f"{self.variant.name} {self.tile} at {self.problem.size} {self.problem.dtype}"
        which = f", launch {self.step + 1} of {self.steps}: {self.kernel}"
        return label + which if self.steps > 1 else label

    @property
    def kernel(self) -> str:
        """The template that is launched."""
        return self.launch.kernel or self.variant.name

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, static and dynamic."""
        return self.resources.shared_bytes + self.launch.shared_bytes

    @property
    def roofline_share(self) -> float | None:
        """The time at the bound over the measured time, 0 to 1."""
        if not self.roofline or not self.measured_us:
            return None
        return self.roofline.bound_us / self.measured_us


def launches(
    variant: CudaVariant, tile: Config, problem: Problem, device: Device
) -> tuple[Launch, ...]:
    """The launches that compute a problem, specialized for the device where it is known."""
    limits = LIMITS.get(device.compute_capability) if device.compute_capability else None
    if limits is None or not device.multiprocessors:
        return variant.launch(tile, problem).sequence
    gpu = Gpu(
        multiprocessors=device.multiprocessors, threads_per_multiprocessor=limits.warps * WARP
    )
    return variant.launch_on(gpu, tile, problem).sequence


def explain(
    variant: CudaVariant,
    tile: Config,
    problem: Problem,
    *,
    architecture: str,
    device: Device,
    resources: Resources,
    step: int = 0,
    inner_loop: InnerLoop | None = None,
    measured_us: float | None = None,
) -> Explanation:
    """The explanation of a variant's launch number `step`, compiled for `architecture`."""
    sequence = launches(variant, tile, problem, device)
    launch, first = sequence[step], step == 0
    capability = device.compute_capability
    resident = occupancy(capability, resources, launch)
    ratio = cgma(problem, variant.reuse(tile)) if first else None
    roof = roofline(problem, device, problem.dtype) if first else None
    return Explanation(
        variant=variant,
        tile=tile,
        problem=problem,
        architecture=architecture,
        device=device,
        resources=resources,
        launch=launch,
        step=step,
        steps=len(sequence),
        registers_allowed=registers_allowed(capability, launch.threads_per_block)
        if capability and resident
        else None,
        accumulators=accumulators(variant, tile, problem) if first else None,
        occupancy=resident,
        waves=waves(launch.blocks, device.multiprocessors, resident) if resident else None,
        cgma=ratio,
        cgma_flop_per_byte=ratio / ITEM_BYTES[problem.dtype] if ratio else None,
        roofline=roof,
        inner_loop=inner_loop,
        issue_bound=_issue_bound(inner_loop, device, problem.dtype, roof),
        measured_us=measured_us if first else None,
    )


def accumulators(variant: CudaVariant, tile: Config, problem: Problem) -> int | None:
    """Elements of the result that one thread computes, from the grid for a huge result.

    Assumes that the grid's x and y run over the result, and its z over parts of K. None where the
    grid does not grow with the result, and where threads share an element.
    """
    huge = replace(problem, m=PROBE_EXTENT, n=PROBE_EXTENT)
    launch = variant.launch(tile, huge)
    _, _, parts_of_k = (*launch.grid, 1, 1)[:3]
    blocks = launch.blocks // parts_of_k
    exact = prod(huge.output_shape) / (blocks * launch.threads_per_block)
    whole = round(exact)
    return whole if 1 <= whole <= MAX_ACCUMULATORS and isclose(exact, whole, rel_tol=1e-3) else None


def _issue_bound(
    loop: InnerLoop | None, device: Device, dtype: str, roof: Roofline | None
) -> float | None:
    capability = device.compute_capability
    if not loop or loop.tensor or not capability or capability < FIRST_OF_FOUR_SCHEDULERS:
        return None
    cores = find_peak(device, dtype, CORES)
    if not cores or not cores.operations_per_clock or not roof or not roof.cores_share:
        return None
    lanes = cores.operations_per_clock / 2
    return min(1.0, loop.multiply_add_share * ISSUED_PER_CLOCK / lanes) * roof.cores_share
