"""What the recorded accesses of a launch mean in words, and which line costs most."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpubench.commands.explain.sass import InnerLoop
from gpubench.on_cpu.accesses import Access, Accesses
from gpubench.text import counted

LEAST = 1.005
"""Traffic up to this factor counts as the least."""

USED = 0.95
"""A block that uses this fraction of the bytes that it fetches gets no remark."""

NEVER_JUDGED = ("cache hits", "latency")


@dataclass(frozen=True, kw_only=True)
class AccessTime:
    """The time in which a GPU serves the accesses of a launch, one cache line or wavefront a clock.

    A multiprocessor looks up one line of 128 bytes per clock, and serves one wavefront of shared
    memory. Both pass through one pipeline.
    """

    time_us: float
    bound: str
    """The roofline's bound; empty if it is not known."""

    bound_us: float

    @property
    def times_bound(self) -> float | None:
        """The time over the roofline's minimum time."""
        return self.time_us / self.bound_us if self.bound_us else None


def sentences(
    recorded: Accesses, time: AccessTime | None, time_text: str, loop: InnerLoop | None
) -> Iterator[str]:
    """Yield sentences on the accesses, with the line that costs most."""
    if not recorded.lines:
        return
    if time:
        text = (
            f"Its loads and stores, as written, keep the L1 cache and shared memory busy for "
            f"{time_text}"
        )
        if time.times_bound is None:
            yield f"{text}."
        elif merged_loads(recorded, loop):
            yield f"{text}; nvcc merges some of the loads, so it may be less."
        elif time.times_bound > 1:
            times = f"{time.times_bound:.1f} times that bound"
            yield f"{text}, {times}: they, not {time.bound}, are the bound of the kernel."
        else:
            yield f"{text}, less than that bound."
    costly = max(recorded.lines, key=lambda line: line.clocks)
    yield f"{costly.place} costs most, {100 * costly.clocks / recorded.clocks:.0f} % of that."
    for array, used in recorded.used.items():
        if used < USED:
            yield (
                f"A block uses {100 * used:.0f} % of the bytes that it fetches of {array}: L2 and "
                f"device memory move up to {1 / used:.1f} times the least, unless other blocks use "
                "the rest."
            )


def merged_loads(recorded: Accesses, loop: InnerLoop | None) -> list[str]:
    """Return the memories whose loads nvcc merges: the inner loop has wider ones than written."""
    merged = []
    for memory, lines, loads in (
        ("shared memory", recorded.shared_lines, loop.shared_loads if loop else {}),
        ("global memory", recorded.global_lines, loop.global_loads if loop else {}),
    ):
        written = 8 * max((line.bytes for line in lines if line.kind == "read"), default=0)
        widest = max(map(int, loads), default=0)
        if 0 < written < widest:
            bits = f"{widest} bits in the inner loop, {written} as written"
            merged.append(f"loads from {memory} that nvcc merges ({bits})")
    return merged


def access_columns(recorded: Accesses) -> dict[str, Any]:
    """Return the columns of a build file on accesses. None: not analysed, or no such access."""
    skipped = []
    for each in recorded.not_analysed:
        what = each.what.partition(": ")[0]  # without an error that names paths of this machine
        skipped.append(f"{what} on {counted(len(each.places), 'line')}" if each.places else what)
    return {
        "sectors_per_request": recorded.sectors_per_request,
        "sectors_over_least": recorded.sectors_over_least,
        "bank_conflict_ways": recorded.bank_conflict_ways,
        "uncoalesced_lines": _wasteful(recorded.by_wasted_clocks, is_shared=False),
        "bank_conflict_lines": _wasteful(recorded.by_wasted_clocks, is_shared=True),
        "not_analysed": ";".join(skipped) or None,
    }


def _wasteful(ranked: Sequence[Access], *, is_shared: bool) -> str | None:
    """Return the lines with more than the least traffic: `naive.cu:23 8;naive.cu:30 2`."""
    lines = (
        f"{line.place} {line.times_least:.3g}"
        for line in ranked
        if line.is_shared == is_shared and line.times_least > LEAST
    )
    return ";".join(lines) or None


def not_judged(recorded: Accesses | None, loop: InnerLoop | None) -> tuple[str, ...]:
    """Return what an explanation does not judge."""
    if recorded is None:
        return (*NEVER_JUDGED, "accesses (--tiles names one tile, which shows them)")
    merged = merged_loads(recorded, loop) if recorded.lines else []
    return (*NEVER_JUDGED, *merged, *map(str, recorded.not_analysed))
