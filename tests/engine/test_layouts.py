"""Operands of every layout and kind are measured, verified and probed on the CPU."""

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest
from fakes import FakeBackend, point, variant

from gpubench.backends.cpu.backend import CpuBackend
from gpubench.backends.cuda.compile import compile_instance
from gpubench.engine.measure.runner import Runner
from gpubench.engine.measure.trials import Trials
from gpubench.errors import UsageError
from gpubench.model import LAYOUTS, Config, CudaVariant, Fill, Problem, Status, Timing
from gpubench.on_cpu.case import Case, expected
from gpubench.on_cpu.run import Sanitizer, run_on_cpu
from gpubench.options import read_sweep
from gpubench.plan.registry import of_op
from gpubench.plan.sweep import plan

EVERY_LAYOUT = ",".join(LAYOUTS)
EVERY_FILL = ",".join(Fill)


def measured(**options: object) -> dict[tuple[str, str, str], Any]:
    """Return the measurements of a sweep at an odd size, by variant, layout and operands."""
    sweep = read_sweep({"sizes": "37x29x41", "device": "cpu", **options})
    runner = Runner(CpuBackend(), Timing(), seed=1)
    return {
        (point.variant.name, point.problem.layout, str(point.operands)): runner.measure(
            point, wall_limit_s=0.001
        )
        for point, reason in plan(sweep, "cpu").items()
        if reason is None
    }


def test_loops_and_the_blas_pass_the_exact_probe_in_every_layout() -> None:
    names = ("cpu_tile", "cpu_blas")
    results = measured(layouts=EVERY_LAYOUT, variants=",".join(names), tiles="8")
    layouts = {"row-major", "column-major B", "column-major A", "column-major A B"}
    assert set(results) == {(name, layout, "uniform") for name in names for layout in layouts}
    assert {(result.status, result.reason) for result in results.values()} == {(Status.OK, "")}


def test_every_kind_of_operands_is_measured() -> None:
    results = measured(operands=EVERY_FILL, variants="cpu_tile,cpu_blas", tiles="8")
    assert len(results) == 2 * len(Fill)
    assert {(result.status, result.reason) for result in results.values()} == {(Status.OK, "")}


@pytest.mark.parametrize(("layout", "lying"), [("nt", (0, 1)), ("tn", (1, 0)), ("tt", (1, 1))])
def test_transposed_operands_are_transposed_in_memory(layout: str, lying: tuple[int, int]) -> None:
    problem = Problem(op="gemm", m=5, n=6, k=7, dtype="float32", column_major=LAYOUTS[layout])
    arrays = np.ones((5, 7), np.float32), np.ones((7, 6), np.float32)
    operands = CpuBackend().load(problem, arrays, cold=False)
    assert [int(array.flags.f_contiguous) for array in operands.inputs] == list(lying)
    assert operands.output.flags.c_contiguous


def ignores_its_operands(_a: np.ndarray, _b: np.ndarray, c: np.ndarray) -> None:
    c[...] = 0


def multiplies_ones_only(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    c[...] = a.shape[1] * a[0, 0] * b[0, 0]


def cuts_mantissas(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    short = [(x.view(np.int32) & ~0xFFFF).view(np.float32) for x in (a.copy(), b.copy())]
    np.matmul(*short, out=c)


@pytest.mark.parametrize("facts", [{}, {"path": Path("mine.py")}], ids=["ours", "of a user"])
@pytest.mark.parametrize(
    ("wrong", "fill"),
    [
        (ignores_its_operands, Fill.ZEROS),
        (multiplies_ones_only, Fill.ONES),
        (cuts_mantissas, Fill.INTEGERS),
        (cuts_mantissas, Fill.LOW_ENTROPY),
    ],
)
def test_operands_that_hide_an_error_do_not_hide_it_from_the_check(
    wrong: Callable[..., None],
    fill: Fill,
    facts: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The exact probe rejects these kernels too, but at other sizes.
    monkeypatch.setattr(Trials, "probe", lambda _self, _point: None)
    at = replace(point(variant(wrong, **facts)), operands=fill)
    assert Runner(FakeBackend(), Timing(), seed=1).measure(at).status == Status.WRONG


def test_a_variant_that_lacks_a_layout_is_skipped_with_the_reason() -> None:
    sweep = read_sweep({"layouts": "nn,tn", "variants": "vectorized", "sizes": "64"})
    reasons = {point.problem.layout: reason for point, reason in plan(sweep, "cuda").items()}
    assert reasons["row-major"] is None
    assert "row-major only, not column-major A" in str(reasons["column-major A"])


def test_precisions_of_8_bits_keep_their_layout() -> None:
    sweep = read_sweep(
        {"layouts": EVERY_LAYOUT, "variants": "cublas", "sizes": "64", "dtypes": "int8,bfloat16"}
    )
    layouts = [(point.problem.dtype, point.problem.layout) for point in plan(sweep, "cuda")]
    assert layouts.count(("int8", "column-major B")) == 1
    assert len(layouts) == 1 + len(LAYOUTS)


def test_layouts_of_an_operation_without_them_are_refused() -> None:
    with pytest.raises(UsageError, match="--layouts: gemv has no layouts; only products"):
        plan(read_sweep({"op": "gemv", "layouts": "nt"}), "cpu")


def test_cuda_kernels_compile_in_every_layout_to_code_of_its_own() -> None:
    kernel = of_op("gemm", None)["mma_sync"]
    assert isinstance(kernel, CudaVariant)
    tile = min(kernel.tiles, key=lambda tile: (tile["BM"] * tile["BN"], tile["BK"]))
    code, dtype = set(), kernel.dtypes[0]
    for by_columns in LAYOUTS.values():
        problem = Problem(op="gemm", m=64, n=64, k=64, dtype=dtype, column_major=by_columns)
        assert kernel.why_not(tile, problem) is None
        instance = kernel.instance(tile, dtype, kernel.launch(tile, problem).kernel)
        code.add(compile_instance(kernel.source, instance, "sm_90").cubin)
    assert len(code) == len(LAYOUTS)


Fragment = dict[tuple[int, int], list[tuple[int, int]]]


def loaded(address: Callable[[int], tuple[int, int]], *, transposed: bool) -> Fragment:
    """Return the elements of a tile that `ldmatrix.x4` loads into each lane and register.

    `address` returns the row and the chunk of 8 elements that a lane names (PTX ISA, ldmatrix).
    """
    fragment = {}
    for lane, register in itertools.product(range(32), range(4)):
        elements = []
        for pair in (0, 1):
            down, across = lane // 4, 2 * (lane % 4) + pair
            if transposed:
                down, across = across, down
            row, chunk = address(register * 8 + down)
            elements.append((row, 8 * chunk + across))
        fragment[lane, register] = elements
    return fragment


def test_mma_sync_loads_the_same_fragments_from_a_transposed_tile() -> None:
    source = of_op("gemm", None)["mma_sync"].source.read_text(encoding="utf-8")
    tiles = re.findall(
        r"(load_\w+)\(\s*([ab])\[[ij]\], \w_tile \+ swizzled<\w+>\((.*?)\)\);", source, re.DOTALL
    )
    assert [(name, load) for load, name, _ in tiles] == [
        ("a", "load_transposed_matrices"),
        ("a", "load_matrices"),
        ("b", "load_matrices"),
        ("b", "load_transposed_matrices"),
    ]
    for k, i, origin in itertools.product((0, 16, 48), (0, 1), (0, 64)):
        names = {"k": k, "i": i, "j": i, "warp_row": origin, "warp_col": origin, "CHUNK": 8}
        fragments = []
        for load, _, address in tiles:
            code = compile(f"({address.replace('/', '//')})".replace("\n", " "), "mma_sync", "eval")
            fragments.append(loaded(partial(value, code, names), transposed="transposed" in load))
        a_by_columns, a_by_rows, b_by_columns, b_by_rows = fragments
        assert mirrored(a_by_columns) == a_by_rows
        assert mirrored(b_by_columns) == b_by_rows


def value(code: CodeType, names: dict[str, int], lane: int) -> Any:
    return eval(code, {**names, "lane": lane})  # noqa: S307 # an expression from our kernel


def mirrored(fragment: Fragment) -> Fragment:
    return {key: [(across, down) for down, across in at] for key, at in fragment.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["naive", "shared_tile"])
def test_cuda_kernels_are_right_and_clean_in_every_layout(name: str, tmp_path: Path) -> None:
    kernel = of_op("gemm", None)[name]
    assert isinstance(kernel, CudaVariant)
    problem = Problem(op="gemm", m=19, n=13, k=17, dtype="float32")
    cases = [
        Case(variant=kernel, tile=Config.parse("8"), problem=replace(problem, column_major=by))
        for by in LAYOUTS.values()
    ]
    outputs = run_on_cpu(cases, Sanitizer.ADDRESS, tmp_path / "built")
    for case, output in zip(cases, outputs, strict=True):
        np.testing.assert_array_equal(output, expected(case.problem), err_msg=case.label)
