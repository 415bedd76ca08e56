"""Figures that new hardware must reach, and whether it does. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpubench.commands.diff.verdicts import Finding, Verdict

TIME = "median_us"
RATES = ("gflops", "gbytes_per_s", "percent_of_peak", "percent_of_blas")
"""Columns that a figure may be expected of: in the time less is better, in the rates more."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """A figure of one point, and how far the measured one may be from it."""

    where: dict[str, str | int]
    """Columns of the key, and what they hold at the point."""

    column: str
    value: float
    lower: float
    """The figure may be less by this fraction of `value`."""

    upper: float
    """The figure may be more by this fraction of `value`."""

    @property
    def label(self) -> str:
        """`variant = cublas, m = 4096, …`."""
        return ", ".join(f"{name} = {value}" for name, value in self.where.items())


def judge_expected(expected: Expectation, figure: float, time_us: float) -> Finding:
    """`same` within the tolerances; beyond them slower or faster, whichever a rate or time means.

    `time_us` is the point's time, `figure` what it has in the expectation's column.
    """
    low = expected.value * (1 - expected.lower)
    high = expected.value * (1 + expected.upper)
    less, more = Verdict.SLOWER, Verdict.FASTER
    ratio = expected.value / figure  # of times: a rate is work over time
    if expected.column == TIME:
        less, more, ratio = more, less, figure / expected.value
    verdict = less if figure < low else more if figure > high else Verdict.SAME
    return Finding(
        verdict=verdict,
        reason=f"{expected.column} {figure:.6g}; expected {low:.6g} to {high:.6g}",
        base_us=time_us / ratio,
        new_us=time_us,
        ratio=ratio,
    )
