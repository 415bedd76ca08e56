"""Files that a command writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench.errors import UsageError
from gpubench.output import require_free, write_whole


def test_a_new_name_is_free_and_an_old_one_with_leave_to_overwrite(tmp_path: Path) -> None:
    require_free(tmp_path / "a", overwrite=False)
    (tmp_path / "a").write_text("precious")
    with pytest.raises(UsageError, match=r"a exists; --force overwrites it"):
        require_free(tmp_path / "a", overwrite=False)
    require_free(tmp_path / "a", overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_folders_devices_and_impossible_names_are_refused(tmp_path: Path, overwrite: bool) -> None:
    for path, reason in {
        tmp_path: "is a directory",
        Path("/dev/null"): "is not a regular file",
        Path(): "does not name a file",
        tmp_path / ("x" * 300): "File name too long",
        tmp_path / "a\0b": "does not name a file",
    }.items():
        with pytest.raises(UsageError, match=reason):
            require_free(path, overwrite=overwrite, flag="--there")


def test_a_file_is_written_whole_or_what_was_there_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a"
    write_whole(path, lambda file: file.write(b"first"))
    assert path.read_bytes() == b"first"

    def fail(_file: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(UsageError, match=r"--there: cannot write .*: No space left"):
        write_whole(path, fail, "--there")
    assert path.read_bytes() == b"first"
    assert [one.name for one in path.parent.iterdir()] == ["a"]
