"""The translation unit for the CPU has the kernels unchanged, whatever else the file has."""

from pathlib import Path

from gpubench.on_cpu.unit import translation_unit

FILE = """\
#include <vector>
#include "helper.h"
// void commented() { cudaMalloc(); }
__device__ float twice(float x) { return 2 * x; }
float of_host(float x) { return x; }
static int up(int a, int b) { return (a + b - 1) / b; }
template <int T> __global__ void k(float* A) { A[0] = twice(T); const char* s = "}"; }
extern "C" void run(float* A, int n) {
  dim3 gridDim(up(n, 32));
  k<8><<<gridDim,
         32>>>(A);
}
int main() { std::vector<float> v; k<4><<<1, 2>>>(v.data()); }
"""


def unit(text: str = FILE, entry: str = "", folder: Path = Path()) -> str:
    return translation_unit(folder / "x.cu", text, [], entry)


def test_only_host_code_that_a_kernel_needs_is_kept_and_lines_keep_their_numbers() -> None:
    lines = unit().partition("#line 1")[2].splitlines()
    assert "twice(T)" in lines[7]
    for name in ("of_host(", "up(", "run(", "main(", "#include"):
        assert not any(name in line for line in lines)


def test_declared_functions_on_tensors_are_left_out() -> None:
    declared = "void elsewhere(torch::Tensor a,\n               torch::Tensor b);\n"
    text = unit(declared + FILE, entry="run")
    assert "torch" not in text
    assert "twice(T)" in text.partition("#line 1")[2].splitlines()[9]


def test_the_entry_is_kept_with_what_it_calls_and_its_launch_becomes_cpp() -> None:
    text = unit(entry="run")
    assert "static int up(int a" in text
    assert "dim3 gridDim_of_host(up(n, 32));" in text
    assert "::on_cpu::Configured(gridDim_of_host,\n         32) << [&] { k<8>(A); };" in text
    assert "of_host(float x)" not in text
    assert "main" not in text


def test_a_function_that_only_a_macro_calls_is_kept() -> None:
    macro = "#define CHECK(x) \\\n  on_error((x), __LINE__)\nvoid on_error(int code, int line) {}\n"
    assert "void on_error" in unit(macro + "void run() { CHECK(f<<<1, 1>>>()); }", entry="run")
    assert "void on_error" not in unit(macro + "void run() { f<<<1, 1>>>(); }", entry="run")


def test_headers_of_the_system_come_before_the_macros_and_a_missing_one_is_named() -> None:
    before, _, _ = unit().partition('#include "cuda.h"')
    assert "__has_include(<vector>)" in before
    assert '#pragma message "gpubench: missing header helper.h"' in before


def test_a_file_beside_it_with_a_kernel_is_read_and_other_files_are_left_to_the_compiler(
    tmp_path: Path,
) -> None:
    kernel = "extern __shared__ float s[];\n__global__ void a() {}\n"
    (folder := tmp_path / "lib").mkdir()
    (folder / "kernel.cuh").write_text(f'{kernel}#include "beside.h"\n')
    for header in (tmp_path / "plain.h", folder / "beside.h"):
        header.write_text("int plain;\n")
    source = '#include "lib/kernel.cuh"\n#include "plain.h"\n__global__ void b() {}\n'
    text = unit(source, folder=tmp_path)
    assert "FILE_DYNAMIC_SHARED(float, s);\n__global__ void a() {}" in text
    assert f'#include "{folder / "beside.h"}"' in text
    assert f'#line 2 "{tmp_path / "x.cu"}"\n#include "{tmp_path / "plain.h"}"' in text


WHOLE = """\
extern __shared__ int before[];
float used(float);
float unused(cublasHandle_t handle = nullptr);
float used(float x) { static float last = x; return last; }
__device__ float unused() { return cuda::barrier(); }
__global__ void k(float* A) { extern __shared__ half rows[][2 + 4]; A[0] = rows[0][0]; }
__global__ void other(float* A) { unused(); }
void run(float* A) { k<<<1, 1>>>(A + (int)used(1)); }
"""


def test_only_code_that_the_entry_names_is_kept_and_static_values_are_not_shared() -> None:
    text = translation_unit(Path("x.cu"), WHOLE, ["run"], "run")
    assert "static thread_local float last" in text
    assert "DYNAMIC_SHARED(half[2 + 4], rows);" in text
    assert "cuda::barrier" not in text
    assert "other" not in text
    assert "cuda::barrier" in unit(WHOLE)


def test_an_include_in_a_comment_includes_nothing(tmp_path: Path) -> None:
    (tmp_path / "kernel.cuh").write_text("__global__ void a() {}\n")
    text = unit('/*\n#include "kernel.cuh"\n*/\n#include "kernel.cuh"\n', folder=tmp_path)
    before, _, after = text.partition("*/")
    assert "__global__" not in before
    assert "__global__ void a()" in after
