"""Ctrl-C while the problems of a folder are judged."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from gpubench.commands.judge import problems


@pytest.mark.parametrize("place", ["prepare", "judge"])
def test_ctrl_c_in_the_second_problem_keeps_the_first_and_counts_the_rest(
    place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = MagicMock(rows=[])
    prepared = [None, KeyboardInterrupt] if place == "prepare" else [None, None]
    results = [(first, False), KeyboardInterrupt]
    ahead = MagicMock()
    ahead.return_value.__enter__.return_value.prepare.side_effect = prepared
    monkeypatch.setattr(problems, "Ahead", ahead)
    monkeypatch.setattr(problems, "_judged", MagicMock(side_effect=results))
    monkeypatch.setattr(problems.Budget, "share", MagicMock())
    for name in ("read_judged", "_results_of"):
        monkeypatch.setattr(problems, name, MagicMock())
    each = [(Path(f"{name}.py"), [Path(f"{name}.new.py")]) for name in "abc"]
    judged = problems._judge_all(each, {}, MagicMock(), MagicMock(), Path("out"))
    assert judged == ([first], problems.INTERRUPTED)
    said = "interrupted, with 2 problems left to judge; --resume out judges the rest"
    assert said in " ".join(capsys.readouterr().err.split())
