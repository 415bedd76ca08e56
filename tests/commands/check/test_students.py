"""`check` examines files of students: thirty are right, and twenty-three have a fault.

A fault is a change of a right file. It has the form in which people ask about it in public.
Half of the files were written by somebody who did not know how `check` works.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gpubench.commands.check import run
from gpubench.commands.check.run import FAULTY, NOT_RUN, run_check
from gpubench.commands.check.structures import function_on_arrays
from gpubench.on_cpu.case import Case
from gpubench.on_cpu.fault import KernelFaultError
from gpubench.on_cpu.run import Sanitizer, run_on_cpu

pytestmark = pytest.mark.slow

FILES = sorted((Path(__file__).parent / "students").glob("*.cu"))


@dataclass(frozen=True)
class Fault:
    """A change of a right file, and the message of `check` about it."""

    file: str
    old: str
    new: str
    says: str
    at: str = ""
    """A part of the line that the message names. Empty: the message names no line."""


FAULTS = {
    "a missing check of the row": Fault(
        "square", "row < n && col < n", "col < n", "a read beyond the end of a", "sum += a["
    ),
    "a loop that goes one too far": Fault(
        "square", "k < n; k++", "k <= n; k++", "a read beyond the end of", "sum += a["
    ),
    "a barrier missing at the end of a loop": Fault(
        "tiled_square",
        "    __syncthreads();\n  }\n",
        "  }\n",
        "a __syncthreads() is missing between the two",
        "Pvalue += Mds",
    ),
    "a barrier that some threads do not reach": Fault(
        "tiled_square",
        "  float Pvalue = 0;",
        "  if (Row >= Width || Col >= Width) return;\n  float Pvalue = 0;",
        "barrier divergence",
        "    __syncthreads();",
    ),
    "a grid that truncates": Fault(
        "launcher",
        "(N + BLOCK - 1) / BLOCK, (M + BLOCK - 1) / BLOCK",
        "N / BLOCK, M / BLOCK",
        "a launch of no blocks",
        "<<<grid",
    ),
    "a tail of K without a guard": Fault(
        "launcher",
        "row < M && k0 + tx < K",
        "row < M",
        "a read beyond the end of A",
        "As[ty][tx] =",
    ),
    "an index that counts a stride twice": Fault(
        "launcher",
        "B[(k0 + ty) * N + col]",
        "B[(k0 + ty * N) * N + col]",
        "a read beyond the end of B",
        "Bs[ty][tx] =",
    ),
    "too little dynamic shared memory": Fault(
        "dynamic_shared", "2 * t * t", "t * t", "beyond the end of dynamic shared memory", "Bs[thr"
    ),
    "no dynamic shared memory": Fault(
        "dynamic_shared",
        "<<<grid, block, bytes>>>",
        "<<<grid, block>>>",
        "state the bytes of shared memory: shared_bytes=…, or <<<grid, block, bytes>>>",
        "extern __shared__",
    ),
    "a shared array with a row too few": Fault(
        "half", "half a[kTile][", "half a[kTile - 1][", "index 15 out of bounds", "a[threadIdx.y]["
    ),
    "a row with the stride of another matrix": Fault(
        "one_dimension", "B[k * N + j]", "B[k * K + j]", "a read beyond the end of B", "value += A"
    ),
    "a stale partial tile": Fault(
        "blocktiled",
        "As[at] = inA ? A[(row0 + innerRowA) * K + bkIdx + innerColA] : 0;",
        "if (inA) As[at] = A[(row0 + innerRowA) * K + bkIdx + innerColA];",
        "does the sum read shared memory that no thread has written?",
        "threadResults[resIdx] +=",
    ),
    "x and y exchanged": Fault(
        "host_pointers",
        "A[i * k + l] * B[l * n + j]",
        "A[j * k + l] * B[l * n + i]",
        "a read beyond the end of",
        "s += A[",
    ),
    "two buffers without a barrier": Fault(
        "padded",
        "    __syncthreads();\n    now",
        "    now",
        "a __syncthreads() is missing between the two",
        "sum += a[now]",
    ),
    "a sum without atomics": Fault(
        "split_k",
        "atomicAdd(&C[row * N + col], sum)",
        "C[row * N + col] += sum",
        "reads the same element in another thread, and nothing orders them",
        "C[row * N + col] += sum",
    ),
    "a tail of K without a guard, with six extents": Fault(
        "six_extents",
        "Row < numARows && q * TILE_WIDTH + tx < numAColumns",
        "Row < numARows",
        "a read beyond the end of A",
        "A[Row * numAColumns",
    ),
    "a grid that truncates, with rows and columns": Fault(
        "error_macro",
        "(N + BLOCK_SIZE - 1) / BLOCK_SIZE, (M + BLOCK_SIZE - 1) / BLOCK_SIZE",
        "N / BLOCK_SIZE, M / BLOCK_SIZE",
        "a launch of no blocks",
        "<<<grid",
    ),
    "a barrier missing beside a tile that main reads": Fault(
        "tile_at_run_time",
        "        __syncthreads();\n    }\n",
        "    }\n",
        "a __syncthreads() is missing between the two",
        "v += sA",
    ),
    "a pointer that is moved, and an index that counts the same rows": Fault(
        "bfloat_template",
        "A[r * K + k0 + c]",
        "A[(row0 + r) * K + k0 + c]",
        "a read beyond the end of A",
        "as[r][c]",
    ),
    "a partial tile that keeps what it had": Fault(
        "two_kernels",
        "tileA[threadIdx.y][threadIdx.x] = (i < N && ka < N) ? A[i*N + ka] : 0;",
        "if (i < N && ka < N) tileA[threadIdx.y][threadIdx.x] = A[i*N + ka];",
        "reads shared memory that no thread has written",
        "t += tileA",
    ),
    "a store with its indices exchanged": Fault(
        "visual_studio",
        "d_P[Row * width + Col]",
        "d_P[Col * height + Row]",
        "the result is transposed",
        "d_P[Col",
    ),
    "a row that is not checked": Fault(
        "rows_of_four",
        "if (i0 + r < m) s[r] +=",
        "s[r] +=",
        "a read beyond the end of a",
        "s[r] +=",
    ),
    "a sum that begins with no value": Fault(
        "coarse",
        "float sum[COARSE] = {0.0f};",
        "float sum[COARSE];",
        "a variable is read before it is assigned: sum",
        "float sum[COARSE];",
    ),
}

ALWAYS = {
    "launcher", "half", "matrix_struct", "tile_at_run_time",
    "a sum that begins with no value", "a grid that truncates",
    "a barrier missing at the end of a loop",
}  # fmt: skip
"""The files that every run of the tests uses. `-m exhaustive` uses all files."""


def cases(names: list[str]) -> list[object]:
    return [
        pytest.param(name, marks=() if name in ALWAYS else pytest.mark.exhaustive, id=name)
        for name in names
    ]


@pytest.fixture(autouse=True)
def _not_compiled_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not compile with nvcc, which takes seconds for a file. Other tests compile."""
    monkeypatch.setattr(run, "_compile", lambda *_: True)


def check(source: Path) -> int:
    return run_check(str(source), None, None, None, None)


@pytest.mark.parametrize("name", cases([file.stem for file in FILES]))
def test_a_right_file_is_right(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = (file for file in FILES if file.stem == name)
    assert check(file) == 0
    assert "right and clean on the CPU" in capsys.readouterr().out


@pytest.mark.parametrize("name", cases(list(FAULTS)))
def test_a_fault_is_named_with_its_line(
    name: str, check_text: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    fault = FAULTS[name]
    (file,) = (file for file in FILES if file.stem == fault.file)
    right = file.read_text()
    assert right.count(fault.old) == 1
    text = right.replace(fault.old, fault.new)
    assert check_text(text) == FAULTY
    out = capsys.readouterr().out
    assert fault.says in out
    numbers = [n for n, line in enumerate(text.splitlines(), 1) if fault.at in line]
    named = set(map(int, re.findall(r"mine\.cu(?: line |:)(\d+)", out)))
    assert not fault.at or named & set(numbers), out
    assert "0x" not in out, "addresses are noise"


EXCHANGED = """
__global__ void mine(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.x * blockDim.x + threadIdx.x, col = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  C[row * N + col] = sum;
}
"""


RUN_LAST = {0: Sanitizer.THREAD, FAULTY: Sanitizer.ADDRESS}
"""The last sanitizer that runs another guess. Only a right guess is run under ThreadSanitizer."""


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [("", "", 0), ("C[row * N", "C[row * M", FAULTY)],
    ids=["right", "wrong stride"],
)
def test_another_guess_makes_a_right_kernel_right_and_no_wrong_kernel(
    old: str,
    new: str,
    code: int,
    check_text: Callable[[str], int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = []

    def without_sanitizer(
        cases: Sequence[Case], sanitizer: Sanitizer, folder: Path
    ) -> list[np.ndarray]:
        runs.append((cases[0].variant, sanitizer))
        return run_on_cpu(cases, Sanitizer.NONE, folder)

    monkeypatch.setattr(run, "run_on_cpu", without_sanitizer)  # compiles in less time
    assert check_text(EXCHANGED.replace(old, new) if old else EXCHANGED) == code
    out = " ".join(capsys.readouterr().out.split())
    guess = "only right if blockIdx.x counts rows of C"
    assert (guess in out) == (code == 0)
    assert len({*runs}) == len(runs), "a sanitizer ran the same guess twice"
    assert runs[-1][1] is RUN_LAST[code]
    advice = "a guess above may be wrong, and not the source: describe the function"
    assert (advice in out.partition("fault: ")[0].partition("wrong: ")[0]) == (code == FAULTY)


def test_no_other_guess_is_tried_for_a_kernel_that_hangs(
    check_text: Callable[[str], int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = []

    def hang(_cases: object, sanitizer: Sanitizer, _folder: Path) -> None:
        runs.append(sanitizer)
        raise KernelFaultError("fault: hung: no progress within 60 s; killed")

    monkeypatch.setattr(run, "run_on_cpu", hang)
    assert check_text(EXCHANGED) == FAULTY
    assert len(runs) == len((Sanitizer.ADDRESS, Sanitizer.THREAD))
    assert "a guess above may be wrong" in capsys.readouterr().out


def test_elements_that_no_precision_has_are_not_called_wrong(
    check_text: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    text = "__global__ void f(const half* A, const half* B, float* C, int M, int N, int K) {}"
    assert check_text(text) == NOT_RUN
    assert "operands of __half and a C of float, only with a C of __half" in capsys.readouterr().out


@pytest.mark.parametrize(("start", "code"), [("bias[x]", NOT_RUN), ("bias ? bias[x] : 0", 0)])
def test_a_source_that_reads_an_array_that_the_operation_lacks_is_not_called_wrong(
    start: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.cu").write_text(
        "__global__ void mine(const float* A, const float* B, const float* bias, float* C, "
        "int M, int N, int K) {\n"
        "  int y = blockIdx.y * 16 + threadIdx.y, x = blockIdx.x * 16 + threadIdx.x;\n"
        f"  if (y >= M || x >= N) return;\n  float sum = {start};\n"
        "  for (int k = 0; k < K; ++k) sum += A[y * K + k] * B[k * N + x];\n"
        "  C[y * N + x] = sum;\n}\n"
    )
    assert check(tmp_path / "mine.cu") == code
    says = "null is passed for bias, and the source uses it; select another --op"
    assert (says in capsys.readouterr().out) == (code == NOT_RUN)


BIAS = """
__global__ void mine(const float* A, const float* B, const float* bias, float* C,
                     int M, int N, int K) {
  int y = blockIdx.y * 16 + threadIdx.y, x = blockIdx.x * 16 + threadIdx.x;
  if (y >= M || x >= N) return;
  float sum = bias[x];
  for (int k = 0; k < K; ++k) sum += A[y * K + k] * B[x * K + k];
  C[y * N + x] = sum;
}
"""
PRODUCT = """
__global__ void mine(const float* A, const float* B, float* C, int M, int N, int K) {
  int y = blockIdx.y * 16 + threadIdx.y, x = blockIdx.x * 16 + threadIdx.x;
  if (y >= M || x >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[y * K + k] * B[k * N + x];
  C[y * N + x] = sum;
}
void run(const float* A, const float* B, float* C, int M, int N, int K) {
  mine<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(A, B, C, M, N, K);
}
"""
MANY = """
__global__ void many(const float* A, const float* B, float* C, int M, int N, int K) {
  int y = blockIdx.y * 16 + threadIdx.y, x = blockIdx.x * 16 + threadIdx.x;
  A += blockIdx.z * M * K;
  B += blockIdx.z * K * N;
  if (y >= M || x >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[y * K + k] * B[k * N + x];
  C[(blockIdx.z * M + y) * N + x] = sum;
}
void run(const float* A, const float* B, float* C, int batch, int M, int N, int K) {
  many<<<dim3((N + 15) / 16, (M + 15) / 16, batch), dim3(16, 16)>>>(A, B, C, M, N, K);
}
"""


@pytest.mark.parametrize(
    ("op", "text", "old", "new"),
    [
        ("gemm", PRODUCT, "(N + 15)", "(K + 15)"),
        pytest.param("gemm", PRODUCT, "(M + 15)", "(K + 15)", marks=pytest.mark.exhaustive),
        pytest.param(
            "gemm_bias", BIAS, "A[y * K + k]", "A[y * N + k]", marks=pytest.mark.exhaustive
        ),
        ("gemm_bias", BIAS, "bias[x]", "bias[y]"),
        ("gemm_batched", MANY, "A += blockIdx.z * M * K;", "A += blockIdx.z * M * N;"),
        pytest.param(
            "gemm_batched", MANY, "A[y * K + k]", "A[y * N + k]", marks=pytest.mark.exhaustive
        ),
    ],
)
def test_an_extent_in_place_of_another_is_a_fault_in_every_operation(
    op: str, text: str, old: str, new: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.cu").write_text(text)
    assert run_check(str(tmp_path / "mine.cu"), None, op, None, None) == 0, capsys.readouterr().out
    assert text.count(old) == 1
    (tmp_path / "mine.cu").write_text(text.replace(old, new))
    assert run_check(str(tmp_path / "mine.cu"), None, op, None, None) == FAULTY


def test_each_function_on_structures_is_checked_by_itself(
    check_text: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    loop = "for (int k = 0; k < A.width; ++k) sum += A.p[y * A.width + k] * B.p[k * B.width + x];"
    sums = {"first": f"if (y < C.height && x < C.width) {loop}", "second": "sum = 7;"}
    text = "struct Matrix { int width; int height; float* p; };\n" + "".join(
        f"__global__ void {name}(Matrix A, Matrix B, Matrix C) {{\n"
        "  int y = blockIdx.y * 16 + threadIdx.y, x = blockIdx.x * 16 + threadIdx.x;\n"
        f"  float sum = 0; {code}\n"
        "  if (y < C.height && x < C.width) C.p[y * C.width + x] = sum;\n}\n"
        f"void run_{name}(Matrix A, Matrix B, Matrix C) {{\n"
        "  dim3 grid((C.width + 15) / 16, (C.height + 15) / 16);\n"
        f"  {name}<<<grid, dim3(16, 16)>>>(A, B, C);\n}}\n"
        for name, code in sums.items()
    )
    assert check_text(text) == FAULTY
    first, second = capsys.readouterr().out.split("\nsecond\n")
    assert "right and clean" in first
    assert "elements are wrong" in second


def test_functions_of_two_namespaces_are_checked_each_by_itself(
    check_text: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    loop = "for (int k = 0; k < K; ++k) sum += A[y * K + k] * B[k * N + x];"
    sums = {"wrong": "sum = 7;", "right": loop}
    text = "".join(
        f"namespace {name} {{\n__global__ void gemm(const float* A, const float* B, float* C, "
        "int M, int N, int K) {\n"
        "  int y = blockIdx.y * 16 + threadIdx.y, x = blockIdx.x * 16 + threadIdx.x;\n"
        "  if (y >= M || x >= N) return;\n"
        f"  float sum = 0; {code}\n  C[y * N + x] = sum;\n}}\n}}\n"
        for name, code in sums.items()
    )
    assert check_text(text) == FAULTY
    wrong, right = capsys.readouterr().out.split("\nright::gemm\n")
    assert "elements are wrong" in wrong
    assert "right and clean" in right


@pytest.mark.parametrize(
    ("members", "has_one_array"),
    [
        ("int width, height; float *p;", True),
        ("int width, height; float* p;", True),
        ("float *p; int width, height;", True),
        ("int width, height; float *p, *transposed;", False),
    ],
)
def test_all_members_of_a_structure_are_read(
    members: str, has_one_array: bool, tmp_path: Path
) -> None:
    text = (
        f"struct Matrix {{ {members} }};\n__global__ void k(Matrix A, Matrix B, Matrix C) {{}}\n"
        "void run(Matrix A, Matrix B, Matrix C) { k<<<1, 1>>>(A, B, C); }\n"
    )
    wrapper = function_on_arrays(tmp_path / "mine.cu", text, "run", tmp_path / "wrapper.cu")
    assert bool(wrapper) == has_one_array


def test_only_one_of_two_functions_of_a_name_is_called_right(
    check_text: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    text = "".join(
        f"__global__ void sums(const {kind}* A, const {kind}* B, {kind}* C, "
        "int M, int N, int K) {\n"
        "  int y = blockIdx.y * 16 + threadIdx.y, x = blockIdx.x * 16 + threadIdx.x;\n"
        "  if (y >= M || x >= N) return;\n"
        f"  {kind} sum = {start};\n"
        "  for (int k = 0; k < K; ++k) sum += A[y * K + k] * B[k * N + x];\n"
        "  C[y * N + x] = sum;\n}\n"
        for kind, start in (("float", 1), ("double", 0))
    )
    assert check_text(text) == 0
    out = capsys.readouterr().out
    assert out.count("right and clean") == 1
    assert "not checked: another function of the source has the same name" in out


def test_a_failed_assertion_is_a_fault_with_its_condition_and_its_line(
    check_text: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "#include <cassert>\n"
        "__global__ void product(int n, const float* A, const float* B, float* C) {\n"
        "  assert(n % 2 == 0);\n"
        "}\n"
    )
    assert check_text(text) == FAULTY
    assert "fault: assertion failed: n % 2 == 0\nmine.cu:3\n" in capsys.readouterr().out


def test_the_files_are_there() -> None:
    assert (len(FILES), len(FAULTS)) == (30, 23)
