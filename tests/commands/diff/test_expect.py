"""Expected figures that do not fit are refused with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench.commands.diff.expect_file import read_expected
from gpubench.errors import UsageError

POINT = 'variant = "naive"\nsize = "8"\nvalue = 1\nlower = 0.1\nupper = 0.1\n'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[expect]\npoint = [1]\n", r"\[\[expect.point\]\] 1: is no table"),
        (f"[[expect.point]]\n{POINT}column = []\n", r"unknown column '\[\]'"),
        (f"[[expect.point]]\n{POINT}column = {{ a = 1 }}\n", "unknown column"),
        (f"[[expect.point]]\n{POINT}{'k' * 50_000} = 1\n", "unknown key 'kkk"),
        (f"[[expect.point]]\n{POINT}".replace("value = 1", "value = 0x" + "f" * 5000), "64 bits"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(UsageError, match=why) as refused:
        read_expected(tmp_path / "a.toml")
    assert len(str(refused.value)) < 1000


def test_what_fits_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(f"[[expect.point]]\n{POINT}")
    (point,) = read_expected(tmp_path / "a.toml").points
    assert point.where == {"variant": "naive", "m": 8, "n": 8, "k": 8}
