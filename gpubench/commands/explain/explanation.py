"""The figures of a kernel launch that `gpubench explain` shows."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import isclose, prod

from gpubench.backends.cuda.compile import named
from gpubench.commands.explain.code import Code
from gpubench.hardware.metrics import Roofline, cgma, roofline
from gpubench.hardware.occupancy import (
    LIMITS,
    Occupancy,
    Waves,
    occupancy,
    registers_allowed,
    waves,
)
from gpubench.hardware.peaks import CORES, INSTRUCTIONS, TENSOR_CORES, find_peak
from gpubench.model import (
    ITEM_BYTES,
    Config,
    CudaVariant,
    Device,
    Launch,
    Problem,
    Resources,
    Status,
)
from gpubench.on_cpu.accesses import Accesses
from gpubench.plan.python_file import described_by

PROBE_EXTENT = 2**28  # M and N of a result so large that rounding up a grid is negligible
MAX_ACCUMULATORS = 2**14
"""Maximum number of accumulators of a thread. A larger number means that the grid did not grow with
the result."""

MAX_LEAST = 1.005  # sectors and wavefronts up to this multiple of the minimum count as the minimum
LAUNCH_BOUNDS = "launch bounds"

FIRST_OF_FOUR_SCHEDULERS = (7, 0)
"""First compute capability with four schedulers per multiprocessor."""

ISSUED_PER_CLOCK = 128
"""Number of threads that advance by one instruction per clock: each of the four schedulers issues
an instruction of a warp (CUDA Programming Guide, compute capabilities)."""

SHARED_BYTES_PER_CLOCK = 128
"""Bytes that a multiprocessor reads from shared memory per clock: each of 32 banks delivers 4 bytes
(CUDA Programming Guide, shared memory of compute capability 5.x and later)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Instance:
    """A tile of a kernel in one element type, for one architecture."""

    variant: CudaVariant
    tile: Config
    problem: Problem
    architecture: str
    device: Device
    """The GPU whose figures are used: this machine's GPU, or an example of the architecture. The
    GPU's name is empty if no figure is known."""

    reason: str = ""
    """Why the instance cannot run on the architecture, or an empty text if the instance can run."""

    launches: tuple[Launch, ...] = ()

    @property
    def expressions(self) -> tuple[str, ...]:
        """The template instance that each launch runs, as a C++ expression."""
        dtype = self.problem.dtype
        return tuple(self.variant.instance(self.tile, dtype, at.kernel) for at in self.launches)

    @property
    def options(self) -> tuple[str, ...]:
        """The kernel's own compile options."""
        return self.variant.options(self.tile, self.problem.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class NotExplained(Instance):
    """An instance that cannot run or does not compile. `reason` states why."""

    status: Status


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanation(Instance):
    """One launch of an instance that was compiled.

    Unknown figures are None. Only the first launch has the figures of the whole problem.
    """

    code: Code  # the compiled kernel; its `error` is empty
    step: int  # index of the launch
    accesses: Accesses | None = None
    """The accesses that were recorded on the CPU, or None if no accesses were recorded."""

    measured_us: float | None = None  # median time of all launches together, if it was measured

    @property
    def kernel(self) -> str:
        """The name of the template that is launched."""
        return named(self.expressions[self.step]).partition("<")[0]

    @property
    def launch(self) -> Launch:
        """The launch that is explained."""
        return self.launches[self.step]

    @property
    def resources(self) -> Resources:
        """The compiler's report on the resources of the kernel."""
        assert self.code.resources is not None  # noqa: S101 # `code` has no error
        return self.code.resources

    @property
    def registers_allowed(self) -> int | None:
        """Maximum number of registers per thread in a block with the launch's number of threads."""
        capability, threads = self.device.compute_capability, self.launch.threads_per_block
        return registers_allowed(capability, threads) if capability in LIMITS else None

    @cached_property
    def accumulators(self) -> int | None:
        """Number of elements of the result that each thread computes.

        The number is derived from the grid that the kernel would have for a huge result. The grid's
        x and y are assumed to cover the result, and the grid's z to cover parts of K. None if the
        grid does not grow with the result, if threads share an element, or if the result has
        neither the extent M nor N.
        """
        if self.step or not {"M", "N"} & {*self.problem.operation.output.dimensions}:
            return None
        huge = replace(self.problem, m=PROBE_EXTENT, n=PROBE_EXTENT)
        with described_by(self.variant.path):
            launch = self.variant.launch(self.tile, huge)
            _, _, parts_of_k = (*launch.grid, 1, 1)[:3]
            threads = launch.blocks // parts_of_k * launch.threads_per_block
            exact = prod(huge.output_shape) / threads
        whole = round(exact)
        is_whole = 1 <= whole <= MAX_ACCUMULATORS and isclose(exact, whole, rel_tol=1e-3)
        return whole if is_whole else None

    @cached_property
    def occupancy(self) -> Occupancy | None:
        """The blocks and warps that a multiprocessor holds at once."""
        with described_by(self.variant.path):  # a wrong launch may have no threads
            state = occupancy(self.device.compute_capability, self.resources, self.launch)
        max_threads = self.code.max_threads
        if state is None or max_threads is None or self.launch.threads_per_block <= max_threads:
            return state
        return replace(
            state,
            fraction=0.0,
            blocks=0,
            warps=0,
            limited_by=(LAUNCH_BOUNDS,),
            blocks_by=state.blocks_by | {LAUNCH_BOUNDS: 0},
        )

    @cached_property
    def waves(self) -> Waves | None:
        """The waves in which the blocks of the grid run on the GPU."""
        multiprocessors, resident = self.device.multiprocessors, self.occupancy
        return waves(self.launch.blocks, multiprocessors, resident) if resident else None

    @cached_property
    def cgma(self) -> float | None:
        """Number of operations for each load or store of an element in global memory (CGMA)."""
        if self.step or self.variant.reuse is None:
            return None
        with described_by(self.variant.path):
            return cgma(self.problem, self.variant.reuse(self.tile))

    @property
    def cgma_flop_per_byte(self) -> float | None:
        """Number of operations per byte that the kernel loads from or stores to global memory."""
        return self.cgma / ITEM_BYTES[self.problem.dtype] if self.cgma else None

    @cached_property
    def roofline(self) -> Roofline | None:
        """The minimum time of the problem, and the limit that determines this time."""
        return None if self.step else roofline(self.problem, self.device, self.problem.dtype)

    @property
    def roofline_share(self) -> float | None:
        """The roofline's minimum time divided by the measured time, as a number from 0 to 1."""
        if not self.roofline or not self.measured_us:
            return None
        return self.roofline.bound_us / self.measured_us

    @property
    def issue_bound(self) -> float | None:
        """Maximum fraction of the roofline's peak that the inner loop allows, from 0 to 1."""
        loop, roof, capability = self.code.loop, self.roofline, self.device.compute_capability
        if not loop or loop.tensor or not capability or capability < FIRST_OF_FOUR_SCHEDULERS:
            return None
        cores = find_peak(self.device, self.problem.dtype, CORES)
        if not cores or not cores.operations_per_clock or not roof or not roof.cores_share:
            return None
        lanes = cores.operations_per_clock / 2
        return min(1.0, loop.multiply_add_share * ISSUED_PER_CLOCK / lanes) * roof.cores_share

    @property
    def access_us(self) -> float | None:
        """Time in which the L1 cache and shared memory of all multiprocessors serve the accesses.

        Per clock, a multiprocessor looks up one line of 128 bytes, or serves one wavefront of
        shared memory. Both kinds of access pass through one pipeline.
        """
        device, recorded = self.device, self.accesses
        if not recorded or not recorded.lines or not device.sm_clock_mhz:
            return None
        clocks = recorded.clocks * self.launch.blocks / device.multiprocessors
        return clocks / device.sm_clock_mhz

    @property
    def not_judged(self) -> tuple[str, ...]:
        """Topics that the explanation leaves out."""
        never = ("whether results are right (gpubench check)", "cache hits", "latency")
        if self.accesses is None:
            return (*never, "accesses (shown if --tiles names one tile)")
        return (*never, *self.merged_loads, *map(str, self.accesses.not_analysed))

    @property
    def merged_loads(self) -> list[str]:
        """A text for each memory from which the inner loop has wider loads than the source code."""
        loop, recorded, merged = self.code.loop, self.accesses, []
        if loop is None or recorded is None:
            return []
        for memory, lines, loads in (
            ("shared memory", recorded.shared_lines, loop.shared_loads),
            ("global memory", recorded.global_lines, loop.global_loads),
        ):
            written = 8 * max((line.bytes for line in lines if line.kind == "read"), default=0)
            widest = max(map(int, loads), default=0)
            if 0 < written < widest:
                bits = f"{widest} bits in the inner loop, {written} as written"
                merged.append(f"loads from {memory} that nvcc merges ({bits})")
        return merged

    @property
    def shared_share(self) -> float | None:
        """Fraction of shared memory's rate that the matrix instructions need at their peak rate."""
        loop, dtype = self.code.loop, self.problem.dtype
        if not loop or not loop.shared_bytes_per_operation:
            return None
        peak = find_peak(self.device, INSTRUCTIONS.get(dtype, dtype), TENSOR_CORES)
        if not peak or not peak.operations_per_clock:
            return None
        return loop.shared_bytes_per_operation * peak.operations_per_clock / SHARED_BYTES_PER_CLOCK
