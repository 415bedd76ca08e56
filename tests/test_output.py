"""Text and files that the program writes."""

import os
import resource
from pathlib import Path
from typing import IO

import pytest

from gpubench.errors import UsageError
from gpubench.files import Output, lock, write_all
from gpubench.text import clean, unknown


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_an_empty_name_is_not_suggested() -> None:
    for names in ((), ("",)):
        assert "did you mean" not in unknown("variant", "", names)


def test_a_new_file_may_be_written_and_an_existing_file_only_by_force(tmp_path: Path) -> None:
    Output(tmp_path / "a")
    (tmp_path / "a").write_text("precious")
    with pytest.raises(UsageError, match=r"a exists; --force overwrites it"):
        Output(tmp_path / "a")
    Output(tmp_path / "a", overwrite=True).write(b"new")
    assert (tmp_path / "a").read_text() == "new"


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_output_that_is_no_regular_file_is_refused(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "fifo")
    for path, reason in {
        tmp_path: "is a directory",
        Path("/dev/null"): "is not a regular file",
        tmp_path / "link": "is a symbolic link, which is not followed",
        tmp_path / "fifo": "is not a regular file",
        Path(): "does not name a file",
        tmp_path / ("x" * 300): "File name too long",
        tmp_path / "a\0b": "does not name a file",
    }.items():
        with pytest.raises(UsageError, match=rf"--there: .*{reason}"):
            Output(path, overwrite=overwrite, flag="--there")
    assert not (tmp_path / "nowhere").exists()


def test_a_file_is_written_whole_or_what_was_there_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a"
    Output(path).write(b"first")
    assert path.read_bytes() == b"first"
    with pytest.raises(UsageError, match=r"--there: cannot write .*: No space left"):
        Output(path, overwrite=True, flag="--there").write(full)
    assert path.read_bytes() == b"first"
    assert [each.name for each in path.parent.iterdir()] == ["a"]


@pytest.mark.parametrize("before", [{}, {"a": "old a", "b": "old b"}])
def test_several_files_are_written_all_or_none(tmp_path: Path, before: dict[str, str]) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(UsageError, match=r"cannot write .*b: File too large"):
            write_all(dict(zip(paths, ("new a", "b" * 20_000), strict=True)), overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before
    write_all(dict.fromkeys(paths, "new"), overwrite=True)
    assert [path.read_text() for path in paths] == ["new", "new"]


def test_what_a_killed_writer_left_is_removed_by_the_next_one_of_this_file(tmp_path: Path) -> None:
    class KilledError(BaseException):
        pass

    def kill(_file: IO[bytes]) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # a killed writer removes nothing
        with pytest.raises(KilledError):
            Output(tmp_path / "a").write(kill)
    (left,) = tmp_path.iterdir()
    Output(tmp_path / "b").write(b"another file")
    assert left.exists()
    with left.open("r+b") as file:
        lock(file.fileno())  # as while it is written
        Output(tmp_path / "a").write(b"whole")
        assert left.exists()
    Output(tmp_path / "a", overwrite=True).write(b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_file_of_its_own_is_written_again(tmp_path: Path) -> None:
    output = Output(tmp_path / "a")
    for content in (b"first", b"second"):
        output.write(content)
        assert (tmp_path / "a").read_bytes() == content


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_file_that_has_appeared_since_the_claim_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:  # as on a FAT file system
        monkeypatch.setattr("os.link", full)
    path = tmp_path / "new"
    output = Output(path, overwrite=True)
    path.write_text("precious")
    with pytest.raises(UsageError, match=f"{path}: another file has appeared there"):
        output.write(b"content")
    assert path.read_text() == "precious"
    path.unlink()
    output.write(b"content")
    assert path.read_bytes() == b"content"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_another_process_holds_is_not_overwritten(tmp_path: Path) -> None:
    claimed = Output(tmp_path / "a")
    with (
        claimed.create(b"held"),
        pytest.raises(UsageError, match="a is being written by another gpubench"),
    ):
        Output(tmp_path / "a", overwrite=True)
    Output(tmp_path / "a", overwrite=True).write(b"free")
    assert (tmp_path / "a").read_bytes() == b"free"


def test_a_file_system_may_have_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", full)
    Output(tmp_path / "a").write(b"first")
    Output(tmp_path / "a", overwrite=True).write(b"second")
    assert (tmp_path / "a").read_bytes() == b"second"


def test_control_characters_become_question_marks() -> None:
    for text in (
        "\x1b[2J",
        "\x9b2J",
        "a\x07",
        "\x00",
        "\x7f",
        "\u061cx",
        "\u202ex",
        "\u206a",
        "\udcff",
        "\uffff",
    ):
        assert "?" in clean(text)
        assert clean(text).isprintable()
        assert len(clean(text)) == len(text)


def test_line_ends_become_blanks_and_letters_of_every_script_stay() -> None:
    assert clean("a\nb\tc\u2028d\x85e") == "a b c d e"
    text = "µs × ∞ — 行列 матрица é\u00a0\u200d"
    assert clean(text) == text


def test_a_temporary_file_that_another_process_removed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process may find the file before this process has locked it."""
    path, others = tmp_path / "a", [b"other"]

    def lock_late(descriptor: int) -> bool:
        if others:
            content = others.pop()
            Output(path, overwrite=True).write(content)
        return lock(descriptor)

    monkeypatch.setattr("gpubench.files.lock", lock_late)
    output = Output(path, overwrite=True)
    with pytest.raises(UsageError, match="another file has appeared there"):
        output.write(b"mine")
    assert path.read_bytes() == b"other"
    output, others = Output(path, overwrite=True), [b"another"]
    output.write(b"mine")
    assert path.read_bytes() == b"mine"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
