"""The launch gap: what a launch in a stream takes beyond its execution. Pure.

Time per launch in a stream (events) minus execution (CUPTI) is the device's cost of going from one
kernel to the next. It is a property of the machine, so it must be the same for every kernel; where
it is not, one of the two timers is disturbed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STEADY_US = 0.3
"""A gap this close to the median of all is the same gap."""

STEADY_SHARE = 0.01
"""For long kernels a gap drowns in the clock's drift between two measurements: 1 % of the time."""

LONGEST_GAP_US = 4.0
"""A larger median gap means that the stream ran dry between launches."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """One kernel's two times."""

    label: str
    events_us: float
    cupti_us: float

    @property
    def gap_us(self) -> float:
        """Time per launch beyond execution."""
        return self.events_us - self.cupti_us


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a machine's times can be trusted, in a sentence."""

    trusted: bool
    sentence: str


def launch_gaps(times: Iterable[tuple[str, str, float]]) -> list[Gap]:
    """Kernels that were timed by both timers, shortest first, from (label, timer, µs)."""
    by_label: dict[str, dict[str, float]] = {}
    for label, timer, time_us in times:
        by_label.setdefault(label, {})[timer] = time_us
    gaps = [
        Gap(label=label, events_us=both["events"], cupti_us=both["cupti"])
        for label, both in by_label.items()
        if both.keys() >= {"events", "cupti"}
    ]
    return sorted(gaps, key=lambda gap: gap.cupti_us)


def odd_ones(gaps: Sequence[Gap]) -> list[Gap]:
    """Gaps that differ from the median by more than is explained."""
    if not gaps:
        return []
    median = statistics.median(gap.gap_us for gap in gaps)
    return [
        gap
        for gap in gaps
        if abs(gap.gap_us - median) > max(STEADY_US, STEADY_SHARE * gap.cupti_us)
    ]


def judge_gaps(gaps: Sequence[Gap]) -> Verdict:
    """Trust figures whose gap is short and the same for all kernels."""
    if not gaps:
        return Verdict(trusted=False, sentence="No kernel was measured by both timers.")
    median = statistics.median(gap.gap_us for gap in gaps)
    odd = odd_ones(gaps)
    if not 0 <= median <= LONGEST_GAP_US:
        return Verdict(
            trusted=False,
            sentence=f"Do not trust times here: the launch gap is {median:.2f} µs, where 0 to "
            f"{LONGEST_GAP_US:g} µs are usual; the stream runs dry between launches.",
        )
    if odd:
        return Verdict(
            trusted=False,
            sentence=f"Do not trust times here: the launch gap is {median:.2f} µs, but "
            + ", ".join(f"{gap.gap_us:.2f} µs for {gap.label}" for gap in odd)
            + "; is another program using the GPU?",
        )
    return Verdict(
        trusted=True,
        sentence=f"This machine's times can be trusted: both timers agree but for a launch gap of "
        f"{median:.2f} µs, the same for every kernel.",
    )
