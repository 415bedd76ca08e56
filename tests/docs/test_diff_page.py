"""What docs/diff.md shows is what gpubench reads."""

import re
from pathlib import Path

from gpubench.commands.diff.compare import DiffVerdict
from gpubench.commands.diff.expect import read_expected

PAGE = Path(__file__).parents[2] / "docs" / "diff.md"


def test_the_expectations_shown_are_read(tmp_path: Path) -> None:
    (block,) = re.findall(
        r"^```toml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "expect.toml").write_text(block)
    first, second = read_expected(tmp_path / "expect.toml").points
    assert (first.column, first.value, first.lower, first.upper) == ("gflops", 51200, 0.03, 0.1)
    assert second.where == {"variant": "shared_tile", "tile": "16", "m": 1024, "n": 1024, "k": 1024}


def test_every_verdict_is_explained() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{verdict}`" in text for verdict in DiffVerdict)
