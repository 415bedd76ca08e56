"""TOML files of limited size are decoded into typed objects."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from gpubench.errors import UsageError
from gpubench.plan.toml_file import MAX_BYTES, decode, read_toml
from gpubench.rewording import NOT_BLANK


class Unit(StrEnum):
    MS = "ms"
    US = "us"


class Step(msgspec.Struct, forbid_unknown_fields=True):
    by: float

    def __post_init__(self) -> None:
        if self.by == 13:
            raise ValueError("13 is unlucky")


class Sheet(msgspec.Struct, forbid_unknown_fields=True):
    title: Annotated[str, msgspec.Meta(pattern=NOT_BLANK)] = "a"
    unit: Unit | None = None
    steps: tuple[Step, ...] = ()


def test_values_are_decoded_and_a_wrong_value_is_one_short_line_with_its_place() -> None:
    sheet = decode({"unit": "us", "steps": [{"by": 2}]}, Sheet, "a.toml")
    assert sheet == Sheet(unit=Unit.US, steps=(Step(by=2),))
    for values, said in (
        (3, "must be a table, not a whole number"),
        ({"titel": "b"}, "unknown key 'titel'; did you mean 'title'?"),
        ({"unit": "mm"}, "unit: unknown value 'mm'"),
        ({"title": " "}, "title: must be text that is not blank"),
        ({"steps": [{"by": 2}, {"by": "two"}]}, "steps 2: by: must be a number, not text"),
        ({"steps": [{}]}, "steps 1: the key 'by' is missing"),
        ({"steps": {}}, "steps: must be a list, not a table"),
        ({"steps": [{"by": 13}]}, "steps 1: 13 is unlucky"),
        ({"z" * 5000: 1}, "unknown key 'zzz"),
    ):
        with pytest.raises(UsageError) as refused:
            decode(values, Sheet, "a.toml")
        message = str(refused.value)
        assert message.startswith(f"a.toml: {said}"), message
        assert len(message.splitlines()) == 1
        assert len(message) < 500


def test_a_file_that_is_invalid_too_large_or_too_deep_is_refused(tmp_path: Path) -> None:
    for text, why in (
        ("a =", "is not TOML"),
        ("a = 1".encode("utf-16"), "is not text in UTF-8"),
        (b"\x1f\x8b\x08", "is not text in UTF-8"),
        ("a = 0x" + "f" * 5000, "an integer is beyond 64 bits"),
        ("a = " + "[" * 3000, "is nested too deeply"),
        (".".join("k" * 90_000) + " = 1", "a key has more than 200 parts"),
        ("#" * (MAX_BYTES + 1), "has more than 1,048,576 bytes"),
    ):
        (tmp_path / "a.toml").write_bytes(text.encode() if isinstance(text, str) else text)
        with pytest.raises(UsageError, match=why) as refused:
            read_toml(tmp_path / "a.toml", "--config")
        assert str(refused.value).startswith("--config: ")
        assert str(tmp_path / "a.toml") in str(refused.value)
        assert len(str(refused.value)) < 500


def test_a_byte_order_mark_is_read_over(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfa = 1\r\n")
    assert read_toml(tmp_path / "a.toml") == {"a": 1}
