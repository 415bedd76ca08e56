"""Sentences that a person can quote: the fastest kernel relative to its BLAS, with an interval."""

from dataclasses import replace

import numpy as np
from fakes import measured, point, variant

from gpubench.model import Config, edges
from gpubench.results.row import Row
from gpubench.stats.intervals import rounds_interval
from gpubench.view.sentences import ratio_text, sentences

TILES = edges(1, 64, because="of a test")


def timed(name: str, median_us: float, half_us: float = 0.1, size: int = 64, tile: int = 0) -> Row:
    at = point(
        variant(name=name, tiles=TILES),
        tile=Config.parse(str(tile)) if tile else None,
        size=(size, size, size),
    )
    interval = {"ci_low_us": median_us - half_us, "ci_high_us": median_us + half_us}
    return measured(median_us, at, **interval)


def beside_blas(kernel: Row, blas_us: float, half_us: float = 0.1) -> list[Row]:
    blas = replace(timed("cpu_blas", blas_us, half_us, kernel.n), percent_of_blas=100.0)
    percent = 100 * blas_us / (kernel.median_us or 1.0)
    return [blas, replace(kernel, percent_of_blas=percent)]


def said(rows: list[Row]) -> list[str]:
    return [line.plain.strip() for line in sentences(rows)]


def test_the_fastest_kernel_is_compared_with_its_blas_in_one_sentence_per_problem() -> None:
    rows = [
        *beside_blas(timed("mine", 10.0, tile=16), 11.2),
        *beside_blas(timed("slow", 30.0), 11.2)[1:],
        *beside_blas(timed("mine", 20.0, size=128, tile=8), 15.0),
    ]
    assert said(rows) == [
        "`mine 16` is 1.12 ± 0.02 times as fast as `cpu_blas` at 64 (float32, cold cache)",
        "`mine 8` is 0.750 ± 0.007 times as fast as `cpu_blas` at 128 (float32, cold cache)",
    ]


def test_without_a_blas_the_second_fastest_kernel_or_tile_is_the_other_side() -> None:
    (sentence,) = said([timed("a", 10.0), timed("b", 30.0), timed("c", 20.0)])
    assert sentence == "`a` is 2.00 ± 0.03 times as fast as `c` at 64 (float32, cold cache)"
    (sentence,) = said([timed("a", 10.0, tile=8), timed("a", 10.1, tile=16)])
    assert sentence.startswith("`a 8` is 1.01 ± 0.02 times as fast as `a 16` at 64")
    assert sentence.endswith(": no difference is shown")
    assert said([timed("a", 10.0)]) == []


def test_the_fastest_of_many_equal_tiles_is_not_shown_to_be_faster_than_an_equal_blas() -> None:
    rng = np.random.default_rng(83)
    tiles = [*range(1, 33)]

    def problem(faster: float = 1.0) -> list[Row]:
        def row(name: str, tile: int = 0) -> Row:
            rounds = 100 * np.exp(0.01 * rng.standard_normal(5)) / (faster if tile == 7 else 1.0)
            low, high = rounds_interval(rounds.tolist()) or (0.0, 0.0)
            timed_row = timed(name, float(np.median(rounds)), tile=tile)
            return replace(
                timed_row, ci_low_us=low, ci_high_us=high, round_medians_us=tuple(rounds.tolist())
            )

        blas = row("cpu_blas")
        percent = 100 * (blas.median_us or 0.0)
        kernels = [row("mine", tile) for tile in tiles]
        return [blas, *(replace(x, percent_of_blas=percent / (x.median_us or 1)) for x in kernels)]

    equal = [said(problem())[0] for _ in range(20)]
    assert sum(text.endswith("no difference is shown") for text in equal) >= 18
    better = [said(problem(1.08))[0] for _ in range(10)]
    assert sum("`mine 7` is 1." in text and "no diff" not in text for text in better) >= 9


def test_no_ratio_is_quoted_from_one_round_or_from_rounds_that_disagree() -> None:
    once = replace(timed("a", 10.0), ci_low_us=None, ci_high_us=None)
    (sentence,) = said([once, timed("b", 30.0)])
    ratio = "ratio of `a` to `b` at 64 (float32, cold cache)"
    assert sentence == f"for a {ratio} with its interval, use --rounds 3 or more"
    shaky = replace(timed("a", 10.0), round_medians_us=(10.0, 10.1, 12.0))
    (sentence,) = said([shaky, timed("b", 30.0)])
    assert sentence == f"do not quote a {ratio}: rounds differ by more than 10 %"


def test_visits_in_turns_replace_the_ratio_of_the_two_times() -> None:
    blas, kernel = beside_blas(timed("mine", 10.0), 10.5)
    pairs = {"pair_library": "cpu_blas", "pair_ratio": 1.2, "pairs": 16}
    kernel = replace(kernel, **pairs, pair_ratio_low=1.19, pair_ratio_high=1.21)
    assert "1.20 ± 0.01 times" in said([blas, kernel])[0]
    unknown = replace(kernel, pair_ratio_low=None)  # a file without this column
    assert "±" not in said([blas, unknown])[0]


def test_many_problems_share_one_sentence() -> None:
    sizes = range(64, 74)
    rows = [row for n in sizes for row in beside_blas(timed("mine", 10.0, size=n), n / 4)]
    (sentence,) = said(rows)
    assert sentence.startswith("the fastest kernel of 10 problems is 1.71 times as fast as")
    assert sentence.endswith("`cpu_blas` in the geometric mean, from 1.60 to 1.82")


def test_a_ratio_has_the_decimals_of_its_interval() -> None:
    for value, half, text in [
        (1.1234, 0.0123, "1.12 ± 0.02"),
        (35.21, 0.4, "35.2 ± 0.4"),
        (351.0, 12.0, "351 ± 12"),
        (1.0, 0.00004, "1.000 ± 0.001"),
    ]:
        assert ratio_text(value, half) == text


def test_a_blas_that_lacks_the_precision_is_named_with_its_own_and_with_the_errors() -> None:
    def at(row: Row, bits: float | None) -> Row:
        return replace(row, compute_mode="bf16x6", error_rms_bits=bits)

    kernel, blas = timed("mine", 10.0), replace(timed("cublas", 20.0), percent_of_blas=100.0)
    kernel = replace(kernel, percent_of_blas=200.0)
    (sentence,) = said([at(kernel, 30.0), at(blas, 27.0)])
    assert sentence == (
        "`mine` is 2.00 ± 0.03 times as fast as `cublas` at 64 (bf16x6, cold cache), "
        "with 0.12 times the error (rms) of `cublas`, which computes in float32"
    )
    (sentence,) = said([at(kernel, None), at(blas, 27.0)])  # a row of an older file
    assert sentence.endswith("(bf16x6, cold cache); `cublas` computes in float32")
    assert "computes in" not in said([kernel, blas])[0]
    newer = [replace(row, compute_mode="float4") for row in (kernel, blas)]  # not known here
    assert "2.00 ± 0.03 times" in said(newer)[0]
    assert "computes in" not in said([at(kernel, 30.0), at(timed("other", 20.0), 27.0)])[0]
    many = [
        replace(at(row, bits - size / 640), n=size)
        for size in range(64, 64 * 11, 64)
        for row, bits in ((kernel, 30.0), (blas, 27.0 + size / 640))
    ]
    (sentence,) = said(many)
    assert sentence.endswith(
        ", with 0.13 to 0.25 times the error (rms) of `cublas`, which computes in float32"
    )
