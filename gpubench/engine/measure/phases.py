"""Measures the wall time that a job spends in each phase."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class Phases:
    """Measures how long a job spends in each phase."""

    def __init__(self) -> None:
        self.spent_s: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the wall time of a `with` block to a phase. Phases inside the block do not count."""
        before_s, started = sum(self.spent_s.values()), perf_counter()
        try:
            yield
        finally:
            inside_s = sum(self.spent_s.values()) - before_s
            self.spent_s[name] += perf_counter() - started - inside_s
