"""The user's cache: what was kept comes back whole or not at all."""

import os
from pathlib import Path

import pytest

from gpubench.cache import environment_with_caches, keep_value, kept, user_cache


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


def test_directories_of_the_cache_are_the_users_alone_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new" / "caches"))
    before = os.umask(0)
    try:
        environment_with_caches()
        assert keep_value(user_cache("cubins", "a"), b"")
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_dir()}
    assert (modes, user_cache("cubins").is_dir()) == ({0o700}, True)
