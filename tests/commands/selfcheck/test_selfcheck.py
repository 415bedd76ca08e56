"""What selfcheck runs, the launch gap, and whether a machine's times can be trusted."""

from __future__ import annotations

from rich.console import Console

from gpubench.commands.selfcheck.check import (
    CHECKS,
    Gap,
    deviating,
    gap_table,
    judge_gaps,
    launch_gaps,
)
from gpubench.options import read_sweep
from gpubench.plan.sweep import plan


def test_every_check_can_run() -> None:
    for options in CHECKS:
        points = plan(read_sweep(options), "cuda")
        assert points
        assert set(points.values()) == {None}


def gaps(*pairs: tuple[float, float]) -> list[Gap]:
    return [
        Gap(label=f"kernel {number}", events_us=execution_us + gap_us, cupti_us=execution_us)
        for number, (execution_us, gap_us) in enumerate(pairs)
    ]


def test_only_kernels_timed_by_both_timers_have_a_gap() -> None:
    found = launch_gaps(
        [
            ("long", "events", 101.0),
            ("short", "events", 3.0),
            ("short", "cupti", 2.0),
            ("long", "cupti", 100.0),
            ("by one timer", "cupti", 5.0),
        ]
    )
    assert [(gap.label, gap.gap_us) for gap in found] == [("short", 1.0), ("long", 1.0)]


def test_a_short_gap_that_is_the_same_for_all_is_trusted() -> None:
    verdict = judge_gaps(gaps((2, 1.0), (10, 1.1), (100, 0.9), (2000, 5.0)))
    assert verdict.trusted
    assert "1.05 µs" in verdict.sentence


def test_a_long_or_negative_gap_is_not_trusted() -> None:
    for gap_us in (5.0, -0.5):
        verdict = judge_gaps(gaps((2, gap_us), (10, gap_us)))
        assert not verdict.trusted
        assert f"{gap_us:.2f} µs" in verdict.sentence


def test_a_deviating_gap_is_named() -> None:
    found = gaps((2, 1.0), (10, 1.0), (20, 1.0), (30, 2.0))
    assert deviating(found) == found[-1:]
    verdict = judge_gaps(found)
    assert not verdict.trusted
    assert "2.00 µs for kernel 3" in verdict.sentence


def test_without_any_gap_there_is_no_trust() -> None:
    assert deviating([]) == []
    assert not judge_gaps([]).trusted


def test_a_deviating_gap_is_marked() -> None:
    screen = Console(width=100, no_color=True)
    with screen.capture() as captured:
        screen.print(gap_table(gaps((2, 1.0), (3, 1.0), (4, 2.0))))
    _, _, *lines = [words for line in captured.get().splitlines() if (words := line.split())]
    assert [line[-1] == "!" for line in lines] == [False, False, True]
