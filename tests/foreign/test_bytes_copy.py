"""The copy of bytes as a problem: its launches need the kernels that every problem needs."""

from pathlib import Path

import pytest

from gpubench.backends import open_backend
from gpubench.commands.judge.own_kernels import SHORTLY
from gpubench.engine.measure.runner import Runner
from gpubench.foreign import bytes_copy
from gpubench.model import OPERATIONS, Status, Timer
from gpubench.plan.scrutiny import scrutiny_of


def test_a_copy_of_bytes_is_measured_as_a_users_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(OPERATIONS, "_by_name", dict(OPERATIONS._by_name))
    runner = Runner(open_backend("cpu", Timer.EVENTS), SHORTLY)
    for point in bytes_copy.points("cpu"):
        assert scrutiny_of(point.variant).tries_other_operands
        measured = runner.measure(point, seed=3)
        assert (measured.status, measured.reason) == (Status.OK, "")
