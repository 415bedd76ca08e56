"""Rules of experiments about the shape of a series of figures."""

from typing import Any

import msgspec
import pytest

from gpubench.commands.reproduce.rules import STATEMENTS, Figure, Rule, judge

REGISTER_TILE = {"1": 3.28, "2": 2.27, "4": 2.11, "8": 2.08, "16": 7.37, "32": 25.8, "64": 83.6}
SHARED_TILE = {"1": 62.4, "2": 10.9, "4": 2.77, "8": 2.11, "16": 1.85, "32": 1.93}


def rule(kind: str, *at: str, by: float = 1.0, than: str = "") -> Rule:
    """Return a rule of this kind, from those fields that the kind has."""
    fields: dict[str, Any] = {"at": at, "by": by, "than": than}
    table = {name: value for name, value in fields.items() if f"{{{name}" in STATEMENTS[kind]}
    return msgspec.convert({"rule": kind, **table}, Rule)


CASES: dict[str, tuple[Rule, dict[str, float], bool, str]] = {
    "minimum": (rule("minimum-at", "4", "8"), REGISTER_TILE, True, "at 8"),
    "minimum elsewhere": (rule("minimum-at", "4"), REGISTER_TILE, False, "at 8"),
    "maximum": (rule("maximum-at", "1"), SHARED_TILE, True, "at 1"),
    "maximum elsewhere": (rule("maximum-at", "1"), REGISTER_TILE, False, "at 64"),
    "falls": (rule("falls-until", "8", by=10), SHARED_TILE, True, "×29.6"),
    "falls too little": (rule("falls-until", "8", by=30), SHARED_TILE, False, "×29.6"),
    "not at each step": (rule("falls-until", "32"), SHARED_TILE, False, "rising from 16 to 32"),
    "rises": (rule("rises-from", "16", by=2), REGISTER_TILE, True, "×3.24 at 64, the least"),
    "too little": (rule("rises-from", "16", by=4), REGISTER_TILE, False, "×3.24 at 64, the least"),
    "flat": (rule("flat-from", "8", by=1.25), SHARED_TILE, True, "×1.14"),
    "not flat": (rule("flat-from", "4", by=1.25), SHARED_TILE, False, "×1.5"),
    "rising": (rule("rising"), {"1024": 44.0, "2048": 255.0}, True, "rising"),
    "not rising": (rule("rising"), SHARED_TILE, False, "falling from 1 to 2"),
    "falling": (rule("falling"), {"1": 3.0, "2": 2.0}, True, "falling"),
    "not falling": (rule("falling"), SHARED_TILE, False, "rising from 16 to 32"),
}


def test_a_rule_looks_at_figures_and_says_what_it_saw() -> None:
    for case, (claim, figures, holds, observed) in CASES.items():
        assert claim.observe(figures) == (holds, observed), case


@pytest.mark.parametrize(
    "table",
    [
        {"rule": "minimum-at"},
        {"rule": "rising", "at": 4},
        {"rule": "faster-than"},
        {"rule": "rises-from", "at": [4, 8]},
        {"rule": "falls-until", "at": 4, "by": 0.5},
        {"rule": "drops-until", "at": 4},
    ],
    ids=str,
)
def test_a_rule_refuses_keys_that_it_does_not_take(table: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(table, Rule)


def test_faster_means_less_time_or_a_higher_rate_at_the_worst_of_the_common_labels() -> None:
    faster = rule("faster-than", than="it")
    for figure, fast, slow in (
        (Figure.MS, 1.0, 2.0),
        (Figure.GFLOPS, 2.0, 1.0),
        (Figure.SPEEDUP, 2.0, 1.0),
    ):
        holds = faster.concerned(figure, {"a": fast}, {"it": {"a": slow}})
        differs = faster.concerned(figure, {"a": slow}, {"it": {"a": fast}})
        assert faster.observe(holds) == (True, "×2 at a")
        assert faster.observe(differs) == (False, "×0.5 at a")
    assert not faster.observe({"a": 1.0})[0]
    ours, theirs = {"a": 6.0, "b": 3.0, "c": 0.1}, {"a": 1.0, "b": 2.0, "d": 9.0}
    figures = faster.concerned(Figure.GFLOPS, ours, {"it": theirs})
    assert rule("faster-than", than="it", by=2).observe(figures) == (False, "×1.5 at b, the least")


def test_a_judgement_quotes_both_sides() -> None:
    measured = REGISTER_TILE | {"4": 0.31}
    turned = {label: 1 / figure for label, figure in REGISTER_TILE.items()}
    lacking = {label: 1.0 for label in REGISTER_TILE if label not in {"32", "64"}}
    for figures, holds, said in (
        (measured, True, "shape holds: minimum at 4 or 8: measured at 4, published at 8"),
        (turned, False, "shape differs: minimum at 4 or 8: measured at 64, published at 8"),
        (lacking, None, "shape not judged: minimum at 4 or 8: nothing measured at 32, 64"),
    ):
        judgement = judge(rule("minimum-at", "4", "8"), REGISTER_TILE, figures)
        assert (judgement.holds, judgement.sentence) == (holds, said)


def test_measured_figures_without_a_published_one_do_not_count() -> None:
    measured = {"1000": 900.0, "1024": 50.0, "2000": 1.0, "2048": 60.0}
    assert judge(rule("rising"), {"1024": 44.0, "2048": 255.0}, measured).holds is True


def test_the_slower_series_may_be_the_one_that_lacks_a_figure() -> None:
    figures = {"1024": 44.0, "2048": 255.0}
    faster = rule("faster-than", than="naive")
    both, short = (
        faster.concerned(Figure.SPEEDUP, figures, {"naive": slower})
        for slower in ({"1024": 40.0, "2048": 41.0}, {"1024": 40.0})
    )
    assert judge(faster, both, both).sentence.startswith("shape holds: faster than naive: measured")
    lacking = judge(faster, both, short)
    assert (lacking.holds, "nothing measured at 2048" in lacking.sentence) == (None, True)
