"""Describes, in sentences, what the figures of a kernel launch mean."""

from gpubench.commands.explain.explanation import LAUNCH_BOUNDS, Explanation
from gpubench.hardware.occupancy import MAX_REGISTERS, WARP
from gpubench.text import counted

SPARE = 16  # number of registers that a kernel which spills may leave unused without a remark
LONG_GRID = 20  # with this number of waves, the last wave costs less than 5 % of the time
FULL = 0.95  # from this fraction on, a wave, an issue bound or the use of bytes counts as full
NEAR = 1.1  # traffic up to this multiple of the minimum counts as the minimum
SHORT_US = 10
LIMITERS = {"warps": "the warp slots", "blocks": "the block slots"}


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
