"""The plan of a sweep: the points to measure, and the skipped points with reasons."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from fakes import variant

from gpubench.errors import UsageError
from gpubench.model import Cache, CudaVariant, Fill, Launches, Problem, Scope, State, Timer
from gpubench.model.variant import MAX_GRID_Y
from gpubench.plan.registry import of_op
from gpubench.plan.sweep import Sweep, plan


def square(*extents: int) -> tuple[tuple[int, int, int], ...]:
    return tuple((extent, extent, extent) for extent in extents)


def edges(*numbers: int) -> tuple[str, ...]:
    return tuple(map(str, numbers))


def planned(backend: str, **asked: Any) -> dict[tuple[str, str, str, str], str | None]:
    """Return why each point is skipped, or None, by variant, tile, size and dtype."""
    points = plan(Sweep(**asked), backend)
    labelled = {
        (p.variant.name, str(p.tile or ""), p.problem.size, p.problem.dtype): reason
        for p, reason in points.items()
    }
    assert len(labelled) == len(points)
    return labelled


def test_a_sweep_is_every_variant_at_every_tile_size_and_dtype() -> None:
    axes = {"variants": ("naive", "shared_tile"), "tiles": edges(8, 16)}
    axes |= {"sizes": square(64, 100), "dtypes": ("float32", "int32")}
    points = product(axes["variants"], axes["tiles"], ("64", "100"), axes["dtypes"])
    assert planned("cuda", **axes) == dict.fromkeys(points)


def test_a_sweep_without_sizes_has_arrays_that_fit_every_device() -> None:
    for backend, op, size in (
        ("cuda", "gemm", "1024"),
        ("cpu", "gemm", "512"),
        ("cuda", "gemm_batched", "128"),
        ("cuda", "gemm_grouped", "128"),
        ("cuda", "gemv", "1024"),
    ):
        points = plan(Sweep(op=op), backend)
        assert {point.problem.size for point in points} == {size}


def refused(backend: str, **asked: Any) -> str:
    with pytest.raises(UsageError) as caught:
        plan(Sweep(**asked), backend)
    return str(caught.value)


def test_tiles_that_no_variant_takes_are_reported() -> None:
    for backend, name, tiles, message in (
        ("cpu", "cpu_blas", ("16",), "no variant of this sweep has a tile to choose (cpu_blas"),
        ("cuda", "naive", ("33", "64"), "--tiles: no variant takes any of these: naive takes"),
        ("cuda", "shared_tile", ("16", "128x128x8"), "128x128x8 has a form that no variant"),
        ("cuda", "shared_tile", ("128x128x8",), "takes a single edge, such as 2, not 128x128x8"),
        ("cuda", "vectorized", ("64x64",), "takes BMxBNxBK, such as 128x128x8/8x8, not 64x64"),
    ):
        assert message in refused(backend, variants=(name,), tiles=tiles)


def test_excluded_variants_are_left_out_by_name_or_pattern() -> None:
    left = planned("cpu", excluded=("cpu_blas*", "cpu_naive"), sizes=square(64))
    assert {name for name, *_ in left} == {"cpu_tile"}
    with pytest.raises(UsageError, match="--exclude: unknown variant 'cpu_blass'"):
        plan(Sweep(excluded=("cpu_blass",)), "cpu")


def test_an_illegal_tile_is_skipped_with_its_reason() -> None:
    points = planned("cuda", variants=("shared_tile",), tiles=edges(32, 33), sizes=square(64))
    assert points["shared_tile", "32", "64", "float32"] is None
    reason = points["shared_tile", "33", "64", "float32"]
    assert "1 to 32" in reason
    assert "1024" in reason


def test_a_variant_is_left_out_of_a_dtype_that_it_lacks_if_it_has_another() -> None:
    for named in ((), ("cpu_blas", "cpu_naive")):
        points = planned("cpu", variants=named, sizes=square(64), dtypes=("float32", "int32"))
        assert points["cpu_blas", "", "64", "float32"] is None
        assert ("cpu_blas", "", "64", "int32") not in points
        assert points["cpu_naive", "", "64", "int32"] is None


def test_a_named_variant_without_any_of_the_dtypes_is_skipped_with_its_reason() -> None:
    named = ("cpu_blas", "cpu_naive")
    points = planned("cpu", variants=named, sizes=square(64), dtypes=("int32",))
    assert "has no int32" in points["cpu_blas", "", "64", "int32"]
    unnamed = planned("cpu", sizes=square(64), dtypes=("int32",))
    assert ("cpu_blas", "", "64", "int32") not in unnamed


def test_nothing_to_measure_is_a_usage_error_with_each_reason_once() -> None:
    single, both = (
        refused("cpu", variants=(names,), dtypes=("int32",)) for names in ("cpu_blas", "cpu_blas*")
    )
    assert single.startswith("nothing to measure: cpu_blas has no int32")
    assert re.search(r"measure: cpu_blas, cpu_blas_parallel: has no int32, .*4$", both)
    unnamed = refused("cpu", op="gemm_scaled", dtypes=("float8_e4m3",))
    assert unnamed == (
        "--dtypes: no kernel of gemm_scaled for cpu has float8_e4m3; the kernels have float32, "
        "float64"
    )


@pytest.mark.parametrize(
    ("variant", "size"), [("naive", (70_000, 8, 8)), ("naive_uncoalesced", (8, 70_000, 8))]
)
def test_a_grid_with_too_many_rows_of_blocks_is_skipped(
    variant: str, size: tuple[int, int, int]
) -> None:
    points = planned("cuda", variants=(variant,), tiles=edges(1, 2), sizes=(size,))
    (first, second) = points.values()
    assert "the maximum in y and z is 65535" in first
    assert second is None
    largest = planned("cuda", variants=("naive",), tiles=edges(1), sizes=((MAX_GRID_Y, 1, 1),))
    assert list(largest.values()) == [None]


def test_too_many_points_are_refused_before_they_are_made() -> None:
    sizes = square(*range(1, 10_001))
    many = refused("cuda", variants=("naive",), tiles=edges(*range(1, 33)), sizes=sizes)
    assert "320000 points" in many


def test_end_to_end_is_one_point_whatever_the_cache_the_state_and_the_launches() -> None:
    conditions = {"caches": tuple(Cache), "states": tuple(State), "launches": tuple(Launches)}
    sweep = Sweep(variants=("cublas",), scopes=(Scope.END_TO_END,), **conditions)
    (point,) = plan(sweep, "cuda")
    assert (point.cache, point.state) == (Cache.COLD, State.BURST)
    assert point.launches == Launches.ALONE


def test_the_cpu_is_timed_by_the_hosts_clock() -> None:
    (on_cpu,) = plan(Sweep(variants=("cpu_blas",)), "cpu")
    (on_gpu,) = plan(Sweep(variants=("cublas",), timer=Timer.CUPTI), "cuda")
    assert (on_cpu.timer, on_gpu.timer) == (Timer.HOST, Timer.CUPTI)


def test_block_tiles_choose_among_block_tiles_and_leave_edges_their_own() -> None:
    points = planned(
        "cuda",
        variants=("shared_tile", "vectorized"),
        tiles=("64x64x16/4x4", "96x96x8/8x8"),
        sizes=square(64),
    )
    assert [tile for name, tile, _, _ in points if name == "shared_tile"] == [
        "2",
        "4",
        "8",
        "16",
        "32",
    ]
    assert points["vectorized", "64x64x16/4x4", "64", "float32"] is None
    assert "BM 64 or 128" in str(points["vectorized", "96x96x8/8x8", "64", "float32"])


def test_a_block_without_its_thread_tile_is_completed() -> None:
    tiles = ("128x128x8", "128x128x8/8x8")
    points = planned("cuda", variants=("vectorized",), tiles=tiles, sizes=square(64))
    assert list(points) == [("vectorized", "128x128x8/8x8", "64", "float32")]


def test_a_kernel_whose_needs_the_gpu_lacks_is_skipped_with_the_reason() -> None:
    sweep = Sweep(variants=("packed_panels", "naive"), sizes=square(64))
    points = plan(sweep, "cuda", (8, 6))
    reasons = {p.variant.name: reason for p, reason in points.items()}
    assert reasons == {
        "packed_panels": "needs compute capability 9.0, and this GPU has 8.6",
        "naive": None,
    }
    assert not any(plan(sweep, "cuda", (9, 0)).values())


def test_a_kernel_for_one_architecture_is_skipped_on_others() -> None:
    naive = of_op("gemm")["naive"]
    assert isinstance(naive, CudaVariant)
    only = replace(naive, capability=(9, 0), architecture_suffix="a")
    problem, tile = Problem(op="gemm", m=8, n=8, k=8, dtype="float32"), naive.tiles.read("8")
    reasons = [only.why_not(tile, problem, of_gpu) for of_gpu in (None, (9, 0), (8, 6), (10, 0))]
    assert reasons == [
        None,
        None,
        "needs compute capability 9.0, and this GPU has 8.6",
        "runs on compute capability 9.0 only",
    ]
    assert [only.architecture(name) for name in ("sm_90", "sm_90a")] == ["sm_90a"] * 2
    assert naive.architecture("sm_90") == "sm_90"


def test_any_variant_may_refuse_a_problem_and_need_a_capability() -> None:
    small = variant(
        capability=(8, 0),
        refuse=lambda _tile, refused: "is for small ones" if refused.m > 8 else None,
    )
    little, large = (Problem(op="gemm", m=m, n=8, k=8, dtype="float32") for m in (8, 9))
    assert small.why_not(None, little, (8, 0)) is None
    assert small.why_not(None, large, (8, 0)) == "is for small ones"
    assert small.why_not(None, little, (7, 5)) == (
        "needs compute capability 8.0, and this GPU has 7.5"
    )


def test_sustained_launches_are_timed_by_events() -> None:
    message = refused("cuda", states=(State.SUSTAINED,), timer=Timer.CUPTI)
    assert "--state sustained is timed by events" in message


@pytest.mark.parametrize("fill", Fill)
def test_a_users_function_on_a_cpu_has_no_operands_that_it_could_know(
    fill: Fill, tmp_path: Path
) -> None:
    """Such a function could return the result of these operands, which never changes."""
    (tmp_path / "mine.py").write_text(
        "from gpubench.model import CallVariant\n"
        'VARIANT = CallVariant(idea="mine", runs_on="cpu", build=print)\n'
    )
    sweep = Sweep(variants=("mine", "cpu_blas"), operands=(fill, Fill.UNIFORM), kernels=tmp_path)
    reasons = {(p.variant.name, p.operands): why for p, why in plan(sweep, "cpu").items()}
    assert reasons["cpu_blas", fill] is reasons["mine", Fill.UNIFORM] is None
    reason = reasons["mine", fill] or ""
    assert ("could know the result" in reason) == (fill in {Fill.ZEROS, Fill.ONES, Fill.INDEX})
