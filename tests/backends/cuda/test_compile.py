"""Every CUDA kernel compiles, for GPUs that are not there, and says what it takes."""

import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpubench.backends.cuda import compile as module
from gpubench.backends.cuda.compile import (
    Compiled,
    compile_instance,
    parse_resources,
)
from gpubench.errors import CompileError
from gpubench.model import ITEM_BYTES, Config, CudaVariant, Problem, Resources
from gpubench.plan.registry import variants

ON_GPU = {
    kernel.name: kernel
    for kernel in variants()
    if isinstance(kernel, CudaVariant)
    and kernel.op == "gemm"
    and kernel.tiles
    and len(kernel.tiles.block) == 1
}
"""Products whose tile is one number; test_compile_blocks.py has those of block tiles."""

SAMPLED = (1, 8, 13, 16, 32)
LARGEST = 40
"""Of register_tile: 40 takes 7 s to compile, 64 a minute and a half."""

SPREAD = (8,)
"""On other architectures and in other dtypes."""

FITS, SPILLS = 13, 16
"""Tiles of register_tile up to which accumulators fit into a thread's 255 registers, and from which
they cannot (16 × 16 is 256). Between, it is the compiler's art."""

Key = tuple[str, Config, str, str]


def tiles_among(kernel: CudaVariant, edges: Collection[int]) -> list[Config]:
    return [tile for tile in kernel.tiles if tile["edge"] in edges]


def hopper_keys(edges: Collection[int] = SAMPLED, largest: int = SPILLS) -> list[Key]:
    """Tiles among `edges`; of register_tile, which takes long to compile, up to `largest`."""
    return [
        (kernel.name, tile, "float32", "sm_90")
        for kernel in ON_GPU.values()
        for tile in tiles_among(kernel, edges)
        if kernel.name != "register_tile" or tile["edge"] <= largest
    ]


def spread_keys() -> list[Key]:
    return [
        (kernel.name, tile, dtype, architecture)
        for kernel in ON_GPU.values()
        for tile in tiles_among(kernel, SPREAD)
        for dtype in kernel.dtypes
        for architecture in ("sm_75",)
    ]


def build(key: Key) -> Compiled:
    name, tile, dtype, architecture = key
    kernel = ON_GPU[name]
    return compile_instance(kernel.source, kernel.instance(tile, dtype), architecture)


def _numbers(key: Key) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(key[1]))]


@pytest.fixture(scope="module")
def compiled() -> dict[Key, Compiled]:
    """The instances at once, in as many threads as there are CPUs, the slowest first."""
    return built({*hopper_keys(), *spread_keys()})


def built(wanted: set[Key]) -> dict[Key, Compiled]:
    keys = sorted(wanted, key=_numbers, reverse=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(keys, pool.map(build, keys), strict=True))


@pytest.mark.slow
def test_instances_compile_to_kernels_that_fit(compiled: dict[Key, Compiled]) -> None:
    check_that_they_fit(compiled)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_every_tile_compiles_to_a_kernel_that_fits() -> None:
    every = built(set(hopper_keys(range(LARGEST + 1), LARGEST)))
    check_that_they_fit(every)
    check_that_only_large_register_tiles_spill(every)


def check_that_they_fit(compiled: dict[Key, Compiled]) -> None:
    for key, kernel in compiled.items():
        assert kernel.cubin.startswith(b"\x7fELF"), key
        assert key[0] in kernel.symbol
        assert kernel.symbol.encode() in kernel.cubin
        assert 0 < kernel.resources.registers <= 255, key
        # All its blocks' threads at once, as the launch wants them.
        threads = launch_of(key).threads_per_block
        assert threads <= 1024, key
        assert kernel.resources.registers * threads <= 65_536, key
        assert kernel.resources.shared_bytes <= 48 * 1024, key


@pytest.mark.slow
def test_only_large_register_tiles_spill(compiled: dict[Key, Compiled]) -> None:
    check_that_only_large_register_tiles_spill({key: compiled[key] for key in hopper_keys()})


def check_that_only_large_register_tiles_spill(compiled: dict[Key, Compiled]) -> None:
    for (name, tile, *_), kernel in compiled.items():
        key, resources = (name, tile), kernel.resources
        if name != "register_tile" or tile["edge"] <= FITS:
            assert (resources.spill_bytes, resources.local_bytes) == (0, 0), key
        elif tile["edge"] >= SPILLS:
            assert resources.spill_bytes > 0, key
            assert resources.local_bytes > 0, key


@pytest.mark.slow
def test_shared_memory_is_two_tiles_for_shared_tile_and_none_elsewhere(
    compiled: dict[Key, Compiled],
) -> None:
    for key, kernel in compiled.items():
        name, tile, dtype, _ = key
        expected = 2 * tile["edge"] ** 2 * ITEM_BYTES[dtype] if name == "shared_tile" else 0
        assert kernel.resources.shared_bytes == expected, key


def launch_of(key: Key) -> Any:
    name, tile, dtype, _ = key
    return ON_GPU[name].launch(tile, Problem(op="gemm", m=333, n=444, k=55, dtype=dtype))


def covered(name: str, tile: Config) -> tuple[int, int]:
    """Rows and columns of C that a block computes."""
    threads = ON_GPU[name].launch(tile, problem(1000, 1000)).block
    return {"register_tile": (8 * tile["edge"], 8 * tile["edge"])}.get(name, threads[::-1])


def problem(m: int, n: int) -> Problem:
    return Problem(op="gemm", m=m, n=n, k=8, dtype="float32")


def test_no_label_lies_every_tile_changes_launch_or_instance() -> None:
    for kernel in ON_GPU.values():
        runs = {
            (kernel.launch(tile, problem(1000, 777)), kernel.instance(tile, "float32"))
            for tile in kernel.tiles
        }
        assert len(runs) == len(list(kernel.tiles)), kernel.name


@pytest.mark.slow
def test_every_tile_compiles_to_code_of_its_own(compiled: dict[Key, Compiled]) -> None:
    for name in ON_GPU:
        codes = [kernel.cubin for key, kernel in compiled.items() if key[0] == name]
        assert len(set(codes)) == len(codes) > 0, name


@pytest.mark.parametrize("name", ON_GPU)
def test_blocks_cover_the_result_and_none_is_idle(name: str) -> None:
    kernel = ON_GPU[name]
    for tile in kernel.tiles:
        rows, columns = covered(name, tile)
        for m, n in ((1, 1), (7, 1000), (1000, 7), (97, 101), (256, 512)):
            x, y = kernel.launch(tile, problem(m, n)).grid
            across, down = (y, x) if name == "naive_uncoalesced" else (x, y)
            assert (down - 1) * rows < m <= down * rows, (tile, m, n)
            assert (across - 1) * columns < n <= across * columns, (tile, m, n)


def test_instances_are_written_as_cplusplus_writes_them() -> None:
    shared_tile = ON_GPU["shared_tile"]
    assert shared_tile.instance(Config.parse("16"), "float32") == "shared_tile<float, 16>"
    assert shared_tile.instance(Config.parse("128x64x8/8x4/s3"), "int32") == (
        "shared_tile<int, 128, 64, 8, 8, 4, 3>"
    )
    assert shared_tile.instance(Config.parse("16"), "bfloat16") == "shared_tile<__nv_bfloat16, 16>"


TIMERS_SOURCE = Path(module.__file__).with_name("stream.cu")


def test_the_timers_own_kernels_compile() -> None:
    text = TIMERS_SOURCE.read_text(encoding="utf-8")
    pattern = r"(template.*\n)?__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\("
    kernels = [
        f"{name}{'<short>' * bool(template)}" for template, name in re.findall(pattern, text)
    ]
    assert len(kernels) >= 3
    for kernel in kernels:
        assert compile_instance(TIMERS_SOURCE, kernel, "sm_75").resources.spill_bytes == 0, kernel


# ---- the cache


SOURCE = """
template <typename Scalar, int TILE>
__global__ void twice(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  C[threadIdx.x] = TILE * A[threadIdx.x];
}
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small kernel, and a cache of its own."""
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


def test_a_second_compilation_comes_from_the_disk_unless_the_file_is_damaged(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = compilations(monkeypatch)
    first = compile_instance(source, "twice<float, 2>", "sm_90")
    assert len(cache_files(source)) == 1
    assert compile_instance(source, "twice<float, 2>", "sm_90") == first
    assert done == ["twice<float, 2> sm_90"]
    (file,) = cache_files(source)
    file.write_bytes(file.read_bytes()[:-1])
    assert compile_instance(source, "twice<float, 2>", "sm_90") == first
    assert len(done) == 2


def test_whatever_decides_the_outcome_compiles_anew(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_cache_that_cannot_be_written_costs_nothing_else(source: Path) -> None:
    (source.parent / "cache").write_text("a file where the folder should be")
    assert compile_instance(source, "twice<float, 2>", "sm_90").resources.registers > 0


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_file_in_a_cubins_place_costs_nothing_else(
    source: Path, put: Callable[[Path], None]
) -> None:
    good = compile_instance(source, "twice<float, 2>", "sm_90")
    (file,) = cache_files(source)
    file.unlink()
    put(file)
    assert compile_instance(source, "twice<float, 2>", "sm_90") == good
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_what_a_source_includes_decides_the_outcome_too(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = compilations(monkeypatch)
    factor = source.with_name("factor.cuh")
    source.write_text('#include "factor.cuh"\n' + SOURCE.replace("TILE *", "FACTOR * TILE *"))
    for value in (2, 3, 2):
        factor.write_text(f"#define FACTOR {value}\n")
        compile_instance(source, "twice<float, 2>", "sm_90")
    assert len(done) == len(cache_files(source)) == 2


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
    "name": (SOURCE.replace("TILE * A", "TILE * missing"), "twice<float, 2>", "missing"),
    "syntax": (SOURCE.replace(";", ""), "twice<float, 2>", "expected a"),
    "no kernel": (SOURCE, "thrice<float, 2>", "thrice"),
    "arguments": (SOURCE, "twice<float, -1, 7>", "twice"),
    "include": ('#include "nowhere.h"\n' + SOURCE, "twice<float, 2>", "nowhere.h"),
    "assertion": (
        SOURCE.replace("C[", 'static_assert(TILE < 2, "too large"); C['), "twice<int, 2>", "too",
    ),
    "shared memory": (
        SOURCE.replace(
            "C[", "__shared__ Scalar big[99999]; big[M] = A[N]; __syncthreads(); C[K] = big[0]; C[",
        ),
        "twice<float, 2>",
        "uses too much shared data",
    ),
}  # fmt: skip


def test_a_kernel_that_does_not_compile_gives_the_compilers_first_error(source: Path) -> None:
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
    # As NVRTC's cache gives it; with --no-cache there is always one.
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
