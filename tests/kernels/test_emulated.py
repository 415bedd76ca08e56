"""Kernels with clusters, and kernels with planted faults, run with emulated PTX."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from emulation import compile_emulator, compile_program, emulated, program, run

from gpubench.model import OPERATIONS, Config, CudaVariant, Problem
from gpubench.plan.registry import KERNELS, of_op

CASES = {
    "wgmma_any_rows": (
        ("16x64x64/s3/k3/cluster=1x2/group=8/pdl=1", "13x199x521"),
        ("80x128x64/s3/k1/cluster=1x2/group=8/pdl=1", "83x262x65"),
        ("64x64x64/s3/k2/cluster=1x1/group=8/pdl=1", "1x1x1"),
    ),
    "dmma": (("64x128x32/s4/cluster=1x2/group=6/pdl=0", "130x258x70"),),
    "dot_few_rows": (
        ("1x64/k8/rows=1/unroll=2", "1x132x1000"),
        ("4x64/k3/rows=2/unroll=1", "3x70x301"),
        ("8x128/k2/rows=8/unroll=1", "5x1x1"),
    ),
    "dot_few_rows/bfloat16": (
        ("1x64/k8/rows=1/unroll=2", "1x136x1000"),
        ("4x256/k2/rows=2/unroll=1", "4x264x40"),
    ),
    "dmma_split_cluster": (
        ("48x32x32/s2/k4/cluster=1x2", "100x66x130"),
        ("128x96x32/s3/k2/cluster=2x1", "130x98x66"),
        ("32x32x32/s6/k8/cluster=1x1", "1x2x2"),
    ),
    "splitk_cluster": (
        ("32x64x32/4x8/s3/k4", "33x68x130"),
        ("96x64x16/12x8/s4/k3", "100x64x35"),
        ("32x32x32/4x4/s2/k16", "1x1x1"),
        ("32x32x32/4x4/s2/k2", "32x32x128"),
        ("32x128x16/8x4/s2/k2", "31x127x45"),
    ),
    "wgmma_batched": (
        ("64x64x64/s1/cluster=1x1", "3x67x72x40"),
        ("72x64x64/s2/cluster=1x2", "2x75x136x200"),
        ("64x128x64/s2/cluster=2x1", "3x130x88x136"),
        ("8x64x64/s3/cluster=1x1", "5x1x8x200"),
        ("128x128x64/s1/cluster=1x1", "2x130x136x64"),
    ),
    "wgmma_batched_pingpong": (
        ("72x64x64/s3/cluster=2x1/group=8", "3x150x136x136"),
        ("64x128x64/s3/cluster=1x1/group=4", "7x67x200x40"),
        ("16x64x64/s3/cluster=1x2/group=8", "5x9x72x136"),
    ),
    "wgmma_bytes": (("128x192x128/s3/cluster=2x1/group=8", "300x336x272"),),
    "wgmma_bytes_cluster": (
        ("64x80x128/s3/k3/cluster=1x2", "65x165x400"),
        ("128x112x128/s3/k2/cluster=2x1", "130x115x272"),
        ("192x96x128/s3/k2/cluster=1x1", "100x97x272"),
        ("16x64x128/s3/k8/cluster=1x1", "1x1x1"),
        ("64x64x128/s3/k1/cluster=1x1", "65x69x133"),
        ("24x64x128/s3/k1/cluster=2x1", "40x200x272"),
        ("80x128x128/s3/k1/cluster=1x2", "130x300x144"),
    ),
    "wgmma_bytes_pingpong": (
        ("80x64x128/s3/cluster=2x1/group=8", "170x204x144"),
        ("16x128x128/s3/cluster=1x2/group=8", "9x520x400"),
    ),
    "wgmma_bytes_pingpong/float8_e4m3": (
        ("72x64x128/s3/cluster=2x1/group=8", "80x136x144"),
        ("16x64x128/s3/cluster=1x2/group=8", "9x200x400"),
    ),
    "wgmma_deferred": (("128x128x64/s3/cluster=1x2/group=8", "300x200x200"),),
    "wgmma_epilogue/gemm_bias": (
        ("72x64x64/s3/k1/cluster=2x1", "150x136x40"),
        ("64x256x64/s3/k2/cluster=1x2", "70x328x264"),
    ),
    "wgmma_epilogue/gemm_relu_residual": (
        ("72x64x64/s4/k1/cluster=1x2", "75x136x200"),
        ("64x192x64/s4/k1/cluster=2x1", "130x200x72"),
        ("136x128x64/s4/k1/cluster=1x1", "150x200x40"),
        ("8x64x64/s4/k1/cluster=1x1", "1x8x328"),
        ("48x128x64/s4/k3/cluster=1x1", "45x200x264"),
    ),
    "wgmma_epilogue_pingpong/gemm_bias": (
        ("72x64x64/s3/cluster=2x1/group=8", "150x136x264"),
        ("16x64x64/s3/cluster=1x2/group=8", "9x200x40"),
    ),
    "wgmma_epilogue_pingpong/gemm_relu_residual": (
        ("72x64x64/s4/cluster=2x1/group=8", "150x264x136"),
        ("64x192x64/s4/cluster=1x1/group=4", "200x392x40"),
        ("16x128x64/s4/cluster=1x2/group=8", "40x520x264"),
        ("136x128x64/s4/cluster=1x1/group=8", "1x1032x72"),
    ),
    "wgmma_fitted": (
        ("72x128x64/s3/cluster=2x1/group=8/pdl=1", "150x136x200"),
        ("64x80x64/s3/cluster=2x2/group=8/pdl=1", "130x168x136"),
        ("8x64x64/s4/cluster=1x1/group=8/pdl=1", "5x136x328"),
    ),
    "wgmma_grouped": (
        ("24x64x64/s3/cluster=1x1", "5x31x136x136"),
        ("16x64x64/s3/cluster=1x2", "7x9x200x72"),
        ("64x128x64/s3/cluster=1x1", "2x70x136x200"),
        ("8x64x64/s4/cluster=1x1", "40x1x72x64"),
    ),
    "wgmma_mixed_bytes": (("256x192x128/s3/cluster=1x2/group=8", "300x336x528"),),
    "wgmma_parts": (
        ("72x128x64/s4/cluster=2x1/group=8", "150x140x72"),
        ("16x64x64/s5/cluster=1x2/group=8", "13x139x531"),
        ("64x64x64/s4/cluster=1x1/group=8", "1x1x1"),
        ("24x128x64/s4/cluster=1x1/group=8", "50x261x70"),
        ("8x64x64/s4/cluster=1x1/group=8", "3x20x2080"),
    ),
    "wgmma_parts/bf16x3": (
        ("80x128x64/s3/cluster=1x2/group=8", "150x140x200"),
        ("8x64x64/s3/cluster=1x1/group=8", "5x200x63"),
    ),
    "wgmma_pingpong": (("72x64x64/s3/cluster=2x1/group=8", "150x136x264"),),
    "wgmma_split_cluster": (
        ("16x64x64/s3/k3/cluster=1x2/group=8/pdl=1", "13x200x520"),
        ("64x80x64/s3/k2/cluster=2x2/group=8/pdl=1", "70x168x200"),
        ("16x64x64/s3/k4/cluster=4x1/group=8/pdl=1", "50x72x264"),
    ),
    "wgmma_scaled/float8_e4m3": (
        ("128x256x128/s3/cluster=1x1/group=8", "9x264x144"),
        ("128x192x128/s3/cluster=1x2/group=8", "70x200x144"),
        ("64x128x128/s3/cluster=2x1/group=8", "67x136x144"),
        ("64x64x128/s3/cluster=1x1/group=8", "30x72x144"),
        ("24x128x128/s3/cluster=2x1/group=8", "50x136x272"),
        ("16x64x128/s3/cluster=1x2/group=8", "9x200x272"),
        ("8x128x128/s4/cluster=1x1/group=8", "1x136x16"),
    ),
    "wgmma_tf32": (("128x64x32/s8/cluster=1x2/group=8/pdl=0", "130x132x72"),),
    "wgmma_tf32_cluster": (
        ("64x128x32/s8/k1/cluster=1x1", "70x132x100"),
        ("80x64x32/s3/k3/cluster=1x2", "81x132x100"),
        ("112x128x32/s3/k2/cluster=2x1", "230x132x200"),
        ("64x64x32/s2/k8/cluster=1x1", "1x1x1"),
        ("64x64x32/s2/k1/cluster=1x1", "65x69x67"),
        ("96x64x32/s3/k2/cluster=1x4", "197x132x196"),
        ("64x128x32/s3/k2/cluster=4x1", "257x263x131"),
    ),
}
"""Configurations and sizes by kernel (with the precision or operation if there are several): sizes
that no tile divides, sizes below a tile, and parts of K without values."""


FAULTS = {
    "stages overwritten while others read them": (
        "dmma_split_cluster 64x64x32/s2/k2/cluster=1x1 64x64x64",
        'PTX("bar.sync 1, %0;", "n"(32 * W::COUNT));',
        "",
    ),
    "a copy sent to the blocks of another part": (
        "dmma_split_cluster 32x32x32/s2/k2/cluster=1x2 32x64x64",
        "ROW << (rank.first + rank.row * CN)",
        "ROW << (rank.row * CN)",
    ),
    "a stage freed in the blocks of another part": (
        "dmma_split_cluster 32x32x32/s2/k2/cluster=1x2 32x64x256",
        "free_stage<BLOCKS, 32>(ring.freed[stage], first_block);",
        "free_stage<BLOCKS, 32>(ring.freed[stage]);",
    ),
    "sums read before the other parts have left them": (
        "splitk_cluster 32x32x32/4x4/s2/k4 32x32x128",
        'PTX("barrier.cluster.wait.acquire.aligned;");',
        "",
    ),
    "columns of B sent from the wrong place": (
        "wgmma_bytes_cluster 64x80x128/s3/k2/cluster=2x1 128x80x256",
        "box * EACH",
        "box * (64 / CM)",
    ),
    "infinity times a part that is zero": (
        "wgmma_parts 24x128x64/s4/cluster=1x1/group=8 30x40x70",
        "zero != 0",
        "false",
    ),
    "a smallest part that is lost": (
        "wgmma_parts 16x64x64/s4/cluster=1x1/group=8 20x30x80",
        "first -= from_bits(words[part] << 16);",
        "first = 0;",
    ),
    "a stage freed before it was multiplied": (
        "wgmma_bytes_cluster 64x64x128/s3/k2/cluster=1x1 64x64x2048",
        (
            "await_multiplications<1>();\n"
            "  if (!first) free_stage<BLOCKS>(ring.freed[previous], first_block);"
        ),
        "if (!first) free_stage<BLOCKS>(ring.freed[previous], first_block);",
    ),
}
"""Faults by the report of the emulation: kernel, tile and size; a text of its source; a
replacement."""


def problem(variant: CudaVariant, size: str, dtype: str = "") -> Problem:
    *batch, m, n, k = map(int, size.split("x"))
    return Problem.of(variant.op, (m, n, k, *batch), dtype or variant.dtypes[0])


def cases(name: str) -> list[tuple[Config, Problem]]:
    """Return the kernel's cases, and the cases of its faults, here without the fault."""
    variant, dtype = gemm(name), name.partition("/")[2]
    dtype = "" if dtype in OPERATIONS else dtype
    planted = [case.split() for case, _, _ in FAULTS.values()]
    chosen = [*CASES[name], *((tile, size) for kernel, tile, size in planted if kernel == name)]
    return [(variant.tiles.read(tile), problem(variant, size, dtype)) for tile, size in chosen]


def gemm(name: str) -> CudaVariant:
    stem, _, op = name.partition("/")
    ops = (op,) if op in OPERATIONS else ("gemm", "gemm_batched", "gemm_grouped", "gemm_scaled")
    variant = next(of_op(each)[stem] for each in ops if stem in of_op(each))
    assert isinstance(variant, CudaVariant)
    return variant


KNOWN_RIGHT = (
    "dmma", "dmma_split_cluster", "dot_few_rows", "dot_few_rows/bfloat16",
    "wgmma_batched", "wgmma_bytes", "wgmma_bytes_pingpong", "wgmma_bytes_pingpong/float8_e4m3",
    "wgmma_deferred",
    "wgmma_epilogue/gemm_bias", "wgmma_epilogue_pingpong/gemm_bias", "wgmma_fitted",
    "wgmma_mixed_bytes", "wgmma_parts/bf16x3", "wgmma_pingpong", "wgmma_tf32_cluster",
)  # fmt: skip
"""Kernels that were right on a GPU. Other kernels in these tests have the same index maps and
rings."""


def faults_of(name: str) -> dict[str, tuple[str, str]]:
    """Return the faults of a kernel by report: a text of its source, and its replacement."""
    return {
        fault: (text, instead)
        for fault, (case, text, instead) in FAULTS.items()
        if case.split()[0] == name
    }


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the compiled emulator. Compiling it takes as long as three programs."""
    folder = tmp_path_factory.mktemp("emulated")
    compile_emulator(folder)
    return folder


@pytest.fixture(scope="module")
def programs(emulator: Path) -> Callable[[str], Path]:
    """Return a function that returns a kernel's program, compiled once for all cases and faults."""

    @cache
    def compiled(name: str) -> Path:
        text = program(gemm(name), cases(name), [*faults_of(name).values()])
        binary = emulator / name.replace("/", "_")
        compile_program(text, binary)
        return binary

    return compiled


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.exhaustive if name in KNOWN_RIGHT else ())
        for name in CASES
    ],
)
def test_elements_are_right_in_any_schedule(name: str, programs: Callable[[str], Path]) -> None:
    lines = list(run(programs(name)))
    assert lines == [f"right: {tile} {each.size}" for tile, each in cases(name)]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulation_reports_a_planted_fault(fault: str, programs: Callable[[str], Path]) -> None:
    name, tile, size = FAULTS[fault][0].split()
    at = cases(name).index((gemm(name).tiles.read(tile), problem(gemm(name), size)))
    (line,) = run(programs(name), [*faults_of(name)].index(fault) + 1, at)
    assert line.startswith("fault: ")


FAST = """
#include <cmath>
#include "emulator.h"
SOURCE
int main() {
  double largest = 0;
  emulated::launch({1, 1, 1}, 1, 1, 0, 1, [&] {
  for (float z = -30; z < 30; z += 1.0f / 256) {
    const double power = std::tanh(0.7978845608028654 * (z + 0.044715 * double(z) * z * z));
    const double gelu = 0.5 * z * (1 + power), silu = z / (1 + std::exp(-double(z)));
    const double apart[] = {FastGelu()(z) - gelu, FastSilu()(z) - silu};
    const double size[] = {std::fabs(gelu) + 1e-6, std::fabs(silu) + 1e-6};
    for (int i = 0; i < 2; ++i) largest = std::max(largest, std::fabs(apart[i]) / size[i]);
  }
  });
  std::printf("%g", largest);
}
"""


@pytest.mark.slow
def test_fast_activations_have_the_bits_of_a_float(emulator: Path) -> None:
    header = KERNELS / "lib" / "epilogue" / "activation.cuh"
    source = emulated(header.read_text().replace("#pragma once", ""))
    compile_program(FAST.replace("SOURCE", source), emulator / "fast")
    (error,) = run(emulator / "fast")
    assert float(error) < 2e-5
