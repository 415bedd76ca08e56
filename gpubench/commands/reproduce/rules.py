"""Rules about the shape of a published series, judged on published and measured figures.

A figure that is measured on another GPU in another year cannot equal the published figure, but the
two curves can have the same shape: where the minimum is, from which tile on the time rises, how
steeply it rises, and which kernel is faster. A rule states one claim about the shape. The judgement
of a rule quotes published and measured figures.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from itertools import pairwise
from string import Formatter
from typing import Annotated, NamedTuple

import msgspec

from gpubench.text import unknown

Figures = Mapping[str, float]
"""Maps a label (a tile, a size or a GPU) to a figure, in the order of the axis. NaN means that
rounds disagree."""

Label = int | str
Labels = tuple[Label, ...] | Label


def texts(labels: Labels) -> tuple[str, ...]:
    """Return one or several labels as text."""
    return tuple(map(str, labels)) if isinstance(labels, tuple) else (str(labels),)


class Figure(StrEnum):
    """The unit of the figures of a series."""

    MS = "ms"  # milliseconds per launch
    GFLOPS = "gflops"  # 10⁹ operations per second
    GBYTES_PER_S = "gbytes_per_s"  # 10⁹ bytes per second, if each operand moves once
    SPEEDUP = "speedup"  # time of a baseline divided by the kernel's time

    @property
    def heading(self) -> str:
        """The unit of the figures, as the title of a table states it."""
        headings = {"gflops": "GFLOP/s", "gbytes_per_s": "GB/s", "speedup": "times as fast"}
        return headings.get(self, self)

    def times_as_fast(self, figure: float, reference: float) -> float:
        """Return how many times as fast `figure` is as `reference`, for times and for rates."""
        return reference / figure if self == Figure.MS else figure / reference


STATEMENTS = {
    "minimum-at": "minimum at {at}",
    "maximum-at": "maximum at {at}",
    "falls-until": "falls ×{by:g} or more until {at}",
    "rises-from": "rises ×{by:g} or more at each step from {at} on",
    "flat-from": "within ×{by:g} from {at} on",
    "rising": "rises throughout",
    "falling": "falls throughout",
    "faster-than": "faster than {than}, ×{by:g} or more",
}
"""Each kind of rule in words. The fields in braces are the keys that the kind takes."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A claim about the shape of a series, from a TOML table. docs/reproduce.md lists the kinds."""

    kind: str = msgspec.field(name="rule")
    at: Labels = ()
    by: Annotated[float, msgspec.Meta(ge=1, le=1e300)] = 1.0
    than: str = ""

    def __post_init__(self) -> None:
        """Refuse missing keys and keys of other kinds. msgspec adds the place to the message."""
        if self.kind not in STATEMENTS:
            raise ValueError(f"rule: {unknown('value', self.kind, STATEMENTS)}")
        takes = {name for _, name, _, _ in Formatter().parse(STATEMENTS[self.kind]) if name}
        values = {"at": self.labels, "by": self.by != 1, "than": self.than}
        named = {name for name, value in values.items() if value}
        if not takes - {"by"} <= named <= takes or (len(self.labels) > 1 and "by" in takes):
            keys = " and ".join(sorted(takes)) or "no other key"
            raise ValueError(f"'{self.kind}' takes {keys}")

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that the rule names."""
        return texts(self.at)

    @property
    def statement(self) -> str:
        """The rule in words, such as `minimum at 4 or 8`."""
        words = STATEMENTS[self.kind].format(
            at=" or ".join(self.labels), by=self.by, than=self.than
        )
        return words.removesuffix(", ×1 or more")

    def concerned(self, figure: Figure, series: Figures, others: Mapping[str, Figures]) -> Figures:
        """Return the figures of a series, or the speeds relative to the series named by `than`."""
        if not self.than:
            return series
        slower = others[self.than]
        return {at: figure.times_as_fast(series[at], slower[at]) for at in series if at in slower}

    def observe(self, figures: Figures) -> tuple[bool, str]:
        """Return whether the rule holds for the figures, and a text on the shape of their curve.

        Raises ValueError if a figure is missing.
        """
        labels, why = list(figures), ""
        if missing := [label for label in self.labels if label not in figures]:
            why = unknown("label", missing[0], figures)
        elif self.kind in {"falls-until", "rises-from"} and self.labels[0] == labels[0]:
            why = "there is no step before the first label"
        if why or not figures:
            why = why if figures else "there are no published figures to compare"
            raise ValueError(f"rule '{self.statement}': {why}")
        at = labels.index(self.labels[0]) if self.labels else 0
        steps = {b: (a, figures[b] / figures[a]) for a, b in pairwise(labels)}
        match self.kind:
            case "minimum-at" | "maximum-at":
                extreme = min if self.kind == "minimum-at" else max
                figure = extreme(figures.values())
                equal = [label for label in figures if figures[label] == figure]
                label = next((each for each in equal if each in self.labels), equal[0])
                return label in self.labels, f"at {label}"
            case "rising" | "falling" | "falls-until":
                rises, last = self.kind == "rising", at if self.labels else len(labels) - 1
                against = "falling" if rises else "rising"
                for label, (before, step) in list(steps.items())[:last]:
                    if step == 1 or (step < 1) == rises:
                        return False, f"{against} from {before} to {label}"
                fall = figures[labels[0]] / figures[labels[last]]
                return rises or fall >= self.by, _factor(fall) if self.labels else self.kind
            case "rises-from":
                rises_by = {label: steps[label][1] for label in labels[at:]}
                return min(rises_by.values()) >= self.by, _least(rises_by)
            case "flat-from":
                flat = [figures[label] for label in labels[at:]]
                spread = max(flat) / min(flat)
                return spread <= self.by, _factor(spread)
            case _:  # faster-than
                smallest = min(figures.values())
                return smallest > 1 and smallest >= self.by, _least(figures)


def _least(factors: Figures) -> str:
    label = min(factors, key=factors.__getitem__)
    return f"{_factor(factors[label])} at {label}" + (", the least" if len(factors) > 1 else "")


def _factor(value: float) -> str:
    """Return a factor as a text, such as `×3.24`, `×29.6` or `×1234`."""
    return f"×{value:.3g}" if value < 1000 else f"×{value:.0f}"  # noqa: PLR2004 # three digits


class Judgement(NamedTuple):
    """Whether a rule holds for the measured figures, or None if a figure is missing or unstable."""

    holds: bool | None
    sentence: str


def judge(rule: Rule, published: Figures, measured: Figures) -> Judgement:
    """Judge a rule on the measured figures, at the labels that have published figures.

    `published` and `measured` are the figures that the rule concerns. The rule must hold for the
    published figures.
    """
    why = ""
    if unstable := [label for label in published if math.isnan(measured.get(label, 0))]:
        why = f"rounds disagree at {', '.join(unstable)}"
    elif missing := [label for label in published if label not in measured]:
        why = "nothing measured" + (f" at {', '.join(missing)}" if measured else "")
    if why:
        return Judgement(None, f"shape not judged: {rule.statement}: {why}")
    then = rule.observe(published)[1]
    holds, words = rule.observe({label: measured[label] for label in published})
    verdict = f"shape {'holds' if holds else 'differs'}: {rule.statement}"
    return Judgement(holds, f"{verdict}: measured {words}, published {then}")
