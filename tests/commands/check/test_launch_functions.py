"""`check` runs launches that a source makes by functions of CUDA's runtime, without `<<<…>>>`."""

from collections.abc import Callable

import pytest

from gpubench.commands.check.run import FAULTY, NOT_RUN

pytestmark = pytest.mark.slow

KERNEL = """
template <int T>
__global__ void mine(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  C[row * N + col] = sum;
}
void run(const float* A, const float* B, float* C, int M, int N, int K) {
  dim3 gridDim((N + 15) / 16, (M + 15) / 16), blockDim(16, 16);
  void* arguments[] = {&A, &B, &C, &M, &N, &K};
"""

BY_POINTER = "cudaLaunchKernel({}, gridDim, blockDim, arguments, 0, nullptr); }}"
BY_CONFIG = """
  cudaLaunchConfig_t config = {};
  config.gridDim = gridDim;
  config.blockDim = blockDim;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, mine<16>, A, B, C, M, N, K);
}
"""
HIDDEN = BY_POINTER.format("hidden").replace("cuda", "const void* hidden = mine<16>; cuda", 1)


@pytest.mark.parametrize(
    ("launch", "code"),
    [
        (BY_POINTER.format("(void*)mine<16>"), 0),
        (BY_POINTER.format("reinterpret_cast<const void*>(&mine<16>)"), 0),
        (BY_CONFIG, 0),
        (BY_CONFIG.replace("config.gridDim = gridDim", "config.gridDim = dim3(1)"), FAULTY),
        (HIDDEN.replace("= mine<16>", "= (const void*)mine<16>"), NOT_RUN),
    ],
    ids=["cast", "reinterpret_cast", "config", "a small grid", "a void* variable"],
)
def test_a_launch_by_a_function_of_the_runtime_is_run_if_the_kernel_has_its_type(
    launch: str, code: int, check_text: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_text(KERNEL + launch) == code
    advice = "write cudaLaunchKernel(kernel, ...): a void* hides its parameters"
    assert (advice in capsys.readouterr().out) == (code == NOT_RUN)


GRID = "auto grid = cooperative_groups::this_grid(); grid.sync(); float sum = 0;"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "struct Sizes { int M; };\n__global__ void mine(Sizes sizes, float* C) {}\n",
            "sizes; add a function of pointers and numbers that launches mine\n",
        ),
        (
            "#include <cooperative_groups.h>\n"
            + (KERNEL + BY_POINTER.format("mine<16>")).replace("float sum = 0;", GRID),
            "its blocks wait for each other, and the CPU runs one block after another",
        ),
    ],
    ids=["a structure by value", "a barrier of the grid"],
)
def test_what_is_not_supported_is_named_in_one_line(
    text: str, says: str, check_text: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_text(text) == NOT_RUN
    assert says in capsys.readouterr().out
