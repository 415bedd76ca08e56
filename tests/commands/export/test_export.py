"""`gpubench export` writes a kernel, its launches, its check and a Python file, without a GPU."""

import ast
import ctypes
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpubench.backends.cuda.compile import compile_instance
from gpubench.commands.export.run import exported, run_export
from gpubench.errors import UsageError
from gpubench.hardware.architectures import example
from gpubench.model import CudaVariant, Problem
from gpubench.plan.registry import of_op

OWN = Path(__file__).parents[3] / "examples" / "own_signature"
H200 = example("sm_90")
GXX = shutil.which("g++") or "g++"

CHOSEN = {
    "shared_tile": ("32", "float32"),
    "packed_panels": ("128x256x64/16x8/s2", "float32"),
    "wgmma_mixed": ("256x192x64/s3/cluster=1x2/group=16", "bfloat16"),
    "sgemm": ("32/kernel=sgemm_shared", "float32"),
}


def kernel(name: str, op: str = "gemm") -> CudaVariant:
    variant = of_op(op, OWN if name == "sgemm" else None)[name]
    assert isinstance(variant, CudaVariant)
    return variant


def source(
    name: str, m: int = 512, n: int = 512, k: int = 512, dtype: str = "", op: str = "gemm"
) -> str:
    variant = kernel(name, op)
    tile, first = CHOSEN.get(name, (variant.tiles.default[0], variant.dtypes[0]))
    problem = Problem(op=op, m=m, n=n, k=k, dtype=dtype or first)
    return exported(variant, variant.tiles.read(tile), problem, H200)[0]


def part(text: str, start: str, end: str) -> str:
    return text.partition(f"// ---- {start} ----")[2].partition(f"// ---- {end} ----")[0]


@pytest.mark.parametrize("name", ["shared_tile", "sgemm", "wgmma"])
def test_the_kernel_in_the_file_is_the_one_that_gpubench_compiles(
    name: str, tmp_path: Path
) -> None:
    text = source(name)
    assert '#include "' not in text
    assert not re.search(r"\$\{|\$\w", text)
    assert "using namespace" not in text  # a kernel may use names of a namespace
    alone = tmp_path / f"{name}.cu"
    alone.write_text(part(text, "The kernel", "Its launch"))
    variant = kernel(name)
    tile, dtype = CHOSEN.get(name, (variant.tiles.default[0], variant.dtypes[0]))
    instance = variant.instance(variant.tiles.read(tile), dtype)
    assert instance in text
    whole, ours = (
        compile_instance(file, instance, variant.architecture("sm_90"))
        for file in (alone, variant.source)
    )
    assert whole.resources == ours.resources
    assert whole.symbol == ours.symbol


def test_launches_are_those_of_gpubench() -> None:
    text = part(source("wgmma_mixed"), "Its launch", "The check")
    variant = kernel("wgmma_mixed")
    for line in (
        "const CUtensorMap map0 = encode(9, (char*)A + 0, 512, 512, 512, 2, 128, 64, 3, 2);",
        "dim3(384, 1, 1), ",
        ", dim3(2, 1, 1), ",  # the cluster of the launch
    ):
        assert line in text
    shared = variant.launch(variant.tiles.read(CHOSEN["wgmma_mixed"][0]), Problem(
        op="gemm", m=512, n=512, k=512, dtype="bfloat16")).shared_bytes  # fmt: skip
    assert f"dim3(384, 1, 1), {shared}, dim3(" in text
    assert "together > 8" in text  # larger clusters need a permission
    assert "cudaFuncAttributeNonPortableClusterSizeAllowed, 1" in text
    two = part(source("packed_panels"), "Its launch", "The check")
    assert two.count("if (enqueue(") == 2
    assert two.count(", true, stream, ") == 1  # a programmatic dependent launch
    workspace = re.search(r"WORKSPACE_BYTES = (\d+)", two)
    assert workspace
    assert int(workspace[1]) > 4 * 512 * 512


def test_the_python_file_takes_float8_as_bytes_which_cupy_has() -> None:
    problem = Problem(op="gemm", m=512, n=512, k=512, dtype="float8_e4m3")
    variant = kernel("wgmma_bytes")
    _, python = exported(variant, variant.tiles.read(variant.tiles.default[0]), problem, H200)
    assert "DTYPES = ('uint8', 'uint8', 'bfloat16')" in python


def test_the_python_file_has_options_with_quotes() -> None:
    option = """-DTEXT="it's" """.strip()
    variant = replace(kernel("shared_tile"), compile_options=(option,))
    problem = Problem(op="gemm", m=64, n=64, k=64, dtype="float32")
    _, python = exported(variant, variant.tiles.read("32"), problem, H200)
    (line,) = (line for line in python.splitlines() if line.startswith("BUILD = "))
    build = ast.literal_eval(line.removeprefix("BUILD = "))
    assert option in shlex.split(build)


def test_an_own_signature_keeps_its_order_and_its_constants() -> None:
    text = source("sgemm")
    arguments = "(int)512, (int)512, (int)512, (float)1, (const float*)A, (const float*)B, (float)0"
    assert f"false, stream, {arguments}, (float*)C)" in text
    assert "cudaMemset(set.c, 0x00, " in text  # the kernel reads C
    assert "cudaMemset(set.c, 0xFF, " in source("shared_tile")


def checker(folder: Path, name: str, dtype: str, cpp: str, op: str = "gemm", rows: int = 5) -> Any:
    """Return the check of an exported file as a program for the CPU."""
    check = part(
        source(name, rows, 7, 9 if op == "gemm" else 1, dtype, op), "The check", "The program"
    )
    library = folder / f"{op}-{dtype}.so"
    harness = (Path(__file__).parent / "check.cpp").read_text(encoding="utf-8")
    subprocess.run(
        [GXX, "-std=c++20", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(library)],
        input=harness.replace("CHECK", check).replace("TYPE", cpp), text=True, check=True,
    )  # fmt: skip
    loaded = ctypes.CDLL(str(library))
    loaded.worst.restype = loaded.tolerance.restype = ctypes.c_double
    return lambda *arrays: (
        loaded.worst(*(array.ctypes.data_as(ctypes.c_void_p) for array in arrays)),
        loaded.tolerance(),
    )


def test_the_check_of_the_file_tells_right_from_wrong(tmp_path: Path) -> None:
    check = checker(tmp_path, "shared_tile", "float32", "float")
    rng = np.random.default_rng(1)
    a, b = (rng.random(shape).astype("f4") for shape in ((5, 9), (9, 7)))
    right = (a.astype("f8") @ b.astype("f8")).astype("f4")
    error, tolerance = check(a, b, right)
    assert error <= tolerance
    for place, value in (((0, 0), 0.0), ((4, 6), 0.0), ((2, 3), np.nan)):
        wrong = right.copy()
        wrong[place] = value
        error, tolerance = check(a, b, wrong)
        assert not error <= tolerance, place


def test_the_check_reads_more_rows_than_the_y_extent_of_a_grid_has(tmp_path: Path) -> None:
    rows = 8 * 65535 + 13
    check = checker(tmp_path, "gemv_thread", "float32", "float", "gemv", rows)
    a, x, y = np.ones((rows, 7), "f4"), np.ones(7, "f4"), np.full(rows, 7, "f4")
    error, tolerance = check(a, x, y)
    assert error <= tolerance
    y[-1] = 0
    error, _ = check(a, x, y)
    assert error > tolerance
    program = source("gemv_thread", rows, 7, 1, "float32", "gemv").partition("// ---- The program")[
        2
    ]
    assert "dim3 grid((PRODUCT.columns + 31) / 32, GRID_Y, GRID_Z);" in program
    after = program.partition("check<<<")[2].splitlines()[1]
    assert after.strip() == "REQUIRE(cudaGetLastError());"


class Array(np.ndarray):
    """A NumPy array with the attribute of CuPy's arrays that has the address."""

    @property
    def data(self) -> Any:  # type: ignore[override] # CuPy's attribute
        return SimpleNamespace(ptr=self.ctypes.data)


def test_the_python_file_calls_the_library_on_the_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_export(
        "shared_tile", {"tiles": "16", "sizes": "4x5x6", "dtypes": "float32", "op": None,
        "kernels": None}, "sm_90", tmp_path, force=False,
    )  # fmt: skip
    stand_in = """
        extern "C" int shared_tile_launch(const float* a, const float* b, float* c, void*, void*) {
          for (int i = 0; i < 4; ++i) for (int j = 0; j < 5; ++j) {
            c[i * 5 + j] = 0;
            for (int k = 0; k < 6; ++k) c[i * 5 + j] += a[i * 6 + k] * b[k * 5 + j];
          }
          return 0;
        }"""
    library = tmp_path / "libshared_tile.so"
    subprocess.run(
        [GXX, "-shared", "-fPIC", "-x", "c++", "-", "-o", str(library)],
        input=stand_in, text=True, check=True,
    )  # fmt: skip
    later = (tmp_path / "shared_tile.cu").stat().st_mtime + 10
    os.utime(library, (later, later))
    cupy = ModuleType("cupy")
    cupy.empty = lambda shape, dtype, order="C": np.empty(shape, dtype, order).view(Array)  # type: ignore[attr-defined]
    stream = SimpleNamespace(ptr=0)
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: stream)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    spec = importlib.util.spec_from_file_location("exported", tmp_path / "shared_tile.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    a, b = (np.arange(rows * 6, dtype="f").reshape(shape).view(Array)
            for rows, shape in ((4, (4, 6)), (5, (6, 5))))  # fmt: skip
    np.testing.assert_array_equal(module.product(a, b), a @ b)
    with pytest.raises(ValueError, match=r"takes float32 \(4, 6\) in order C"):
        module.product(b, a)


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    def refusal(name: str, **asked: str | None) -> str:
        options = dict.fromkeys(("tiles", "sizes", "dtypes", "op", "kernels")) | asked
        with pytest.raises(UsageError) as caught:
            run_export(name, options, "sm_90", tmp_path / "out", force=False)
        return str(caught.value)

    assert "export needs a CUDA source" in refusal("cublas", op="gemm")
    assert "atax cannot be exported" in refusal("atax_fused")
    assert "--sizes: name one value, not 2" in refusal("shared_tile", sizes="64,128")
    assert "--tiles: shared_tile takes edges 1 to 32" in refusal("shared_tile", tiles="33")
    assert "has no float16" in refusal("shared_tile", dtypes="float16")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc of a CUDA toolkit is not installed")
def test_nvcc_compiles_the_file_by_the_command_in_it(tmp_path: Path) -> None:
    text = source("wgmma_persistent")
    (tmp_path / "wgmma_persistent.cu").write_text(text)
    command = re.search(r"//   (nvcc .*?) &&", text)
    assert command
    strict = ["-Werror", "all-warnings"]
    subprocess.run([*command[1].split(), *strict], cwd=tmp_path, check=True)
