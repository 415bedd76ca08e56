"""`new-kernel --from`: what a source says is written down, and what it leaves open is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench.backends.cuda.compile import compile_instance
from gpubench.commands.new_kernel.from_source import kernels
from gpubench.commands.new_kernel.run import describe_source
from gpubench.errors import UsageError
from gpubench.model import CudaVariant, Problem
from gpubench.plan.registry import of_op

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_signature" / "sgemm.cu"
PROBLEM = Problem(op="gemm", m=100, n=70, k=30, dtype="float32")

BLOCKS = """
#include <cublas_v2.h>
#ifndef STAGES
#define STAGES 3
#endif
// __global__ void commented(int M);
__global__ void helper(float* scratch) {}
template <typename T, const int BM, const int BN, const int BK, const int WM, int TM, int TN>
__global__ void __launch_bounds__((BM * BN) / (TM * TN), 1)
    blocks(int M, int N, int K, T alpha, const T *A, const T *__restrict__ in, size_t pitch,
           float beta, T *C) { static_assert(STAGES == 3); }
extern "C" __global__ void plain(const float* A, const float* B, double* C, int n) {}
"""


def written(folder: Path, name: str, source: Path = EXAMPLE) -> Path:
    describe_source(name, None, source, folder, force=False)
    return folder / "gemm" / f"{name}.py"


def loaded(folder: Path, name: str) -> CudaVariant:
    found = of_op("gemm", folder)[name]
    assert isinstance(found, CudaVariant)
    return found


def compiles(variant: CudaVariant) -> None:
    (tile,) = variant.tiles.defaults
    dtype = variant.dtypes[0]
    name, options = variant.instance(tile, dtype), variant.options(tile, dtype)
    compile_instance(variant.source, name, "sm_90", options)


def test_the_example_is_described_so_that_it_runs(tmp_path: Path) -> None:
    for name in ("sgemm_shared", "steps"):
        written(tmp_path, name)
        mine = loaded(tmp_path, name)
        assert mine.source.resolve() == EXAMPLE
        assert mine.kernel == f"{'sgemm_naive' if name == 'steps' else name}<{{block}}>"
        assert (mine.reads_output, mine.dtypes) == (True, ("float32",))
        compiles(mine)
        launch = mine.launch(mine.tiles.defaults[0], PROBLEM)
        assert (launch.grid, launch.block) == ((3, 4), (1024,))
    assert "too: sgemm_naive, sgemm_coalesced." in (tmp_path / "gemm/sgemm_shared.py").read_text()


def test_what_names_do_not_tell_is_asked_and_then_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "blocks.cu"
    source.write_text(BLOCKS)
    path = written(tmp_path / "own", "blocks", source)
    assert "what these are: in, pitch" in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"const Scalar\* in: write in=A"):
        loaded(tmp_path / "own", "blocks")
    path.write_text(path.read_text().replace("in=?", "in=B").replace("pitch=?", "pitch=ldb"))
    mine = loaded(tmp_path / "own", "blocks")
    assert mine.dtypes == ("float32", "float64", "int32")
    assert str(mine.tiles.defaults[0]) == "64x64x8/8x8/s3/wm=32"
    assert mine.options(mine.tiles.defaults[0], "float32") == ("-DSTAGES=3",)
    launch = mine.launch(mine.tiles.defaults[0], PROBLEM)
    assert (launch.grid, launch.block) == ((2, 2), (64,))
    compiles(mine)


def test_a_plain_function_has_a_label_for_a_tile(tmp_path: Path) -> None:
    source = tmp_path / "plain.cu"
    source.write_text('extern "C" __global__ void plain(const double* a, double* c, int n) {}')
    written(tmp_path / "own", "plain", source)
    mine = loaded(tmp_path / "own", "plain")
    assert (mine.kernel, mine.dtypes, mine.reads_output) == ("plain", ("float64",), False)
    compiles(mine)


def test_every_form_of_a_kernel_is_found_and_comments_are_not() -> None:
    found = list(kernels(BLOCKS))
    assert [kernel.name for kernel in found] == ["helper", "blocks", "plain"]
    assert found[1].threads == "(BM * BN) / (TM * TN)"
    assert [one.name for one in found[1].template] == ["T", "BM", "BN", "BK", "WM", "TM", "TN"]


def test_a_source_that_cannot_be_described_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.cu"
    empty.write_text("void host() {}")
    for source, reason in ((empty, "no __global__ function"), (tmp_path / "no.cu", "be read")):
        with pytest.raises(UsageError, match=reason):
            written(tmp_path, "mine", source)
    path = written(tmp_path, "steps")
    with pytest.raises(UsageError, match="exists"):
        written(tmp_path, "steps")
    assert path.read_text().startswith('"""steps')
