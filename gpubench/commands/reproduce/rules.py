"""Rules about the shape of a published series, judged on published and measured figures. Pure.

A figure measured on another GPU in another year cannot agree, but the shape of its curve can: where
the minimum is, from which tile on the time rises and how steeply, which kernel is faster. A rule
states one such claim. Its judgement says what was seen on both sides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, ClassVar, NamedTuple

import msgspec

from gpubench.plan.toml_file import NOT_BLANK

Figures = Mapping[str, float]
"""Label (a tile, a size, a GPU) → figure, in the order of the axis."""

Label = int | str
Labels = tuple[Label, ...] | Label
_SomeLabels = Annotated[tuple[Label, ...], msgspec.Meta(min_length=1)] | Label
_Factor = Annotated[float, msgspec.Meta(ge=1, le=1e300)]


def texts(labels: Labels) -> tuple[str, ...]:
    """A label or several, as the text they print as."""
    return tuple(map(str, labels)) if isinstance(labels, tuple) else (str(labels),)


class Figure(StrEnum):
    """What the figures of a series are."""

    MS = "ms"  # milliseconds a launch
    GFLOPS = "gflops"  # 10⁹ operations a second
    GBYTES_PER_S = "gbytes_per_s"  # 10⁹ bytes a second, each operand moved once
    SPEEDUP = "speedup"  # time of a baseline over the time

    @property
    def heading(self) -> str:
        """As a table's title has it."""
        headings = {"gflops": "GFLOP/s", "gbytes_per_s": "GB/s", "speedup": "times as fast"}
        return headings.get(self, self)

    def times_as_fast(self, figure: float, reference: float) -> float:
        """How many times as fast `figure` is as `reference`; for times, the inverse ratio."""
        return reference / figure if self == Figure.MS else figure / reference


class Observation(NamedTuple):
    """Whether a rule holds for some figures, and what was seen."""

    holds: bool
    seen: str


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="rule"):
    """A claim about the shape of a series: a table of TOML, whose `rule` names the class."""

    words: ClassVar[str]  # the claim, with the fields in braces

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that it names; the series must have them."""
        return texts(getattr(self, "at", ()))

    @property
    def slower(self) -> str:
        """Name of the series that it compares with, if any."""
        return str(getattr(self, "than", ""))

    @property
    def statement(self) -> str:
        """The rule in words: `minimum at 4 or 8`."""
        fields = msgspec.structs.asdict(self) | {"at": " or ".join(self.labels)}
        return self.words.format(**fields)

    def judged(self, figure: Figure, figures: Figures, slower: Figures) -> Figures:
        """What `observe` looks at: the figures, or how many times as fast as those of `slower`."""
        if not self.slower:
            return figures
        return {
            label: figure.times_as_fast(figures[label], slower[label])
            for label in figures
            if label in slower
        }

    def observe(self, figures: Figures) -> Observation:
        """What one side's judged figures say; the rule's labels must be among them."""
        return self._observe(figures)

    def _observe(self, figures: Figures) -> Observation:
        raise NotImplementedError


class MinimumAt(Rule, frozen=True, tag="minimum-at"):
    """The smallest figure is at one of the labels `at`."""

    words = "minimum at {at}"
    at: _SomeLabels

    def _observe(self, figures: Figures) -> Observation:
        lowest = min(figures, key=figures.__getitem__)
        return Observation(lowest in self.labels, f"at {lowest}")


class MaximumAt(Rule, frozen=True, tag="maximum-at"):
    """The largest figure is at one of the labels `at`."""

    words = "maximum at {at}"
    at: _SomeLabels

    def _observe(self, figures: Figures) -> Observation:
        highest = max(figures, key=figures.__getitem__)
        return Observation(highest in self.labels, f"at {highest}")


class _AtLabel(Rule, frozen=True):
    at: Label
    by: _Factor = 1.0

    def _index(self, figures: Figures) -> int:
        return list(figures).index(str(self.at))


class FallsUntil(_AtLabel, frozen=True, tag="falls-until"):
    """Every step from the first label to `at` falls, `by` times in all or more."""

    words = "falls ×{by:g} or more until {at}"

    def _observe(self, figures: Figures) -> Observation:
        steps = list(figures.items())[: self._index(figures) + 1]
        if rising := _first_step("rising", steps):
            return Observation(False, rising)
        fall = steps[0][1] / steps[-1][1]
        return Observation(fall >= self.by, _factor(fall))


class RisesFrom(_AtLabel, frozen=True, tag="rises-from"):
    """Every step into `at` and beyond it rises `by` times or more."""

    words = "rises ×{by:g} or more at each step from {at} on"

    def _observe(self, figures: Figures) -> Observation:
        labels = list(figures)[self._index(figures) - 1 :]
        steps = {label: figures[label] / figures[before] for before, label in pairwise(labels)}
        return Observation(min(steps.values()) >= self.by, _least(steps))


class FlatFrom(_AtLabel, frozen=True, tag="flat-from"):
    """From `at` on, the largest figure is at most `by` times the smallest."""

    words = "within ×{by:g} from {at} on"

    def _observe(self, figures: Figures) -> Observation:
        flat = list(figures.values())[self._index(figures) :]
        spread = max(flat) / min(flat)
        return Observation(spread <= self.by, _factor(spread))


class Rising(Rule, frozen=True, tag="rising"):
    """Every step rises."""

    words = "rises throughout"

    def _observe(self, figures: Figures) -> Observation:
        falling = _first_step("falling", figures.items())
        return Observation(not falling, falling or "rising")


class Falling(Rule, frozen=True, tag="falling"):
    """Every step falls."""

    words = "falls throughout"

    def _observe(self, figures: Figures) -> Observation:
        rising = _first_step("rising", figures.items())
        return Observation(not rising, rising or "falling")


class FasterThan(Rule, frozen=True, tag="faster-than"):
    """At every label that both have, `by` times as fast as the series `than` or more."""

    than: Annotated[str, msgspec.Meta(pattern=NOT_BLANK)]
    by: _Factor = 1.0

    @property
    def statement(self) -> str:
        """The rule in words."""
        return f"faster than {self.than}" + (f", ×{self.by:g} or more" if self.by != 1 else "")

    def _observe(self, figures: Figures) -> Observation:  # how many times as fast, by label
        least = min(figures.values())
        return Observation(least > 1 and least >= self.by, _least(figures))


AnyRule = MinimumAt | MaximumAt | FallsUntil | RisesFrom | FlatFrom | Rising | Falling | FasterThan


def _first_step(direction: str, figures: Iterable[tuple[str, float]]) -> str:
    """`falling from 8 to 16`: the first step in that direction, or one that stays; else empty."""
    for (before, old), (label, new) in pairwise(figures):
        if new == old or (new < old) == (direction == "falling"):
            return f"{direction} from {before} to {label}"
    return ""


def _least(factors: Figures) -> str:
    label = min(factors, key=factors.__getitem__)
    return f"{_factor(factors[label])} at {label}" + (", the least" if len(factors) > 1 else "")


def _factor(value: float) -> str:
    """Three digits: `×3.24`, `×29.6`, `×1234`."""
    return f"×{value:.3g}" if value < 1000 else f"×{value:.0f}"  # noqa: PLR2004 # three digits


class Judgement(NamedTuple):
    """Whether a rule holds for the measured figures; None if one is missing or unstable."""

    holds: bool | None
    sentence: str


def judge(
    rule: Rule,
    figure: Figure,
    published: Figures,
    measured: Figures,
    slower: tuple[Figures, Figures] = ({}, {}),
    unstable: Collection[str] = (),
) -> Judgement:
    """Judge a rule on the measured figures, at the labels that have published ones.

    `slower` has the published and the measured figures of the series `rule.slower`, `unstable` the
    labels of either series whose rounds disagree, which have no measured figure here. The rule must
    fit the published figures.
    """
    then = rule.judged(figure, published, slower[0])
    now = rule.judged(figure, measured, slower[1])
    if refused := [label for label in then if label in unstable]:
        where = ", ".join(refused)
        return Judgement(None, f"shape not judged: {rule.statement}: rounds disagree at {where}")
    if missing := [label for label in then if label not in now]:
        where = f" at {', '.join(missing)}" if measured else ""
        return Judgement(None, f"shape not judged: {rule.statement}: nothing measured{where}")
    holds, seen = rule.observe({label: now[label] for label in then})
    return Judgement(
        holds,
        f"shape {'holds' if holds else 'differs'}: {rule.statement}: "
        f"measured {seen}, published {rule.observe(then).seen}",
    )
