"""`new-kernel --from` says "complete" only after the function has computed right results."""

from pathlib import Path

import pytest

from gpubench.commands.check.run import NOT_RUN, run_check
from gpubench.commands.new_kernel.proof import Trial
from gpubench.commands.new_kernel.run import NOT_TESTED, describe_source
from gpubench.on_cpu.fault import KernelFaultError

pytestmark = pytest.mark.slow

HEAD = "#include <cuda_runtime.h>\n#include <cstdio>\n"
LOOP = """
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[{a}] * B[{b}];
  C[{c}] = sum;
"""
ROW_MAJOR = {"a": "row * K + k", "b": "k * N + col", "c": "row * N + col"}
LAUNCHER = """
void unneeded(torch::Tensor x) { x.data_ptr(); }
void run(const float* A, const float* B, float* C, int M, int N, int K) {
  float* copy;
  cudaMalloc(&copy, sizeof(float) * K * N);
  cudaMemcpy(copy, B, sizeof(float) * K * N, cudaMemcpyDeviceToDevice);
  int blocks, threads;
  cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, product);
  dim3 blockDim(32, threads / 128), grid((N + 31) / 32, (M + 7) / 8);
  product<<<grid, blockDim>>>(A, copy, C, M, N, K);
  cudaFree(copy);
}
int main() { printf("<<<"); }
"""


def kernel(loop: str = LOOP, **indices: str) -> str:
    head = "__global__ void product(const float* A, const float* B, float* C, int M, int N, int K)"
    return HEAD + head + "{" + loop.format(**(ROW_MAJOR | indices)) + "}\n"


def told(folder: Path, text: str, capsys: pytest.CaptureFixture[str], op: str = "gemm") -> str:
    """Describe a source, and return the output of the command."""
    (folder / "source.cu").write_text(text)
    describe_source("mine", op, folder / "source.cu", folder / "own", force=True)
    return capsys.readouterr().out


def test_a_kernel_and_a_host_function_with_right_results_are_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete = "complete: its results at 256x512x64 and 512x256x32 are right on the CPU."
    assert complete in told(tmp_path, kernel(), capsys)
    assert complete in told(tmp_path, kernel() + LAUNCHER, capsys)
    unguarded = kernel(LOOP.replace("if (row >= M || col >= N) return;", ""))
    assert f"{complete}\n{NOT_TESTED}\n" in told(tmp_path, unguarded, capsys)


def test_a_launch_that_leaves_results_unwritten_is_not_proved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = kernel() + LAUNCHER.replace("(N + 31) / 32", "N / 64")
    assert "Not proved: 65,536 of 131,072 results at 256x512x64 were not" in told(
        tmp_path, half, capsys
    )
    none = kernel() + LAUNCHER.replace("(N + 31) / 32", "0")
    assert "Not proved: on the CPU: fault: a launch" in told(tmp_path, none, capsys)


def test_a_wrong_product_is_not_proved_and_a_softmax_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = kernel(LOOP.replace("k = 0", "k = 1"))
    assert "results at 256x512x64 are wrong." in told(tmp_path, wrong, capsys)
    softmax = kernel(LOOP.replace("= sum;", "= expf(sum) / sum;"))
    assert "It may not be a matrix product: the source has expf(: a softmax or a norm?" in told(
        tmp_path, softmax, capsys
    )


def test_a_product_with_a_vector_that_is_described_as_a_matrix_product_names_the_operation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vector = """
    __global__ void product(const float* A, const float* x, float* y, int M, int N) {
      int row = blockIdx.x * blockDim.x + threadIdx.x;
      if (row >= M) return;
      float sum = 0;
      for (int j = 0; j < N; ++j) sum += A[row * N + j] * x[j];
      y[row] = sum;
    }
    void run(const float* A, const float* x, float* y, int M, int N) {
      product<<<(M + 63) / 64, 64>>>(A, x, y, M, N);
    }
    """
    hint = "It may not be a matrix product: x and y are vectors, and no parameter is K"
    assert f"{hint}: select --op gemv." in told(tmp_path, vector, capsys)
    assert "The description is complete" in told(tmp_path, vector, capsys, "gemv")


@pytest.mark.parametrize(
    ("indices", "layout"),
    [
        ({"b": "K * col + k"}, '("B",)'),
        ({"a": "A_AT(row, k)", "b": "B_AT(k, col)", "c": "C_AT(row, col)"}, '("A", "B", "C")'),
    ],
)
def test_a_layout_is_found_also_where_macros_hide_the_indices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], indices: dict[str, str], layout: str
) -> None:
    macros = "".join(
        f"#define {name}_AT(i, j) (i) + (j) * {rows}\n"
        for name, rows in zip("ABC", "MKM", strict=True)
    )
    assert "complete" in told(tmp_path, macros + kernel(**indices), capsys)
    assert f"column_major={layout}" in (tmp_path / "own/gemm/mine.py").read_text()


def test_a_function_that_is_right_for_squares_alone_is_not_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exchanged = LAUNCHER.replace("(N + 31) / 32, (M + 7) / 8", "(M + 31) / 32, (N + 7) / 8")
    said = told(tmp_path, kernel() + exchanged, capsys)
    assert "complete" not in said
    assert "Not proved: its results at 128 and 256 are right, but its results are wrong" in said
    assert '"takes squares only"' in (tmp_path / "own/gemm/mine.py").read_text()


def test_a_function_without_extents_is_not_run_and_not_called_faulty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "#define N 4096\n__global__ void fixed(const float* a, const float* b, float* c) {\n"
        "  int i = blockIdx.y, j = blockIdx.x * 32 + threadIdx.x;\n  float s = 0;\n"
        "  for (int k = 0; k < N; ++k) s += a[i * N + k] * b[k * N + j];\n  c[i * N + j] = s;\n}\n"
    )
    what = "its parameters have no extents, so it computes one size"
    assert what in told(tmp_path, text, capsys)
    assert run_check(str(tmp_path / "source.cu"), None, None, None, "sm_90") == NOT_RUN
    assert what in capsys.readouterr().out


def test_a_function_of_many_products_is_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = LOOP.replace("float sum", "A += z * M * K; B += z * K * N; C += z * M * N; float sum")
    kernel_of_many = kernel(loop.replace("int row", "int z = blockIdx.z, row"))
    launcher = (
        "void run(const float* A, const float* B, float* C, int batch, int M, int N, int K) {\n"
        "  dim3 grid((N + 15) / 16, (M + 15) / 16, batch);\n"
        "  product<<<grid, dim3(16, 16)>>>(A, B, C, M, N, K);\n}\n"
    )
    said = told(tmp_path, kernel_of_many + launcher, capsys, "gemm_batched")
    assert "complete: its results at 2x256x512x64 and 2x512x256x32 are right" in said


def test_half_sums_and_a_vector_before_its_matrix_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "#include <cuda_fp16.h>\n__global__ void rows(const half* A, const half* B, half* C,"
        " int N, int K) {\n int row = blockIdx.x * 128 + threadIdx.x; if (row >= N) return;\n"
        "half sum = 0; for (int k = 0; k < K; ++k) sum = __hfma(A[k], B[row * K + k], sum);\n"
        "C[row] = sum; }\n void run(half* A, half* B, half* C, int N, int K)"
        " { rows<<<(N + 127) / 128, 128>>>(A, B, C, N, K); }\n"
    )
    assert "complete: its results at 256x512 and 512x256" in told(tmp_path, text, capsys, "gemv")
    description = (tmp_path / "own/gemv/mine.py").read_text()
    assert 'dtypes=("float16_sum16",)' in description
    assert "half* A=x, half* B=A, half* C=y, int N=M" in description
    hidden = text.replace("half sum", "float unused; half sum")
    assert "it sums in float16: write dtypes=" in told(tmp_path, hidden, capsys, "gemv")


def test_a_fault_in_the_test_of_sums_is_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise KernelFaultError("fault: hung: no progress within 5 s; killed")

    monkeypatch.setattr(Trial, "of_sums", fail)
    assert "Not proved: on the CPU: fault: hung" in told(tmp_path, kernel(), capsys)


def test_code_that_g_plus_plus_lacks_is_not_proved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = kernel(LOOP.replace("float sum", 'asm volatile("bar.sync 0;"); float sum'))
    assert "Not proved: the kernel has inline PTX." in told(tmp_path, text, capsys)
