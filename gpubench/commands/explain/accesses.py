"""What the recorded accesses of a launch mean for a build file, and what is not judged."""

from collections.abc import Sequence
from typing import Any

from gpubench.commands.explain.sass import InnerLoop
from gpubench.on_cpu.accesses import Access, Accesses
from gpubench.text import counted

LEAST = 1.005  # traffic up to this factor counts as the least
NEVER_JUDGED = ("cache hits", "latency")


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
