"""What selfcheck runs."""

from __future__ import annotations

import pytest

from gpubench.commands.selfcheck.measure import CHECKS
from gpubench.options import read_sweep
from gpubench.plan.sweep import plan


@pytest.mark.parametrize("options", CHECKS, ids=lambda options: options["variants"])
def test_every_check_can_run(options: dict[str, str]) -> None:
    points = plan(read_sweep(options), "cuda")
    assert points
    assert set(points.values()) == {None}
