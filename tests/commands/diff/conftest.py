"""Fixtures that run `gpubench diff` on files that a test writes."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from commandline import outcome

from gpubench.results.row import Row, write


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, list[Row]], str]:
    sweeps = count(1)

    def written(name: str, rows: list[Row]) -> str:
        factor = 1 + 1e-9 * next(sweeps)  # no two sweeps have the same times
        times = (tuple(time * factor for time in row.round_medians_us) for row in rows)
        changed = [
            replace(row, round_medians_us=text) for row, text in zip(rows, times, strict=True)
        ]
        write(changed, tmp_path / name)
        return str(tmp_path / name)

    return written


@pytest.fixture
def run() -> Callable[..., tuple[int, str, str]]:
    return partial(outcome, "diff")
