"""Sources of other people, with headers and host code; nvcc compiles what NVRTC cannot."""

from pathlib import Path

import pytest

from gpubench.backends.cuda import compile as module
from gpubench.backends.cuda import nvcc
from gpubench.backends.cuda.compile import NVCC, compile_instance
from gpubench.backends.cuda.driver import kernel_arguments
from gpubench.backends.cuda.nvcc import entry_symbol
from gpubench.errors import CompileError
from gpubench.model import Config, CudaVariant, Problem
from gpubench.on_cpu.case import NULL_POINTER, Case, _arguments

DEVICE_CODE = """
#include <cstdint>
#include <float.h>
#include <limits>
#include <cuda_fp16.h>
__global__ void lowest(const half* A, float* C, uint32_t n) {
  C[n] = __half2float(A[n]) < 0 ? -FLT_MAX : std::numeric_limits<float>::infinity();
}
"""

HOST_CODE = """
#include <cstdio>
#include <fstream>
template <typename T, int N> __global__ void scale(T* C) { C[threadIdx.x] *= N; }
void run(float* C) { scale<float, 2><<<1, 32>>>(C); }
int main() { std::printf("never called"); }
"""

PROBLEM = Problem(op="gemm", m=3, n=5, k=7, dtype="float32")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with host code, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "host code.cu"
    path.write_text(HOST_CODE)
    return path


def test_nvrtc_finds_the_toolkits_headers_and_the_note_names_the_stand_ins(source: Path) -> None:
    source.write_text(DEVICE_CODE)
    compiled = compile_instance(source, "lowest", "sm_90")
    assert compiled.resources.registers
    assert compiled.note == "NVRTC read gpubench's replacements of cstdint, float.h, limits"


def test_nvcc_compiles_what_nvrtc_cannot(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_instance(source, "scale<float, 3>", "sm_90")
    assert compiled.symbol == "_Z5scaleIfLi3EEvPT_"
    assert compiled.note.startswith(f"compiled by {nvcc.version()}, because NVRTC reports: ")
    assert compiled.seconds > 0
    monkeypatch.setattr(nvcc, "compile_kernel", None)
    assert compile_instance(source, "scale<float, 3>", "sm_90") == compiled
    monkeypatch.setattr(nvcc, "find", lambda: None)
    with pytest.raises(CompileError, match="fstream"):
        compile_instance(source, "scale<float, 3>", "sm_90")


def test_the_description_selects_nvcc_and_its_options_and_errors_are_nvccs(source: Path) -> None:
    source.write_text("__global__ void scale(float* C) { *C = FACTOR; }")
    variant = CudaVariant(
        idea="of a test", kernel="scale", grid=1, block=1, path=source, compiler="nvcc",
        compile_options=("-DFACTOR=2", "-std=c++20"), signature="float* C",
    )  # fmt: skip
    options = variant.options(Config(), "float32")
    assert options[0] == NVCC
    expression = variant.instance(Config(), "float32")
    assert compile_instance(source, expression, "sm_90", options).note.startswith(
        "compiled by nvcc"
    )
    with pytest.raises(CompileError, match=r'for sm_90: .*"FACTOR" is undefined'):
        compile_instance(source, expression, "sm_90", options[:1])


def test_device_code_is_not_compiled_twice(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_by_nvcc", None)
    source.write_text("__global__ void scale(float* C) { *C = factor; }")
    with pytest.raises(CompileError, match="factor"):
        compile_instance(source, "scale", "sm_90")


@pytest.mark.parametrize(
    ("marker", "symbol"),
    [
        ("_Z5sgemmIfLi32ELj8EEvPKT_PS1_iEEEvv", "_Z5sgemmIfLi32ELj8EEvPKT_PS0_i"),
        ("_Z5plainPdEEEvv", "_Z5plainPd"),
        ("_Z3extPfEEEvv", "ext"),
        ("_ZN36_GLOBAL__N__ca0464ff_4_w_cu_acc5a52f6hiddenEPfEEEvv",
         "_ZN36_GLOBAL__N__ca0464ff_4_w_cu_acc5a52f6hiddenEPf"),
    ],
)  # fmt: skip
def test_the_entry_is_found_among_overloads_and_templates(marker: str, symbol: str) -> None:
    symbols = (
        "_ZN36_GLOBAL__N__ca0464ff_4_w_cu_acc5a52f6hiddenEPf", f"_Z14gpubench_entryIXadL{marker}",
        "_Z5sgemmI6__halfLi32ELj8EEvPKT_PS1_i", "_Z5sgemmIfLi32ELj8EEvPKT_PS0_i", "ext",
        "_Z5plainPd", "_Z5plainPf",
    )  # fmt: skip
    log = "".join(f"Compiling entry function '{name}' for 'sm_90'\n" for name in symbols)
    assert entry_symbol(log, "any") == symbol
    others = log.replace(f"'{symbol}'", "'_Z5otherPf'")
    with pytest.raises(CompileError, match="compiled no kernel of the name"):
        entry_symbol(others, "any")


@pytest.mark.parametrize(
    "error",
    [
        'a.cu(9): error: identifier "b" is undefined',
        "a.cu(9): error #20014-D: calling a __host__ function",
        "a.cu:9:10: fatal error: none.h: No such file or directory",
        "ptxas error   : Entry function 'f' uses too much shared data",
        "nvcc fatal   : Unsupported gpu architecture 'compute_30'",
        "/usr/bin/ld: cannot find -lnone",
        "a.o: undefined reference to `f'",
    ],
)
def test_a_warning_about_a_name_with_error_is_no_error(error: str) -> None:
    warning = 'a.cu(5): warning #177-D: function "check_error" was declared but never referenced'
    log = f"{warning}\n  int error = fatal;\n      ^\n\n{error}\na.cu(11): error: another\n"
    assert nvcc.first_error(log) == error


def test_another_text_in_place_of_a_header_makes_another_compilation(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.write_text("#include <torch/types.h>\n")
    monkeypatch.setattr(nvcc, "STAND_INS", tmp_path / "stand_ins")
    header = tmp_path / "stand_ins" / "torch" / "types.h"
    header.parent.mkdir(parents=True)
    files = set()
    for text in ("int one;", "int two;"):
        header.write_text(text)
        files.add(module._file(source, (), ()))
    assert len(files) == 2


def test_launches_for_a_dtype_of_torch_compile_without_torch(source: Path) -> None:
    source.write_text("""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
template <typename T> __global__ void scale(T* C) { *C = 2; }
void run(torch::Tensor c) {
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(c.scalar_type(), "scale", ([&] {
    auto stream = at::cuda::getCurrentCUDAStream();
    scale<scalar_t><<<c.stride(0), 1, 0, stream>>>(c.data_ptr<scalar_t>());
  }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
""")
    assert compile_instance(source, "scale<float>", "sm_90", (NVCC,)).note


def test_without_nvcc_the_error_names_it(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc.version.cache_clear()
    monkeypatch.setattr(nvcc, "find", lambda: None)
    with pytest.raises(CompileError, match=r"nvcc is not available.*\[nvcc\].*CUDA_HOME"):
        compile_instance(source, "scale<float, 3>", "sm_90", (NVCC,))


def test_a_pointer_may_be_null() -> None:
    variant = CudaVariant(
        idea="of a test", kernel="k", grid=1, block=1, op="gemm",
        signature="float* out=C, const float* inp=A, const float* bias=null, size_t C=K",
    )  # fmt: skip
    launch = variant.launch(Config(), PROBLEM)
    arguments = kernel_arguments(variant.parameters(launch), PROBLEM, launch)((1, 2, 3))
    assert [argument.value for argument in arguments[:3]] == [3, 1, None]
    case = Case(variant=variant, tile=Config(), problem=PROBLEM)
    assert _arguments(case, launch, workspace=False) == ([2, 0, NULL_POINTER], [7])
