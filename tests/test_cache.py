"""The user's cache: what was kept comes back whole or not at all."""

from __future__ import annotations

from pathlib import Path

from gpubench.cache import keep_value, kept


def test_a_kept_value_comes_back_unless_a_bit_of_its_file_changed(tmp_path: Path) -> None:
    path, value = tmp_path / "made" / "value", {"code": b"\x90" * 8, "error": b""}
    assert kept(path, dict[str, bytes]) is None
    assert keep_value(path, value)
    assert kept(path, dict[str, bytes]) == value
    assert kept(path, list[int]) is None
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        assert kept(path, dict[str, bytes]) is None
