"""A kernel and a library in pairs at the power limit: the rows and the file have the ratio."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from fakes import CPU, FakeBackend

from gpubench.commands.compare_cublas.sustained_pairs import add_pairs, pairs_s
from gpubench.engine.measure.pairs import PAIR_S
from gpubench.engine.measure.runner import Runner
from gpubench.engine.pool import LocalPool, Pool
from gpubench.engine.prepare import Job, prepare
from gpubench.engine.run import run
from gpubench.model import Cache, PairedTimes, Point, State
from gpubench.plan.sweep import Sweep
from gpubench.results.result_file import ResultFile
from gpubench.results.row import read


def job_of_sizes(*sizes: int) -> Job:
    sweep = Sweep(
        variants=("cpu_tile", "cpu_blas"),
        sizes=tuple((n, n, n) for n in sizes),
        tiles=("16",),
        caches=(Cache.HOT,),
        states=(State.SUSTAINED,),
    )
    return prepare(sweep, CPU)


class Pairs(Runner):
    """An executor on which the kernel takes 10 µs, and the library takes the µs in `answers`."""

    def __init__(self, answers: list[Any]) -> None:
        super().__init__(FakeBackend(10.0, device=CPU))
        self.answers = answers

    def measure_pairs(self, *_: Point) -> PairedTimes | str:
        answer = self.answers.pop(0)
        if answer is KeyboardInterrupt:
            raise KeyboardInterrupt
        if isinstance(answer, str):
            return answer
        times_us = {"times_us": (10.0,) * 4, "library_times_us": (answer,) * 4}
        return PairedTimes(**times_us)


def test_the_file_has_the_pairs_a_failed_pair_is_a_line_and_ctrl_c_keeps_those_of_two_processes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # The first problem fails, and the third is measured in a single process.
    answers = ["does not fit", 12.0, 13.0, 12.5, KeyboardInterrupt]
    path = tmp_path / "a.csv"
    outcome = run(
        job_of_sizes(16, 32, 48), LocalPool(Pairs(answers)), None, ResultFile(path), add_pairs
    )
    for rows in (outcome.rows, read(path)):
        (paired,) = (row for row in rows if row.pairs)
        assert (paired.variant, paired.m, paired.pair_library) == ("cpu_tile", 32, "cpu_blas")
        assert paired.pair_ratio == pytest.approx(math.sqrt(1.2 * 1.25))
        # Student's t (one degree of freedom, 97.5 %) times half of the distance of two processes
        half = 12.706 * math.log(1.25 / 1.2) / 2
        assert paired.pair_ratio_high == pytest.approx(paired.pair_ratio * math.exp(half), rel=1e-4)
        assert paired.pairs == 8
    assert not outcome.interrupted  # all points were measured
    err = capfd.readouterr().err
    assert "in turns: does not fit" in err
    assert "interrupted: pairs that at least two processes measured are kept" in err


def test_several_devices_measure_no_pairs_and_say_so(capfd: pytest.CaptureFixture[str]) -> None:
    job = job_of_sizes(16)
    rows = run(job, LocalPool(Pairs([]))).rows
    pool = cast("Pool", object())
    assert add_pairs(job, pool, rows) == rows
    assert "leave out --on" in capfd.readouterr().err
    assert add_pairs(job, pool, []) == []
    assert capfd.readouterr().err == ""


def test_the_forecast_includes_the_pairs_of_each_sustained_problem() -> None:
    job = job_of_sizes(16, 32)
    whole = replace(job, afterwards_s=pairs_s(job)).forecast()
    assert whole.expected_s - job.forecast().expected_s == pytest.approx(2 * PAIR_S)
    burst = prepare(replace(job.sweep, states=(State.BURST,)), job.device)
    assert pairs_s(burst) == 0
