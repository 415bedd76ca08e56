"""The scripts that measure kernels of other projects: what can be checked without a GPU."""

from __future__ import annotations

import sys

from newcomer import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))
import foreign


def test_nsight_computes_median_covers_both_runs() -> None:
    first, second = ("sgemm_1", 2048, "float32"), ("sgemm_2", 2048, "float32")
    before, after = {first: [1.0, 2.0], second: [5.0]}, {first: [3.0]}
    assert foreign.medians((before, after)) == {first: 2.0}
    assert foreign.medians((before, {})) == {}
