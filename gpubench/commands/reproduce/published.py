"""Does the shape of a published series hold? Rules, judged on published and measured figures. Pure.

A figure measured on another GPU in another year cannot agree; the curve it lies on can: where the
minimum lies, how steeply the time rises from which tile on, which kernel is faster. Such a claim is
a `Rule`, a short closed set of kinds, and every judgement says what it saw on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

Figures = Mapping[str, float]
"""Label (a tile, a size, a GPU) → figure, in the order of the axis."""


class Figure(StrEnum):
    """What a series is made of."""

    MS = "ms"
    """Milliseconds a launch."""

    GFLOPS = "gflops"
    """10⁹ operations a second."""

    GBYTES_PER_S = "gbytes_per_s"
    """10⁹ bytes a second, each operand moved once."""

    SPEEDUP = "speedup"
    """Time of something else over the time."""

    @property
    def heading(self) -> str:
        """As a table's title says it."""
        return {
            "ms": "ms",
            "gflops": "GFLOP/s",
            "gbytes_per_s": "GB/s",
            "speedup": "times as fast",
        }[self]

    def times_as_fast(self, figure: float, other: float) -> float:
        """How many times as fast `figure` is as `other`: of times the inverse ratio."""
        return other / figure if self == Figure.MS else figure / other


class Kind(StrEnum):
    """What a rule can say."""

    MINIMUM_AT = "minimum-at"
    """The smallest figure is at one of the labels `at`."""

    MAXIMUM_AT = "maximum-at"
    """The largest figure is at one of the labels `at`."""

    FALLS_UNTIL = "falls-until"
    """Every step from the first label to `at` falls, `by` times in all or more."""

    RISES_FROM = "rises-from"
    """Every step into `at` and beyond it rises `by` times or more."""

    FLAT_FROM = "flat-from"
    """From `at` on, the largest figure is no more than `by` times the smallest."""

    RISING = "rising"
    """Every step rises."""

    FALLING = "falling"
    """Every step falls."""

    FASTER_THAN = "faster-than"
    """At every label that both have, `by` times as fast as the series `than` or more."""


TAKES_ONE_LABEL = (Kind.FALLS_UNTIL, Kind.RISES_FROM, Kind.FLAT_FROM)
TAKES_LABELS = (Kind.MINIMUM_AT, Kind.MAXIMUM_AT, *TAKES_ONE_LABEL)
TAKES_FACTOR = (*TAKES_ONE_LABEL, Kind.FASTER_THAN)
"""Which kinds take `at`, with one label or several, and which take `by`."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A claim about the shape of a series."""

    kind: Kind
    at: tuple[str, ...] = ()
    """Labels."""

    by: float = 1.0
    """A factor, 1 or more."""

    than: str = ""
    """Name of the series that is slower."""

    @property
    def statement(self) -> str:
        """The rule in words: `minimum at 4 or 8`."""
        at = " or ".join(self.at)
        return {
            Kind.MINIMUM_AT: f"minimum at {at}",
            Kind.MAXIMUM_AT: f"maximum at {at}",
            Kind.FALLS_UNTIL: f"falls ×{self.by:g} or more until {at}",
            Kind.RISES_FROM: f"rises ×{self.by:g} or more at each step from {at} on",
            Kind.FLAT_FROM: f"within ×{self.by:g} from {at} on",
            Kind.RISING: "rises throughout",
            Kind.FALLING: "falls throughout",
            Kind.FASTER_THAN: f"faster than {self.than}"
            + (f", ×{self.by:g} or more" if self.by != 1 else ""),
        }[self.kind]


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Whether a rule holds of some figures, and what was seen."""

    holds: bool
    seen: str


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A rule beside what was published and what was measured."""

    rule: Rule
    published: Observation
    measured: Observation | None
    """None: not judged, because a figure is missing."""

    missing: str = ""
    """Which figures are."""

    @property
    def holds(self) -> bool | None:
        """Whether the measured figures keep the rule; None if that cannot be said."""
        return self.measured.holds if self.measured else None

    @property
    def sentence(self) -> str:
        """`shape differs: minimum at 4: measured at 8, published at 4`."""
        if self.measured is None:
            return f"shape not judged: {self.rule.statement}: {self.missing}"
        verdict = "holds" if self.measured.holds else "differs"
        return (
            f"shape {verdict}: {self.rule.statement}: "
            f"measured {self.measured.seen}, published {self.published.seen}"
        )


def judge(
    rule: Rule,
    figure: Figure,
    published: Figures,
    measured: Figures,
    slower: tuple[Figures, Figures] = ({}, {}),
) -> Judgement:
    """Hold a rule against the measured figures, at the labels that have published ones.

    `slower` are the published and the measured figures of the series `rule.than`. The rule must be
    one that `observe` can hold against the published figures.
    """
    faster = rule.kind == Kind.FASTER_THAN
    labels = [label for label in published if not faster or label in slower[0]]
    sides = (measured, slower[1]) if faster else (measured,)
    missing = [label for label in labels if not all(label in side for side in sides)]
    ours = None
    if not missing:
        ours = observe(rule, figure, {label: measured[label] for label in labels}, slower[1])
    return Judgement(
        rule=rule,
        published=observe(rule, figure, published, slower[0]),
        measured=ours,
        missing=f"nothing measured at {', '.join(missing)}" if measured else "nothing measured",
    )


def observe(rule: Rule, figure: Figure, figures: Figures, slower: Figures) -> Observation:
    """Hold a rule against one side's figures. Its labels must be among them."""
    if rule.kind == Kind.FASTER_THAN:
        return _faster(rule, figure, figures, slower)
    return _OBSERVERS[rule.kind](rule, figures)


def _minimum(rule: Rule, figures: Figures) -> Observation:
    lowest = min(figures, key=lambda label: figures[label])
    return Observation(holds=lowest in rule.at, seen=f"at {lowest}")


def _maximum(rule: Rule, figures: Figures) -> Observation:
    highest = max(figures, key=lambda label: figures[label])
    return Observation(holds=highest in rule.at, seen=f"at {highest}")


def _falls_until(rule: Rule, figures: Figures) -> Observation:
    labels = list(figures)
    until = labels.index(rule.at[0])
    against = _first_step_against(labels[: until + 1], figures, falling=True)
    fall = figures[labels[0]] / figures[labels[until]]
    if against:
        return Observation(holds=False, seen=f"rising {against}")
    return Observation(holds=fall >= rule.by, seen=_factor(fall))


def _rises_from(rule: Rule, figures: Figures) -> Observation:
    labels = list(figures)
    steps = {
        label: figures[label] / figures[before]
        for before, label in pairwise(labels[labels.index(rule.at[0]) - 1 :])
    }
    least = min(steps, key=lambda label: steps[label])
    seen = f"{_factor(steps[least])} at {least}" + (", the least" if len(steps) > 1 else "")
    return Observation(holds=steps[least] >= rule.by, seen=seen)


def _flat_from(rule: Rule, figures: Figures) -> Observation:
    labels = list(figures)
    flat = [figures[label] for label in labels[labels.index(rule.at[0]) :]]
    spread = max(flat) / min(flat)
    return Observation(holds=spread <= rule.by, seen=_factor(spread))


def _rising(_rule: Rule, figures: Figures) -> Observation:
    against = _first_step_against(list(figures), figures, falling=False)
    return Observation(holds=not against, seen=f"falling {against}" if against else "rising")


def _falling(_rule: Rule, figures: Figures) -> Observation:
    against = _first_step_against(list(figures), figures, falling=True)
    return Observation(holds=not against, seen=f"rising {against}" if against else "falling")


def _faster(rule: Rule, figure: Figure, figures: Figures, slower: Figures) -> Observation:
    factors = {
        label: figure.times_as_fast(figures[label], slower[label])
        for label in figures
        if label in slower
    }
    least = min(factors, key=lambda label: factors[label])
    holds = factors[least] > 1 and factors[least] >= rule.by
    seen = f"{_factor(factors[least])} at {least}" + (", the least" if len(factors) > 1 else "")
    return Observation(holds=holds, seen=seen)


def _first_step_against(labels: Sequence[str], figures: Figures, *, falling: bool) -> str:
    """`from 8 to 16` where the figures first go the other way or stay; empty if they never do."""
    for before, label in pairwise(labels):
        rises = figures[label] > figures[before]
        falls = figures[label] < figures[before]
        if not (falls if falling else rises):
            return f"from {before} to {label}"
    return ""


def _factor(value: float) -> str:
    """Three digits: `×3.24`, `×29.6`, `×1234`."""
    return f"×{value:.3g}" if value < 1000 else f"×{value:.0f}"  # noqa: PLR2004 # three digits


_OBSERVERS: dict[Kind, Callable[[Rule, Figures], Observation]] = {
    Kind.MINIMUM_AT: _minimum,
    Kind.MAXIMUM_AT: _maximum,
    Kind.FALLS_UNTIL: _falls_until,
    Kind.RISES_FROM: _rises_from,
    Kind.FLAT_FROM: _flat_from,
    Kind.RISING: _rising,
    Kind.FALLING: _falling,
}
