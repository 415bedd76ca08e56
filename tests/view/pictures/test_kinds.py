"""The kinds of pictures: the choice for a file, their texts, and that nothing overlaps."""

from dataclasses import replace
from itertools import combinations

import pytest
from matplotlib.axes import Axes
from matplotlib.axis import Tick
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from samples import COMPARE, SWEEP, curve, of_files, sample, source

from gpubench.errors import UsageError
from gpubench.results.row import Row, read
from gpubench.view.pictures.kinds import KINDS, draw, fitting, resolve
from gpubench.view.pictures.series import Source, sources
from gpubench.view.pictures.style import MAX_COLOURED

SIZES = (256, 512, 1024, 2048)

BITS = COMPARE.with_name("bits.csv")

CPU = {"backend": "cpu", "device": "Fake CPU", "timer": "host"}


def by_size(variant: str, times_us: tuple[float, ...], **facts: object) -> list[Row]:
    return [
        sample(variant, n=n, median_us=us, percent_of_peak=10.0, **facts)
        for n, us in zip(SIZES, times_us, strict=True)
    ]


def gpu_and_cpu() -> list[Source]:
    return source(
        *by_size("shared_tile", (9, 40, 300, 2000)),
        *by_size("cpu_naive", (9e3, 8e4, 7e5, 6e6), **CPU),
        *by_size("cpu_blas", (900, 7e3, 5e4, 4e5), **CPU),
    )


def words(figure: Figure) -> list[str]:
    """Return every line of text in a figure."""
    return [line for text in figure.findobj(Text) for line in text.get_text().splitlines()]


def files(kind: str) -> list[Source]:
    """Return rows for two panels of tiles, or one of another kind. A panel takes half a second."""
    if kind == "tiles":
        return sources([(SWEEP, [row for row in read(SWEEP) if row.n == 1024])])
    if kind == "bits":
        return of_files(BITS)
    rows = [row for row in read(COMPARE) if row.dtype == "float32"]
    return sources([(COMPARE, rows)])


def crowd(kind: str) -> list[Source]:
    """Return rows of twenty equally fast variants."""
    names = [f"a_variant_of_number_{number}" for number in range(20)]
    alike = (9.0, 40.0, 300.0, 2000.0)
    if kind == "tiles":
        return source(*(row for name in names for row in curve(name, alike)))
    rated = {"percent_of_blas": 50.0, "library": "cuBLAS"}
    rows = [row for name in names for row in by_size(name, alike, **rated)]
    return source(*rows, *by_size("cpu_naive", (9e3, 8e4, 7e5, 6e6), **CPU))


def shown_ticks(axes: Axes) -> list[Text]:
    """Return the labels of the ticks within the limits."""
    return [
        label
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        for label in (tick.label1, tick.label2)
        if label.get_visible()
    ]


@pytest.mark.slow
def test_no_label_lies_over_another_or_over_the_edge() -> None:
    crowded = {"tiles": crowd, "sizes": crowd}  # long names fill these layouts
    for kind in KINDS:
        figure = draw(crowded.get(kind, files)(kind), kind)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        # Ticks outside the limits, and ticks of a replaced locator, are not drawn.
        ticks = {id(label) for tick in figure.findobj(Tick) for label in (tick.label1, tick.label2)}
        boxes = [
            (text.get_text(), text.get_window_extent(canvas.get_renderer()).padded(-1.0))
            for text in (
                *(text for text in figure.findobj(Text) if id(text) not in ticks),
                *(label for axes in figure.findobj(Axes) for label in shown_ticks(axes)),
            )
            if text.get_text()
        ]
        assert len(boxes) > 5
        page = figure.bbox.padded(2.0)
        off = [
            name for name, box in boxes if not all(page.contains(*at) for at in (box.min, box.max))
        ]
        assert off == []
        pairs = combinations(boxes, 2)
        assert [(first, other) for (first, a), (other, b) in pairs if a.overlaps(b)] == []


def test_auto_shows_what_the_file_varies() -> None:
    beside_cublas = [sample(percent_of_blas=20.0), sample("cublas", "", percent_of_blas=100.0)]
    for each, kind in (
        (of_files(SWEEP), "tiles"),
        (of_files(COMPARE), "sizes"),
        (gpu_and_cpu(), "sizes"),
        (source(*beside_cublas), "blas"),
        (source(sample()), "tiles"),
        (source(sample(tile="")), "sizes"),
    ):
        assert resolve(each, "auto") == kind


def test_the_best_tile_is_named_with_its_time() -> None:
    shown = words(draw(source(*curve("naive", (800, 300, 120, 150))), "tiles"))
    assert "naive" in shown
    assert "best 4: 0.1200 ms" in shown


def test_tiles_that_use_local_memory_are_crossed_and_said_to_be() -> None:
    rows = [*curve("naive", (800, 300, 120))]
    plain = draw(source(*rows), "tiles")
    spilling = draw(source(*rows[:2], replace(rows[2], local_bytes=440)), "tiles")
    assert "uses local memory" not in " ".join(words(plain))
    assert "uses local memory" in " ".join(words(spilling))
    crosses = [line for line in spilling.axes[0].lines if line.get_marker() == "x"]
    assert [line.get_xdata()[0] for line in crosses] == [4]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_figures_of_rounds_that_disagree_are_marked_and_the_mark_is_explained(kind: str) -> None:
    def marks(*medians: float) -> tuple[int, bool]:
        rows = [replace(row, round_medians_us=medians) for each in files(kind) for row in each.rows]
        figure = draw(source(*rows), kind)
        lines = [line for axes in figure.axes for line in axes.lines]
        rings = sum(len(line.get_xdata()) for line in lines if line.get_fillstyle() == "none")
        text = " ".join(words(figure))
        return rings + text.count(" % !"), "rounds differ by more" in text

    assert marks(10.0, 10.9, 10.2) == (0, False)
    count, explained = marks(10.0, 11.1, 10.2)
    assert count >= 2
    assert explained


def test_block_tiles_stand_in_a_list_of_their_own() -> None:
    rows = [
        *curve("naive", (800, 300, 120)),
        sample("block_tile", "128x128x8/8x8", median_us=20.0),
        sample("block_tile", "64x64x8/4x4/s3", median_us=30.0),
    ]
    figure = draw(source(*rows), "tiles")
    assert len(figure.axes) == 2
    assert "block_tile  128x128x8/8x8" in words(figure)


def test_the_peak_is_what_the_rows_say_it_is() -> None:
    rows = by_size("naive", (9, 40, 300, 2000))
    rows = [replace(row, percent_of_peak=row.gflops / 500.0) for row in rows]  # a peak of 50,000
    assert "50,000 GFLOP/s" in words(draw(source(*rows), "sizes"))


def test_where_memory_sets_the_pace_the_figure_is_bytes_a_second_under_a_copy() -> None:
    shapes = ((8192, 512), (2048, 2048), (512, 8192))
    rows = [
        replace(sample("gemv_warp", ""), op="gemv", m=m, n=n, k=1, gbytes_per_s=800.0)
        for m, n in shapes
    ]
    (axes,) = draw(source(*(replace(row, percent_of_copy=40.0) for row in rows)), "sizes").axes
    assert axes.get_ylabel() == "GB/s"
    assert {"copy", "2,000 GB/s", "800 GB/s"} <= set(words(axes.figure))
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert ticks == ["8192×\n512", "2048", "512×\n8192"]
    (line,) = [line for line in axes.lines if len(line.get_xdata()) == 3]
    assert list(line.get_xdata()) == [0, 1, 2]


def test_lines_go_from_left_to_right_also_through_equally_large_sizes() -> None:
    flat, tall = replace(sample(), m=64, n=512), replace(sample(), m=512, n=64)
    others = [replace(row, variant="other") for row in (tall, flat)]
    (axes,) = draw(source(flat, tall, *others), "sizes").axes
    assert [list(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 2] == [
        [0.0, 1.0],
        [0.0, 1.0],
    ]


def test_a_kernel_has_one_colour_in_all_lists_of_block_tiles() -> None:
    rows = [
        sample(f"kernel{n}", "64x64x8", n=size, median_us=us)
        for size, order in ((1024, 1), (2048, -1))
        for n, us in enumerate(list(range(100, 100 + MAX_COLOURED + 3))[::order])
    ]
    colours: dict[str, set[object]] = {}
    for axes in draw(source(*rows), "tiles").axes:
        for text, bar in zip(axes.get_yticklabels(), axes.patches, strict=True):
            colours.setdefault(text.get_text().split()[0], set()).add(bar.get_facecolor())
    assert len(colours) == MAX_COLOURED + 3
    assert {len(used) for used in colours.values()} == {1}


def test_names_of_problems_without_room_are_numbered_and_none_is_rotated() -> None:
    rows = by_size("naive", (9, 40, 300, 2000))
    named = [replace(row, problem=f"layer.{row.n}.attention.output") for row in rows]
    (axes,) = draw(source(*named), "sizes").axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "3", "4"]
    assert "4\u00a0layer.2048.attention.output" in axes.get_xlabel()
    short = [replace(row, problem=f"p{row.n}") for row in rows]
    (axes,) = draw(source(*short), "sizes").axes
    assert axes.get_xticklabels()[0].get_text() == "p256"
    assert {label.get_rotation() for label in axes.get_xticklabels()} == {0.0}


def test_the_roof_slopes_where_the_bandwidth_is_known() -> None:
    rows = [replace(row, percent_of_peak=10.0) for row in by_size("naive", (9, 40, 300, 2000))]
    flat = draw(source(*rows), "roofline")
    with_bandwidth = draw(source(*rows, copy_gbytes_per_s=4000.0), "roofline")
    rows[0] = replace(rows[0], gbytes_per_s=300.0, percent_of_copy=10.0)
    told = draw(source(*rows), "roofline")
    assert not [text for text in words(flat) if "GB/s" in text]
    assert "copy 4,000 GB/s" in words(with_bandwidth)
    assert "copy 3,000 GB/s" in words(told)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in {"blas", "bits"}])
def test_no_two_variants_of_a_panel_are_drawn_alike(kind: str) -> None:
    blas = by_size("cublas", (8, 30, 200, 1500), percent_of_blas=100.0)
    more = [replace(row, variant="cublaslt") for row in blas]
    untiled = [replace(row, tile="") for row in (*blas, *more)]
    every = [*(row for each in gpu_and_cpu() for row in each.rows), *untiled]
    for axes in draw(source(*every, *curve("naive", (8, 4, 6))), kind).axes:
        legend = axes.get_legend()
        assert legend is not None
        drawn = [
            (line.get_color(), line.get_marker())
            for line in legend.legend_handles
            if not str(line.get_label()).startswith(("peak", "roof"))
        ]
        assert len(drawn) > 2
        assert len(set(drawn)) == len(drawn)


def test_several_devices_are_told_apart_by_dashes_and_in_the_legend() -> None:
    rows = curve("naive", (800, 300, 120))
    both = source(*rows, *(replace(row, device="Other GPU") for row in rows))
    figure = draw(both, "tiles")
    assert {"naive, Fake GPU", "naive, Other GPU"} <= set(words(figure))
    curves = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 3]
    assert len({line.get_linestyle() for line in curves}) == 2
    assert len({line.get_color() for line in curves}) == 1


def test_bars_have_the_intervals_of_both_times() -> None:
    spread = {"ci_low_us": 99.0, "ci_high_us": 101.0}
    kernel = sample("naive", percent_of_blas=80.0, median_us=100.0, **spread)
    library = sample("cublas", "", percent_of_blas=100.0, median_us=100.0, **spread)
    (axes, *_) = draw(source(kernel, library), "blas").axes
    assert axes.get_xlabel() == "percent, with 95 % intervals"
    (bar,) = (line for line in axes.collections if isinstance(line, LineCollection))
    ends = bar.get_segments()[0][:, 0]
    assert ends == pytest.approx([80 * (1 - 2**0.5 / 100), 80 * (1 + 2**0.5 / 100)])
    wide = replace(library, median_us=10.0, ci_low_us=5.0, ci_high_us=15.0)
    for other in (replace(wide, device="Other GPU"), replace(wide, cache="hot")):
        (axes, *_) = draw(source(kernel, library, other), "blas").axes
        bar = next(line for line in axes.collections if isinstance(line, LineCollection))
        assert bar.get_segments()[0][:, 0] == pytest.approx(ends)


def test_a_picture_of_all_rows_has_the_panels_of_the_largest_sizes() -> None:
    rows = [sample(n=n, tile=tile) for n in (64, 128, 256) for tile in ("8", "16")]
    picture = draw(source(*rows), "tiles", max_panels=2)
    texts = " ".join(words(picture))
    assert "2 of 3 panels; --only chooses other panels" in " ".join(texts.split())
    assert "gemm 64 " not in texts
    assert "gemm 256 " in texts


def test_a_picture_that_cannot_be_drawn_is_refused_with_advice() -> None:
    for kind, hint in (
        ("tiles", "no row has a tile"),
        ("blas", "percent_of_blas; sweep 'cublas'"),
        ("roofline", "percent_of_peak"),
        ("bars", "unknown kind 'bars'"),
        ("tile", "did you mean 'tiles'"),
    ):
        with pytest.raises(UsageError, match=hint):
            draw(source(sample(tile="")), kind)
    with pytest.raises(UsageError, match="no row has a time"):
        draw(source(replace(sample(), status="skipped", median_us=None)))


def test_a_picture_can_be_drawn_with_names_that_have_a_meaning_in_markup() -> None:
    name = r"$\frac{1}{0}$ <b>&amp; _a_very_long_name_that_goes_on_and_on_and_on"
    rows = [sample(name, str(tile), device=name, library=name) for tile in (1, 2, 4)]
    rows += [sample(name, "", n=n, percent_of_blas=5.0, device=name) for n in SIZES]
    each = source(*(replace(row, percent_of_peak=5.0) for row in rows))
    for kind in fitting(each):
        FigureCanvasAgg(draw(each, kind)).draw()
    assert fitting(each) == ["tiles", "sizes", "blas", "roofline"]
    # Only kinds that show more than one figure are possible.
    assert fitting(source(sample())) == fitting(sources([])) == []
    assert fitting(gpu_and_cpu()) == ["sizes", "roofline"]


def test_one_row_and_a_tile_measured_twice_are_drawn() -> None:
    assert draw(source(sample(percent_of_peak=10.0)), "roofline").axes
    (axes,) = draw(source(sample(), sample(median_us=90.0), sample(tile="8")), "tiles").axes
    assert list(axes.lines[0].get_xdata()) == [8, 16, 16]


def test_the_ticks_of_a_narrow_axis_have_different_numbers() -> None:
    figure = draw(source(*curve("shared_tile", (1900.0, 1910.0, 1930.0))), "tiles")
    FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    shown = [tick.label1.get_text() for tick in axes.yaxis.get_major_ticks()]
    assert len(shown) == len(set(shown)) > 1


def test_bits_has_a_point_for_each_precision_of_kernels_and_of_each_library() -> None:
    def exact(variant: str, mode: str, bits: float, us: float, n: int = 2048) -> Row:
        row = sample(variant, n=n, median_us=us, compute_mode=mode, gflops=1e6 / us)
        return replace(row, error_rms_bits=bits)

    rows = [
        exact("mine", "bf16x6", 30.0, 10.0),
        exact("mine", "bf16x6", 30.0, 12.0),  # a slower tile is left out
        exact("cublas", "bf16x6", 26.0, 20.0),  # computes in float32
        exact("cublas", "float32", 26.0, 20.0),
        exact("mine", "float32", 26.5, 18.0),
        exact("mine", "float32", 26.5, 18.0, n=4096),  # this size has only one precision
    ]
    (axes,) = draw(source(*rows), "bits").axes
    points = {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in axes.lines}
    assert points == {"kernels": [(30.0, 1e5), (26.5, 1e6 / 18)], "cublas": [(26.0, 5e4)]}
    assert {text.get_text() for text in axes.texts} == {"bf16x6", "float32"}
    assert "bits" in fitting(source(*rows))
    batch = [replace(row, op="gemm_bias", m=4096) for row in rows]
    assert len(draw(source(*rows, *batch), "bits").axes) == 2
    assert "bits" not in fitting(source(*rows[:2]))
    newer = [exact("cublas", mode, 9.0, 10.0) for mode in ("float32", "float4")]  # not known here
    assert "bits" in fitting(source(*newer))
    with pytest.raises(UsageError, match="no size has rows with error_rms_bits"):
        draw(source(*rows[:2]), "bits")


def test_the_headline_names_the_library_or_for_a_users_operation_the_baseline() -> None:
    rated = {"percent_of_blas": 50.0, "library": "cuBLAS 13.1"}
    for op, name in (("gemm", "cuBLAS 13.1"), ("softmax", "baseline")):
        figure = draw(source(*by_size("mine", (9, 40, 300, 2000), op=op, **rated)), "blas")
        assert f"Speed in percent of {name}, best tile" in words(figure)
