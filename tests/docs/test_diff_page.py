"""What docs/diff.md explains."""

from pathlib import Path

from gpubench.commands.diff.compare import DiffVerdict

PAGE = Path(__file__).parents[2] / "docs" / "diff.md"


def test_every_verdict_is_explained() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{verdict}`" in text for verdict in DiffVerdict)
