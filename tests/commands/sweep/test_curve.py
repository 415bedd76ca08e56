"""The tile curves in the terminal."""

from __future__ import annotations

import io

from rich.console import Console
from samples import SWEEP, curve, sample

from gpubench.commands.sweep.curve import curves
from gpubench.results.row import Row, read


def lines(rows: list[Row]) -> list[str]:
    drawn = curves(rows)
    assert drawn is not None
    screen = Console(file=io.StringIO(), width=80)
    screen.print(drawn)
    return screen.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_bar_a_tile_higher_for_slower() -> None:
    shown = lines(curve("naive", (800, 100, 10, 80)))
    assert shown[1] == "gemm 1024 float32, cold cache: time by tile"
    assert shown[2].split() == ["naive", "█▅▁▄", "best", "4:", "0.0100", "ms"]
    assert shown[3].split() == ["1", "8"]


def test_variants_of_a_size_share_their_scale() -> None:
    shown = lines([*curve("fast", (1, 1, 1, 1)), *curve("slow", (9, 9, 9, 9))])
    assert [line.split()[1] for line in shown[2:4]] == ["▁▁▁▁", "████"]


def test_a_tile_that_one_variant_lacks_is_a_gap() -> None:
    short = curve("short", (9, 9, 9, 9))
    del short[1]
    shown = lines([*curve("whole", (9, 9, 9, 1)), *short])
    assert "█ ██" in shown[3]


def test_too_few_tiles_are_no_curve() -> None:
    assert curves(curve("naive", (8, 4, 6))) is None
    assert curves([sample(tile="128x128x8/8x8")]) is None
    assert curves([]) is None


def test_eighty_columns_suffice_whatever_is_swept() -> None:
    many = [
        sample("a_kernel_with_quite_a_long_name", str(tile), median_us=1e7 / tile)
        for tile in range(1, 65)
    ]
    shown = lines([*many, *read(SWEEP)])
    assert max(map(len, shown)) <= 80
    assert "best 64: 156.2 ms" in "\n".join(shown)


def test_of_many_tiles_the_best_is_always_shown() -> None:
    rows = [
        sample("v", str(tile), median_us=1.0 if tile == 50 else 100.0) for tile in range(1, 100)
    ]
    assert "▁" in lines(rows)[2]
