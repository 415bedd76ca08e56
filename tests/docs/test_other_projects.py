"""The script that measures kernels of other projects: what can be checked without a GPU."""

import sys
from pathlib import Path

from newcomer import REPOSITORY
from samples import sample

sys.path.insert(0, str(REPOSITORY / "benchmarks"))
import foreign


def test_the_report_has_each_point_once_and_compares_those_that_nsight_compute_timed(
    tmp_path: Path,
) -> None:
    rows = [sample(name, "", 2048) for name in ("sgemm_5", "cublas", "sgemm_1", "cublas")]
    at, us = ("sgemm_5", 2048, "float32"), rows[0].median_us or 0.0
    path = tmp_path / "foreign.csv"
    for ncu, code in (({at: 1.009 * us}, 0), ({at: 1.02 * us}, 1), ({}, 3)):
        assert foreign.report(rows, ncu, "it is missing", path) == code
        lines = path.read_text().splitlines()
        assert len(lines) == 1 + 3
        assert [bool(line.split(",")[6]) for line in lines[1:]] == [bool(ncu), False, False]
    foreign.report(rows[:1], {}, "it is missing", path)
    assert len(path.read_text().splitlines()) == 1 + 3
