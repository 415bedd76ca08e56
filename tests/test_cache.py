"""The user's cache returns a kept value whole, or not at all."""

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from gpubench.cache import (
    COMPILED,
    COMPILED_IN,
    DESCRIPTIONS,
    NOWHERE,
    OWN,
    SHARED,
    copy_compiled,
    environment_of_foreign,
    environment_with_caches,
    folder_of,
    keep,
    keep_value,
    kept,
    part_of,
    user_cache,
)
from gpubench.files import Output
from gpubench.temporary import TEMPORARY

# outside of the virtual environment
PYTHON = str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))


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


def test_python_imports_no_module_from_the_folder_at_its_start(tmp_path: Path) -> None:
    """A kernel can write a module there, which a library's process would run unconfined."""
    environment, folder = environment_of_foreign(tmp_path, DESCRIPTIONS)
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
        keep(folder_of(user_cache(OWN)) / SHARED / place / "kernel", b"cubin")
    for part in (SHARED, part_of("mine")):
        environment, folder = environment_of_foreign(tmp_path, part)
        assert folder
        assert not list(folder.iterdir())  # only the process itself writes there
        for name in ("HOME", COMPILED_IN):
            monkeypatch.setenv(name, environment[name])
        kernels = [folder / place / "kernel" for place in COMPILED]
        for own in (b"cubin", b"its own"):
            copy_compiled()
            assert [path.read_bytes() for path in kernels] == [own, own]
            for path in kernels:
                path.write_bytes(b"its own")
            monkeypatch.setenv(COMPILED_IN, environment[COMPILED_IN])
        for path in kernels:
            path.write_bytes(b"cubin")


def test_each_function_has_a_folder_of_its_own_and_all_caches_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = ("CUPY_CACHE_DIR", "TRITON_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR", "CUDA_CACHE_PATH")
    for name in caches:
        monkeypatch.setenv(name, str(tmp_path))
    parts = (SHARED, DESCRIPTIONS, part_of("mine"), part_of("other"))
    folders = list[Path]()
    for part in parts:
        environment, folder = environment_of_foreign(tmp_path / "kernels", part)
        assert folder
        assert {environment.get(name, str(folder / "cache/nv")) for name in caches} == {
            str(folder / "cache/nv")
        }
        assert Path(environment["XDG_CACHE_HOME"]).is_relative_to(folder)
        folders.append(folder)
    for folder in folders:
        assert not any(each.is_relative_to(folder) for each in folders if each is not folder)


@pytest.mark.parametrize("is_below_another", [False, True])
def test_kernels_in_a_temporary_folder_leave_nothing_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_below_another: bool
) -> None:
    """`ab` starts sweeps with a new temporary folder, beside its unpacked kernels."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    of_a_sweep = tmp_path / f"{TEMPORARY}sweep"
    of_a_sweep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(of_a_sweep if is_below_another else tmp_path))
    (tmp_path / "unpacked").mkdir()
    _, folder = environment_of_foreign(tmp_path / "unpacked", DESCRIPTIONS)
    assert folder
    assert folder.is_relative_to(tempfile.gettempdir())
    assert not user_cache().exists()


def test_the_temporary_folder_of_a_killed_process_is_removed_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    wait = (
        "import sys; from pathlib import Path; from gpubench.cache import environment_of_foreign; "
        "print(environment_of_foreign(Path(sys.argv[1]), 'shared')[1], flush=True); input()"
    )
    command = [sys.executable, "-c", wait, str(kernels)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen(command, **pipes) as killed, subprocess.Popen(command, **pipes) as living:
        streams = filter(None, (killed.stdout, living.stdout))
        folders = [Path(stream.readline().strip()) for stream in streams]
        killed.kill()
        killed.wait()
        assert all(folder.is_dir() for folder in folders)
        environment_of_foreign(kernels, SHARED)
        assert [folder.is_dir() for folder in folders] == [False, True]
        living.communicate("\n")
    assert not folders[1].exists()


def no_folder(*_: object, **_named: object) -> str:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("name", ["mkdtemp", "gettempdir"])
def test_foreign_code_is_confined_even_if_no_folder_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Otherwise a function could fill the disk, and its next process could write everywhere."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, name, no_folder)
    environment, folder = environment_of_foreign(tmp_path, part_of("mine"))
    monkeypatch.undo()
    assert environment["HOME"] == str(folder)
    confined = (
        "import sys; from gpubench.process.confine import settle; settle(sys.argv[1]); "
        "open(sys.argv[2], 'w')"
    )
    done = subprocess.run(
        [sys.executable, "-c", confined, folder, tmp_path / "file"], stderr=subprocess.PIPE,
        text=True, check=False,
    )  # fmt: skip
    assert "PermissionError" in done.stderr


def test_the_folder_of_foreign_code_stays_the_same_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "other"))
    folders = [environment_of_foreign(tmp_path, part_of("mine"))[1]]
    for name in ("mkdtemp", "TemporaryFile"):
        monkeypatch.setattr(tempfile, name, no_folder)
    folders.append(environment_of_foreign(tmp_path, part_of("mine"))[1])
    assert folders[0] == folders[1]
    folders[0].parent.chmod(0o500)
    monkeypatch.setattr(Path, "mkdir", no_folder)
    _, later = environment_of_foreign(tmp_path, part_of("other"))
    assert later == folders[0].with_name("other")


def test_a_user_without_a_home_directory_has_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_home(_: str) -> str:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr(platformdirs, "user_cache_dir", without_home)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.chdir(tmp_path)
    environment, notice = environment_with_caches()
    assert "cannot be used: there is no home directory" in notice
    assert Path(environment["XDG_CACHE_HOME"]).is_absolute()
    assert environment_with_caches()[0]["XDG_CACHE_HOME"] == environment["XDG_CACHE_HOME"]
    assert not keep_value(user_cache("a"), b"")
    assert environment_of_foreign(tmp_path / "kernels", SHARED)[1].is_absolute()
    assert not list(tmp_path.iterdir())


def test_a_link_in_place_of_a_functions_folder_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that ran without Landlock may have written the link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "cache").symlink_to("real")  # the user's own link
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "other"))
    _, folder = environment_of_foreign(tmp_path, part_of("mine"))
    assert folder.resolve().is_relative_to(tmp_path / "real")
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert environment_of_foreign(tmp_path, part_of("mine"))[1] == NOWHERE
