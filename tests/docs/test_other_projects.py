"""The scripts that measure kernels of other projects: what can be checked without a GPU."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import chain, pairwise
from pathlib import Path

import pytest
from newcomer import REPOSITORY
from samples import sample

from gpubench.model import CallVariant, Problem
from gpubench.plan.registry import of_op

sys.path.insert(0, str(REPOSITORY / "benchmarks"))
import fast_cu
import foreign


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (32, 32), (8, 16), (12, 20), (1, 2)])
def test_a_schedule_of_fast_cu_has_every_tile_once(rows: int, columns: int) -> None:
    clusters = fast_cu.schedule(rows, columns)
    assert {len(tiles) for tiles in clusters} == {fast_cu.SCHEDULE_LENGTH}
    listed = [[divmod(tile, 1 << 16) for tile in tiles if tile != -1] for tiles in clusters]
    expected = [(row, column) for row in range(rows) for column in range(columns)]
    assert Counter(chain.from_iterable(listed)) == Counter(expected)
    sizes = {len(tiles) for tiles in listed}
    assert max(sizes) - min(sizes) <= 1
    assert all(tiles[len(own) :] == [-1] * (len(tiles) - len(own))
               for tiles, own in zip(clusters, listed, strict=True))  # fmt: skip


def test_neighbours_on_the_curve_are_neighbours_in_the_square() -> None:
    curve = fast_cu.hilbert(16)
    assert len(set(curve)) == 256
    assert all(abs(x - u) + abs(y - v) == 1 for (x, y), (u, v) in pairwise(curve))


def test_kernels_of_fast_cu_are_described_in_the_layout_that_they_compute(tmp_path: Path) -> None:
    (tmp_path / "checkout/examples/matmul").mkdir(parents=True)
    own = tmp_path / "own"
    own.mkdir()
    for number in fast_cu.KERNELS:
        fast_cu.source_of(tmp_path / "checkout", number).write_text("// a kernel\n")
    cubins = {number: tmp_path / f"{number}.cubin" for number in fast_cu.KERNELS}
    names = fast_cu.describe(tmp_path / "checkout", cubins, own)
    variants = of_op("gemm", own)
    for name in names:
        variant = variants[name]
        assert isinstance(variant, CallVariant), variant.idea
        assert variant.tiles
        (tile,) = variant.tiles.defaults
        for n, taken in ((4096, True), (8192, True), (1000, False)):
            row_major = Problem(op="gemm", m=n, n=n, k=n, dtype="bfloat16")
            problem = Problem(op="gemm", m=n, n=n, k=n, dtype="bfloat16", column_major=("B",))
            assert (variant.why_not(tile, problem, (9, 0)) is None) == taken
            assert "column-major B" in str(variant.why_not(tile, row_major, (9, 0)))


def test_the_report_on_fast_cu_misses_no_point(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"dtype": "bfloat16", "layout": "column-major B", "cache": "cold"}
    rows = [
        sample(fast_cu.name_of(number), "", n, **facts)
        for number in fast_cu.KERNELS
        for n in fast_cu.SIZES
    ]
    assert fast_cu.report(rows) == 0
    assert "10 of 10 points of fast.cu are ok" in capsys.readouterr().out
    assert fast_cu.report(rows[1:]) == 1
    assert "9 of 10 points" in capsys.readouterr().out


def test_nsight_computes_median_covers_both_runs() -> None:
    first, second = ("sgemm_1", 2048, "float32"), ("sgemm_2", 2048, "float32")
    before, after = {first: [1.0, 2.0], second: [5.0]}, {first: [3.0]}
    assert foreign.medians((before, after)) == {first: 2.0}
    assert foreign.medians((before, {})) == {}
