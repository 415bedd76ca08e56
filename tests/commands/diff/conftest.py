"""`gpubench diff` as it is called, on files that a test writes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubench.cli import main
from gpubench.results.row import Row, write


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, list[Row]], str]:
    def written(name: str, rows: list[Row]) -> str:
        write(rows, tmp_path / name)
        return str(tmp_path / name)

    return written


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gpubench", "diff", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code, out, err

    return command
