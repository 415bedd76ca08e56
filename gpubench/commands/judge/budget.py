"""Divides the time of `--budget` among the problems of a folder."""

from dataclasses import replace
from time import perf_counter

from gpubench.plan.sweep import Sweep

VISIT_S = 10.0
"""Assumed time of one function in one round, until a time was measured. In thirty problems on an
H200, the mean time was 6 s, and the longest time 30 s. If the assumed time is too short, the first
problem gets several rounds, and no time is left for the last problems."""

MIN_SHARE_S = 1.0  # minimum time that a problem gets, even if the budget is nearly used up

READ_S = 1.0
"""A problem that takes at most this time counts as read from a file, and not as measured."""


class Budget:
    """Divides the remaining time among the current problem and the problems that have not begun."""

    def __init__(self, problems: int) -> None:
        """Start the clock that shows how much of the budget is used up."""
        self.problems_left = problems  # number of problems that have not begun
        self.budget_s: float | None = None  # None until the first problem's sweep is read
        self._started_s = self._began_s = perf_counter()
        self._problems = problems
        self._visits, self._visits_s = 0, 0.0  # number and time of all visits so far
        self._prepared_s = 0.0  # time to prepare problems so far

    @property
    def _left_s(self) -> float:
        return (self.budget_s or 0.0) - (perf_counter() - self._started_s)

    @property
    def has_time(self) -> bool:
        """Whether a problem may begin. The first problem always has time."""
        is_first = self.problems_left == self._problems - 1
        return is_first or self.budget_s is None or self._left_s > 0

    def begin(self) -> None:
        """Begin the next problem, and start to time its preparation."""
        self._began_s = perf_counter()
        self.problems_left -= 1

    def share(self, sweep: Sweep, functions: int, prepared: int) -> Sweep:
        """Return the problem's sweep, with the time that it gets and the number of rounds that fit.

        `prepared` is the number of problems that are prepared. The remaining problems also need
        time for their preparation. A problem gets at most the number of rounds that every problem
        can get. Otherwise, the last problem would use all the time that is left, and its additional
        rounds might change its verdict.
        """
        self._prepared_s += perf_counter() - self._began_s
        self._began_s = perf_counter()
        self.budget_s = sweep.timing.budget_s
        if self.budget_s is None:
            return sweep
        left_s = self._left_s - (self._problems - prepared) * self._prepared_s / prepared
        share_s = max(left_s / (1 + self.problems_left), MIN_SHARE_S)
        visits = functions * len(sweep.problems)
        visit_s = self._visits_s / self._visits if self._visits else VISIT_S
        of_all_s = min(share_s, self.budget_s / self._problems)
        rounds = max(1, min(sweep.timing.rounds, int(of_all_s / visits / visit_s)))
        return replace(sweep, timing=replace(sweep.timing, budget_s=share_s, rounds=rounds))

    def judged(self, visits: int) -> None:
        """End a problem. `visits` counts each function in each round in which it was measured."""
        taken_s = perf_counter() - self._began_s
        if taken_s > READ_S:
            self._visits += max(1, visits)
            self._visits_s += taken_s
