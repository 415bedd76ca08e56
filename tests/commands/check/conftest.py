"""Fixtures of the tests of `check`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpubench.commands.check import run
from gpubench.commands.check.run import run_check


@pytest.fixture(autouse=True)
def search_of_sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the search for sizes at which a faulty kernel is right: it runs a kernel 20 times.

    `test_sizes.py` tests this search.
    """
    if request.path.name != "test_sizes.py":
        monkeypatch.setattr(run, "right_sizes", lambda _: None)
        monkeypatch.setattr(run, "race_of_square", lambda _: None)


@pytest.fixture
def check_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Check a text as a CUDA source, without compiling it for a GPU, and return the exit code."""
    monkeypatch.setattr(run, "_compile", lambda *_: True)

    def check(text: str) -> int:
        (tmp_path / "mine.cu").write_text(text)
        return run_check(str(tmp_path / "mine.cu"), None, None, None, None)

    return check
