"""`check` and `new-kernel` link the further sources that a description names."""

from pathlib import Path

import pytest

from gpubench.commands.check import run
from gpubench.commands.check.run import FAULTY, NOT_RUN, run_check
from gpubench.commands.new_kernel.run import describe_source
from gpubench.errors import UsageError

pytestmark = pytest.mark.slow

HEADER = """
#pragma once
__global__ void tiled(const float* A, const float* B, float* C, int M, int N, int K);
int blocks(int extent);
"""

KERNEL = """
#include "tiled.cuh"
static int up(int a, int b) { return (a + b - 1) / b; }
int blocks(int extent) { return up(extent, 16); }
void prints(const float* values) { library_that_is_missing(values); }
__global__ void tiled(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[16][16], b[16][16];
  int y = threadIdx.y, x = threadIdx.x, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  float sum = 0;
  for (int k0 = 0; k0 < K; k0 += 16) {
    a[y][x] = row < M && k0 + x < K ? A[row * K + k0 + x] : 0;
    b[y][x] = k0 + y < K && col < N ? B[(k0 + y) * N + col] : 0;
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += a[y][k] * b[k][x];
    __syncthreads();  // before the next tile
  }
  if (row < M && col < N) C[row * N + col] = sum;
}
"""

MAIN = """
#include "tiled.cuh"
static int up(int extent) { return blocks(extent); }
void multiply(const float* A, const float* B, float* C, int M, int N, int K) {
  tiled<<<dim3(up(N), up(M)), dim3(16, 16)>>>(A, B, C, M, N, K);
}
int main() { prints(nullptr); }
"""


@pytest.fixture(autouse=True)
def _not_compiled_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_compile", lambda *_: True)


def described(folder: Path, kernel: str = KERNEL) -> Path:
    """Write the sources, describe them, and return the description."""
    for name, text in (("tiled.cuh", HEADER), ("tiled.cu", kernel), ("main.cu", MAIN)):
        (folder / name).write_text(text)
    describe_source("mine", "gemm", folder / "main.cu", folder / "own", force=True)
    description = folder / "own/gemm/mine.py"
    assert 'compile_options=("../../tiled.cu",),' in description.read_text()
    return description


def check(description: Path) -> int:
    return run_check("mine", description.parents[1], None, None, None)


def test_the_kernel_and_the_functions_of_another_source_are_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    description = described(tmp_path)
    assert "complete: its results at 256x512x64 and" in capsys.readouterr().out
    assert check(description) == 0
    assert "mine is right and clean on the CPU" in capsys.readouterr().out


def test_a_fault_in_another_source_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    description = described(tmp_path, KERNEL.replace("__syncthreads();  // before", "//"))
    assert check(description) == FAULTY
    out = capsys.readouterr().out
    line = next(n for n, text in enumerate(KERNEL.splitlines(), 1) if "sum +=" in text)
    assert f"tiled.cu:{line} reads the same element in another thread" in out
    assert "a __syncthreads() is missing" in out


def test_a_function_that_no_source_defines_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    description = described(tmp_path, KERNEL.replace("int blocks(", "int blocks_of("))
    capsys.readouterr()
    assert check(description) == NOT_RUN
    expected = "not run on the CPU: no source defines blocks(int); name the source in"
    assert expected in capsys.readouterr().out


def test_ptx_in_another_source_is_the_reason_why_it_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ptx = KERNEL.replace("float sum = 0;", 'float sum = 0; asm("mov.u32 %0, 0;" : "=f"(sum));')
    description = described(tmp_path, ptx)
    assert "Not proved: the kernel has inline PTX." in capsys.readouterr().out
    assert check(description) == NOT_RUN
    assert "not run on the CPU: the kernel has inline PTX." in capsys.readouterr().out


def test_a_source_that_is_missing_is_named(tmp_path: Path) -> None:
    description = described(tmp_path)
    (tmp_path / "tiled.cu").unlink()
    with pytest.raises(UsageError, match=r"compile_options: .*tiled\.cu is not a file"):
        check(description)
