"""`gpubench check`: right kernels pass, wrong ones are caught, without a GPU."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import variant

from gpubench.commands.check import run
from gpubench.commands.check.cases import all_cases
from gpubench.commands.check.run import FAULTY, NOT_RUN, run_check
from gpubench.commands.check.wrong import why_wrong
from gpubench.errors import CompileError, UsageError
from gpubench.kernel_options import find_variant
from gpubench.model import CudaVariant, Problem
from gpubench.on_cpu import run as on_cpu
from gpubench.on_cpu.case import Case, expected
from gpubench.on_cpu.fault import KernelFaultError
from gpubench.on_cpu.run import STALLED_S, Sanitizer, run_on_cpu
from gpubench.plan.descriptor import load

WRONG = Path(__file__).parent.parent.parent / "wrong" / "gemm"

TILED = """
from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(idea="of a test", grid=("N/edge", "M/edge"), block=("edge", "edge"),
    tiles=edges(1, 32, because="of a test"), dtypes=("float32",), reuse=lambda tile: (1, 1))
"""

CALL = """
import os

from gpubench.model import CallVariant

def build(tile, dtype):
    def call(a, b, c):
        {body}
    return call

VARIANT = CallVariant(idea="of a test", runs_on="{on}", build=build, baseline="")
"""


def check(name: str, kernels: Path | None = None, tiles: str | None = None) -> int:
    return run_check(name, kernels, None, tiles, None)


def own(folder: Path, body: str, on: str = "cpu") -> Path:
    (folder / "mine.py").write_text(CALL.format(body=body, on=on))
    return folder


@pytest.mark.parametrize(
    ("count", "are"), [(1, "1 of 16 elements is"), (2, "2 of 16 elements are")]
)
def test_the_number_of_wrong_elements_agrees_with_its_verb(count: int, are: str) -> None:
    output, right = np.ones(16), np.ones(16)
    output[:count] = 2
    reason = why_wrong(output, right, 0.0, variant())
    assert reason == f"{are} wrong, the first at [0]: 2.0, not 1.0"


@pytest.mark.slow
def test_a_right_kernel_is_compiled_run_and_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("shared_tile", tiles="2,3") == 0
    out = capsys.readouterr().out
    assert "compiled for sm_90, float32:" in out
    assert "shared_tile is right and clean on the CPU:\n" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.slow
def test_a_missing_barrier_is_a_fault_with_its_case_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(WRONG / "missing_barrier.cu", tmp_path)
    (tmp_path / "missing_barrier.py").write_text(TILED)
    assert check("missing_barrier", tmp_path) == FAULTY
    out = capsys.readouterr().out
    assert "fault: missing_barrier " in out
    assert "ThreadSanitizer: data race" in out
    assert "missing_barrier.cu:" in out


INT8 = """
template <typename Scalar, int EDGE>
__global__ void mine(const Scalar* A, const Scalar* B, int* C, int M, int N, int K) {
    const int row = blockIdx.y * EDGE + threadIdx.y, column = blockIdx.x * EDGE + threadIdx.x;
    if (row >= M || column >= N) return;
    int sum = 0;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[column * K + k];
    if (LIMIT) C[row * N + column] = sum;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "code", "reason"),
    [
        ("true", 0, "mine is right and clean on the CPU:"),
        ("sum > 0", FAULTY, "unchanged by the launch; does the grid cover this element?"),
    ],
)
def test_a_kernel_of_int8_is_compared_by_its_sums_in_int32(
    limit: str, code: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.cu").write_text(INT8.replace("LIMIT", limit))
    (tmp_path / "mine.py").write_text(TILED.replace("float32", "int8"))
    assert check("mine", tmp_path, tiles="4") == code
    out = capsys.readouterr().out
    assert "compiled for sm_90, int8:" in out
    assert reason in out


def test_a_source_that_does_not_compile_is_a_fault_with_the_compilers_first_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpubench.commands.new_kernel.run import write_pair

    write_pair("mine", None, None, tmp_path, force=False)
    source = tmp_path / "gemm" / "mine.cu"
    source.write_text(source.read_text().replace("{", "{ oops;", 1))
    assert check("mine", tmp_path) == FAULTY
    assert "does not compile: " in capsys.readouterr().out


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_cpu.shutil, "which", lambda _name: None)
    with pytest.raises(UsageError, match=r"g\+\+ is missing"):
        check("naive", tiles="1")


def test_a_function_of_the_cpu_is_called_at_odd_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("mine", own(tmp_path, "c[:] = a @ b")) == 0
    assert "mine is right and clean on the CPU:\n12 points" in capsys.readouterr().out


@pytest.fixture
def one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call functions at one size. The test above calls a function at all sizes."""
    monkeypatch.setattr("gpubench.commands.check.run.SIZES", ((1, 1, 1),))


@pytest.mark.usefixtures("one_size")
def test_for_a_function_that_returns_its_result_the_message_says_where_to_write_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("mine", own(tmp_path, "return a @ b")) == FAULTY
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("wrong: mine at 1 float32 and 2 more cases: ")
    assert "write into the last argument, as in c[:] = …, and not c += …; returns=True is" in line


@pytest.mark.usefixtures("one_size")
@pytest.mark.parametrize(("stated", "code"), [("returns=True", 0), ("returns=False", FAULTY)])
def test_a_function_of_the_inputs_alone_returns_its_result_where_its_description_says_so(
    stated: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (own(tmp_path, "return a @ b") / "mine.py").read_text()
    text = text.replace("call(a, b, c)", "call(a, b)").replace('baseline=""', stated)
    (tmp_path / "mine.py").write_text(text)
    assert check("mine", tmp_path) == code
    advice = "; for a function that returns its result, write returns=True"
    assert (advice in capsys.readouterr().out) == bool(code)


@pytest.mark.usefixtures("one_size")
def test_without_a_name_all_kernels_of_the_directory_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own(tmp_path, "c[:] = a @ b")
    (tmp_path / "empty.py").touch()
    assert run_check(None, tmp_path, None, None, None) == FAULTY
    out = capsys.readouterr().out
    assert "\nempty\n" in out
    assert "\nmine is right and clean on the CPU:\n" in out
    with pytest.raises(UsageError, match="name a kernel"):
        run_check(None, None, None, None, None)


@pytest.mark.usefixtures("one_size")
def test_a_function_that_cannot_be_built_is_an_error_as_in_a_sweep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    description = own(tmp_path, "pass") / "mine.py"
    description.write_text(description.read_text().replace("build(tile, dtype)", "build()"))
    assert check("mine", tmp_path) == FAULTY
    assert capsys.readouterr().out.startswith("error: mine at 1 float32 and 2 more cases: ")


@pytest.mark.parametrize("error", [CompileError, UsageError])
def test_a_fault_is_shown_also_if_the_other_sanitizer_cannot_be_used(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_under(_cases: object, sanitizer: Sanitizer, _folder: Path) -> None:
        if sanitizer is Sanitizer.THREAD:
            raise error("ThreadSanitizer cannot be used")
        raise KernelFaultError("AddressSanitizer: heap-buffer-overflow on address 0x1")

    monkeypatch.setattr(run, "_compile", lambda *_: True)
    monkeypatch.setattr(run, "run_on_cpu", run_under)
    assert check("naive", tiles="8") == FAULTY
    assert "heap-buffer-overflow" in capsys.readouterr().out


def test_tiles_that_refuse_the_usual_size_are_checked_if_no_tile_takes_it(tmp_path: Path) -> None:
    refusing = TILED.replace("dtypes=", 'refuse=lambda _, p: "big" if p.m > 99 else None, dtypes=')
    (tmp_path / "mine.py").write_text(refusing)
    (tmp_path / "mine.cu").write_text("__global__ void mine() {}")
    assert run._tiles(load(tmp_path / "mine.py", "gemm"), None)


def test_cases_whose_faults_are_not_shown_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    faults = [(f"wrong: {number}", f"reason {number % 7}") for number in range(21)]
    assert run._conclude(find_variant("naive", None, None), faults, "") == FAULTY
    assert capsys.readouterr().out.endswith("\nand 6 more cases\n")


FAULTS = {
    "1 / 0": "ZeroDivisionError: division by zero (mine.py:8)",
    "os._exit(0)": "ended by itself with exit code 0",
}


@pytest.mark.usefixtures("one_size")
@pytest.mark.parametrize("body", FAULTS)
def test_a_function_that_raises_or_ends_its_process_is_a_fault(
    body: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("mine", own(tmp_path, body)) == FAULTY
    out = capsys.readouterr().out
    assert FAULTS[body] in out
    assert "right" not in out


KERNEL = """
#include <cstdio>
#include <unistd.h>
extern "C" __global__ void mine(float* A, const float* B, float* C, int M, int N, int K) {{
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  C[row * N + col] = sum;
  {body}
}}
"""

DESCRIPTION = """
from gpubench.model import CudaVariant

VARIANT = CudaVariant(idea="of a test", kernel="mine", dtypes=("float32",),
    signature="float* A, const float* B, float* C, int M, int N, int K",
    grid=("N/8", "M/8"), block=(8, 8))
"""


def own_source(folder: Path, body: str) -> list[Case]:
    (folder / "mine.cu").write_bytes(KERNEL.format(body=body).encode("latin-1"))
    (folder / "mine.py").write_text(DESCRIPTION)
    variant = load(folder / "mine.py", "gemm")
    assert isinstance(variant, CudaVariant)
    problem = Problem(op="gemm", m=3, n=2, k=4, dtype="float32")
    return [Case(variant=variant, tile=variant.tiles.defaults[0], problem=problem)]


def test_a_kernel_with_linkage_of_c_is_run(tmp_path: Path) -> None:
    cases = own_source(tmp_path, "")
    (output,) = run_on_cpu(cases, Sanitizer.ADDRESS, tmp_path / "built" / "program")
    np.testing.assert_array_equal(output, expected(cases[0].problem))


def test_a_source_that_declares_barriers_for_editors_is_run(tmp_path: Path) -> None:
    cases = own_source(tmp_path, "if (false) { __syncthreads(); __syncwarp(); }")
    source = cases[0].variant.source
    guarded = "#ifndef __CUDACC__\nvoid __syncthreads();\nvoid __syncwarp();\n#endif\n"
    source.write_text(guarded + source.read_text())
    (output,) = run_on_cpu(cases, Sanitizer.ADDRESS, tmp_path / "built" / "program")
    np.testing.assert_array_equal(output, expected(cases[0].problem))


CUDA_FAULTS = {
    "if (row == 0) A[0] += 1;": "fault: the kernel overwrites its operand A",
    "_exit(0);": "fault: the kernel ended its process",
    "for (;;) usleep(1000);": "fault: hung: no progress within 1 s; killed",
    'fprintf(stderr, "fault: \\x1b[2J\\n"); _exit(1);': "fault: ?[2J",
}


@pytest.mark.slow
@pytest.mark.parametrize("body", CUDA_FAULTS)
def test_a_kernel_that_harms_its_process_is_a_fault(body: str, tmp_path: Path) -> None:
    cases, program = own_source(tmp_path, body), tmp_path / "built" / "program"
    # Other programs may start slowly.
    stalled_s = 1 if "hung" in CUDA_FAULTS[body] else STALLED_S
    with pytest.raises(KernelFaultError) as raised:
        run_on_cpu(cases, Sanitizer.ADDRESS, program, stalled_s=stalled_s)
    assert raised.value.finding.startswith(CUDA_FAULTS[body])


@pytest.mark.slow
def test_a_program_that_the_system_kills_is_not_run_and_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "_compile", lambda *_: True)
    own_source(tmp_path, "kill(getpid(), SIGKILL);")
    source = tmp_path / "mine.cu"
    source.write_text(f"#include <signal.h>\n{source.read_text()}")
    assert check("mine", tmp_path) == NOT_RUN
    assert "not run on the CPU: killed by the system, probably" in capsys.readouterr().out


def test_a_source_is_run_in_its_own_layout_and_in_all_that_it_takes(tmp_path: Path) -> None:
    (mine,) = own_source(tmp_path, "")
    turned = replace(mine.variant, column_major=("B",), layouts=("nn", "nt", "tn"))
    layouts = [case.problem.column_major for case in all_cases(turned)]
    assert list(dict.fromkeys(layouts)) == [("B",), (), ("A",)]


def test_the_other_functions_of_a_file_are_checked_if_one_refuses_nearly_all_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = "float s = 0; for (int k = 0; k < K; ++k) s += A[i * K + k] * B[k * N + j];"
    text = "#include <torch/extension.h>\n" + "".join(
        f"__global__ void {name}(const float* A, const float* B, float* C, int M, int N, int K) {{"
        "int i = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;"
        f"if (i < M && j < N) {{ {loop} C[i * N + j] = s; }} }}\n"
        f"void run_{name}(torch::Tensor a, torch::Tensor b, torch::Tensor c) {{"
        "const int M = a.size(0), K = a.size(1), N = b.size(1);"
        f"dim3 grid({columns}, M); {name}<<<grid, 64>>>(a.data_ptr<float>(),"
        "b.data_ptr<float>(), c.data_ptr<float>(), M, N, K); }\n"
        for name, columns in (("coarse", "N / 4096"), ("fine", "(N + 63) / 64"))
    )
    (tmp_path / "two.cu").write_text(text)
    assert check(str(tmp_path / "two.cu")) == 0
    out = capsys.readouterr().out
    assert "not checked: coarse, float32, refuses nearly all sizes, such as 77" in out
    assert "fine is right and clean" in out


def test_the_assemblers_error_is_explained_by_inline_ptx(tmp_path: Path) -> None:
    cases = own_source(tmp_path, 'asm volatile("cp.async.wait_all;");')
    with pytest.raises(CompileError, match=r"\(inline PTX, which g\+\+ does not assemble\)"):
        run_on_cpu(cases, Sanitizer.ADDRESS, tmp_path / "built" / "program")


def test_messages_of_the_compiler_in_another_encoding_are_no_traceback(tmp_path: Path) -> None:
    cases = own_source(tmp_path, '#error "\xe9\xff"')
    with pytest.raises(CompileError, match="error"):
        run_on_cpu(cases, Sanitizer.ADDRESS, tmp_path / "built" / "program")


def test_a_kernel_that_cannot_run_here_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    assert check("mine", own(tmp_path, "pass", on="cuda")) == NOT_RUN


def test_unknown_names_and_tiles_are_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'shared_tile'"):
        check("shard_tile")
    with pytest.raises(UsageError, match="--tiles: shared_tile takes edges 1 to 32"):
        check("shared_tile", tiles="33")
    with pytest.raises(UsageError, match="--arch: 'sm_1' is not an architecture that NVRTC"):
        run_check("shared_tile", None, None, None, "sm_1")
