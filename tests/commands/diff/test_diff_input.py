"""What a comparison reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench.commands.diff.input import read_table
from gpubench.errors import UsageError


def test_links_in_a_circle_are_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    circle = tmp_path / "circle.csv"
    circle.symlink_to(circle)
    with pytest.raises(UsageError, match=r"cannot read .*circle"):
        read_table([circle, tmp_path / "b.csv"])
