"""An explanation in plain words. Pure."""

from __future__ import annotations

from gpubench.commands.explain.explanation import Explanation
from gpubench.hardware.occupancy import MAX_REGISTERS, WARP, Occupancy, Waves

SPARE = 16
"""A kernel that spills uses all its registers but a few; one that uses far fewer is odd."""

LONG_GRID = 20
"""From so many waves on a tail costs less than 5 %."""

FULL = 0.95
"""A wave so full is as good as full, and a bound so near to the peak is no bound."""

NEAR = 1.1
"""Traffic that is so near to the least is the least."""

REGISTER_UNITS = {"float64": 2}
"""Registers an element takes, where it is not one."""


def sentences(of: Explanation) -> list[str]:
    """Why the kernel is as fast as it is, the cause that weighs most in a kernel of its kind first.

    Registers, occupancy, grid, roofline, inner loop, measurement; what is not known is left out.
    """
    parts = (
        registers(of),
        warps(of),
        resident(of),
        grid(of.waves, of.occupancy),
        bound(of),
        traffic(of),
        loop(of),
        measured(of),
    )
    return [part for part in parts if part]


def registers(of: Explanation) -> str:
    """What fits into a thread's registers, and what does not."""
    used, most = of.resources.registers, of.registers_allowed or MAX_REGISTERS
    local_bytes = of.resources.local_bytes
    each = REGISTER_UNITS.get(of.problem.dtype, 1)
    count = of.accumulators
    held = "a thread's values" if count is None else counted(count, "accumulator")
    if each > 1 and count is not None:
        held += f" of {each} registers each" if count > 1 else f" of {each} registers"
    if of.resources.spill_bytes:
        too_many = count is not None and count * each > most
        rest = "" if too_many or count is None else " and what else a thread needs"
        single = count == 1 and not rest
        because = (
            ""
            if most == MAX_REGISTERS
            else f", the most that {of.launch.threads_per_block} threads a block leave each"
        )
        given_up = f"; the compiler used only {used}" if used < most - SPARE else ""
        return (
            f"{_upper(held)}{rest} {'does' if single else 'do'} not fit {most} registers{because}: "
            f"{local_bytes} bytes a thread go to local memory, which is global memory by "
            f"another name{given_up}."
        )
    if local_bytes:
        return (
            f"Nothing spills, yet {local_bytes} bytes a thread lie in local memory: an array "
            "whose index the compiler does not know cannot stay in registers."
        )
    if count is None:
        return f"A thread's values fit into its {used} registers: nothing spills."
    if count == 1:
        return f"Nothing spills: a thread has one accumulator, and {used} registers."
    return f"Nothing spills: {held} a thread fit into its {used} registers."


def warps(of: Explanation) -> str:
    """Lanes that a block's last warp leaves empty."""
    threads = of.launch.threads_per_block
    lanes = -(-threads // WARP) * WARP
    if threads == lanes:
        return ""
    return (
        f"{counted(threads, 'thread')} a block {'is' if threads == 1 else 'are'} no whole warps: "
        f"{lanes - threads} of {lanes} lanes idle."
    )


def resident(of: Explanation) -> str:
    """How full a multiprocessor is, and what keeps it from being fuller."""
    state = of.occupancy
    if state is None:
        return ""
    limits = " and ".join(_LIMITERS[name] for name in state.limited_by)
    if not state.blocks:
        return f"It cannot be launched: a block is too large for {limits} of a multiprocessor."
    held = (
        f"{counted(state.blocks, 'block')} of "
        f"{counted(of.launch.threads_per_block, 'thread')} a multiprocessor"
    )
    occupied = f"{state.warps} of {state.max_warps} warps"
    if state.warps == state.max_warps:
        return f"Occupancy is full: {held}, {occupied}."
    allow = "allows" if len(state.limited_by) == 1 and limits in _SINGULAR else "allow"
    return f"{_upper(limits)} {allow} no more than {held}: {occupied}" + (
        ", so latency must be hidden by independent instructions within a warp."
        if state.fraction <= 1 / 4
        else "."
    )


_LIMITERS = {
    "warps": "the warp slots",
    "blocks": "the block slots",
    "registers": "registers",
    "shared memory": "shared memory",
}
_SINGULAR = {"shared memory"}


def grid(of: Waves | None, state: Occupancy | None) -> str:
    """How the blocks spread over the multiprocessors."""
    if of is None or state is None:
        return ""
    if of.idle_multiprocessors:
        return (
            f"{counted(of.blocks, 'block')} for {of.multiprocessors} multiprocessors: "
            f"{of.idle_multiprocessors} of them have nothing to do."
        )
    if of.waves <= 1:
        busiest = -(-of.blocks // of.multiprocessors)
        average = of.blocks / of.multiprocessors
        uneven = (
            f"; the busiest get {busiest}, the average {average:.1f}" if busiest > average else ""
        )
        return (
            f"All {of.blocks:,} blocks are resident at once on {of.multiprocessors} "
            f"multiprocessors, where {of.blocks_per_wave:,} would fit{uneven}."
        )
    if not of.tail_blocks:
        return f"{of.blocks:,} blocks are {of.waves:.0f} full waves."
    full = int(of.waves)
    share = of.tail_blocks / of.blocks_per_wave
    if of.waves >= LONG_GRID or share >= FULL:
        return f"{of.blocks:,} blocks are {of.waves:.1f} waves: the tail does not matter."
    return (
        f"{of.blocks:,} blocks are {of.waves:.2f} waves: after {counted(full, 'full one')}, "
        f"the last leaves {100 * (1 - share):.0f} % of the GPU's places empty."
    )


def bound(of: Explanation) -> str:
    """Which roof is over the problem."""
    if of.roofline is None:
        return ""
    roof = of.roofline
    side = "above" if roof.bound == "arithmetic" else "below"
    return (
        f"The problem's {roof.arithmetic_intensity:.1f} operations per byte lie {side} the ridge "
        f"of {roof.ridge_flop_per_byte:.1f}: {roof.bound} is its bound, and "
        f"{time(roof.bound_us)} the least it can take."
    )


def traffic(of: Explanation) -> str:
    """What the kernel itself asks of memory."""
    if of.roofline is None or of.cgma is None or of.cgma_flop_per_byte is None:
        return ""
    asks = (
        f"The kernel makes {of.cgma:.1f} operations per element it loads or stores (CGMA ratio), "
        f"{of.cgma_flop_per_byte:.2f} per byte: "
    )
    if of.roofline.bound == "memory":
        more = of.roofline.arithmetic_intensity / of.cgma_flop_per_byte
        if more <= NEAR:
            return asks + "it loads and stores hardly more than must move."
        return asks + f"{more:.1f} times the bytes that must move, unless caches serve the rest."
    few = of.roofline.ridge_flop_per_byte / of.cgma_flop_per_byte
    if few <= 1:
        return asks + "it would be no slower if every access went to memory."
    return asks + f"{few:.1f} times too few for the peak, unless caches serve most of it."


def loop(of: Explanation) -> str:
    """What the inner loop is made of."""
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
            else f": at one instruction a clock and scheduler, {100 * of.issue_bound:.0f} % of "
            "the peak at the most"
        )
        if of.roofline.peak_unit != "cores":
            text += f" (that of the {of.roofline.peak_unit}, which it does not use)"
    if inner.local_loads or inner.local_stores:
        text += (
            f". Each turn reads local memory {inner.local_loads:,} times and writes it "
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
    """`1 block`, `16 blocks`, `2 full ones`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


SHORT_US = 10
"""Below this, milliseconds would begin with zeros."""


def time(time_us: float) -> str:
    """Milliseconds; below ten microseconds those."""
    return f"{time_us:.3g} µs" if time_us < SHORT_US else f"{time_us / 1e3:.4g} ms"


def _upper(text: str) -> str:
    """The text as a sentence begins: `capitalize` would also lower the rest."""
    return text[:1].upper() + text[1:]
