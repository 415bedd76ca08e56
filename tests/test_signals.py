"""SIGTERM ends a sweep as Ctrl-C does: what was measured is kept, and continued."""

from __future__ import annotations

from pathlib import Path

import pytest
from commandline import QUICK, TIMEOUT_S, call, start, wait_for_lines


@pytest.mark.slow
def test_sigterm_keeps_what_was_measured_and_the_partial_file_continues(tmp_path: Path) -> None:
    with start(tmp_path, *QUICK, "--rounds", "1000", "-o", "a.csv") as sweep:
        wait_for_lines(tmp_path / "a.csv.partial", 2, sweep)
        sweep.terminate()
        _, err = sweep.communicate(timeout=TIMEOUT_S)
    assert sweep.returncode == 130
    assert "interrupted: what was measured is kept; --resume a.csv continues" in err
    done = call(tmp_path, "sweep", "--resume", "a.csv.partial", "--rounds", "9")
    assert "a.csv was started with --rounds '1000'" in done.err  # it was found
