"""The last lines that a sweep prints."""

from pathlib import Path

import pytest
from fakes import CPU

from gpubench.engine.prepare import Job
from gpubench.engine.run import Outcome
from gpubench.model import Timing
from gpubench.plan.sweep import Sweep
from gpubench.view.job import conclude, where_time_went

JOB = Job(sweep=Sweep(timing=Timing(budget_s=10)), device=CPU, planned={}, hashes={})


def test_the_phases_add_up_to_the_wall_time() -> None:
    outcome = Outcome(
        job=JOB,
        rows=[],
        path=None,
        interrupted=False,
        wall_s=10.0,
        spent_s={"compiling": 3.0, "verifying": 0.01, "sampling": 6.0},
    )
    assert where_time_went(outcome) == (
        "10.0 s: sampling 6.0 s (60 %), compiling 3.0 s (30 %), other 1.0 s (10 %)"
    )


def test_the_phases_are_wrapped_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    phases = ("compiling", "sampling", "warming up", "verifying", "operands")
    spent_s = dict.fromkeys(phases, 1.0)
    outcome = Outcome(
        job=JOB, rows=[], path=Path("a.csv"), interrupted=False, wall_s=9.0, spent_s=spent_s
    )
    conclude(outcome)
    first, second = capsys.readouterr().err.splitlines()[:2]
    assert max(len(first), len(second)) <= 80
    assert second.endswith("operands 1.0 s (11 %)")


@pytest.mark.parametrize("wall_s", [10.5, 51.0])
def test_a_budget_that_was_not_met_is_said(
    wall_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    conclude(
        Outcome(job=JOB, rows=[], path=Path("a.csv"), interrupted=False, wall_s=wall_s, spent_s={})
    )
    assert ("--budget 10s was exceeded" in capsys.readouterr().err) == (wall_s > 11)
