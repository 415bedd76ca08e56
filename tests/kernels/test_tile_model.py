"""The model that predicts times of tiles, and picks tiles for `--tiles auto`."""

import random
from dataclasses import replace
from itertools import product

import pytest

from gpubench.errors import UsageError
from gpubench.kernels.fitted_tile import (
    ANY_ROWS,
    BY_64,
    BYTES,
    FORMS,
    SPLIT,
    TF32,
    WHOLE,
    maps,
    sums,
)
from gpubench.kernels.gemm import splitk_cluster
from gpubench.kernels.tile_costs import (
    COSTS,
    PICKS,
    PICKS_TOGETHER,
    Choice,
    Picks,
    choices,
    choices_of,
    picked,
    predicted_us,
    ranked,
)
from gpubench.model import CudaVariant, Problem
from gpubench.options import read_sweep
from gpubench.plan.registry import of_op
from gpubench.plan.sweep import plan

BATCHED = [of_op("gemm_batched")[name] for name in ("wgmma_batched", "wgmma_batched_pingpong")]
GEMM = {name: each for name, each in of_op("gemm").items() if isinstance(each, CudaVariant)}

MODELLED = {
    name: (variant, variant.auto_tiles.form)
    for name, variant in GEMM.items()
    if isinstance(variant.auto_tiles, Picks)
}
"""Kernels that the model covers, and their forms."""

SMALL_TILES = ("dmma_split_cluster", "splitk_cluster")
DIVIDES_K = (*SMALL_TILES, "wgmma_bytes_cluster", "wgmma_tf32_cluster")


def problem(m: int, n: int, k: int, dtype: str = "bfloat16") -> Problem:
    return Problem(op="gemm", m=m, n=n, k=k, dtype=dtype)


def shapes(count: int, dtype: str, multiple: int = 16) -> list[Problem]:
    draw = random.Random(5)  # noqa: S311 # a sample, not a secret
    sizes = [[multiple * draw.randint(1, 512) for _ in range(3)] for _ in range(count)]
    return [problem(*size, dtype) for size in sizes]


def test_all_choices_of_the_model_are_legal_and_read_back() -> None:
    for variant, form in MODELLED.values():
        assert variant.dtypes == form.dtypes
        for of_shape in shapes(1, variant.dtypes[-1], 1 if form.odd_rows else 16):
            for choice in choices(form, of_shape):
                tile = variant.tiles.read(str(choice))
                assert variant.why_not(tile, of_shape, (9, 0)) is None, str(choice)
                of_block = 128 * choice.consumers
                assert choice.sums * of_block == choice.rows * choice.columns
                extents = choice.rows, choice.columns
                assert form.in_turns or form == TF32 or choice.sums == sums(*extents)


def test_no_choice_of_the_model_has_more_rows_than_another_that_covers_c_by_as_many_tiles() -> None:
    for form, m in product(FORMS, (5, 144, 928)):
        fewest: dict[object, int] = {}
        for choice in choices(form, problem(m, 1008, 1008, form.dtypes[-1])):
            if choice.columns % BY_64 == 0:
                tiles = -(-m // (choice.rows * choice.down))
                like = replace(choice, rows=0), tiles
                assert fewest.setdefault(like, choice.rows) == choice.rows, str(choice)


def time_us(choice: Choice, of_shape: Problem, multiprocessors: int = 132) -> float:
    return predicted_us(choice, of_shape, multiprocessors, COSTS[of_shape.dtype])


def test_the_model_expects_more_work_to_take_longer() -> None:
    choice = Choice(form=WHOLE, rows=128, columns=256)
    time = time_us(choice, problem(2048, 2048, 2048))
    assert time_us(choice, problem(2048, 2048, 4096)) > 1.5 * time
    assert time_us(choice, problem(4096, 2048, 2048)) > 1.3 * time
    assert time_us(choice, problem(2048, 2048, 2048), 66) > 1.3 * time


def test_weights_that_exceed_the_l2_cache_come_in_large_pieces_to_many_blocks() -> None:
    large = Problem(op="gemm", m=52, n=3680, k=15248, dtype="bfloat16")
    tile = GEMM["wgmma_fitted"].tiles.read("56x64x64/s8/cluster=1x1/group=8/pdl=1")
    small, tall = replace(large, k=1024), replace(large, m=99)
    for problem, promoted in ((large, 256), (small, 128), (tall, 128)):
        assert maps(tile, problem)[1].l2_promotion_bytes == promoted
    # On an H200, 58 blocks of twelve stages take 31.9 µs, and 92 with K in two parts 32.7 µs.
    whole, parts = (ranked(choices_of(form), large, 132) for form in (WHOLE, SPLIT))
    assert (next(iter(whole)).stages, next(iter(parts)).splits) == (12, 2)
    assert min(whole.values()) < min(parts.values()) < 1.05 * min(whole.values())


def test_rows_of_tiles_share_a_cluster_where_the_weights_come_from_memory() -> None:
    # On an H200 these tiles take 72, 51, 28 and 22 µs; without shared clusters 91, 65, 34 and 29.
    for m, n, k in ((68, 15168, 9296), (70, 10656, 8688), (96, 12288, 4096), (105, 7904, 4304)):
        weights = problem(m, n, k, "bfloat16")
        best = next(iter(ranked(choices_of(WHOLE), weights, 132)))
        assert best.rows * best.down >= m


def test_clusters_of_sixteen_blocks_share_a_deep_k_of_few_tiles() -> None:
    # On an H200 this tile takes 13.3 µs. The best tile with at most eight blocks takes 15.8 µs.
    best = next(iter(ranked(choices_of(SPLIT), problem(224, 1184, 8656, "bfloat16"), 132)))
    assert (best.rows, best.columns, best.down, best.across, best.splits) == (64, 176, 4, 1, 4)
    for form in (WHOLE, BYTES, ANY_ROWS):
        deep = problem(224, 1184, 8656, form.dtypes[-1])
        blocks = [each.down * each.across * each.splits for each in choices(form, deep)]
        assert max(blocks) == 8


def test_few_rows_have_narrow_tiles_because_a_multiprocessor_receives_64_bytes_a_clock() -> None:
    few_rows = problem(28, 3600, 6128, "float8_e4m3")
    # On an H100, 32x64 takes 8.2 µs and 32x192 takes 11.9 µs, both with K in two parts.
    assert next(iter(ranked(choices_of(BYTES), few_rows, 132))).columns <= 2 * BY_64


def test_auto_tiles_are_few_for_each_size_and_depend_on_it() -> None:
    asked = {"variants": "wgmma_fitted,wgmma", "sizes": "512x512x512,4096", "tiles": "auto"}
    sweep = read_sweep(asked | {"dtypes": "bfloat16", "device": "cuda"})
    points = plan(sweep, "cuda", (9, 0), 132)
    by_size: dict[str, set[str]] = {}
    for point in points:
        if point.variant.name == "wgmma_fitted":
            by_size.setdefault(point.problem.size, set()).add(str(point.tile))
    small, large = by_size.values()
    assert 1 <= len(small) <= PICKS_TOGETHER
    assert not small & large
    plain = {str(point.tile) for point in points if point.variant.name == "wgmma"}
    assert plain == set(GEMM["wgmma"].tiles.default)  # this kernel has no model


def test_kernels_of_a_precision_are_ranked_together_and_each_has_a_pick() -> None:
    for of_shape in (
        problem(512, 512, 8192),
        problem(4096, 4096, 512),
        problem(1008, 4000, 400, "float8_e4m3"),
        problem(1023, 4001, 401),
    ):
        of_form = picked(of_shape, 132)
        forms = [form for form in FORMS if of_shape.dtype in form.dtypes]
        assert list(of_form) == [form for form in forms if form.odd_rows == of_shape.m % 2]
        times = sorted(
            time for form in of_form for time in ranked(choices_of(form), of_shape, 132).values()
        )
        limit_us = times[PICKS_TOGETHER - 1]
        for form, own in of_form.items():
            assert own == list(ranked(choices_of(form), of_shape, 132))[: len(own)]
            slow = [each for each in own if time_us(each, of_shape) > limit_us]
            assert not slow or own == slow == [own[0]]


def test_kernels_that_refuse_a_problem_have_no_picks() -> None:
    for n, k in ((4001, 400), (4000, 401)):
        b_along_k = replace(problem(1008, n, k, "float8_e4m3"), column_major=("B",))
        assert list(picked(b_along_k, 132)) == [BYTES]


def test_tiles_for_batches_are_legal_and_small_products_leave_room_for_further_blocks() -> None:
    for batch, m, n, k in ((512, 64, 64, 64), (7, 1, 8, 1280), (16, 512, 512, 512)):
        of_batch = Problem.of("gemm_batched", (m, n, k, batch), "float16")
        for variant in BATCHED:
            tiles = variant.tiles_for(of_batch, 132)
            assert 1 <= len(tiles) <= PICKS_TOGETHER
            for tile in tiles:
                assert variant.why_not(tile, of_batch, (9, 0)) is None, str(tile)
                assert variant is not BATCHED[0] or tile["stages"] <= -(-k // 64)
    small = Problem.of("gemm_batched", (64, 64, 64, 512), "float16")
    assert "64x64x64/cluster=1x1" in map(str, BATCHED[0].tiles_for(small, 132))


def test_the_grids_of_batches_have_a_row_for_each_product_or_blocks_that_take_all_tiles() -> None:
    of_batch = Problem.of("gemm_batched", (130, 136, 64, 7), "bfloat16")
    grids = []
    for variant, tile in zip(BATCHED, ("64x64x64/s1", "64x64x64/s3"), strict=True):
        assert isinstance(variant, CudaVariant)
        launch = variant.launch(variant.tiles.read(tile), of_batch)
        assert [each.batch for each in launch.tensor_maps] == [7, 7, 7]
        grids.append(launch.grid)
    assert grids == [(9, 7), (63,)]


@pytest.mark.parametrize("op", ["gemm_gelu", "gemm_bias_residual"])
def test_tiles_of_epilogues_are_legal_and_launches_have_a_map_of_the_residual(
    op: str,
) -> None:
    own = [of_op(op)[name] for name in ("wgmma_epilogue", "wgmma_epilogue_pingpong")]
    for size in ((1, 8, 8), (2048, 2048, 2048), (416, 1984, 3920), (8192, 384, 520)):
        of_shape = Problem.of(op, size, "bfloat16")
        picks = [(variant, tile) for variant in own for tile in variant.tiles_for(of_shape, 132)]
        assert {variant.name for variant, _ in picks} == {each.name for each in own}
        for variant, tile in picks:
            assert variant.why_not(tile, of_shape, (9, 0)) is None, str(tile)
            assert isinstance(variant, CudaVariant)
            maps = variant.launch(tile, of_shape).tensor_maps
            output = [4, 3] if "residual" in op else [3]
            assert [each.array for each in maps] == [0, 1, *output]


def test_one_stage_is_for_one_step() -> None:
    tile = BATCHED[0].tiles.read("64x64x64/s1")
    reason = BATCHED[0].why_not(tile, Problem.of("gemm_batched", (64, 64, 72, 2), "bfloat16"))
    assert reason == "64x64x64/cluster=1x1: one stage is for K up to 64, not 72"


def test_auto_tiles_without_a_device_are_refused() -> None:
    sweep = read_sweep({"variants": "wgmma_fitted", "tiles": "auto", "dtypes": "float16"})
    with pytest.raises(UsageError, match="auto is for sweep, compare-cublas and export"):
        plan(sweep, "cuda")


@pytest.mark.parametrize("name", DIVIDES_K)
def test_auto_tiles_are_legal_and_few(name: str) -> None:
    variant = GEMM[name]
    for of_shape in (problem(8, 16, 16, variant.dtypes[0]), *shapes(4, variant.dtypes[0])):
        tiles = variant.tiles_for(of_shape, 132)
        alone = 2 * PICKS if of_shape.m <= splitk_cluster.FEW_ROWS else PICKS
        assert 1 <= len(tiles) <= (alone if name in SMALL_TILES else PICKS_TOGETHER)
        kinds = {
            (tile["BM"] * tile["BN"] / tile["splits"], str(tile.get("cluster")), tile["splits"])
            for tile in tiles
        }
        assert len(kinds) == len(tiles) or name not in SMALL_TILES
        for tile in tiles:
            assert variant.why_not(tile, of_shape, (9, 0)) is None, str(tile)


@pytest.mark.parametrize("name", DIVIDES_K)
def test_k_is_divided_where_there_are_few_tiles_and_not_where_there_are_many(name: str) -> None:
    variant = GEMM[name]
    deep, *_ = variant.tiles_for(problem(456, 728, 8192, variant.dtypes[0]), 132)
    assert deep["splits"] > 1
    many, *_ = variant.tiles_for(problem(8192, 8192, 512, variant.dtypes[0]), 132)
    assert many["splits"] == 1
    assert many["BM"] * many["BN"] > deep["BM"] * deep["BN"] / deep["splits"]
