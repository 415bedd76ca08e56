"""Fixtures of the tests of `check`."""

import pytest

from gpubench.commands.check import run


@pytest.fixture(autouse=True)
def search_of_sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the search for sizes at which a faulty kernel is right: it runs a kernel 20 times.

    `test_sizes.py` tests this search.
    """
    if request.path.name != "test_sizes.py":
        monkeypatch.setattr(run, "right_sizes", lambda _: None)
        monkeypatch.setattr(run, "race_of_square", lambda _: None)
