"""The user's cache returns a kept value whole, or not at all."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpubench.cache import (
    COMPILED,
    OWN,
    cache_file,
    environment_of_foreign,
    environment_with_caches,
    folder_of,
    keep,
    keep_value,
    kept,
    user_cache,
)
from gpubench.files import Output

PYTHON = str(Path(sys.base_prefix, "bin", "python3"))  # outside of the virtual environment


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


def test_content_that_another_process_writes_at_the_same_time_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with Output(path).create(b"same"):  # the file is locked
        assert keep(path, b"same")
        assert not keep(path, b"different")
    assert keep(path, b"different")


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


def test_rates_of_this_cpu_are_known_beside_foreign_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep_value(cache_file("rates", "a CPU"), {"fma": 7.0})
    environment, folder = environment_of_foreign(tmp_path, measures=True)
    assert folder
    monkeypatch.setenv("XDG_CACHE_HOME", environment["XDG_CACHE_HOME"])
    path = cache_file("rates", "a CPU")
    assert path.is_relative_to(folder)
    assert kept(path, dict[str, float]) == {"fma": 7.0}


def test_python_imports_no_module_from_the_folder_at_its_start(tmp_path: Path) -> None:
    """A kernel can write a module there, which a library's process would run unconfined."""
    environment, folder = environment_of_foreign(tmp_path)
    assert folder
    environment["PYTHONUSERBASE"] = str(tmp_path)
    prints = [PYTHON, "-c", "import site; print(site.getusersitepackages())"]
    place = subprocess.run(prints, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    module = Path(place.stdout.strip()) / "usercustomize.py"
    module.parent.mkdir(parents=True)
    module.write_text("print('imported')")
    for extra, output in (({}, ""), ({"PYTHONNOUSERSITE": ""}, "imported\n")):
        done = subprocess.run(
            [PYTHON, "-c", ""],
            env=environment | extra,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        assert done.stdout == output


def test_kernels_of_gpubench_are_compiled_beside_foreign_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for place in COMPILED:
        keep(folder_of(user_cache(OWN)) / place / "kernel", b"cubin")
    for measures in (False, True):
        _, folder = environment_of_foreign(tmp_path, measures=measures)
        assert folder
        copied = [(folder / place / "kernel").is_file() for place in COMPILED]
        assert copied == [measures, measures]


@pytest.mark.parametrize("is_below_another", [False, True])
def test_kernels_in_a_temporary_folder_leave_nothing_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_below_another: bool
) -> None:
    """`ab` starts sweeps with a new temporary folder, beside its unpacked kernels."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    of_a_sweep = tmp_path / "gpubench-sweep"
    of_a_sweep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(of_a_sweep if is_below_another else tmp_path))
    (tmp_path / "unpacked").mkdir()
    _, folder = environment_of_foreign(tmp_path / "unpacked")
    assert folder
    assert folder.is_relative_to(tempfile.gettempdir())
    assert not user_cache().exists()
