"""The last lines of a sweep."""

from gpubench.engine.run import Outcome
from gpubench.view.job import where_time_went


def test_the_phases_add_up_to_the_wall_time() -> None:
    outcome = Outcome(
        rows=[],
        path=None,
        interrupted=False,
        wall_s=10.0,
        spent_s={"compiling": 3.0, "verifying": 0.01, "sampling": 6.0},
    )
    assert where_time_went(outcome) == (
        "10.0 s: sampling 6.0 s (60 %), compiling 3.0 s (30 %), other 1.0 s (10 %)"
    )
