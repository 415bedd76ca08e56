"""The commands in messages install an extra, in whatever way this copy was installed."""

import json
import os
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpubench import cli, errors
from gpubench.errors import LONGEST_MESSAGE, UsageError, first_line


def found(direct_url: dict[str, Any] | None) -> Any:
    """Return a stand-in for `importlib.metadata.distribution`."""
    text = None if direct_url is None else json.dumps(direct_url)
    return lambda _name: SimpleNamespace(read_text=lambda _file: text)


def test_the_command_to_install_an_extra_follows_how_this_copy_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "pyproject.toml").touch()
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages/gpubench/errors.py"))
    wheel = tmp_path / "g b.whl"
    wheel.touch()
    of_wheel = f"pip install '{wheel}[cuda13]'"
    origin = {"url": f"file://{checkout}", "dir_info": {}}
    for direct_url, folder, command in (
        (origin, checkout, "pip install '.[cuda13]'"),
        (origin, tmp_path, f"pip install '{checkout}[cuda13]'"),
        ({"url": f"file://{wheel.parent}/g%20b.whl", "archive_info": {}}, tmp_path, of_wheel),
        ({"url": "file:///gone.whl", "archive_info": {}}, tmp_path, None),
        ({"url": "file:///gone", "dir_info": {}}, tmp_path, None),
        (None, tmp_path, None),
        (
            {"url": "https://host/g", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            tmp_path,
            "pip install 'gpubench-kernels[cuda13] @ git+https://host/g'",
        ),
    ):
        monkeypatch.setattr(metadata, "distribution", found(direct_url))
        monkeypatch.chdir(folder)
        expected = command or "pip install 'gpubench-kernels[cuda13]'"
        assert errors.install_command("cuda13") == expected


def test_an_environment_that_nothing_can_be_added_to_is_made_again_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "distribution", found(None))
    monkeypatch.setattr(errors, "__file__", "/site-packages/gpubench/errors.py")
    for prefix, command in (
        ("/home/me/.cache/uv/archive-v0/x1", "uvx --from 'gpubench-kernels[fleet]' gpubench …"),
        ("/home/me/.cache/pipx/3734c", "pipx run --spec 'gpubench-kernels[fleet]' gpubench …"),
        ("/home/me/pipx/venvs/gpubench", "pip install 'gpubench-kernels[fleet]'"),
    ):
        monkeypatch.setattr(errors.sys, "prefix", prefix)
        assert errors.install_command("fleet") == command


def test_a_copy_that_runs_without_being_installed_names_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(metadata, "distribution", missing)
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "gpubench/errors.py"))
    monkeypatch.chdir(tmp_path)
    assert errors.install_command("sass") == "pip install '.[sass]'"


def test_a_message_is_cut_whatever_the_names_that_it_quotes() -> None:
    assert str(UsageError("x" * LONGEST_MESSAGE)) == "x" * LONGEST_MESSAGE
    cut = str(UsageError("x" * 10_000))
    assert (len(cut), cut[-1]) == (LONGEST_MESSAGE, "…")


def test_an_exception_whose_text_fails_is_named_by_its_type() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert first_line(MuteError()) == "MuteError"


def test_the_text_of_an_exception_can_be_encoded_whatever_file_it_names() -> None:
    name = os.fsdecode(b"a\xff")
    assert first_line(FileNotFoundError(2, "missing", name)) == r"[Errno 2] missing: 'a\udcff'"
    assert first_line(ValueError(name)) == "a?"


def test_a_command_that_ctrl_c_ends_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", interrupted)
    assert cli._run() == 130


def test_a_full_disk_exits_74_wherever_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device", "/tmp/folder")  # noqa: S108 # not used

    monkeypatch.setattr(cli, "app", full)
    assert cli._run() == errors.OUTPUT_LOST


def test_a_system_error_without_a_number_is_printed_with_its_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failed(**_: object) -> None:
        raise OSError("read the end of the file too early")

    monkeypatch.setattr(cli, "app", failed)
    assert cli._run() == 2
    assert capsys.readouterr().err == "gpubench: the system: read the end of the file too early\n"


def test_an_error_of_gpubench_is_its_message_and_any_other_has_its_place() -> None:
    def place(error: Exception) -> str:
        with pytest.raises(type(error)) as raised:
            raise error
        return errors.with_place(raised.value)

    assert place(errors.LaunchError("it replaces time.time")) == "it replaces time.time"
    assert place(KeyError("x")).startswith("KeyError: 'x' (test_errors.py:")


def test_an_error_in_the_call_of_a_users_code_names_the_users_file() -> None:
    error = TypeError("1 argument is missing")
    assert errors.with_place(error, Path("new.py")) == "TypeError: 1 argument is missing (new.py)"


def test_the_place_of_an_error_is_in_a_users_file_and_not_in_a_library(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    names: dict[str, Any] = {}
    exec(compile("import ast\n\ndef run():\n    ast.parse('(')", path, "exec"), names)  # noqa: S102 # a kernel
    with pytest.raises(SyntaxError) as raised:
        names["run"]()
    error = raised.value
    assert errors.with_place(error).endswith("(<unknown>, line 1) (mine.py:4)")
    frames = error.__traceback__
    while frames and not frames.tb_frame.f_code.co_filename.endswith("ast.py"):
        frames = frames.tb_next
    assert errors.with_place(error.with_traceback(frames)).endswith("(<unknown>, line 1)")
