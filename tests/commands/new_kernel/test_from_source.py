"""`new-kernel --from`: it describes the facts in a source, and asks for missing facts."""

import os
from functools import partial
from pathlib import Path

import pytest

from gpubench.backends.cuda.compile import compile_instance
from gpubench.backends.cuda.nvcc import compile_library
from gpubench.commands.new_kernel.proof import Proof
from gpubench.commands.new_kernel.run import describe_source
from gpubench.errors import UsageError
from gpubench.kernel_options import find_kernel
from gpubench.model import Config, CudaVariant, HostVariant, Problem
from gpubench.model.signature import parameters
from gpubench.plan import other_guesses
from gpubench.plan.descriptor import load
from gpubench.plan.from_source.description import describe_file
from gpubench.plan.from_source.files import needed
from gpubench.plan.from_source.source import Function, functions
from gpubench.plan.registry import of_op

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_signature" / "sgemm.cu"
PROBLEM = Problem(op="gemm", m=100, n=70, k=30, dtype="float32")

BLOCKS = """
#include <cublas_v2.h>
// __global__ void commented(int M);
__global__ void helper(float* scratch) {}
template <typename T, const int BM, const int BN, const int BK, const int WM, int TM, int TN>
__global__ void __launch_bounds__((BM * BN) / (TM * TN), 1)
    blocks(int M, int N, int K, T alpha, const T *A, const T *__restrict__ in, size_t pitch,
           float beta, T *C) {}
extern "C" __global__ void plain(const float* A, const float* B, double* C, int n) {}
"""


COLUMNS = """
template <int BM, int BN, int BK, int TM>
__global__ void columns(int M, int N, int K, const float *A, const float *B, float *C) {}
"""


@pytest.fixture(autouse=True)
def without_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not prove descriptions, which takes seconds each. `test_proof.py` proves some."""
    monkeypatch.setattr("gpubench.commands.new_kernel.run.prove", lambda *_: Proof(reason="here"))


def written(folder: Path, name: str, source: Path = EXAMPLE) -> Path:
    describe_source(name, None, source, folder, force=False)
    return folder / "gemm" / f"{name}.py"


def loaded(folder: Path, name: str) -> CudaVariant:
    variant = of_op("gemm", folder)[name]
    assert isinstance(variant, CudaVariant)
    return variant


def compiles(variant: CudaVariant) -> None:
    (tile,) = variant.tiles.defaults
    dtype = variant.dtypes[0]
    name, options = variant.instance(tile, dtype), variant.options(tile, dtype)
    compile_instance(variant.source, name, "sm_90", options)


def test_the_description_of_the_example_runs(tmp_path: Path) -> None:
    for name in ("sgemm_shared", "steps"):
        written(tmp_path, name)
        mine = loaded(tmp_path, name)
        assert mine.source.resolve() == EXAMPLE
        assert mine.kernel == f"{'sgemm_naive' if name == 'steps' else name}<{{block}}>"
        assert (mine.reads_output, mine.dtypes) == (True, ("float32",))
        compiles(mine)
        launch = mine.launch(mine.tiles.defaults[0], PROBLEM)
        assert (launch.grid, launch.block) == ((3, 4), (1024,))
    text = (tmp_path / "gemm/sgemm_shared.py").read_text()
    assert "--kernel selects another: sgemm_naive, sgemm_coalesced." in text


def test_a_meaning_that_names_do_not_show_is_asked_and_the_answer_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "blocks.cu"
    source.write_text(BLOCKS)
    path = written(tmp_path / "own", "blocks", source)
    assert "what these parameters are: pitch" in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"size_t pitch: write pitch=1"):
        loaded(tmp_path / "own", "blocks")
    path.write_text(path.read_text().replace("pitch=?", "pitch=ldb"))
    mine = loaded(tmp_path / "own", "blocks")
    assert mine.dtypes == ("float32", "float64", "int32")
    assert str(mine.tiles.defaults[0]) == "64x64x8/8x8/wm=32"
    launch = mine.launch(mine.tiles.defaults[0], PROBLEM)
    assert (launch.grid, launch.block) == ((2, 2), (64,))
    compiles(mine)


def test_a_template_with_one_of_the_two_numbers_of_a_thread_has_a_tile(tmp_path: Path) -> None:
    (tmp_path / "columns.cu").write_text(COLUMNS)
    written(tmp_path / "own", "mine", tmp_path / "columns.cu")
    mine = loaded(tmp_path / "own", "mine")
    (tile,) = mine.tiles.defaults
    assert str(tile) == "64x64x8/tm=8"
    assert "columns<64, 64, 8, 8>" in mine.instance(tile, "float32")
    launch = mine.launch(tile, PROBLEM)
    assert (launch.grid, launch.threads_per_block) == ((2, 2), 64 * 64 // 8)


LAUNCHER = """
#include <cuda_fp16.h>
#include "helpers.hpp"
namespace steps {
template <typename T, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE) product(T* out, const T* inp, const T* weight,
                                                       const T* bias, int BT, int C, int OC) {
  int bt = blockIdx.x * EDGE + threadIdx.x, oc = blockIdx.y * EDGE + threadIdx.y;
  if (bt >= BT || oc >= OC) return;
  const T* row = weight + oc * C;
  T sum = bias ? bias[oc] : T(0);
  for (int i = 0; i < C; ++i) sum += inp[bt * C + i] * row[i];
  out[bt * OC + oc] = sum;
}

template <typename T>
void forward(T* out, const T* inp, const T* weight, const T* bias, int B, int T_, int C, int OC,
             const int sqrt_block_size, cudaStream_t stream) {
  dim3 grid(ceil_div(B * T_, 16), ceil_div(OC, 16)), block(16, 16);
  product<T, 16><<<grid, block, 0, stream>>>(out, inp, weight, bias, B * T_, C, OC);
  check(cudaGetLastError());
}
template void forward<float>(float*, const float*, const float*, const float*, int, int, int, int,
                             const int, cudaStream_t);
template void forward<half>(half*, const half*, const half*, const half*, int, int, int, int,
                            const int, cudaStream_t);

void rows(const float* d_A_ptr, const float* d_B_ptr, float* d_C_ptr, int C_n_rows, int C_n_cols,
          int A_n_cols) {
  product<float, 8><<<1, dim3(8, 8)>>>(d_C_ptr, d_A_ptr, d_B_ptr, nullptr, C_n_rows, A_n_cols,
                                       C_n_cols);
  cudaDeviceSynchronize();
}
}  // namespace steps
int main() { steps::rows(0, 0, 0, 1, 2, 3); }
"""

HELPERS = "#pragma once\nint ceil_div(int a, int b);\nvoid check(int error);\n"


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    """Return a source with launchers, in a project with a folder of headers and a file to link."""
    for folder in ("include", "src"):
        (tmp_path / "project" / folder).mkdir(parents=True)
    (tmp_path / "project" / "include" / "helpers.hpp").write_text(HELPERS)
    source = tmp_path / "project" / "src" / "launcher.cu"
    source.with_name("helpers.cu").write_text(
        '#include "../include/helpers.hpp"\n'
        "int ceil_div(int a, int b) { return (a + b - 1) / b; }\n"
        "void check(int error) { if (error) throw error; }\n"
    )
    source.write_text(LAUNCHER)
    return source


def test_a_launcher_is_described_completely(tmp_path: Path, launcher: Path) -> None:
    text = written(tmp_path / "own", "mine", launcher).read_text()
    assert "Not " not in text
    mine = of_op("gemm", tmp_path / "own")["mine"]
    assert isinstance(mine, HostVariant)
    assert (mine.entry, mine.dtypes) == (
        "steps::forward<{scalar}>", ("float32", "float16_sum16"),
    )  # fmt: skip
    assert (mine.column_major, mine.waits, mine.reads_output) == (("B",), False, False)
    assert [(each.name, each.value) for each in mine.parameters()] == [
        ("out", "C"), ("inp", "A"), ("weight", "B"), ("bias", "null"), ("B", "1"), ("T_", "M"),
        ("C", "K"), ("OC", "N"), ("sqrt_block_size", "16"), ("stream", "stream"),
    ]  # fmt: skip


@pytest.mark.parametrize("waits", ["cudaDeviceSynchronize()", "CUTE_CHECK_LAST()"])
def test_a_launcher_that_waits_for_the_gpu_is_described_as_such(
    tmp_path: Path, launcher: Path, waits: str
) -> None:
    launcher.write_text(LAUNCHER.replace("cudaDeviceSynchronize()", waits))
    describe_source("mine", None, launcher, tmp_path / "own", force=False, kernel="steps::rows")
    mine = of_op("gemm", tmp_path / "own")["mine"]
    assert isinstance(mine, HostVariant)
    assert mine.waits


@pytest.mark.exhaustive
def test_a_described_launcher_compiles(tmp_path: Path, launcher: Path) -> None:
    written(tmp_path / "own", "mine", launcher)
    mine = of_op("gemm", tmp_path / "own")["mine"]
    assert isinstance(mine, HostVariant)
    assert compile_library(mine, None, "float16", "sm_90")


def test_another_launcher_or_a_kernel_is_selected_by_name(tmp_path: Path, launcher: Path) -> None:
    describe_source("rows", None, launcher, tmp_path / "own", force=False)
    rows = of_op("gemm", tmp_path / "own")["rows"]
    assert isinstance(rows, HostVariant)
    assert rows.entry == "steps::rows"
    assert rows.waits
    values = [each.value for each in rows.parameters()]
    assert values == ["A", "B", "C", "M", "N", "K"]
    with pytest.raises(UsageError, match="'rows' is a host function, and explain needs a kernel: "):
        find_kernel("rows", None, tmp_path / "own", "explain")
    describe_source("other", None, launcher, tmp_path / "own", kernel="product", force=False)
    other = loaded(tmp_path / "own", "other")
    assert [each.value for each in parameters(other.signature)] == [
        "C",
        "A",
        "B",
        "null",
        "M",
        "K",
        "N",
    ]
    describe_source("each", None, launcher, tmp_path / "own", kernel="all", force=False)
    own = of_op("gemm", tmp_path / "own")
    entries = [each.entry for each in map(own.get, ("each_1", "each_2"))
               if isinstance(each, HostVariant)]  # fmt: skip
    assert entries == ["steps::forward<{scalar}>", "steps::rows"]
    assert "each_3" not in own
    with pytest.raises(UsageError, match="--kernel: unknown function 'prod'; did you mean"):
        describe_source("third", None, launcher, tmp_path / "own", kernel="prod", force=False)


def test_a_launcher_may_have_the_name_of_its_kernel(tmp_path: Path) -> None:
    source = tmp_path / "same.cu"
    source.write_text(
        "template <int N> __global__ void same(float* out, const float* x, const float* w, int c)"
        " { if (c > 0) out[c] = x[c] * w[c] + 0 * out[c]; }\n"
        "void same(float* A, float* B, float* C, int K) { same<8><<<1, 8>>>(C, A, B, K); }\n"
    )
    written(tmp_path / "own", "mine", source)
    mine = of_op("gemm", tmp_path / "own")["mine"]
    assert isinstance(mine, HostVariant)
    assert [each.value for each in mine.parameters()] == ["A", "B", "C", "K"]
    assert mine.reads_output


LAUNCHES = """
#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))
#define EDGE 8
template <int BM, int BN, bool FAST>
__global__ void step(float* A, float* B, float* C, int M, int N, int K) {}
void other() { constexpr int BM = 99, THREADS = 7; }
void run(float* A, float* B, float* C, size_t rows, int columns, int K) {
  constexpr unsigned int BM{4 * EDGE}, unused{1};
  const int BN = BM * 2;
  {setup}
  step<BM, BN, true><<<{grid}, {block}>>>(A, B, C, rows, columns, K);
}
"""


@pytest.mark.parametrize(
    ("setup", "grid", "block", "read"),
    [
        ("", "dim3(columns / BN, CEIL_DIV(rows, BM))", "BM * BN / 16u",
         (("N//BN", "(M+BM-1)//BM"), "BM*BN//16")),
        ("dim3 const g{(static_cast<unsigned int>(columns) + BN - 1U) / BN, 2U, 1}, b(8, EDGE);",
         "g", "b", (("(N+BN-1)//BN", 2), (8, 8))),
        ("dim3 b(BN / 4); dim3 g; g.x = ceil(columns / (float)(b.x)); g.y = div_ceil(rows, b.x);",
         "g", "b", (("N/(BN//4)", "M/(BN//4)"), "BN//4")),
        ("", "dim3((columns + EDGE * 4 - 1) / (EDGE * 4), rows / BM)", "256",
         (("(N+8*4-1)//(8*4)", "M//BM"), 256)),
        ("int blocks = (rows * columns + 255) / 256;", "blocks", "256",
         ("(M*N+255)//256", 256)),
        ("int blocks = rows; blocks += 1;", "blocks", "256", None),
        ("int edge = 8; edge += 8;", "rows", "edge", None),
        ("int edge = atoi(text), other = 4;", "rows", "min(edge, length)", None),
        ("", "ceil(rows * 2)", "256", None),
        ("dim3 b(8), other(2);", "other.x", "b", None),
        ("", "blocks_of(rows,\n columns)", "256", None),
        ("dim3 g(seen);", "g", "256", None),
    ],
)  # fmt: skip
def test_a_kernels_launch_is_read_with_its_constants(
    tmp_path: Path, setup: str, grid: str, block: str, read: tuple[object, object] | None
) -> None:
    text = LAUNCHES.replace("{setup}", setup).replace("{grid}", grid).replace("{block}", block)
    mine, description = from_text(tmp_path, "step", text)
    assert (mine.kernel, str(mine.tiles.defaults[0])) == ("step<{BM}, {BN}, true>", "32x64")
    if read:
        assert (mine.grid, mine.block) == read, description
        assert "uess" not in description
    else:
        assert f"The source launches <<<{' '.join(grid.split())}, " in description


FORMS = """
#define INT int
#define START(kernel) kernel<<<dim3((N + 31) / 32, (M + 7) / 8), dim3(32, 8), K * sizeof(float)>>>
using Element = int8_t;
template <int PAD = 0, int STEP = 4>
__global__ void part(const Element* a, const Element* b, int32_t* c, INT M, INT N, INT K,
                     size_t pitch) {
  int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 32 + threadIdx.x;
}
void test_driver(int argc, char** argv, float* a, float* b, float* c) { part<<<1, 1>>>(); }
int main() { int M = 1, N = 2, K = 3; START(part)(a, b, c, M, N, K, K * sizeof(float) * 2); }
"""


def test_types_and_launches_in_macros_and_defaults_of_templates_are_read(tmp_path: Path) -> None:
    mine, text = from_text(tmp_path, "part", FORMS)
    assert (mine.kernel, mine.dtypes) == ("part<0, {step}>", ("int8",))
    assert (mine.grid, mine.block, mine.shared_bytes) == (
        ("(N+31)//32", "(M+7)//8"),
        (32, 8),
        "K*4",
    )
    assert "int M, int N, int K, size_t pitch=K*4*2" in " ".join(text.split()).replace('" "', "")
    assert (str(mine.tiles.defaults[0]), mine.compile_options) == ("4", ())
    assert "uess" not in text


def test_one_extent_means_squares_and_m_and_k_of_a_vector_product_are_its_m_and_n(
    tmp_path: Path,
) -> None:
    source = tmp_path / "one.cu"
    source.write_text(
        "__global__ void one(const float* A, const float* B, float* C, int N) {}\n"
        "__global__ void rows(const float* a, const float* x, float* y, int M, int K) {}\n"
    )
    describe_source("one", None, source, tmp_path / "own", force=False)
    variant = loaded(tmp_path / "own", "one")
    assert "only square matrices" in (variant.why_not(Config(), PROBLEM) or "")
    assert variant.why_not(Config(), Problem(op="gemm", m=8, n=8, k=8, dtype="float32")) is None
    describe_source("rows", "gemv", source, tmp_path / "own", force=False)
    text = (tmp_path / "own/gemv/rows.py").read_text()
    assert "int M, int K=N" in " ".join(text.split()).replace('" "', "")
    assert "squares" not in text


def from_text(folder: Path, name: str, text: str) -> tuple[CudaVariant, str]:
    """Describe the kernel of a source; return the kernel and the text of its description."""
    source = folder / f"{name}.cu"
    source.write_text(text)
    path = written(folder / "own", name, source)
    return loaded(folder / "own", name), path.read_text()


def test_grid_and_block_follow_the_indices_in_the_source(tmp_path: Path) -> None:
    head = "__global__ void {}(const float* A, const float* B, float* C, int M, int N, int K) {{"
    row = "{t} = blockIdx.{d} * blockDim.{d} + threadIdx.{d};".format
    usual = row(t="int row", d="y") + row(t="int col", d="x")
    flat = "int i = blockIdx.x * 256 + threadIdx.x; if (i < M * N) {} // threadIdx.y"
    for name, body, grid, block in (
        ("usual", usual, (3, 4), (32, 32)),
        ("flat", flat, (28,), (256,)),
    ):
        mine, text = from_text(tmp_path, name, head.format(name) + body + "\n}")
        launch = mine.launch(Config(), PROBLEM)
        assert (launch.grid, launch.block) == (grid, block), text


def test_a_block_that_computes_one_row_or_one_element_is_read(tmp_path: Path) -> None:
    head = (
        "__global__ void {}(const float* A, const float* B, float* C, int M, int N, int K) {{ {} }}"
    )
    row = "int row = blockIdx.x; C[row * N + threadIdx.x] = A[row * K];"
    cases = {
        "row": (row, "M", 256),
        "used": ("C[blockIdx.x * N + threadIdx.x] = 0;", "M", 256),
        "element": ("int i = blockIdx.y, j = blockIdx.x; C[i * N + j] = 0;", ("N", "M"), 1),
        "row_in_y": (
            "int i = blockIdx.y, j = blockIdx.x * 64 + threadIdx.x; C[i * N + j] = 0;",
            ("N/64", "M"),
            64,
        ),
        "tile": ("A += blockIdx.x * 8 * K; C[threadIdx.x] = A[0];", "M*N/256", 256),
        "tile_after": ("A += K * blockIdx.x * 8; C[threadIdx.x] = A[0];", "M*N/256", 256),
        "divided": (row.replace("row * K", "row / K * K"), "M*N/256", 256),
        "passed": ("int i = f(blockIdx.x, 3); C[blockIdx.x * N] = 0;", "M*N/256", 256),
    }
    for name, (body, grid, block) in cases.items():
        mine, _ = from_text(tmp_path, name, head.format(name, body))
        assert (mine.grid, mine.block) == (grid, block), name


def test_a_warp_for_each_element_is_another_guess(tmp_path: Path) -> None:
    source = tmp_path / "mine.cu"
    source.write_text(
        "__global__ void mine(const float* A, const float* x, float* y, int M, int N) {\n"
        "  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;\n"
        "  float s = __shfl_down_sync(~0u, A[row * N] * x[0], 1); y[row] = s;\n}"
    )
    describe = partial(describe_file, source, "mine", "gemv", "", home=str(tmp_path))
    others = {what: each.text for each, what in other_guesses.alternatives(describe(), describe)}
    assert 'grid="M*32/256"' in others[other_guesses.WARPS]
    source.write_text(source.read_text().replace("__shfl_down_sync(~0u, ", "f("))
    others = {what: each.text for each, what in other_guesses.alternatives(describe(), describe)}
    assert other_guesses.WARPS not in others


def test_the_block_of_a_template_follows_the_indices(tmp_path: Path) -> None:
    head = (
        "template <int {0} = 32, int {1} = 8>\n__global__ void {2}(const float* A, const float* B, "
        "float* C, int M, int N, int K) {{ int bx = blockIdx.x; "
    )
    columns = "int row = blockIdx.y * {0} + threadIdx.y, col = bx * {1} + threadIdx.x;"
    rows = "int row = bx * {0} + threadIdx.x, col = {1} * blockIdx.y + threadIdx.y;"
    crossed = "int row = bx * {0} + threadIdx.y, col = threadIdx.x + blockIdx.y * {1};"
    cases = {
        "columns": (("BM", "BN"), columns, ("N/BN", "M/BM"), ("BN", "BM")),
        "rows": (("BM", "BN"), rows, ("M/BM", "N/BN"), ("BM", "BN")),
        "crossed": (("BM", "BN"), crossed, ("M/BM", "N/BN"), ("BN", "BM")),
        "other_names": (("H", "W"), columns, ("N/w", "M/h"), ("w", "h")),
        "unknown": (
            ("BM", "BN"),
            "int row = blockIdx.y + threadIdx.y;",
            ("N/BN", "M/BM"),
            ("BN", "BM"),
        ),
    }
    for name, (axes, body, grid, block) in cases.items():
        text = head.format(*axes, name) + body.format(*axes) + "\n}"
        mine, _ = from_text(tmp_path, name, text)
        assert (mine.grid, mine.block) == (grid, block), text


def test_launch_bounds_are_the_size_of_the_block_unless_the_indices_say_otherwise(
    tmp_path: Path,
) -> None:
    head = (
        "__global__ void __launch_bounds__({}) {}("
        "const float* A, const float* B, float* C, int M, int N, int K) {{\n"
    )
    linear = "int tx = threadIdx.x % 16, by = blockIdx.y, row = by * 16 + threadIdx.x / 16;"
    linear += "int col = blockIdx.x * 16 + tx;"
    square = "int row = blockIdx.y * {0} + threadIdx.y, col = blockIdx.x * {0} + threadIdx.x;"
    by_dim = square.replace("{0}", "blockDim.x")
    cases = {
        "linear": ("256", linear, (5, 7), (256,)),
        "product": ("T * T, 2", "constexpr int T = 16;" + linear, (5, 7), (256,)),
        "smaller": ("1024", square.format(16), (5, 7), (16, 16)),
        "coarse": ("256", square.format(64), (2, 2), (16, 16)),
        "other": ("128", by_dim, (3, 25), (32, 4)),
        "none": ("0", by_dim, (3, 4), (32, 32)),
    }
    for name, (bound, body, grid, block) in cases.items():
        constant = "const int T = 16;\n" if "T" in bound else ""
        mine, text = from_text(tmp_path, name, constant + head.format(bound, name) + body + "\n}")
        launch = mine.launch(Config(), PROBLEM)
        assert (launch.grid, launch.block) == (grid, block), text


def test_the_strides_of_tritons_tutorials_are_those_of_the_matrices(tmp_path: Path) -> None:
    names = [f"stride_{each}" for each in ("am", "ak", "bk", "bn", "cm", "cn")]
    strides = ", ".join(f"int {name}" for name in names)
    text = (
        f"__global__ void mine(float* a, float* b, float* c, int M, int N, int K, {strides}) {{}}"
    )
    mine, _ = from_text(tmp_path, "mine", text)
    values = [each.value for each in parameters(mine.signature)[-len(names) :]]
    assert values == ["lda", "1", "ldb", "1", "ldc", "1"]


@pytest.mark.parametrize("first", ["float A[64][64]", "float A[][64]", "float (*A)[64]"])
def test_arrays_of_constant_extents_are_refused_with_what_to_write(
    first: str, tmp_path: Path
) -> None:
    source = tmp_path / "fixed.cu"
    source.write_text(f"__global__ void fixed(const {first}, float* B, float C[]) {{}}")
    with pytest.raises(UsageError, match=r"has constant extents.*; write float\* A, add the par"):
        describe_file(source, "fixed", "gemm", "", home=str(tmp_path))


def test_other_guesses_differ_and_none_has_a_column_major_result(tmp_path: Path) -> None:
    source = tmp_path / "mine.cu"
    source.write_text(
        "__global__ void mine(const float* A, const float* B, float* C, int n, int m, int k) {\n"
        "  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 8 + threadIdx.x;\n"
        "  for (int i = 0; i < k; ++i) C[row * m + col] += A[row * k + i] * B[col * k + i];\n}"
    )
    describe = partial(describe_file, source, "mine", "gemm", "", home=str(tmp_path))
    assert describe().column_major == ("B", "C")
    grid, both = other_guesses.GRID, f"{other_guesses.GRID}, and {other_guesses.EXTENTS}"
    others = list(other_guesses.alternatives(describe(), describe))
    assert {other_guesses.EXTENTS, other_guesses.ROW_MAJOR, both} <= {what for _, what in others}
    assert grid not in {what for _, what in others}
    assert len({each.text for each, _ in others}) == len(others)
    assert all("C" not in each.column_major for each, _ in others)
    text = next(each.text for each, what in others if what == both)
    assert "int n=M, int m=N" in text
    assert 'grid=("M/8", "N/16")' in text


def kernels(text: str) -> list[Function]:
    return [each for each in functions(text) if each.is_kernel]


def test_every_form_of_a_kernel_is_read_and_comments_are_not() -> None:
    read = list(kernels(BLOCKS))
    assert [kernel.name for kernel in read] == ["helper", "blocks", "plain"]
    assert [parameter.name for parameter in read[1].template] == [
        "T",
        "BM",
        "BN",
        "BK",
        "WM",
        "TM",
        "TN",
    ]
    (early,) = kernels("template <int N> static __launch_bounds__(64) __global__ void f() {}")
    assert (early.name, [parameter.name for parameter in early.template]) == ("f", ["N"])
    assert not list(functions("template <typename> struct Is { static const int value = 0; };"))
    for text in (
        "__global__ void declared(int M);",
        'const char* text = "__global__ void in_a_text() {}";',
        'auto text = R"(__global__ void in_a_raw_text() {})";',
        "/* __global__ void unclosed() {}",
    ):
        assert not list(kernels(text))


def test_parameters_of_a_template_that_differ_in_case_alone_are_two_axes(tmp_path: Path) -> None:
    source = tmp_path / "cases.cu"
    source.write_text(
        "template <int T, int t>\n__global__ void k(const float* A, const float* B, float* C, "
        "int M, int N, int K) {}\n"
        "void f(float* A, float* B, float* C, int M, int N, int K) {\n"
        "  k<16, 8><<<dim3(N / 16, M / 8), dim3(16, 8)>>>(A, B, C, M, N, K);\n}\n"
    )
    describe_source("cases", "gemm", source, tmp_path, kernel="k", force=False)
    described = loaded(tmp_path, "cases")
    (tile,) = described.tiles.defaults
    assert "(k<16, 8>)" in described.instance(tile, "float32")


def test_a_description_that_is_refused_twice_has_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    proofs = iter((Proof(column_major=("B",)), Proof(squares_only=True)))
    monkeypatch.setattr("gpubench.commands.new_kernel.run.prove", lambda *_: next(proofs))
    written(tmp_path, "sgemm_shared")
    assert "Not proved: its results are not right at all sizes" in capsys.readouterr().out


def test_all_functions_are_described_once(tmp_path: Path) -> None:
    source = tmp_path / "overloads.cu"
    source.write_text(
        "".join(
            f"__global__ void sums(const {kind}* A, const {kind}* B, {kind}* C, int N) {{}}\n"
            for kind in ("float", "double")
        )
    )
    describe_source("sums", "gemm", source, tmp_path / "own", kernel="all", force=False)
    assert [each.name for each in (tmp_path / "own" / "gemm").iterdir()] == ["sums_1.py"]


def test_a_path_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("the file system takes only UTF-8")
    source = folder / "plain.cu"
    source.write_text("__global__ void plain(const float* A, const float* B, float* C, int N) {}\n")
    with pytest.raises(UsageError, match="is not UTF-8: rename the file or its folder"):
        written(tmp_path / "own", "plain", source)


def test_a_bracket_in_a_character_opens_and_closes_nothing() -> None:
    text = "void print() { putchar('{'); putchar('\\''); int n = 1'000; }\n__global__ void k() {}\n"
    assert [each.name for each in functions(text)] == ["print", "k"]


def test_a_source_that_cannot_be_described_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.cu"
    empty.write_text("void host() {}")
    odd = tmp_path / "odd.cu"
    odd.write_text("__global__ void 🚀(float* C) {}")
    unnamed = tmp_path / "unnamed.cu"
    unnamed.write_text("template <int> __global__ void kernel(float* C) {}")
    utf_16 = tmp_path / "utf_16.cu"
    utf_16.write_text("__global__ void kernel(float* C) {}", encoding="utf-16")
    for source, reason in (
        (empty, "no __global__ function"),
        (tmp_path / "no.cu", "be read"),
        (odd, "U0001f680' cannot name a kernel"),
        (unnamed, "'int' is not a parameter"),
        (utf_16, "is not text in UTF-8"),
    ):
        with pytest.raises(UsageError, match=reason):
            written(tmp_path, "mine", source)
    path = written(tmp_path, "steps")
    before = path.read_text()
    with pytest.raises(UsageError, match="exists"):
        written(tmp_path, "steps")
    assert path.read_text() == before


def test_a_kernel_that_launches_itself_is_described(tmp_path: Path) -> None:
    source = tmp_path / "itself.cu"
    source.write_text(
        "__global__ void itself(const float* A, const float* B, float* C, int M, int N, int K) {\n"
        "  if (K > 1) itself<<<1, 1>>>(A, B, C, M, N, K / 2);\n}"
    )
    assert loaded(tmp_path, written(tmp_path, "itself", source).stem).idea


COURSEWORK = """
__global__ void six(float* A, float* B, float* C, int numARows, int numAColumns, int numBRows,
                    int numBColumns, int numCRows, int numCColumns) {}
#define AT(i, j, ld) (((j) * (ld)) + (i))
__global__ void columns(int M, int N, int K, const float* A, int lda, const float* B, int ldb,
                        float* C, int ldc) {
  int row = threadIdx.x, col = threadIdx.y;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; k++) sum += A[AT(row, k, lda)] * B[k * ldb + col];
  C[AT(row, col, ldc)] = sum;
}
constexpr int EDGE = 16;
__global__ void no_launch(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = EDGE * blockIdx.y + threadIdx.y, col = blockIdx.x * 8 + threadIdx.x;
}
__global__ void edge(const float* A, const float* B, float* C, int M, int N, int K) {}
int main(int argc, char** argv) {
  int M = atoi(argv[1]), N = atoi(argv[2]), K = atoi(argv[3]);
  const int T = 16;
  dim3 threads(T, T);
  dim3 blocks(ceil(N / (float)T), ceil(M / (float)T));
  edge << <blocks, threads, 2 * T * T * sizeof(float) >> > (A, B, C, M, N, K);
}
"""


def test_forms_of_coursework_are_read(tmp_path: Path) -> None:
    source = tmp_path / "coursework.cu"
    source.write_text(COURSEWORK)
    for name in ("six", "columns", "edge"):
        written(tmp_path / "own", name, source)
    six, columns, edge = (loaded(tmp_path / "own", name) for name in ("six", "columns", "edge"))
    values = [each.value for each in parameters(six.signature)]
    assert values == ["A", "B", "C", "M", "K", "K", "N", "M", "N"]
    assert columns.column_major == ("A", "C")
    launch = edge.launch(Config(), PROBLEM)
    assert (launch.grid, launch.block, launch.main.shared_bytes) == ((5, 7), (16, 16), 2048)
    written(tmp_path / "own", "no_launch", source)
    launch = loaded(tmp_path / "own", "no_launch").launch(Config(), PROBLEM)
    assert (launch.grid, launch.block) == ((9, 7), (8, 16))


EXTENTS = """
#define LOOP(a, b) int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x; \\
  float s = 0; for (int i = 0; i < inner; ++i) s += a * b
__global__ void of_course(float* dA, float* dB, float* dC, int m, int inner, int k) {
  LOOP(dA[r * inner + i], dB[i * k + c]);
  if (r < m && c < k) dC[r * k + c] = s;
}
__global__ void three_letters(float* a, float* b, float* c_, int m, int n, int k) {
  const int inner = n;
  LOOP(a[r * n + i], b[i * k + c]);
  if (r < m && c < k) c_[r * k + c] = s;
}
__global__ void rows_are_n(const float* x, const float* w, float* z, int n, int m, int k) {
  const int inner = k;
  LOOP(x[r * k + i], w[i * m + c]);
  if (r < n && c < m) z[r * m + c] = s;
}
void host_rows(const float* x, const float* w, float* z, int n, int m, int k) {
  rows_are_n<<<dim3((m + 15) / 16, (n + 15) / 16), dim3(16, 16)>>>(x, w, z, n, m, k);
}
void exchanged(const float* A, const float* B, float* C, int M, int N, int K) {
  of_course<<<dim3((M + 15) / 16, (N + 15) / 16), dim3(16, 16)>>>(B, A, C, N, K, M);
}
__global__ void linear(const float* x, const float* w, float* y, int batch, int ins, int outs) {
  const int inner = ins;
  LOOP(x[r * ins + i], w[c * ins + i]);
  if (r < batch && c < outs) y[r * outs + c] = s;
}
__global__ void transposed_a(const float* A, const float* B, float* C, int M, int N, int K) {
  const int inner = K;
  LOOP(A[i * M + r], B[i * N + c]);
  C[r * N + c] = s;
}
"""


def test_the_extents_of_a_kernel_follow_its_indices_where_its_names_contradict_them(
    tmp_path: Path,
) -> None:
    source = tmp_path / "extents.cu"
    source.write_text(EXTENTS)

    def described(name: str) -> tuple[list[str], tuple[str, ...]]:
        description = describe_file(source, name, "gemm", name, home=str(tmp_path))
        (tmp_path / f"{name}.py").write_text(description.text)
        variant = load(tmp_path / f"{name}.py", "gemm")
        assert isinstance(variant, CudaVariant | HostVariant)
        return [each.value for each in parameters(variant.signature)], variant.column_major

    assert described("of_course") == ([*"ABC", "m", "K", "N"], ())
    assert described("three_letters") == (["a", "b", "C", "m", "K", "N"], ())
    assert described("rows_are_n") == ([*"ABC", *"MNk"], ())
    assert described("host_rows") == ([*"ABC", *"MNk"], ())
    assert described("exchanged") == ([*"ABC", *"MNK"], ())
    assert described("linear") == ([*"ABC", *"MKN"], ("B",))
    assert described("transposed_a") == ([*"ABC", *"MNK"], ("A",))


def test_a_class_that_launches_is_no_function_to_call_but_shows_the_launch(tmp_path: Path) -> None:
    source = tmp_path / "classes.cu"
    source.write_text(
        "namespace own {\ntemplate <typename T> struct Gemm {\n"
        "  static void run(const T* A, const T* B, T* C, int M, int N, int K);\n};\n"
        "template <typename T>\n"
        "__global__ void product(const T* A, const T* B, T* C, int M, int N, int K) {}\n"
        "template <typename T>\n"
        "void Gemm<T>::run(const T* A, const T* B, T* C, int M, int N, int K) {\n"
        "  product<T><<<dim3(N / 64, M / 16), 256>>>(A, B, C, M, N, K);\n}\n}"
    )
    description = describe_file(source, "mine", "gemm", "", home=str(tmp_path)).text
    assert 'kernel="own::product<{scalar}>"' in description
    assert "# Read from the launch in run." in description
    assert 'grid=("N//64", "M//16")' in description


def test_a_function_of_the_gpu_in_another_source_needs_relocatable_code(tmp_path: Path) -> None:
    (tmp_path / "index.cuh").write_text("__device__ int at(int row, int column, int width);\n")
    kernel = "__global__ void k(const float* A, const float* B, float* C, int M, int N, int K) {}"
    (tmp_path / "mine.cu").write_text(
        f'#include "index.cuh"\n{kernel}\nvoid run(const float* A, const float* B, float* C, int M,'
        " int N, int K) { k<<<1, 1>>>(A, B, C, M, N, K); }"
    )
    assert needed(tmp_path / "mine.cu") == ([], [], [])
    (tmp_path / "index.cu").touch()
    description = describe_file(tmp_path / "mine.cu", "mine", "gemm", "", home=str(tmp_path))
    assert 'compile_options=("-rdc=true", "index.cu")' in description.text


def test_constants_of_one_declaration_are_read_and_arrays_of_pointers_refused(
    tmp_path: Path,
) -> None:
    source = tmp_path / "listed.cu"
    source.write_text(
        "const int BM = 64, BN = 32, T = 4;\n"
        "__global__ void k(float* A, float* B, float* C, int M, int N, int K) {}\n"
        "__global__ void rows(float** A, float** B, float** C, int N) {}\n"
        "void main() { dim3 blockDim(BN / T, BM / T), gridDim(N / BN, M / BM);\n"
        "  k<<<gridDim, blockDim>>>(A, B, C, M, N, K); }"
    )
    description = describe_file(source, "mine", "gemm", "k", home=str(tmp_path)).text
    assert "block=(8, 16)" in description
    written(tmp_path / "own", "rows", source)
    with pytest.raises(
        UsageError, match="A: an array of pointers cannot be passed; use one pointer"
    ):
        loaded(tmp_path / "own", "rows")


def test_a_header_may_have_the_name_of_a_folder(tmp_path: Path) -> None:
    names = ("thread/warp.cuh", "thread", "thread/block.cuh", "block/a", "block")
    text = "".join(f"#include <{name}>\n" for name in names)
    _, description = from_text(tmp_path, "edge", text + COURSEWORK)
    assert "Read from the launch in main" in description


LIBRARIES = """
template <class TA, class TC>
void tensors(TA const* A, TA const* B, TC* C, int m, int n, int k, int stride) {
  auto dB = make_stride(k, Int<1>{});
  auto dA = make_stride(Int<1>{}, m);
  tiled<<<1, 1>>>(A, dA, B, dB, C, stride);
}
template <class TA, class TB, class TC>
void tensors(TA const* A, TB const* B, TC* C, int m, int n, int k, int stride) {}
#define RUN tensors<half_t, half_t>(a, b, c, M, N, K, 48);
using TA = cute::half_t;
void blas(half* A, half* B, half* C, int M, int N, int K) {
  cublasGemmEx(handle(), CUBLAS_OP_T, CUBLAS_OP_N, N, M, K, &alpha, B, CUDA_R_16F, K, A,
               CUDA_R_16F, K, &beta, C, CUDA_R_16F, N, CUBLAS_COMPUTE_16F, CUBLAS_GEMM_DEFAULT);
}
void blas_t(float* A, float* B, float* C, int M, int N, int K) {
  cublasSgemm(handle(), CUBLAS_OP_N, CUBLAS_OP_T, M, N, K, &alpha, A, M, B, N, &beta, C, M);
}
void vector(float* A, float* B, float* C, int M, int N) {
  cublasSgemv(handle(), CUBLAS_OP_T, N, M, &alpha, B, N, A, 1, &beta, C, 1);
}
void cutlass_gemm(int M, int N, int K, float const* A, int lda, float const* B, int ldb, float* C,
                  int ldc) {
  using Gemm = cutlass::gemm::device::Gemm<float, cutlass::layout::RowMajor, float, ColumnMajor,
                                           float, ColumnMajor>;
}
__global__ void part(float* A, float* B, float* C, int m_ld, int n_ld, int k) {}
void fixed(float* a, float* b, float* c) { part<<<dim3(8, 8), 256>>>(a, b, c, 1024, 512, 256); }
__global__ void rest(float* A, float* B, float* C, int M, int N, int K) {}
__global__ void rounded(float* A, float* B, float* C, int M, int N, int K) {
  auto k = precision::tf32();
}
__global__ void fragments(half* A, half* B, float* C, int M, int N, int K) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b, next;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> last;
}
__global__ void paired(half* A, half* B, half* C, int M, int N, int K) {
  reinterpret_cast<float2 *>(A)[0] = reinterpret_cast<float2 *>(B)[0];
}
void counted(float* A, float* B, float* C, int M, int N, int K) {
  dim3 grid(N / 32, M / 8);
  if (M % 8) grid.y++;
  rest<<<grid, 256>>>(A, B, C, M, N, K);
}
"""


def test_calls_of_libraries_tell_layouts_and_launches_of_one_size_tell_no_grid(
    tmp_path: Path,
) -> None:
    source = tmp_path / "libraries.cu"
    source.write_text(LIBRARIES)

    def described(name: str, op: str = "gemm") -> CudaVariant | HostVariant:
        describe_source(f"my_{name}", op, source, tmp_path, kernel=name, force=False)
        variant = of_op(op, tmp_path)[f"my_{name}"]
        assert isinstance(variant, CudaVariant | HostVariant)
        return variant

    tensors, half = described("tensors"), described("blas")
    assert (tensors.column_major, tensors.dtypes) == (("A", "B"), ("float16_sum16",))
    assert "cute::half_t const* A" in tensors.signature
    assert isinstance(tensors, HostVariant)
    assert tensors.entry == "tensors<cute::half_t, cute::half_t>"
    assert "int stride=48" in tensors.signature
    assert (half.column_major, half.dtypes) == (("B",), ("float16_sum16",))
    assert described("blas_t").column_major == ("A", "C")
    assert described("cutlass_gemm").column_major == ("B", "C")
    assert [each.value for each in parameters(described("vector", "gemv").signature)] == [
        "x",
        "A",
        "y",
        "M",
        "N",
    ]
    assert described("fragments").column_major == ("B",)
    assert described("rounded").dtypes == ("tf32",)
    assert described("paired").dtypes == ("float16_sum16",)
    part, rest = described("part"), described("rest")
    assert isinstance(part, CudaVariant)
    assert isinstance(rest, CudaVariant)
    assert "int m_ld=M, int n_ld=N" in part.signature
    assert part.grid == "M*N/256"  # the command guesses the grid
    assert rest.grid == ("N//32", "M/8")


def test_headers_beside_a_repository_do_not_belong_to_it(tmp_path: Path) -> None:
    for folder in ("other", "project/.git"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "other/helpers.cuh").write_text("")
    head = '#include "helpers.cuh"\n__global__ void here(float* A, float* B, float* C, int N) {}\n'
    (tmp_path / "project/here.cu").write_text(head)
    assert (
        "other" not in written(tmp_path / "own", "here", tmp_path / "project/here.cu").read_text()
    )
    (tmp_path / "project/.git").rmdir()
    describe_source("again", None, tmp_path / "project/here.cu", tmp_path / "own", force=False)
    assert "other" in (tmp_path / "own/gemm/again.py").read_text()


def test_constants_in_a_kernel_suggest_its_block_if_no_launch_is_found(tmp_path: Path) -> None:
    source = tmp_path / "far.cu"
    source.write_text(
        """
        __global__ void tiles(const float* A, const float* B, float* C, int M, int N, int K) {
          const int BM = 64, BN = 128, TM = 4, TN = 8;
          int row = blockIdx.y * BM + threadIdx.y * TM, column = blockIdx.x * BN + threadIdx.x * TN;
          for (int i = 0; i < TM; ++i) for (int j = 0; j < TN; ++j) {
            float sum = 0;
            for (int k = 0; k < K; ++k) sum += A[(row + i) * K + k] * B[k * N + column + j];
            C[(row + i) * N + column + j] = sum;
          }
        }
        __global__ void vectors(const float* A, const float* B, float4* C, int M, int N, int K) {
          const float* row = A + K * 128 * blockIdx.y;
          float4* tile = C + 128 * blockIdx.y * N / 4 + 32 * blockIdx.x;
          const float* column = B + 128 * blockIdx.x;
        }
        """
    )
    text = written(tmp_path / "own", "tiles", source).read_text()
    assert 'grid=("N/128", "M/64")' in text
    assert "block=(16, 16)" in text
    text = written(tmp_path / "own", "vectors", source).read_text()
    assert 'grid=("N/128", "M/128")' in text
    assert "block=256" in text


def test_macros_that_a_launch_passes_are_extents_of_its_grid(tmp_path: Path) -> None:
    source = tmp_path / "macros.cu"
    source.write_text(
        """
        #define SIZE 1024  // rows and columns
        #define ROWS (SIZE / 2)
        #define EDGE 16
        #define HALF 0.5f
        #ifdef SMALL
        #define DEPTH 32
        #else
        #define DEPTH 512
        #endif
        __global__ void scaled(const float* A, const float* B, float* C, int m, int n, int k,
                               float alpha) {
          int row = blockIdx.x * blockDim.x + threadIdx.x;
          int column = blockIdx.y * blockDim.y + threadIdx.y;
          if (row >= m || column >= n) return;
          float sum = 0;
          for (int i = 0; i < k; ++i) sum += A[row * k + i] * B[i * n + column];
          C[row * n + column] = 2 * alpha * sum;
        }
        int main() {
          float *A, *B, *C;
          dim3 block, grid;
          block.x = 2 * EDGE; block.y = EDGE;
          grid.x = (ROWS + 31) / 32; grid.y = SIZE / EDGE;
          scaled<<<grid, block>>>(A, B, C, ROWS, SIZE, DEPTH, HALF);
        }
        """
    )
    text = written(tmp_path / "own", "scaled", source).read_text()
    assert 'grid=("(M+31)//32", "N//16")' in text
    assert "block=(32, 16)" in text
    assert "# Read from the launch in main." in text


def test_a_folder_or_a_dead_link_with_the_name_of_a_source_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "project/.git").mkdir(parents=True)
    (tmp_path / "project/fast.cu").mkdir()  # a repository on GitHub has this name
    (tmp_path / "project/gone.cu").symlink_to("nowhere.cu")
    source = tmp_path / "project/here.cu"
    source.write_text("__global__ void here(float* A, float* B, float* C, int N) {}\n")
    assert written(tmp_path / "own", "here", source).is_file()


def test_the_function_other_functions_and_a_sweep_in_its_dtype_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "two.cu"
    head = "__global__ void {}(const half* A, const half* B, half* C, int M, int N, int K) {{}}\n"
    source.write_text(head.format("first") + head.format("second"))
    describe_source("mine", None, source, tmp_path / "own", force=False)
    out = capsys.readouterr().out
    path = tmp_path / "own/gemm/mine.py"
    more = "--kernel FUNCTION describes another function, such as second"
    assert f"{path}: describes first; {more}\n" in out
    assert "--variants mine,cublas --sizes 1000,1024 --dtypes float16_sum16\n" in out
    describe_source("mine", None, source, tmp_path / "own", kernel="second", force=True)
    assert f"{path}: describes second\n" in capsys.readouterr().out


def test_a_function_on_objects_is_named_as_one_that_cannot_be_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "objects.cu"
    source.write_text(
        "__global__ void k(float* A, float* B, float* C, int N) {}\n"
        "void run(float* A, float* B, float* C, int N, dim3 grid) { k<<<grid, 1>>>(A, B, C, N); }"
    )
    path = written(tmp_path, "mine", source)
    assert "Not proved: " in (out := capsys.readouterr().out)
    assert "dim3 grid: a dim3 cannot be passed by value; describe a kernel of pointers" in out
    assert "# Not known: grid. An object cannot be passed: write a function" in path.read_text()
