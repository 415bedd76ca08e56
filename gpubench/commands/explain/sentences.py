"""An explanation in sentences. Pure."""

from __future__ import annotations

from gpubench.commands.explain.explanation import Explanation
from gpubench.hardware.occupancy import MAX_REGISTERS, WARP

SPARE = 16
"""A kernel that spills uses all its registers but a few; far fewer are worth a remark."""

LONG_GRID = 20
"""From this many waves on a tail costs less than 5 %."""

LIMITERS = {"warps": "the warp slots", "blocks": "the block slots"}

FULL = 0.95
"""A wave this full counts as full, and an issue bound this near to the peak as the peak."""

NEAR = 1.1
"""Traffic this near to the minimum counts as the minimum."""

SHORT_US = 10

REGISTER_UNITS = {"float64": 2}
"""Registers of an element, where it is not one."""


def sentences(of: Explanation) -> list[str]:
    """Why the kernel is as fast as it is; what is not known is left out."""
    topics = (registers, warps, resident, grid, bound, traffic, loop, measured)
    return [sentence for topic in topics if (sentence := topic(of))]


def registers(of: Explanation) -> str:
    """What fits into a thread's registers, and what does not."""
    used, local_bytes, count = of.resources.registers, of.resources.local_bytes, of.accumulators
    if of.resources.spill_bytes:
        return _spills(of)
    if local_bytes:
        return (
            f"Nothing spills, yet {local_bytes} bytes a thread lie in local memory: an array "
            "whose index the compiler does not know cannot stay in registers."
        )
    if count is None:
        return f"A thread's values fit into its {used} registers: nothing spills."
    if count == 1:
        return f"Nothing spills: a thread has one accumulator, and {used} registers."
    return f"Nothing spills: {_accumulators(count, of)} a thread fit into its {used} registers."


def _spills(of: Explanation) -> str:
    most = of.registers_allowed or MAX_REGISTERS
    count, threads = of.accumulators, of.launch.threads_per_block
    values = "a thread's values"
    if count is not None:
        values = _accumulators(count, of)
        if count * REGISTER_UNITS.get(of.problem.dtype, 1) <= most:
            values += " and what else a thread needs"
    limit = f", the most that {threads} threads a block leave each" if most < MAX_REGISTERS else ""
    used = of.resources.registers
    used_fewer = f"; the compiler used only {used}" if used < most - SPARE else ""
    return (
        f"{_upper(values)} do not fit {most} registers{limit}: {of.resources.local_bytes} "
        f"bytes a thread go to local memory, which lies in device memory{used_fewer}."
    )


def _accumulators(count: int, of: Explanation) -> str:
    """`64 accumulators`, `144 accumulators of 2 registers each`."""
    registers_each = REGISTER_UNITS.get(of.problem.dtype, 1)
    size = f" of {registers_each} registers" + (" each" if count > 1 else "")
    return counted(count, "accumulator") + (size if registers_each > 1 else "")


def warps(of: Explanation) -> str:
    """Lanes of a block's last warp that have no thread."""
    threads = of.launch.threads_per_block
    lanes = -(-threads // WARP) * WARP
    if threads == lanes:
        return ""
    return (
        f"{counted(threads, 'thread')} a block {'is' if threads == 1 else 'are'} not whole warps: "
        f"{lanes - threads} of {lanes} lanes idle."
    )


def resident(of: Explanation) -> str:
    """How full a multiprocessor is, and what keeps it from being fuller."""
    state = of.occupancy
    if state is None:
        return ""
    limits = " and ".join(LIMITERS.get(name, name) for name in state.limited_by)
    if not state.blocks:
        return f"It cannot be launched: a block is too large for {limits} of a multiprocessor."
    held = (
        f"{counted(state.blocks, 'block')} of "
        f"{counted(of.launch.threads_per_block, 'thread')} a multiprocessor"
    )
    occupied = f"{state.warps} of {state.max_warps} warps"
    if state.warps == state.max_warps:
        return f"Occupancy is full: {held}, {occupied}."
    allow = "allows" if limits == "shared memory" else "allow"
    return f"{_upper(limits)} {allow} no more than {held}: {occupied}" + (
        ", so latency must be hidden by independent instructions within a warp."
        if state.fraction <= 1 / 4
        else "."
    )


def grid(of: Explanation) -> str:
    """How the blocks spread over the multiprocessors."""
    waves = of.waves
    if waves is None:
        return ""
    if waves.idle_multiprocessors:
        return (
            f"{counted(waves.blocks, 'block')} for {waves.multiprocessors} multiprocessors: "
            f"{waves.idle_multiprocessors} of them have nothing to do."
        )
    if waves.waves <= 1:
        busiest = -(-waves.blocks // waves.multiprocessors)
        average = waves.blocks / waves.multiprocessors
        uneven = f"; the busiest get {busiest}, the average {average:.1f}"
        return (
            f"All {waves.blocks:,} blocks are resident at once on {waves.multiprocessors} "
            f"multiprocessors, where {waves.blocks_per_wave:,} would fit"
            f"{uneven if busiest > average else ''}."
        )
    if not waves.tail_blocks:
        return f"{waves.blocks:,} blocks are {waves.waves:.0f} full waves."
    filled = waves.tail_blocks / waves.blocks_per_wave
    if waves.waves >= LONG_GRID or filled >= FULL:
        return f"{waves.blocks:,} blocks are {waves.waves:.1f} waves: the tail does not matter."
    return (
        f"{waves.blocks:,} blocks are {waves.waves:.2f} waves: after "
        f"{counted(int(waves.waves), 'full wave')}, the last leaves {100 * (1 - filled):.0f} % of "
        "the GPU's block slots empty."
    )


def bound(of: Explanation) -> str:
    """Which limit of the roofline the problem has."""
    if of.roofline is None:
        return ""
    roof = of.roofline
    side = "above" if roof.bound == "arithmetic" else "below"
    return (
        f"The problem's {roof.arithmetic_intensity:.1f} operations per byte lie {side} the ridge "
        f"of {roof.ridge_flop_per_byte:.1f}: {roof.bound} is its bound, and takes at least "
        f"{time(roof.bound_us)}."
    )


def traffic(of: Explanation) -> str:
    """What the kernel itself loads and stores."""
    if of.roofline is None or of.cgma is None or of.cgma_flop_per_byte is None:
        return ""
    accesses = (
        f"The kernel makes {of.cgma:.1f} operations per element it loads or stores (CGMA ratio), "
        f"{of.cgma_flop_per_byte:.2f} per byte: "
    )
    if of.roofline.bound == "memory":
        more = of.roofline.arithmetic_intensity / of.cgma_flop_per_byte
        if more <= NEAR:
            return accesses + "it loads and stores hardly more than must move."
        return (
            accesses + f"{more:.1f} times the bytes that must move, unless caches serve the rest."
        )
    few = of.roofline.ridge_flop_per_byte / of.cgma_flop_per_byte
    if few <= 1:
        return accesses + "it would be no slower if every access went to memory."
    return accesses + f"{few:.1f} times too few for the peak, unless caches serve most of it."


def loop(of: Explanation) -> str:
    """What the inner loop consists of."""
    inner = of.inner_loop
    if inner is None:
        return ""
    if inner.tensor:
        text = (
            f"The inner loop has {counted(inner.tensor, 'matrix instruction')} among "
            f"{inner.instructions:,}"
        )
    else:
        text = (
            f"{inner.multiply_adds:,} of the inner loop's {inner.instructions:,} instructions "
            "are multiply-adds"
        )
        loads = sum(inner.shared_loads.values())
        if loads:
            text += f", {inner.multiply_adds / loads:.1f} for each load from shared memory"
    if of.issue_bound is not None and of.roofline and of.roofline.bound == "arithmetic":
        text += (
            ": enough for the peak"
            if of.issue_bound >= FULL
            else f": at one instruction a clock and scheduler, at most "
            f"{100 * of.issue_bound:.0f} % of the peak"
        )
        if of.roofline.peak_unit != "cores":
            text += f" (that of the {of.roofline.peak_unit}, which it does not use)"
    if inner.local_loads or inner.local_stores:
        text += (
            f". Each iteration reads local memory {inner.local_loads:,} times and writes it "
            f"{inner.local_stores:,} times"
        )
    return text + "."


def measured(of: Explanation) -> str:
    """How far a measured time is from the bound."""
    if of.measured_us is None or of.roofline is None or not of.roofline_share:
        return ""
    return (
        f"Measured: {time(of.measured_us)}, {1 / of.roofline_share:.2f} times the bound: "
        f"{100 * of.roofline_share:.1f} % of what the GPU could do."
    )


def counted(count: int, noun: str) -> str:
    """`1 block`, `16 blocks`, `2 full waves`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def time(time_us: float) -> str:
    """In milliseconds; below 10 µs, where these would start with zeros, in microseconds."""
    return f"{time_us:.3g} µs" if time_us < SHORT_US else f"{time_us / 1e3:.4g} ms"


def _upper(text: str) -> str:
    """With a capital first letter; `capitalize` would also lower the rest."""
    return text[:1].upper() + text[1:]
