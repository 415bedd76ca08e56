"""Compiling an instance of a kernel: the cache of compilations, its keys, and error messages."""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpubench.backends.cuda import compile as module
from gpubench.backends.cuda import nvcc
from gpubench.backends.cuda.compile import compile_instance, parse_resources
from gpubench.errors import CompileError
from gpubench.model import Config, Resources
from gpubench.plan.registry import of_op


def test_instances_are_written_as_cplusplus_writes_them() -> None:
    shared_tile = of_op("gemm")["shared_tile"]
    assert shared_tile.instance(Config.parse("16"), "float32") == "shared_tile<float, 16>"
    assert shared_tile.instance(Config.parse("128x64x8/8x4/s3"), "int32") == (
        "shared_tile<int, 128, 64, 8, 8, 4, 3>"
    )
    assert shared_tile.instance(Config.parse("16"), "bfloat16") == "shared_tile<__nv_bfloat16, 16>"


# ---- the cache


SOURCE = """
template <typename Scalar, int TILE>
__global__ void twice(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  C[threadIdx.x] = TILE * A[threadIdx.x];
}
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source of a small kernel, with an empty cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "twice.cu"
    path.write_text(SOURCE)
    return path


def cache_files(source: Path) -> list[Path]:
    return sorted((source.parent / "cache").rglob("cubin/*"))


def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    really = module._compile

    def counted(
        text: str, path: Path, expressions: Sequence[str], architecture: str, *more: Any
    ) -> Any:
        done.append(f"{', '.join(expressions)} {architecture}")
        return really(text, path, expressions, architecture, *more)

    monkeypatch.setattr(module, "_compile", counted)
    return done


def test_a_compilation_is_kept_on_disk(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = compilations(monkeypatch)
    first = compile_instance(source, "twice<float, 2>", "sm_90")
    assert len(cache_files(source)) == 1
    assert compile_instance(source, "twice<float, 2>", "sm_90") == first
    assert done == ["twice<float, 2> sm_90"]
    (file,) = cache_files(source)
    file.write_bytes(file.read_bytes()[:-1])
    assert compile_instance(source, "twice<float, 2>", "sm_90") == first
    assert len(done) == 2


def test_each_input_compiles_anew(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = compilations(monkeypatch)
    compile_instance(source, "twice<float, 2>", "sm_90")
    compile_instance(source, "twice<float, 3>", "sm_90")
    compile_instance(source, "twice<double, 2>", "sm_90")
    compile_instance(source, "twice<float, 2>", "sm_80")
    compile_instance(source, "twice<float, 2>", "sm_90", ("-lineinfo",))
    source.write_text(SOURCE + "// changed\n")
    compile_instance(source, "twice<float, 2>", "sm_90")
    monkeypatch.setattr(module, "OPTIONS", (*module.OPTIONS, "--use_fast_math"))
    compile_instance(source, "twice<float, 2>", "sm_90")
    monkeypatch.setattr(module, "nvrtc_version", lambda: (99, 0))
    compile_instance(source, "twice<float, 2>", "sm_90")
    assert len(done) == len(cache_files(source)) == 8


def test_a_kernel_compiles_though_the_cache_cannot_be_written(source: Path) -> None:
    (source.parent / "cache").write_text("a file where the folder should be")
    assert compile_instance(source, "twice<float, 2>", "sm_90").resources.registers > 0


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_a_kernel_compiles_though_its_cache_file_is_no_regular_file(
    source: Path, put: Callable[[Path], None]
) -> None:
    good = compile_instance(source, "twice<float, 2>", "sm_90")
    (file,) = cache_files(source)
    file.unlink()
    put(file)
    assert compile_instance(source, "twice<float, 2>", "sm_90") == good
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_a_changed_include_compiles_anew(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = compilations(monkeypatch)
    factor = source.with_name("factor.cuh")
    source.write_text('#include "factor.cuh"\n' + SOURCE.replace("TILE *", "FACTOR * TILE *"))
    for value in (2, 3, 2):
        factor.write_text(f"#define FACTOR {value}\n")
        compile_instance(source, "twice<float, 2>", "sm_90")
    assert len(done) == len(cache_files(source)) == 2


def test_another_text_in_place_of_a_header_makes_another_compilation(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.write_text("#include <cfloat>\n" + SOURCE.replace("TILE * A", "FLT_DIG * A"))
    compile_instance(source, "twice<float, 2>", "sm_90")
    changed = {"cfloat": "#define FLT_DIG 7\n"}
    monkeypatch.setattr(module, "HEADERS", {**module.HEADERS, **changed})
    compile_instance(source, "twice<float, 2>", "sm_90")
    assert len(cache_files(source)) == 2


def test_threads_may_compile_the_same_instance_at_once(source: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(
            lambda _: compile_instance(source, "twice<float, 2>", "sm_90"), range(8)
        )
    assert all(other == first for other in others)
    assert len(cache_files(source)) == 1
    assert [p.name for p in cache_files(source)[0].parent.iterdir()] == [
        cache_files(source)[0].name
    ]


# ---- what does not compile


BROKEN = {
    "syntax": (SOURCE.replace(";", ""), "twice<float, 2>", "expected a"),
    "no kernel": (SOURCE, "thrice<float, 2>", "thrice"),
    "shared memory": (
        SOURCE.replace(
            "C[", "__shared__ Scalar big[99999]; big[M] = A[N]; __syncthreads(); C[K] = big[0]; C[",
        ),
        "twice<float, 2>",
        "uses too much shared data",
    ),
}  # fmt: skip


def test_the_first_error_is_reported(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "find", lambda: None)  # nvcc would report the same errors
    for name, (text, expression, message) in BROKEN.items():
        source.write_text(text)
        with pytest.raises(CompileError) as caught:
            compile_instance(source, expression, "sm_90")
        error = str(caught.value)
        assert error.startswith(f"{expression} for sm_90: "), name
        assert "error" in error, name
        assert message in error, name
        assert len(error.splitlines()) == 1, name
        assert cache_files(source) == [], name


def test_an_unknown_architecture_is_a_compile_error(source: Path) -> None:
    with pytest.raises(CompileError, match="sm_1"):
        compile_instance(source, "twice<float, 2>", "sm_1")


def test_without_nvrtc_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    module._nvrtc.cache_clear()
    try:
        with pytest.raises(CompileError, match="NVRTC"):
            module._nvrtc()
    finally:
        module._nvrtc.cache_clear()


def test_a_kernel_without_the_compilers_report_is_an_error() -> None:
    # A cubin from NVRTC's cache has no report. With --no-cache, there is always a report.
    with pytest.raises(CompileError, match="did not report the kernel's registers"):
        parse_resources("")


def test_the_compilers_report_is_read() -> None:
    log = (
        "ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90'\n"
        "ptxas info    : Function properties for _Z1kPf\n"
        "    440 bytes stack frame, 736 bytes spill stores, 900 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers, 8192 bytes smem, 556 bytes cmem[0]\n"
    )
    assert parse_resources(log) == Resources(
        registers=255, local_bytes=440, spill_bytes=736, shared_bytes=8192
    )
