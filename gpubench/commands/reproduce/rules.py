"""Rules about the shape of a published series, judged on published and measured figures. Pure.

A figure measured on another GPU in another year cannot agree, but the shape of its curve can: where
the minimum is, from which tile on the time rises and how steeply, which kernel is faster. A rule
states one such claim. Its judgement says what was seen on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, ClassVar

import msgspec

from gpubench.plan.toml_file import NOT_BLANK

Figures = Mapping[str, float]
"""Label (a tile, a size, a GPU) → figure, in the order of the axis."""

Label = int | str
Labels = tuple[Label, ...] | Label
SomeLabels = Annotated[tuple[Label, ...], msgspec.Meta(min_length=1)] | Label
Factor = Annotated[float, msgspec.Meta(ge=1, le=1e300)]


def texts(labels: Labels) -> tuple[str, ...]:
    """A label or several, as the text they print as."""
    return tuple(map(str, labels)) if isinstance(labels, tuple) else (str(labels),)


class Figure(StrEnum):
    """What the figures of a series are."""

    MS = "ms"
    """Milliseconds a launch."""

    GFLOPS = "gflops"
    """10⁹ operations a second."""

    GBYTES_PER_S = "gbytes_per_s"
    """10⁹ bytes a second, each operand moved once."""

    SPEEDUP = "speedup"
    """Time of a baseline over the time."""

    @property
    def heading(self) -> str:
        """As a table's title has it."""
        headings = {"gflops": "GFLOP/s", "gbytes_per_s": "GB/s", "speedup": "times as fast"}
        return headings.get(self, self)

    def times_as_fast(self, figure: float, reference: float) -> float:
        """How many times as fast `figure` is as `reference`; for times, the inverse ratio."""
        return reference / figure if self == Figure.MS else figure / reference


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Whether a rule holds for some figures, and what was seen."""

    holds: bool
    seen: str


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="rule"):
    """A claim about the shape of a series: a table of TOML, whose `rule` names the class."""

    words: ClassVar[str]
    """The claim, with the fields in braces."""

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

    def observe(self, figure: Figure, figures: Figures, slower: Figures) -> Observation:
        """What one side's figures say; its labels must be among them.

        `slower` has the figures of the series that it compares with.
        """
        if self.slower:
            figures = {
                label: figure.times_as_fast(figures[label], slower[label])
                for label in figures
                if label in slower
            }
        return self._observe(figures)

    def _observe(self, figures: Figures) -> Observation:
        raise NotImplementedError


class MinimumAt(Rule, frozen=True, tag="minimum-at"):
    """The smallest figure is at one of the labels `at`."""

    words = "minimum at {at}"
    at: SomeLabels

    def _observe(self, figures: Figures) -> Observation:
        lowest = min(figures, key=figures.__getitem__)
        return Observation(holds=lowest in self.labels, seen=f"at {lowest}")


class MaximumAt(Rule, frozen=True, tag="maximum-at"):
    """The largest figure is at one of the labels `at`."""

    words = "maximum at {at}"
    at: SomeLabels

    def _observe(self, figures: Figures) -> Observation:
        highest = max(figures, key=figures.__getitem__)
        return Observation(holds=highest in self.labels, seen=f"at {highest}")


class _AtLabel(Rule, frozen=True):
    at: Label
    by: Factor = 1.0


class FallsUntil(_AtLabel, frozen=True, tag="falls-until"):
    """Every step from the first label to `at` falls, `by` times in all or more."""

    words = "falls ×{by:g} or more until {at}"

    def _observe(self, figures: Figures) -> Observation:
        labels = list(figures)
        labels = labels[: labels.index(str(self.at)) + 1]
        if rising := _first_step(labels, figures, falling=False):
            return Observation(holds=False, seen=f"rising {rising}")
        fall = figures[labels[0]] / figures[labels[-1]]
        return Observation(holds=fall >= self.by, seen=_factor(fall))


class RisesFrom(_AtLabel, frozen=True, tag="rises-from"):
    """Every step into `at` and beyond it rises `by` times or more."""

    words = "rises ×{by:g} or more at each step from {at} on"

    def _observe(self, figures: Figures) -> Observation:
        labels = list(figures)
        steps = {
            label: figures[label] / figures[before]
            for before, label in pairwise(labels[labels.index(str(self.at)) - 1 :])
        }
        return Observation(holds=min(steps.values()) >= self.by, seen=_least(steps))


class FlatFrom(_AtLabel, frozen=True, tag="flat-from"):
    """From `at` on, the largest figure is at most `by` times the smallest."""

    words = "within ×{by:g} from {at} on"

    def _observe(self, figures: Figures) -> Observation:
        flat = list(figures.values())[list(figures).index(str(self.at)) :]
        spread = max(flat) / min(flat)
        return Observation(holds=spread <= self.by, seen=_factor(spread))


class Rising(Rule, frozen=True, tag="rising"):
    """Every step rises."""

    words = "rises throughout"

    def _observe(self, figures: Figures) -> Observation:
        falling = _first_step(list(figures), figures, falling=True)
        return Observation(holds=not falling, seen=f"falling {falling}" if falling else "rising")


class Falling(Rule, frozen=True, tag="falling"):
    """Every step falls."""

    words = "falls throughout"

    def _observe(self, figures: Figures) -> Observation:
        rising = _first_step(list(figures), figures, falling=False)
        return Observation(holds=not rising, seen=f"rising {rising}" if rising else "falling")


class FasterThan(Rule, frozen=True, tag="faster-than"):
    """At every label that both have, `by` times as fast as the series `than` or more."""

    than: Annotated[str, msgspec.Meta(pattern=NOT_BLANK)]
    by: Factor = 1.0

    @property
    def statement(self) -> str:
        """The rule in words."""
        return f"faster than {self.than}" + (f", ×{self.by:g} or more" if self.by != 1 else "")

    def _observe(self, figures: Figures) -> Observation:  # how many times as fast, by label
        least = min(figures.values())
        return Observation(holds=least > 1 and least >= self.by, seen=_least(figures))


AnyRule = MinimumAt | MaximumAt | FallsUntil | RisesFrom | FlatFrom | Rising | Falling | FasterThan


def _first_step(labels: Sequence[str], figures: Figures, *, falling: bool) -> str:
    """`from 8 to 16`: where the figures first fall, or else rise, or stay; empty if nowhere."""
    for before, label in pairwise(labels):
        if figures[label] == figures[before] or (figures[label] < figures[before]) == falling:
            return f"from {before} to {label}"
    return ""


def _least(factors: Figures) -> str:
    label = min(factors, key=factors.__getitem__)
    return f"{_factor(factors[label])} at {label}" + (", the least" if len(factors) > 1 else "")


def _factor(value: float) -> str:
    """Three digits: `×3.24`, `×29.6`, `×1234`."""
    return f"×{value:.3g}" if value < 1000 else f"×{value:.0f}"  # noqa: PLR2004 # three digits


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A rule with what was published and what was measured."""

    rule: Rule
    published: Observation
    measured: Observation | None
    """None: not judged, because a figure is missing."""

    missing: str = ""
    """Which figures are missing."""

    @property
    def holds(self) -> bool | None:
        """Whether the rule holds for the measured figures; None if that cannot be said."""
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
    """Judge a rule on the measured figures, at the labels that have published ones.

    `slower` has the published and the measured figures of the series `rule.slower`. The rule must
    fit the published figures.
    """
    labels = [label for label in published if not rule.slower or label in slower[0]]
    sides = (measured, slower[1]) if rule.slower else (measured,)
    missing = [label for label in labels if not all(label in side for side in sides)]
    ours = None
    if not missing:
        ours = rule.observe(figure, {label: measured[label] for label in labels}, slower[1])
    return Judgement(
        rule=rule,
        published=rule.observe(figure, published, slower[0]),
        measured=ours,
        missing=f"nothing measured at {', '.join(missing)}" if measured else "nothing measured",
    )
