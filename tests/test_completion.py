"""The completions that the shell offers on TAB."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from commandline import TIMEOUT_S

HEAVY = ("numpy", "pandas", "cupy", "numba", "matplotlib", "scipy", "rich")

SCRIPT = f"""
import os, sys
from gpubench.cli import main
os.environ["_GPUBENCH_COMPLETE"] = "complete_bash"
for typed in sys.argv[1:]:
    os.environ |= {{"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}}
    sys.argv = ["gpubench"]
    try:
        main()
    except SystemExit:
        print("", flush=True)
print(sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)
"""


def offered(folder: Path, lines: Iterable[str]) -> list[list[str]]:
    """Return the completions that bash gets for each line, whose last word is incomplete."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *lines],
        cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.stderr.strip() == "[]"  # nothing heavy was loaded, nothing went wrong
    return [text.split() for text in done.stdout.split("\n\n")[:-1]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, which is the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.toml"):
        (tmp_path / name).touch()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.py").write_text("open('touched', 'w')\nVARIANT = 1\n")
    return tmp_path


OFFERED = {
    "gpubench swe": ["sweep"],
    "gpubench sweep --dev": ["--device"],
    "gpubench sweep --variants shared_t": ["shared_tile"],
    "gpubench sweep --kernels own --variants naive,mi": ["naive,mine"],
    "gpubench sweep --op gemv": ["gemv", "gemv_t"],
    "gpubench sweep --cache ": ["cold", "hot", "both"],
    "gpubench sweep --dtypes float32,float6": ["float32,float64"],
    "gpubench sweep --variants naive,naive_u": ["naive,naive_uncoalesced"],
    "gpubench sweep --variants naive_uncoalesced,naive_u": [],  # the list already has it
    "gpubench sweep --config b": [],  # the shell completes files
    "gpubench plot a": [],
    "gpubench new-kernel x --like shared": ["shared_tile"],
}


@pytest.mark.usefixtures("cold")
def test_bash_is_offered_what_fits(folder: Path) -> None:
    for (typed, expected), items in zip(OFFERED.items(), offered(folder, OFFERED), strict=True):
        assert items == expected, typed
    assert not (folder / "touched").exists()  # no kernel of the user's was run
