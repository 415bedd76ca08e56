"""SIGTERM ends a sweep as Ctrl-C does: what was measured is kept, and continued."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.mark.slow
def test_sigterm_keeps_what_was_measured_and_the_partial_file_continues(tmp_path: Path) -> None:
    flags = ("--device", "cpu", "--variants", "cpu_blas", "--sizes", "32", "--rounds", "1000")
    command = [sys.executable, "-m", "gpubench", "sweep", *flags, "-o", "a.csv"]
    sweep = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    partial = tmp_path / "a.csv.partial"
    while not (partial.exists() and partial.read_bytes().count(b"\n") > 1):
        time.sleep(0.05)
        assert sweep.poll() is None
    os.kill(sweep.pid, signal.SIGTERM)
    _, err = sweep.communicate(timeout=60)
    assert sweep.returncode == 130
    assert "interrupted: what was measured is kept; --resume a.csv continues" in err
    again = [
        sys.executable,
        "-m",
        "gpubench",
        "sweep",
        "--resume",
        "a.csv.partial",
        "--rounds",
        "9",
    ]
    done = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "a.csv was started with --rounds '1000'" in done.stderr  # it was found
