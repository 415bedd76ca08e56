"""TOML files of a size that can be worked with."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench.errors import UsageError
from gpubench.plan.toml_file import MAX_BYTES, read_toml


def test_a_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("a = [1, { b.c = 2.5 }]\n")
    assert read_toml(tmp_path / "a.toml") == {"a": [1, {"b": {"c": 2.5}}]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a =", "is not TOML"),
        ("a = " + "9" * 5000, "is not TOML"),
        ("a = 0x" + "f" * 5000, "a whole number is beyond 64 bits"),
        ("a = [[{ b = 0x8000000000000000 }]]", "a whole number is beyond 64 bits"),
        ("a = " + "[" * 3000, "is nested too deeply"),
        ("a = " + "[" * 30 + "]" * 30, "is nested too deeply"),
        (".".join("k" * 100) + " = 1", "is nested too deeply"),
        (".".join("k" * 90_000) + " = 1", "a key has more than 200 parts"),
        ("[" + ".".join("k" * 90_000) + "]", "a key has more than 200 parts"),
        ("#" * (MAX_BYTES + 1), "has more than 1,048,576 bytes"),
    ],
)
def test_what_cannot_be_worked_with_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(UsageError, match=rf"^--config: \S+a\.toml.* {why}|{why}") as refused:
        read_toml(tmp_path / "a.toml", "--config")
    assert str(refused.value).startswith("--config: ")
    assert len(str(refused.value)) < 500


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"a\.toml is not TOML"):
        read_toml(tmp_path / "a.toml")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*a\.toml: No such file"):
        read_toml(tmp_path / "a.toml")
