"""Output that cannot be written: every command exits with 74, and a sweep finishes its file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import TIMEOUT_S

import gpubench
from gpubench.results.row import read

GPUBENCH = f"{sys.executable} -m gpubench"
SWEEP = f"{GPUBENCH} sweep --device cpu --sizes 8,16 --variants cpu_blas --rounds 1 --cache hot"


def shell(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in bash; the exit code is the last one that is not 0."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],  # noqa: S607 # the shell of the system
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(gpubench.__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.slow
def test_a_sweep_whose_output_is_lost_finishes_its_file(tmp_path: Path) -> None:
    done = shell(tmp_path, f"{SWEEP} -o a.csv 2>&1 | head -1")
    assert done.returncode == 74
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    rows = [(row.size, row.status) for row in read(tmp_path / "a.csv")]
    assert rows == [("8", "ok"), ("16", "ok")]


def test_output_that_is_lost_is_said_in_a_line_and_by_the_exit_code(tmp_path: Path) -> None:
    done = shell(tmp_path, f"{GPUBENCH} --help > /dev/full")
    said = "gpubench: cannot write the output: No space left on device\n"
    assert (done.returncode, done.stderr) == (74, said)


@pytest.mark.parametrize("command", ["--help | true", "nonsense 2>&-"])
def test_output_that_is_lost_where_nobody_can_be_told_is_said_by_the_exit_code(
    tmp_path: Path, command: str
) -> None:
    done = shell(tmp_path, f"{GPUBENCH} {command}")
    assert (done.returncode, done.stderr) == (74, "")


def test_a_file_takes_no_closed_streams_place(tmp_path: Path) -> None:
    done = shell(tmp_path, f"{GPUBENCH} generate a.bin --sizes 2x2 <&- >&- 2>&-")
    assert done.returncode in {0, 74}
    assert (tmp_path / "a.bin").stat().st_size == 16 + 6 * 4
