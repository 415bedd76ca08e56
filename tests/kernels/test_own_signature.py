"""Unchanged CUDA sources: examples/own_signature, macros, include folders, signatures."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpubench.backends.cuda import nvcc
from gpubench.backends.cuda.compile import compile_instance
from gpubench.errors import CompileError, UsageError
from gpubench.model import Config, CudaVariant, HostVariant, Problem, Scope
from gpubench.on_cpu.case import Case, expected
from gpubench.on_cpu.run import Sanitizer, run_on_cpu
from gpubench.plan.descriptor import load
from gpubench.plan.registry import of_op
from gpubench.plan.sweep import Sweep, plan
from gpubench.results.provenance import source_hash

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_signature"
SIZES = ((1, 1, 1), (17, 3, 35), (33, 40, 16))

DESCRIBED = """
from gpubench.model import CudaVariant, Launch, edges
VARIANT = CudaVariant(
    idea="mine", kernel="mine<{{edge}}>", signature="{signature}", file="sources/mine.cu",
    tiles=edges(1, 4, because="of a test"), compile_options=("-DEDGE={{edge}}", "-Iinclude"),
    launch=lambda tile, problem: Launch(grid=(1,), block=(1,)), {further}
)
"""
MINE = """
#include <factor.cuh>
template <int TILE>
__global__ void mine(const float* A, long ldb, const float* B, float* C, int rows) {
  static_assert(TILE == EDGE, "the macro has the tile's parameter");
  C[0] = FACTOR * A[0] * B[ldb] * rows;
}
"""
RIGHT = "const float* A, long ldb, const float* B, float* C, int rows=M"


def example() -> CudaVariant:
    sgemm = of_op("gemm", EXAMPLE)["sgemm"]
    assert isinstance(sgemm, CudaVariant)
    return sgemm


def mine(folder: Path, signature: str = RIGHT, further: str = "") -> CudaVariant:
    (folder / "sources").mkdir(exist_ok=True)
    (folder / "include").mkdir(exist_ok=True)
    (folder / "include/factor.cuh").write_text("#define FACTOR 2\n")
    (folder / "sources/mine.cu").write_text(MINE)
    (folder / "mine.py").write_text(DESCRIBED.format(signature=signature, further=further))
    described = load(folder / "mine.py", "gemm")
    assert isinstance(described, CudaVariant)
    return described


def compiled(variant: CudaVariant) -> None:
    tile = Config.parse("2")
    name = variant.instance(tile, "float32")
    compile_instance(variant.source, name, "sm_90", variant.options(tile, "float32"))


def test_the_three_kernels_compile_as_they_are() -> None:
    variant = example()
    for tile in variant.tiles.defaults:
        name = variant.instance(tile, "float32")
        shared = compile_instance(variant.source, name, "sm_90").resources.shared_bytes
        assert (shared > 0) == ("shared" in str(tile))


def test_wmma_and_cuda_ptx_compile_with_wide_extents_strides_and_a_null_pointer() -> None:
    variants = of_op("gemm", EXAMPLE.with_name("forms"))
    for name in ("wmma_tile", "bulk_copy"):
        variant = variants[name]
        assert isinstance(variant, CudaVariant), name
        (dtype,) = variant.dtypes
        problem = Problem(op="gemm", m=64, n=64, k=64, dtype=dtype)
        assert variant.why_not(Config(), problem, (9, 0)) is None
        assert "divides" in str(variant.why_not(Config(), replace(problem, m=65), (9, 0)))
        compile_instance(variant.source, variant.instance(Config(), dtype), "sm_90")


def test_the_cutlass_example_calls_each_schedule_with_the_stream_that_is_timed() -> None:
    variant = of_op("gemm", EXAMPLE.with_name("cutlass"))["cutlass_gemm"]
    assert isinstance(variant, HostVariant), variant.idea
    source = variant.source.read_text()
    tile = variant.tiles.read("64x64/schedule=pingpong")
    for schedule in ("cooperative", "pingpong"):
        assert f" {schedule}({variant.signature.replace('* ', ' *')})" in source
    assert variant.function(tile, "float16") == "pingpong<64, 64>"
    odd = Problem(op="gemm", m=5, n=7, k=8, dtype="float16")
    assert "multiple of 8" in str(variant.why_not(variant.tiles.defaults[0], odd, (9, 0)))


@pytest.mark.slow
def test_the_three_kernels_are_right_on_the_cpu(tmp_path: Path) -> None:
    variant = example()
    cases = [
        Case(variant=variant, tile=tile, problem=Problem(op="gemm", m=m, n=n, k=k, dtype="float32"))
        for tile in map(variant.tiles.read, ("8/kernel=sgemm_naive", "8/kernel=sgemm_shared"))
        for m, n, k in SIZES
    ]
    for case, output in zip(cases, run_on_cpu(cases, Sanitizer.ADDRESS, tmp_path), strict=True):
        np.testing.assert_array_equal(output, expected(case.problem), err_msg=case.label)


def test_included_files_are_part_of_a_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "find", lambda: None)  # nvcc would report the same errors
    variant = mine(tmp_path)
    options = variant.options(Config.parse("2"), "float32")
    assert options == ("-DEDGE=2", f"-I{tmp_path / 'include'}")
    compiled(variant)
    before = source_hash(variant)
    (tmp_path / "include/factor.cuh").write_text("#error changed\n")
    assert source_hash(variant) != before
    with pytest.raises(CompileError, match="changed"):
        compiled(variant)


def test_a_wrong_signature_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "find", lambda: None)  # nvcc would report the same errors
    for wrong in (RIGHT.replace("long", "int"), RIGHT + ", float more=1"):
        with pytest.raises(CompileError):
            compiled(mine(tmp_path, wrong))
    with pytest.raises(UsageError, match="signature: 'float' is not a parameter"):
        mine(tmp_path, "float")
    with pytest.raises(UsageError, match="column_major must be a tuple of A, B, C, not D"):
        mine(tmp_path, further='column_major=("D",)')


def test_column_major_matrices_are_a_layout_of_their_own_and_not_end_to_end(tmp_path: Path) -> None:
    mine(tmp_path, further='column_major=("B",)')
    sweep = Sweep(
        variants=("mine", "cublas"), sizes=((8, 9, 10),), kernels=tmp_path, scopes=tuple(Scope)
    )
    layouts = {
        (point.variant.name, point.scope): (point.key.layout, reason)
        for point, reason in plan(sweep, "cuda").items()
    }
    assert layouts["mine", Scope.KERNEL] == ("column-major B", None)
    assert layouts["cublas", Scope.KERNEL] == ("row-major", None)
    assert layouts["mine", Scope.END_TO_END][1] == "end-to-end is for row-major matrices"
    assert layouts["cublas", Scope.END_TO_END][1] is None
