"""Expected figures that do not fit are refused with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench.commands.diff.expect import read_expected
from gpubench.errors import UsageError

POINT = 'variant = "naive"\nsize = "8"\nvalue = 1\nlower = "10%"\nupper = "10%"\n'


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    for text, why in (
        ("[expect]\npoint = [1]\n", r"\[expect\]: point 1: expected table, got integer"),
        (f"[[expect.point]]\n{POINT}column = []\n", "column: expected text, got list"),
        (f"[[expect.point]]\n{POINT}column = {{ a = 1 }}\n", "column: expected text, got table"),
        (f"[[expect.point]]\n{POINT}{'k' * 50_000} = 1\n", "unknown key 'kkk"),
        (f"[[expect.point]]\n{POINT}".replace("value = 1", "value = 0x" + "f" * 5000), "64 bits"),
        (f"[[expect.point]]\n{POINT}".replace('"10%"', '"100%"', 1), "lower: '100%' is not"),
        (f"[[expect.point]]\n{POINT}".replace('"10%"', "0.1", 1), "lower: '0.1' needs a percent"),
        (f"[[expect.point]]\n{POINT}".replace('"10%"', '"inf%"'), "lower: 'inf%' is"),
        (f"[[expect.point]]\n{POINT}".replace('"10%"', '"-10%"'), "lower: '-10%' is"),
        (f"[[expect.point]]\n{POINT}".replace('upper = "10%"', "upper = true"), "upper: expected"),
        (f"[[expect.point]]\n{POINT}".replace('upper = "10%"', ""), "'upper' is missing"),
        (
            f"[[expect.point]]\n{POINT}".replace("value = 1", "value = nan"),
            "value: expected number",
        ),
    ):
        (tmp_path / "a.toml").write_text(text)
        with pytest.raises(UsageError, match=why) as refused:
            read_expected(tmp_path / "a.toml")
        assert len(str(refused.value)) < 1000


def test_what_fits_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(f"[[expect.point]]\n{POINT}")
    (point,) = read_expected(tmp_path / "a.toml").points
    assert point.where == {"variant": "naive", "m": 8, "n": 8, "k": 8}
