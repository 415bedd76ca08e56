"""`selfcheck`: its points, the launch gap, and the verdict on a machine's times."""

from collections.abc import Collection
from dataclasses import replace

import pytest
from fakes import CPU, Diary, FakeBackend, measured

from gpubench.commands.selfcheck.check import (
    KERNELS,
    REPEATS,
    SIZES,
    EmptyLaunch,
    Gap,
    confirmed,
    deviating,
    job_of,
    judge_gaps,
    launch_gaps,
    measured_gaps,
    node_count,
)
from gpubench.engine.measure.runner import Runner
from gpubench.engine.pool import LocalPool
from gpubench.engine.prepare import prepare
from gpubench.hardware.architectures import example
from gpubench.model import Launches, Timer
from gpubench.plan.sweep import Sweep
from gpubench.results.row import Row


def test_every_kernel_of_every_precision_is_timed_at_every_size_by_each_timer() -> None:
    planned = job_of(example("sm_90"), (Timer.EVENTS, Timer.CUPTI)).planned
    assert set(planned.values()) == {None}
    controls = [point for point in planned if point.launches == Launches.OVERLAPPED]
    assert len(planned) - len(controls) == 2 * len(SIZES) * sum(map(len, KERNELS.values()))
    assert len(controls) == 2


def test_a_gpu_without_these_kernels_is_checked_by_those_that_it_has() -> None:
    planned = job_of(example("sm_80"), (Timer.EVENTS, Timer.CUPTI)).planned
    assert "shared_tile" in {point.variant.name for point, reason in planned.items() if not reason}


def gaps(*pairs: tuple[float, float]) -> list[Gap]:
    return [
        Gap(label=f"kernel {number}", events_us=execution_us + gap_us, cupti_us=execution_us)
        for number, (execution_us, gap_us) in enumerate(pairs)
    ]


def timed(name: str, tile: str, timer: str, us: float, launches: str = "alone") -> Row:
    return replace(measured(us), variant=name, tile=tile, timer=timer, launches=launches)


def test_kernels_of_two_precisions_of_one_type_have_two_names() -> None:
    rows = [timed("cublas", "", timer, 10.0) for timer in ("events", "cupti")]
    gaps = launch_gaps([*rows, *(replace(row, compute_mode="tf32") for row in rows)])
    assert [gap.label.rpartition(" ")[2] for gap in gaps] == ["float32", "tf32"]


def test_no_verdict_is_given_on_a_part_of_the_kernels() -> None:
    job = prepare(Sweep(variants=("cpu_tile",), sizes=((8, 8, 8),), tiles=("8", "16")), CPU)
    with pytest.raises(KeyboardInterrupt):
        measured_gaps(job, LocalPool(Runner(FakeBackend(10.0))), Diary(stop_after=1))


def test_only_kernels_timed_by_both_timers_have_a_gap() -> None:
    gaps = launch_gaps(
        [
            timed("long", "16", "events", 101.0),
            timed("short", "16", "events", 3.0),
            timed("short", "16", "cupti", 2.0),
            timed("library", "", "cupti", 100.0),
            timed("library", "", "events", 103.0),
            timed("short", "16", "events", 2.2, "overlapped"),
            timed("short", "16", "cupti", 2.1, "overlapped"),
            timed("by one timer", "16", "cupti", 5.0),
        ]
    )
    assert [(gap.label.split()[0], gap.is_library, gap.is_control) for gap in gaps] == [
        ("short", False, False), ("short", False, True), ("library", True, False),
    ]  # fmt: skip
    assert [round(gap.gap_us, 3) for gap in gaps] == [1.0, 0.1, 3.0]


ALONE = gaps((2, 1.0), (10, 1.1), (100, 0.9))
CONTROL = Gap(label="control", events_us=3.0, cupti_us=2.9, is_control=True)
LIBRARY = Gap(label="library", events_us=13.0, cupti_us=10.0, is_library=True, nodes=2)
EMPTY = EmptyLaunch(device=1.5, events=1.5, cupti=0.9)
DEVIATING = gaps((2, 1.0), (10, 1.0), (20, 1.0), (30, 2.0))


@pytest.mark.parametrize(
    ("gaps", "trusted", "named"),
    [
        ([*ALONE, CONTROL], True, "overlapping launches are found"),
        ([*ALONE, CONTROL._replace(events_us=4.0)], False, "launches of control overlap"),
        ([*ALONE, LIBRARY], True, ""),  # a library may have a longer gap, but no shorter gap
        ([*ALONE, LIBRARY._replace(events_us=10.1)], False, ""),
        ([*ALONE, *gaps((2000, 5.0))], True, "1.05 µs"),
        ([*ALONE, LIBRARY._replace(nodes=1)], False, "3.00 µs for library"),
        (gaps((2, 5.0), (10, 5.0)), False, "5.00 µs"),
        (gaps((2, -0.5), (10, -0.5)), False, "-0.50 µs"),
        (DEVIATING, False, "2.00 µs for kernel 3"),
    ],
)
def test_gaps_are_trusted_if_they_are_alike_and_short_and_a_control_overlaps(
    gaps: list[Gap], trusted: bool, named: str
) -> None:
    verdict = judge_gaps(gaps, EMPTY)
    assert (verdict.trusted, named in verdict.sentence) == (trusted, True), verdict.sentence
    assert deviating(DEVIATING) == DEVIATING[-1:]


def test_among_many_kernels_a_gap_may_be_a_little_longer_and_is_named() -> None:
    for gaps_us, trusted in (
        ([1.5], True),
        ([1.7], False),  # the gap is too long
        ([0.6], False),  # the gap is shorter, so launches overlap
        ([1.5, 1.5], False),  # too many long gaps
    ):
        others = [1.0] * (90 - len(gaps_us))
        verdict = judge_gaps(gaps(*((9, gap_us) for gap_us in (*gaps_us, *others))), EMPTY)
        assert verdict.trusted == trusted
        assert "µs for kernel 0" in verdict.sentence
    assert not judge_gaps(gaps((9, 1.5), *[(9, 1.0)] * 40), EMPTY).trusted


def test_a_clock_that_is_wrong_by_some_percent_is_not_trusted() -> None:
    sides = [(us, 1.0) for us in range(2, 92)]
    for factor in (0.25, 0.95, 1.05):
        wrong = [gap._replace(events_us=factor * gap.events_us) for gap in gaps(*sides)]
        assert not judge_gaps(wrong, EMPTY).trusted


def test_a_gap_that_deviates_only_once_is_not_held_against_the_machine() -> None:
    rows = [
        timed("kernel", str(tile), timer, us + (timer == "events"))
        for tile, us in ((1, 2), (2, 10), (3, 20), (4, 30), (5, 40))
        for timer in ("events", "cupti")
    ]
    right = launch_gaps(rows)
    once, always = right[3], right[4]
    disturbed = [
        gap._replace(events_us=gap.events_us + 5 * (gap in (once, always))) for gap in right
    ]
    measured_again: list[int] = []

    def measure(keys: Collection[object]) -> list[Gap]:
        measured_again.append(len(keys))
        again = [always._replace(events_us=always.events_us + 6)]
        return [*again, once] if once.key in keys else again

    gaps = confirmed(disturbed, measure)
    assert measured_again == [2, *[1] * (REPEATS - 1)]
    assert [gap.key for gap in deviating(gaps)] == [always.key]
    assert gaps[4].gap_us == 6.0
    assert not judge_gaps(gaps, EMPTY).trusted
    assert confirmed(right, measure) == right


KERNELS_AND_LIBRARIES = [
    *gaps(*((us, 1.1) for us in (2, 3, 5, 8, 12, 20, 50, 200, 900))),
    *(
        Gap(label=f"library {us}", events_us=us + 1.2, cupti_us=us, is_library=True, nodes=nodes)
        for us, nodes in ((3, 1), (7, 1), (11, 2), (40, 2), (300, 1))
    ),
]


@pytest.mark.parametrize("wrong_us", [-1.0, 1.0, 2.8])
@pytest.mark.parametrize("clock", ["events", "cupti"])
def test_a_clock_that_is_wrong_by_a_microsecond_everywhere_is_not_trusted(
    clock: str, wrong_us: float
) -> None:
    assert judge_gaps(KERNELS_AND_LIBRARIES, EMPTY).trusted
    field = f"{clock}_us"
    wrong = [
        gap._replace(**{field: getattr(gap, field) + wrong_us}) for gap in KERNELS_AND_LIBRARIES
    ]
    empty = EMPTY._replace(**{clock: getattr(EMPTY, clock) + wrong_us})
    assert not judge_gaps(wrong, empty).trusted
    assert not judge_gaps(wrong, EMPTY).trusted  # even if the empty kernel is right
    assert not judge_gaps(KERNELS_AND_LIBRARIES, empty).trusted


def test_libraries_that_are_timed_half_as_long_again_are_not_trusted() -> None:
    wrong = [
        gap._replace(events_us=1.5 * gap.events_us) if gap.is_library else gap
        for gap in KERNELS_AND_LIBRARIES
    ]
    verdict = judge_gaps(wrong, EMPTY)
    assert not verdict.trusted
    assert all(f"for library {us}" in verdict.sentence for us in (3, 7, 11, 40, 300))


def test_a_call_that_clears_memory_or_runs_several_kernels_may_have_a_longer_gap() -> None:
    assert node_count("memset; gemm", 1) == node_count("gemm (2 times)", 1) == 2
    assert (node_count("gemm", 2), node_count("", 2), node_count("unknown: no", 1)) == (1, 2, 1)
