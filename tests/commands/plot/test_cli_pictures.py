"""`gpubench plot` and `gpubench report` as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from samples import SWEEP


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpubench", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_plot_writes_a_picture_and_says_its_name_alone(tmp_path: Path) -> None:
    done = run(tmp_path, "plot", str(SWEEP), "--kind", "blas", "-o", "ladder.png")
    assert (done.returncode, done.stdout) == (0, "ladder.png\n"), done.stderr
    assert (tmp_path / "ladder.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_report_writes_a_page_and_says_its_name_alone(tmp_path: Path) -> None:
    done = run(tmp_path, "report", str(SWEEP), "-o", "page.html")
    assert (done.returncode, done.stdout) == (0, "page.html\n"), done.stderr
    assert (tmp_path / "page.html").read_text().endswith("</html>\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plot", "nowhere.csv"), "cannot read nowhere.csv: No such file or directory"),
        (("report", "nowhere.csv"), "cannot read nowhere.csv: No such file or directory"),
        (("plot", str(SWEEP), "--kind", "speedup"), "--kind speedup: no row of 'cpu_naive'"),
        (("plot", str(SWEEP), "--bandwidth", "0"), "Invalid value for '--bandwidth'"),
        (("plot",), "Missing argument 'CSV...'"),
    ],
)
def test_what_cannot_be_used_is_a_line_and_leaves_nothing(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not [path for path in tmp_path.iterdir() if path.is_file()]
