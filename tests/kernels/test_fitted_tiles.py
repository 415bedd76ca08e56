"""Tiles by 16 rows or columns, without a GPU: index maps, schedules, parts of K, and the model."""

import random
from dataclasses import replace
from itertools import pairwise, product

import pytest
from machine_code import lines_printed

from gpubench.errors import UsageError
from gpubench.kernels.fitted_tile import (
    BY_64,
    BYTES,
    FORMS,
    SPLIT,
    TF32,
    TURNS,
    WHOLE,
    Form,
    box_of_b,
    maps,
    sums,
)
from gpubench.kernels.tensor_cores import DTYPES, MAX_DYNAMIC_BYTES, clusters
from gpubench.kernels.tile_costs import (
    COSTS,
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

MODELLED = {
    name: (variant, variant.auto_tiles.form)
    for name, variant in of_op("gemm").items()
    if isinstance(variant, CudaVariant) and isinstance(variant.auto_tiles, Picks)
}
"""Kernels that the model knows, and their forms."""

VARIANTS = {
    name: variant
    for name, (variant, form) in MODELLED.items()
    if variant.dtypes == DTYPES and not form.odd_rows
}

PROGRAM = """
#include "cuda.h"
#include "lib/cluster/split_sums.cuh"
#include <cstdio>
#include <initializer_list>

template <bool TRANSPOSED>
void lanes() {
  for (int lane = 0; lane < 32; ++lane) {
    std::printf("%d %d ", unit_row<TRANSPOSED>(lane), unit_half<TRANSPOSED>(lane));
  }
  std::puts("");
}

int main() {
  lanes<false>();
  lanes<true>();
  for (int unit = 0; unit < 16; ++unit) {
    for (int t = 0; t < 128; ++t) std::printf("%d ", unit_offset(t, unit));
  }
  std::puts("");
  for (int unit = 0; unit < 3; ++unit) {
    for (int half = 0; half < 2; ++half) {
      for (int t = 0; t < 128; ++t) std::printf("%d ", half_unit_offset(unit, half, t));
    }
  }
  std::puts("");
  for (int parts = 1; parts <= 8; ++parts) {
    for (int steps : {1, 2, 3, 7, 8, 9, 86, 128}) {
      std::printf("%d %d", parts, steps);
      for (int part = 0; part < parts; ++part) {
        const StepsOfPart of(steps, part, parts);
        std::printf(" %d %d %d", of.first, of.count, first_unit(steps, part, parts));
      }
      std::puts("");
    }
  }
}
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """Lines of numbers: places of `stmatrix`, offsets of units and halves, parts of K."""
    return lines_printed(PROGRAM, tmp_path_factory.mktemp("fitted_maps"))


def problem(m: int, n: int, k: int, dtype: str = "bfloat16") -> Problem:
    return Problem(op="gemm", m=m, n=n, k=k, dtype=dtype)


def shapes(count: int, dtype: str, multiple: int = 16) -> list[Problem]:
    draw = random.Random(5)  # noqa: S311 # a sample, not a secret
    sizes = [[multiple * draw.randint(1, 512) for _ in range(3)] for _ in range(count)]
    return [problem(*size, dtype) for size in sizes]


def test_a_warp_stores_each_half_row_of_its_unit_once(printed: list[list[int]]) -> None:
    for line in printed[:2]:
        places = list(zip(line[::2], line[1::2], strict=True))
        assert sorted(places) == list(product(range(16), range(2)))


def test_matrices_of_a_unit_go_where_their_registers_belong(printed: list[list[int]]) -> None:
    # The i-th register of a thread is of matrix i, whose rows have the addresses of lanes 8i on.
    plain, transposed = (list(zip(line[::2], line[1::2], strict=True))[::8] for line in printed[:2])
    assert plain == [(0, 0), (8, 0), (0, 1), (8, 1)]  # rows g, g + 8; then 8 columns further
    assert transposed == [(0, 0), (0, 1), (8, 0), (8, 1)]  # columns g, g + 8; then 8 rows further


def test_transposed_results_lie_at_the_addresses_that_the_tma_reads(
    printed: list[list[int]],
) -> None:
    offsets = printed[2]
    assert sorted(offsets) == list(range(0, 256 * 128, 16))
    for unit in range(16):
        for t in range(128):
            lane = t % 32
            row = 16 * unit + lane // 16 * 8 + lane % 8
            plain = row * 128 + (t // 32 * 2 + lane % 16 // 8) * 16
            # The swizzle by address: bits 4 to 6 of the plain one, exclusive or bits 7 to 9.
            assert offsets[unit * 128 + t] == plain ^ (plain >> 7 & 7) << 4


def test_eight_rows_that_are_stored_at_once_share_no_bank(printed: list[list[int]]) -> None:
    for first in range(0, len(printed[2]), 8):
        of_rows = printed[2][first : first + 8]
        banks = {(offset // 4 + word) % 32 for offset in of_rows for word in range(4)}
        assert len(banks) == 32


def test_sums_for_other_blocks_fill_memory_without_a_gap(printed: list[list[int]]) -> None:
    assert sorted(printed[3]) == list(range(0, 3 * 4096, 16))
    assert all(after - before == 16 for before, after in pairwise(printed[3][:128]))


def test_each_step_and_unit_is_in_one_part_and_no_part_is_empty(printed: list[list[int]]) -> None:
    assert len(printed) > 4
    for parts, steps, *numbers in printed[4:]:
        firsts, counts, units = (numbers[place::3] for place in range(3))
        total = max(steps, parts)  # a part has at least one step, of zeros where K is shorter
        assert firsts == [sum(counts[:part]) for part in range(parts)]
        assert sum(counts) == total
        assert min(counts) >= 1
        assert max(counts) - min(counts) <= 1
        assert units[0] == 0
        assert units == sorted(units)
        assert units[-1] <= steps


def test_a_launch_has_room_for_stages_sums_and_results() -> None:
    draw = random.Random(1)  # noqa: S311 # a sample, not a secret
    for name, variant in VARIANTS.items():
        for tile in variant.tiles.sample(150, seed=2):
            m, n, k = (8 * draw.randint(1, 500) for _ in range(3))
            launch = variant.launch(tile, problem(m, n, k))
            assert launch.shared_bytes <= MAX_DYNAMIC_BYTES
            splits = tile.get("splits", 1)
            in_turns = name == "wgmma_pingpong"
            needed = tile["BM"] * tile["BN"] * (4 if splits > 1 else 2)
            assert launch.shared_bytes >= needed, (name, tile)
            assert launch.blocks % launch.cluster[0] == 0
            assert launch.cluster[0] <= 8
            if in_turns:
                assert launch.blocks <= 132
            else:
                blocks = launch.cluster[0]
                assert launch.blocks == clusters(tile, problem(m, n, k)) * blocks
            a, b, rest, *_ = launch.tensor_maps
            rows, columns = map(int, tile["cluster"].split("x"))
            assert (a.box, b.box) == ((tile["BM"] // columns, 64), (box_of_b(tile["BN"], rows), 64))
            if in_turns:
                assert rest.box == (tile["BM"], 64)  # of results
            else:
                assert rest.box == (64 // rows, tile["BN"] % 64 or 64)


def test_boxes_of_a_cluster_cover_a_stage_of_b_once() -> None:
    for columns, down in product(range(64, 257, 16), (1, 2, 4, 8)):
        box = box_of_b(columns, down)
        assert box % 8 == 0  # rows of the swizzle
        assert 64 % box == 0  # a box has values of k of the same 64 columns
        if columns % 64 == 0:
            assert columns % (down * box) == 0  # and each block sends as many
        else:
            assert box * down == 64


def test_tiles_that_do_not_fit_are_refused_with_the_reason() -> None:
    variant = VARIANTS["wgmma_split_cluster"]
    refused = {
        "80x80x64/s8/k2": "neither rows nor columns are a multiple of 64",
        "256x256x64/s3/k2": "256 sums a thread, over 192",
        "208x192x64/s4/k2": "104 sums a thread, over 96",
        "64x64x64/s8/k5/cluster=1x2": "10 blocks in a cluster, over 8",
    }
    for text, reason in refused.items():
        given = f"{text}{'' if 'cluster' in text else '/cluster=1x1'}/group=8/pdl=1"
        assert reason in str(variant.tiles.why_not(variant.tiles.read(given))), text
    assert "bytes of shared memory" in str(
        variant.tiles.why_not(variant.tiles.read("192x256x64/s8/k2/cluster=1x1/group=8/pdl=1"))
    )


# ---- the model


def test_all_choices_of_the_model_are_legal_and_read_back() -> None:
    for variant, form in MODELLED.values():
        assert variant.dtypes == form.dtypes
        for of_shape in shapes(2, variant.dtypes[-1], 1 if form.odd_rows else 16):
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


def test_the_model_divides_k_where_there_are_few_tiles_and_not_where_there_are_many() -> None:
    def best_us(form: Form, of_shape: Problem) -> float:
        return min(ranked(choices_of(form), of_shape, 132).values())

    deep, large = problem(512, 512, 8192), problem(4096, 4096, 4096)
    assert best_us(SPLIT, deep) < 0.9 * best_us(WHOLE, deep)
    assert best_us(TURNS, large) < best_us(SPLIT, large)


def test_weights_that_exceed_the_l2_cache_come_in_large_pieces_to_many_blocks() -> None:
    large = Problem(op="gemm", m=52, n=3680, k=15248, dtype="bfloat16")
    tile = VARIANTS["wgmma_fitted"].tiles.read("56x64x64/s8/cluster=1x1/group=8/pdl=1")
    small, tall = replace(large, k=1024), replace(large, m=99)
    for problem, promoted in ((large, 256), (small, 128), (tall, 128)):
        assert maps(tile, problem)[1].l2_promotion_bytes == promoted
    # On an H100, 116 blocks with K in two parts take 42.6 µs, and 58 blocks without parts 46.1.
    whole, parts = (ranked(choices_of(form), large, 132) for form in (WHOLE, SPLIT))
    assert next(iter(parts)).splits == 2
    assert min(whole.values()) > 1.05 * min(parts.values())


def test_few_rows_have_narrow_tiles_because_a_multiprocessor_receives_64_bytes_a_clock() -> None:
    few = problem(28, 3600, 6128, "float8_e4m3")
    # On an H100, 32x64 takes 8.2 µs, and 32x192 11.9, both in two parts of K and clusters of 1x4.
    assert next(iter(ranked(choices_of(BYTES), few, 132))).columns <= 2 * BY_64


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
    assert plain == set(VARIANTS and of_op("gemm")["wgmma"].tiles.default)  # it has no model


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
            slow = [one for one in own if time_us(one, of_shape) > limit_us]
            assert not slow or own == slow == [own[0]]


def test_kernels_that_refuse_a_problem_have_no_picks() -> None:
    for n, k in ((4001, 400), (4000, 401)):
        b_along_k = replace(problem(1008, n, k, "float8_e4m3"), column_major=("B",))
        assert list(picked(b_along_k, 132)) == [BYTES]


def test_auto_tiles_without_a_device_are_refused() -> None:
    sweep = read_sweep({"variants": "wgmma_fitted", "tiles": "auto", "dtypes": "float16"})
    with pytest.raises(UsageError, match="auto is for sweep, compare-cublas and export"):
        plan(sweep, "cuda")
