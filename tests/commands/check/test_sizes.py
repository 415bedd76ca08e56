"""`check` states the condition on the sizes under which a kernel without bounds checks is right."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpubench.commands.check.cases import all_cases
from gpubench.commands.check.run import FAULTY, NO_RULE, run_check
from gpubench.commands.check.sizes import SizeRule
from gpubench.model import CudaVariant, Problem
from gpubench.on_cpu.case import Case

VECTORS = """
__global__ void mine(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.y * 16 + threadIdx.y, col = 4 * (blockIdx.x * 16 + threadIdx.x);
  if (row >= M || col >= N) return;
  float4 sum = make_float4(0, 0, 0, 0);
  for (int k = 0; k < K; ++k) {
    float a = A[row * K + k];
    float4 b = *reinterpret_cast<const float4*>(&B[k * N + col]);
    sum.x += a * b.x; sum.y += a * b.y; sum.z += a * b.z; sum.w += a * b.w;
  }
  *reinterpret_cast<float4*>(&C[row * N + col]) = sum;
}
void run(const float* A, const float* B, float* C, int M, int N, int K) {
  mine<<<dim3((N + 63) / 64, (M + 15) / 16), dim3(16, 16)>>>(A, B, C, M, N, K);
}
"""

TILES = """
__global__ void mine(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[16][8], b[8][16];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  float sum = 0;
  for (int k0 = 0; k0 < K; k0 += 8) {
    if (x < 8) a[y][x] = A[row * K + k0 + x];
    if (y < 8) b[y][x] = B[(k0 + y) * N + col];
    __syncthreads();
    for (int k = 0; k < 8; ++k) sum += a[y][k] * b[k][x];
    __syncthreads(); // before the next tile
  }
  C[row * N + col] = sum;
}
void run(const float* A, const float* B, float* C, int M, int N, int K) {
  mine<<<dim3(N / 16, M / 16), dim3(16, 16)>>>(A, B, C, M, N, K);
}
"""

STRIDE = VECTORS.replace("C[row * N", "C[row * M")
RACE = TILES.replace("__syncthreads(); // before", "// before")
TRANSPOSED = TILES.replace("b[k][x];", "b[x % 8][k];")


def problem(m: int, n: int, k: int) -> Problem:
    return Problem(op="gemm", m=m, n=n, k=k, dtype="float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "condition"),
    [
        (VECTORS, "N % 4 == 0"),
        (TILES, "M % 16 == 0 and N % 16 == 0 and K % 8 == 0"),
        (STRIDE, "M == N == K and M % 4 == 0"),
        (RACE, ""),
        pytest.param(TRANSPOSED, "", marks=pytest.mark.exhaustive),
    ],
    ids=["vectors", "tiles", "a stride of another matrix", "a race", "a wrong index"],
)
def test_the_sizes_at_which_a_faulty_kernel_is_right_are_stated(
    text: str, condition: str, check_text: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_text(text) == FAULTY
    out = capsys.readouterr().out
    assert (f"right and clean if {condition}, and faulty at some other sizes" in out) == bool(
        condition
    )
    assert (NO_RULE in out) == (not condition)
    barrier = "a race, which the fault above hides:", "a __syncthreads() is missing between the two"
    assert all((line in out) == (text is RACE) for line in barrier)


@pytest.mark.slow
def test_the_line_that_a_fault_names_excludes_sizes_without_bounds_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.cu").write_text(
        "__global__ void mine(const float* A, const float* B, float* C, int M, int N, int K) {\n"
        "  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y;\n"
        "  float sum = 0;\n"
        "  for (int k = 0; k < K; ++k) sum += A[y * K + k] * B[k * N + x];\n"
        "  C[y * N + x] = sum;\n}\n"
    )
    text = """
from gpubench.model import CudaVariant

VARIANT = CudaVariant(idea="of a test", grid=("(N+15)//16", "M"), block=(16,), kernel="mine",
    signature="const float* A, const float* B, float* C, int M, int N, int K",
    dtypes=("float32",),
{})
"""
    (tmp_path / "mine.py").write_text(text.format(""))
    assert run_check("mine", tmp_path, None, None, None) == FAULTY
    *_, advice, line = capsys.readouterr().out.splitlines()
    assert advice == (
        "add bounds checks, or refuse other sizes in the description; correct mine.py"
    )
    (tmp_path / "mine.py").write_text(text.format(line))
    assert run_check("mine", tmp_path, None, None, None) == 0


def test_the_field_of_a_rule_refuses_exactly_the_other_sizes() -> None:
    rule = SizeRule(divisors={"M": 16, "N": 1, "K": 8})
    assert str(rule) == "M % 16 == 0 and K % 8 == 0"
    refuse = eval(rule.field.removeprefix("refuse=").removesuffix(","))  # noqa: S307 # own text
    assert refuse(None, problem(32, 7, 8)) is None
    assert refuse(None, problem(32, 7, 9)) == f"needs {rule}"
    assert refuse(None, problem(33, 7, 8)) == f"needs {rule}"


def test_a_square_rule_states_the_divisor_of_equal_extents_once() -> None:
    rule = SizeRule(divisors=dict.fromkeys("MNK", 32), is_square=True)
    assert str(rule) == "M == N == K and M % 32 == 0"


def test_extents_that_differ_remain_different_with_a_large_divisor(tmp_path: Path) -> None:
    variant = CudaVariant(
        idea="of a test", name="mine", op="gemm", path=tmp_path / "mine.py", kernel="mine",
        signature="const float* A, const float* B, float* C, int M, int N, int K",
        dtypes=("float32",), grid=("N/16", "M/16"), block=(16, 16),
    )  # fmt: skip
    (tile,) = variant.tiles
    cases = all_cases(variant, [tile])
    rule = SizeRule(divisors=dict.fromkeys("MNK", 128))
    sizes = {case.problem.numbers for case in rule.cases(cases)}
    assert {(128, 128, 128), (256, 128, 256), (128, 256, 256)} <= sizes
    assert all(extent % 128 == 0 for size in sizes for extent in size)


def test_a_rule_leaves_out_sizes_that_the_description_refuses(tmp_path: Path) -> None:
    variant = CudaVariant(
        idea="of a test", name="mine", op="gemm", path=tmp_path / "mine.py", kernel="mine",
        signature="const float* A, const float* B, float* C, int M, int N, int K",
        dtypes=("float32",), grid=("N/16", "M/16"), block=(16, 16),
        refuse=lambda _, problem: "too wide" if problem.n > 64 else None,
    )  # fmt: skip
    (tile,) = variant.tiles
    cases = [Case(variant=variant, tile=tile, problem=problem(n, n, n)) for n in (1, 33, 65)]
    rule = SizeRule(divisors=dict.fromkeys("MNK", 64))
    assert [case.problem.numbers for case in rule.cases(cases)] == [(64, 64, 64)]
