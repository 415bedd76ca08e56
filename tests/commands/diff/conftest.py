"""`gpubench diff` as it is called, on files that a test writes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from commandline import outcome

from gpubench.results.row import Row, write


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, list[Row]], str]:
    def written(name: str, rows: list[Row]) -> str:
        write(rows, tmp_path / name)
        return str(tmp_path / name)

    return written


@pytest.fixture
def run() -> Callable[..., tuple[int, str, str]]:
    return partial(outcome, "diff")
