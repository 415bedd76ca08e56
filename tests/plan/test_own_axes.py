"""A kernel of a user's own with parameters that no kernel of ours has."""

from pathlib import Path

import pytest

from gpubench.backends.cuda.compile import compile_instance
from gpubench.errors import UsageError
from gpubench.model import CudaVariant, Space
from gpubench.plan.descriptor import load
from gpubench.plan.ranges import parse_tiles
from gpubench.plan.sweep import Sweep, plan

SOURCE = """
template <typename Scalar, int BM, int BN, int BK, int STAGES, int CLUSTER_M, int CLUSTER_N,
          bool COLUMNS_FIRST>
__global__ void mine(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  static_assert(CLUSTER_M * CLUSTER_N <= 8 && !(COLUMNS_FIRST && STAGES > 4), "as described");
  if (threadIdx.x == 0) C[0] = BM * BN * BK;
}
"""

DESCRIPTOR = """
from gpubench.model import CudaVariant, Launch, Space

def why_not(tile):
    m, n = map(int, tile["cluster"].split("x"))
    if m * n > 8:
        return f"{tile}: {m * n} blocks, and a cluster holds at most 8"
    if tile["columns_first"] == "true" and tile["stages"] > 4:
        return f"{tile}: columns first leaves room for 4 stages"
    return None

def launch(tile, problem):
    bm, bn = tile.numbers("BM", "BN")
    m, n = map(int, tile["cluster"].split("x"))
    blocks = -(-problem.n // bn // n) * n, -(-problem.m // bm // m) * m
    return Launch(grid=blocks, block=(128,), cluster=(n, m, 1))

VARIANT = CudaVariant(
    idea="a cluster of blocks, and an order",
    tiles=Space(
        axes={
            "BM": range(16, 257, 16),
            "BN": range(16, 257, 16),
            "BK": (16, 32, 64, 96, 128),
            "stages": range(1, 9),
            "cluster": tuple(f"{m}x{n}" for m in (1, 2, 4) for n in (1, 2, 4)),
            "columns_first": ("false", "true"),
        },
        block=("BM", "BN", "BK"),
        default=("128x128x64/s4/cluster=2x1/columns_first=false",),
        constraint=why_not,
    ),
    launch=launch,
    reuse=lambda tile: tile.numbers("BM", "BN"),
)
"""


@pytest.fixture
def mine(tmp_path: Path) -> CudaVariant:
    (tmp_path / "mine.cu").write_text(SOURCE)
    (tmp_path / "mine.py").write_text(DESCRIPTOR)
    variant = load(tmp_path / "mine.py", "gemm")
    assert isinstance(variant, CudaVariant)
    return variant


def planned(mine: CudaVariant, tiles: str) -> dict[str, str | None]:
    sweep = Sweep(variants=("mine",), kernels=mine.path.parent, tiles=parse_tiles(tiles))
    return {point.key.tile: reason for point, reason in plan(sweep, "cuda").items()}


def test_its_tiles_are_written_by_name_and_planned_like_any_other(mine: CudaVariant) -> None:
    assert planned(mine, "128x128x64,64x64x16/cluster=2x4,64x64x16/s2/columns_first=true") == {
        "128x128x64/s4/cluster=2x1/columns_first=false": None,
        "64x64x16/cluster=2x4/columns_first=false": None,
        "64x64x16/s2/cluster=1x1/columns_first=true": None,
    }
    assert planned(
        mine, "64x64x16/cluster=4x4,64x64x16/s8/columns_first=true/cluster=1x1,64x64x16"
    ) == {
        "64x64x16/cluster=4x4": "64x64x16/cluster=4x4/columns_first=false: 16 blocks, and a "
        "cluster holds at most 8",
        "64x64x16/s8/cluster=1x1/columns_first=true": "64x64x16/s8/cluster=1x1/columns_first=true: "
        "columns first leaves room for 4 stages",
        "64x64x16/cluster=1x1/columns_first=false": None,
    }
    with pytest.raises(UsageError, match=r"mine takes BMxBNxBK, such as .*, not 64x64x16/warps=4"):
        planned(mine, "64x64x16/warps=4")
    with pytest.raises(UsageError, match="--tiles: 16 is of a form that no variant"):
        planned(mine, "16,128x128x64")


def test_its_parameters_are_the_arguments_of_its_template(mine: CudaVariant) -> None:
    assert mine.tiles
    tile = mine.tiles.read("64x32x16/s3/cluster=2x1/columns_first=true")
    name = mine.instance(tile, "float32")
    assert name == "mine<float, 64, 32, 16, 3, 2, 1, true>"
    assert compile_instance(mine.source, name, "sm_90").resources.registers


@pytest.mark.slow
def test_its_hundred_thousand_tiles_are_counted_and_sampled_at_once(mine: CudaVariant) -> None:
    space = mine.tiles
    assert isinstance(space, Space)
    clusters = 8  # of at most eight blocks, of nine
    legal = 16 * 16 * 5 * clusters * (8 + 4)
    assert 100_000 < legal == space.count()
    sample = space.sample(100, seed=3)
    assert len(set(sample)) == 100
    assert not any(map(space.why_not, sample))
    assert space.summary.endswith("2x4, 4x1, 4x2, 4x4; columns_first false, true")
