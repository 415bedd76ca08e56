"""Host functions that launch kernels are compiled to a library, called, and recorded."""

import ctypes
import pickle
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gpubench.backends.cuda import nvcc
from gpubench.backends.cuda.host_function import HostFunction, note
from gpubench.backends.cuda.nvcc import WRAPPED
from gpubench.cli import app
from gpubench.errors import CompileError, LaunchError, UsageError
from gpubench.model import HostVariant, Launches, Problem, Scope, Timer
from gpubench.plan.descriptor import load
from gpubench.plan.sweep import Sweep, plan

SOURCE = """
#include <cuda_fp16.h>

namespace mine {
template <typename T, int EDGE> __global__ void scale(T* C, T factor) { C[threadIdx.x] *= factor; }

template <typename T, int EDGE>
static void run(size_t m, const T* alpha, double beta, T* C, void* handle, cudaStream_t stream) {
  C[0] = T(float(m) * EDGE);
  C[1] = *alpha;
  C[2] = T(beta);
  C[3] = T(handle == nullptr);
  C[4] = T(reinterpret_cast<size_t>(stream) == 80);
  scale<T, EDGE><<<1, 32>>>(C, T(2));
  cudaDeviceSynchronize();
}
}  // namespace mine

int main() { return 1; }
"""

C_SOURCE = """
void run(long m, float alpha, float *C) { C[0] = m * alpha; }
"""

DESCRIPTION = """
from gpubench.model import HostVariant

VARIANT = HostVariant(
    idea="of a test",
    file="{file}",
    entry="{entry}",
    dtypes=("float16", "float32"),
    signature="{signature}",
    {more}
)
"""

SIGNATURE = (
    "size_t m, const Scalar* alpha=3, double beta=-0.5, Scalar* C, void* handle=null, "
    "cudaStream_t stream"
)

PROBLEM = Problem(op="gemm", m=3, n=5, k=7, dtype="float16")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for `--kernels` with one file. The tests share its cache."""
    folder = tmp_path_factory.mktemp("own folder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        (folder / "mine.cu").write_text(SOURCE)
        yield folder


def described(
    folder: Path, name: str = "mine", entry: str = "mine::run<{scalar}, 16>",
    signature: str = SIGNATURE, more: str = "", file: str = "mine.cu",
) -> HostVariant:  # fmt: skip
    path = folder / f"{name}.py"
    path.write_text(DESCRIPTION.format(file=file, entry=entry, signature=signature, more=more))
    variant = load(path, "gemm")
    assert isinstance(variant, HostVariant)
    return variant


def test_arguments_pass_and_calls_are_noted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variant = described(folder)
    result = np.zeros(8, np.float16)
    function = HostFunction(variant, None, "float16", "sm_90", 80)
    with pytest.raises(LaunchError, match="the CUDA runtime reports cuda"):  # without a GPU
        function.watch(function.bind(PROBLEM, (1, 2, result.ctypes.data)))
    assert result.tolist() == [48, 3, -0.5, 1, 1, 0, 0, 0]
    recorded = function._library.gpubench_recorded().decode().splitlines()
    assert recorded == ["launch ?", "cudaDeviceSynchronize"]
    monkeypatch.setattr(nvcc, "run", lambda _arguments: pytest.fail("it is kept in the cache"))
    nvcc.compile_library(variant, None, "float16", "sm_90")


def test_the_note_names_kernels_as_cpp_does_and_counts_calls() -> None:
    kernel = "launch _ZN4mine5scaleI6__halfLi16EEEvPT_S2_"
    assert note([kernel, "cudaMalloc", kernel, "cudaFree"]) == (
        "each call launches mine::scale<__half, 16> (2 times) and calls cudaMalloc, cudaFree"
    )
    unreadable = "launch _ZN7cutlass13device_kernelIXbadEEvNT_6ParamsE"
    assert note([unreadable]) == "each call launches cutlass::device_kernel"
    long = f"launch _Z4gemmI{'6__half' * 20}EvT_"
    assert note([long, long]) == "each call launches gemm<…> (2 times)"
    assert note([]) == "each call launches no kernel of its file"
    assert {"__cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMalloc"} < set(WRAPPED)


def test_a_prebuilt_library_without_the_function_is_an_error(folder: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("g++")
    assert compiler, "no C compiler"
    source = folder / "prebuilt.c"
    source.write_text(C_SOURCE)
    library = folder / "prebuilt.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    for entry, with_half, message in (
        ("other", "float alpha=1", "prebuilt.so has no C function 'other'"),
        ("run", "half alpha=1", "a C function cannot take a half by value"),
    ):
        variant = described(folder, "prebuilt", entry, with_half, file="prebuilt.so")
        with pytest.raises(CompileError, match=message):
            HostFunction(variant, None, "float32", "sm_90", 0).bind(PROBLEM, (1, 2, 3))
    (folder / "broken.so").write_bytes(b"no library")
    variant = described(folder, "broken", "run", file="broken.so")
    with pytest.raises(CompileError, match=r"broken.so cannot be loaded: .*"):
        HostFunction(variant, None, "float32", "sm_90", 0)


def test_the_compilers_error_names_the_function(folder: Path) -> None:
    variant = described(folder, "absent", "mine::absent")
    with pytest.raises(CompileError, match=r'mine::absent for sm_90a: .*has no member "absent"'):
        nvcc.compile_library(variant, None, "float32", "sm_90")


def test_check_compiles_a_host_function_and_says_why_it_does_not_run_it(folder: Path) -> None:
    described(folder, "checked", "mine::run<{scalar}, 16>")
    ended = CliRunner().invoke(app, ["check", "checked", "--kernels", str(folder)])
    assert ended.exit_code == 3
    assert "compiled for sm_90, float16: " in ended.output
    assert "not run on the CPU: " in ended.output
    assert "; sweep checked on a GPU" in ended.output


def test_a_call_that_waits_is_not_alone(folder: Path) -> None:
    (folder / "gemm").mkdir(exist_ok=True)
    described(folder / "gemm", "waiting", more="waits=True,", file="../mine.cu")
    sweep = Sweep(
        kernels=folder, variants=("waiting", "cublas"), sizes=((8, 8, 8),),
        scopes=tuple(Scope),
    )  # fmt: skip
    planned = [(point.variant.name, point.scope, point.launches) for point in plan(sweep, "cuda")]
    assert planned == [
        ("waiting", Scope.KERNEL, Launches.WAITED),
        ("waiting", Scope.END_TO_END, Launches.ALONE),
        ("cublas", Scope.KERNEL, Launches.ALONE),
        ("cublas", Scope.END_TO_END, Launches.ALONE),
    ]
    cupti = Sweep(kernels=folder, variants=("waiting",), timer=Timer.CUPTI)
    assert [point.launches for point in plan(cupti, "cuda")] == [Launches.ALONE]


def test_the_description_is_checked_and_pickled_by_its_file(folder: Path) -> None:
    variant = described(folder, "linked", more='compile_options=("-Iinclude", "mine.cu"),')
    assert pickle.loads(pickle.dumps(variant)) is variant  # noqa: S301 # the test made these bytes
    assert variant.options(None, "float32") == (f"-I{folder}/include", f"{folder}/mine.cu")
    assert variant.sources == (variant.path, folder / "mine.cu")
    with pytest.raises(UsageError, match=r"signature: float q: write q=1, or one of"):
        described(folder, "unknown", signature="float q")
    with pytest.raises(UsageError, match=r"signature: const float\* q: write q=A, or one of"):
        described(folder, "unknown", signature="const float* q")
    with pytest.raises(UsageError, match=r"entry must be the name of a host function"):
        described(folder, "unknown", entry="")


def test_addresses_of_numbers_outlive_the_binding(folder: Path) -> None:
    variant = described(folder, "address", signature="const double* alpha=2")
    from gpubench.backends.cuda.driver import kernel_arguments

    (argument,) = kernel_arguments(variant.parameters(), PROBLEM)((0,))
    assert ctypes.cast(argument, ctypes.POINTER(ctypes.c_double))[0] == 2
