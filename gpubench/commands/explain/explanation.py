"""The figures of a kernel launch that `gpubench explain` shows, and their meaning in words."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import isclose, prod

from gpubench.backends.cuda.compile import named
from gpubench.commands.explain.code import Code
from gpubench.hardware.metrics import Roofline, cgma, roofline
from gpubench.hardware.occupancy import (
    LIMITS,
    MAX_REGISTERS,
    WARP,
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
from gpubench.text import counted

PROBE_EXTENT = 2**28  # M and N of a result so large that rounding up a grid is negligible
MAX_ACCUMULATORS = 2**14
"""Maximum number of accumulators of a thread. A larger number means that the grid did not grow with
the result."""

SPARE = 16  # number of registers that a kernel which spills may leave unused without a remark
LONG_GRID = 20  # with this number of waves, the last wave costs less than 5 % of the time
FULL = 0.95  # from this fraction on, a wave, an issue bound or the use of bytes counts as full
NEAR = 1.1  # traffic up to this multiple of the minimum counts as the minimum
MAX_LEAST = 1.005  # sectors and wavefronts up to this multiple of the minimum count as the minimum
SHORT_US = 10
LAUNCH_BOUNDS = "launch bounds"
LIMITERS = {"warps": "the warp slots", "blocks": "the block slots"}

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


def sentences(explanation: Explanation) -> list[str]:
    """Return sentences on why the kernel is as fast as it is. Unknown figures are left out."""
    topics = (registers, warps, resident, grid, bound, traffic, accesses, loop, measured)
    return [sentence for topic in topics if (sentence := topic(explanation))]


def registers(explanation: Explanation) -> str:
    """Describe what fits into a thread's registers, and what does not."""
    used, local_bytes, count = (
        explanation.resources.registers,
        explanation.resources.local_bytes,
        explanation.accumulators,
    )
    each = 2 if explanation.problem.dtype == "float64" else 1
    values = counted(count, "accumulator") if count else "A thread's values"
    if count and each > 1:
        values += " of 2 registers" + (" each" if count > 1 else "")
    if explanation.resources.spill_bytes:
        max_registers = explanation.registers_allowed or MAX_REGISTERS
        threads = explanation.launch.threads_per_block
        more = " and what else a thread needs" if count and count * each <= max_registers else ""
        limit = (
            f", the maximum for each of a block's {threads} threads"
            if max_registers < MAX_REGISTERS
            else ""
        )
        used_fewer = f"; the compiler used only {used}" if used < max_registers - SPARE else ""
        return (
            f"{values}{more} do not fit {max_registers} registers{limit}: {local_bytes} bytes per "
            f"thread go to local memory, which lies in device memory{used_fewer}."
        )
    if local_bytes:
        return (
            f"Nothing spills, yet {local_bytes} bytes per thread lie in local memory: an array "
            "whose index the compiler does not know cannot stay in registers."
        )
    return f"Nothing spills: a thread has {used} registers{f' for {values}' if count else ''}."


def warps(explanation: Explanation) -> str:
    """Describe the lanes of a block's last warp that have no thread."""
    threads = explanation.launch.threads_per_block
    lanes = -(-threads // WARP) * WARP
    if threads == lanes:
        return ""
    verb = "is" if threads == 1 else "are"
    block = f"{counted(threads, 'thread')} per block {verb} not whole warps"
    return f"{block}: {lanes - threads} of {lanes} lanes idle."


def resident(explanation: Explanation) -> str:
    """Describe how many blocks a multiprocessor holds at once, and what limits this number."""
    if not (state := explanation.occupancy):
        return ""
    limits = " and ".join(LIMITERS.get(name, name) for name in state.limited_by)
    if LAUNCH_BOUNDS in state.limited_by:
        bounds, own = explanation.code.max_threads, explanation.launch.threads_per_block
        return (
            f"The kernel cannot be launched: its launch bounds allow {bounds} threads per block, "
            f"and the launch has {own}."
        )
    if not state.blocks:
        return f"The kernel cannot be launched: {limits} of a multiprocessor cannot hold a block."
    threads = counted(explanation.launch.threads_per_block, "thread")
    held = f"{counted(state.blocks, 'block')} of {threads} per multiprocessor"
    occupied = f"{state.warps} of {state.max_warps} warps"
    if state.warps == state.max_warps:
        return f"Occupancy is full: {held}, {occupied}."
    allow = "allows" if limits == "shared memory" else "allow"
    advice = ""
    if state.fraction <= 1 / 4:
        advice = ", so latency must be hidden by independent instructions within a warp"
    return f"{limits[0].upper()}{limits[1:]} {allow} no more than {held}: {occupied}{advice}."


def grid(explanation: Explanation) -> str:
    """Describe how the blocks are distributed over the multiprocessors."""
    if not (waves := explanation.waves):
        return ""
    blocks = counted(waves.blocks, "block")
    if waves.idle_multiprocessors:
        return (
            f"{blocks} for {waves.multiprocessors} multiprocessors: "
            f"{waves.idle_multiprocessors} of them have nothing to do."
        )
    if waves.waves <= 1:
        busiest = -(-waves.blocks // waves.multiprocessors)
        average = waves.blocks / waves.multiprocessors
        uneven = (
            f"; the busiest get {busiest} blocks, the average is {average:.1f}"
            if busiest > average
            else ""
        )
        return (
            f"All {blocks} are resident at once on {waves.multiprocessors} "
            f"multiprocessors, where {waves.blocks_per_wave:,} blocks would fit{uneven}."
        )
    filled = waves.tail_blocks / waves.blocks_per_wave
    if not waves.tail_blocks or waves.waves >= LONG_GRID or filled >= FULL:
        return f"{blocks} are {waves.waves:.1f} waves: a partly filled last wave does not matter."
    return (
        f"{blocks} are {waves.waves:.2f} waves: after {counted(int(waves.waves), 'full wave')}, "
        f"the last wave leaves {100 * (1 - filled):.0f} % of the GPU's block slots empty."
    )


def bound(explanation: Explanation) -> str:
    """Describe which limit of the roofline bounds the problem."""
    if not (roof := explanation.roofline):
        return ""
    side = "above" if roof.bound == "arithmetic" else "below"
    return (
        f"The problem's {roof.arithmetic_intensity:.1f} operations per byte lie {side} the ridge "
        f"of {roof.ridge_flop_per_byte:.1f}: the roofline's bound is {roof.bound}, at least "
        f"{time(roof.bound_us)}."
    )


def traffic(explanation: Explanation) -> str:
    """Describe what the kernel itself loads and stores."""
    roof, per_byte = explanation.roofline, explanation.cgma_flop_per_byte
    if roof is None or per_byte is None:
        return ""
    if roof.bound == "memory":
        times = roof.arithmetic_intensity / per_byte
        effect = f"{times:.1f} times the bytes that must move, unless caches serve the rest"
        if times <= NEAR:
            effect = "the kernel loads and stores hardly more than the minimum"
    else:
        times = roof.ridge_flop_per_byte / per_byte
        effect = f"{times:.1f} times too few for the peak, unless caches serve most accesses"
        if times <= 1:
            effect = "the kernel would be no slower if every access went to memory"
    return (
        f"The kernel makes {explanation.cgma:.1f} operations per element it loads or stores "
        f"(CGMA ratio), {per_byte:.2f} per byte: {effect}."
    )


def accesses(explanation: Explanation) -> str:
    """Describe what the accesses cost, and the source line that costs most."""
    recorded, roof = explanation.accesses, explanation.roofline
    if not recorded or not recorded.lines:
        return ""
    texts = []
    if explanation.access_us is not None:
        effect = ""
        if roof and explanation.merged_loads:
            effect = "; nvcc merges some of the loads, so the time may be shorter"
        elif roof and explanation.access_us > roof.bound_us:
            times = f"{explanation.access_us / roof.bound_us:.1f} times the roofline's bound"
            effect = f", {times}: this kernel's accesses limit it before {roof.bound} does"
        elif roof:
            effect = ", less than the roofline's bound"
        texts.append(
            "The loads and stores, as written, keep the L1 cache and shared memory busy for "
            f"{time(explanation.access_us)}{effect}."
        )
    costly = max(recorded.lines, key=lambda line: line.clocks)
    share = 100 * costly.clocks / recorded.clocks
    whole = "this time" if texts else "the time of the loads and stores"
    texts.append(f"{costly.place} costs most, {share:.0f} % of {whole}.")
    texts += [
        f"A block uses {100 * used:.0f} % of the bytes that it fetches from {array}: L2 and device "
        f"memory move up to {1 / used:.1f} times the minimum, unless other blocks use the rest."
        for array, used in recorded.used.items()
        if used < FULL
    ]
    return " ".join(texts)


def loop(explanation: Explanation) -> str:
    """Describe the instructions of the inner loop."""
    inner, roof = explanation.code.loop, explanation.roofline
    if not inner:
        return ""
    if inner.tensor:
        tensor = counted(inner.tensor, "matrix instruction")
        text = f"The inner loop has {tensor} among {inner.instructions:,}"
        if explanation.shared_share is not None:
            share = f"{100 * explanation.shared_share:.0f} % of what shared memory can deliver"
            text += f"; at their peak rate, the matrix instructions would read {share}"
    else:
        counts = f"{inner.multiply_adds:,} of the inner loop's {inner.instructions:,} instructions"
        text = f"{counts} are multiply-adds"
        if loads := sum(inner.shared_loads.values()):
            text += f", {inner.multiply_adds / loads:.1f} for each load from shared memory"
    if explanation.issue_bound is not None and roof and roof.bound == "arithmetic":
        at_most = f"at most {100 * explanation.issue_bound:.0f} % of the peak"
        at_most = f"at one instruction per clock and scheduler, {at_most}"
        text += f": {'enough for the peak' if explanation.issue_bound >= FULL else at_most}"
        if roof.peak_unit != "cores":
            text += f" (the peak of the {roof.peak_unit}, which the kernel does not use)"
    if inner.local_loads or inner.local_stores:
        times = (
            f"reads local memory {inner.local_loads:,} times and writes it {inner.local_stores:,}"
        )
        text += f". Each iteration {times} times"
    return f"{text}."


def measured(explanation: Explanation) -> str:
    """Describe the measured time relative to the roofline's bound."""
    if explanation.measured_us is None or not (share := explanation.roofline_share):
        return ""
    return (
        f"Measured: {time(explanation.measured_us)}, {1 / share:.2f} times the bound: "
        f"{100 * share:.1f} % of what the GPU could do."
    )


def time(time_us: float) -> str:
    """Return a time as text: in milliseconds, or in microseconds below 10 µs."""
    return f"{time_us:.3g} µs" if time_us < SHORT_US else f"{time_us / 1e3:.4g} ms"
