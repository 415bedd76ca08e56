"""docs/reliability.md names tests and scripts that exist."""

import re

from newcomer import PAGES, REPOSITORY

PAGE = (PAGES / "reliability.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 20
    tests = "".join(
        path.read_text(encoding="utf-8") for path in (REPOSITORY / "tests").rglob("test_*.py")
    )
    assert {name for name in named if f"def {name}(" not in tests} == set()


def test_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"`((?:tests|benchmarks|results)/[\w./]+)`", PAGE))
    assert len(named) > 10
    assert {name for name in named if not (REPOSITORY / name).exists()} == set()
