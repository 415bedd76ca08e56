"""Describe published kernels that other people wrote, and compile them. Needs no GPU.

    python benchmarks/foreign.py CHECKOUTS
    python benchmarks/foreign.py CHECKOUTS --describe own
    gpubench sweep --kernels own --variants sgemm_5,cublas --sizes 2048,4096 --launch-limit 0.1

CHECKOUTS is a folder with checkouts of the repositories in `REPOSITORIES`, under these names. No
source is edited. `gpubench new-kernel --from` describes each kernel, and at most `MAX_CHANGES`
lines of a description are changed. The script lists the changed lines and the seconds of each
compilation. Exit status: 0 all bounds hold, 1 one is broken.
"""

import argparse
import contextlib
import io
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import ne
from pathlib import Path
from time import perf_counter
from typing import Any

from shared import markdown, verdict

from gpubench.backends.cuda.compile import compile_instance, compile_library, named
from gpubench.commands.new_kernel.run import describe_source
from gpubench.errors import CompileError
from gpubench.hardware.host import cpu_threads
from gpubench.model import CudaVariant, HostVariant, Variant
from gpubench.plan.registry import of_op

MAX_CHANGES = 3
"""Maximum number of lines of a description that are changed."""

REPOSITORIES = {
    "SGEMM_CUDA": "https://github.com/siboehm/SGEMM_CUDA",
    "CUDA-GEMM-Optimization": "https://github.com/leimao/CUDA-GEMM-Optimization",
    "sgemm.cu": "https://github.com/salykova/sgemm.cu",
    "NVIDIA_SGEMM_PRACTICE": "https://github.com/wangzyon/NVIDIA_SGEMM_PRACTICE",
    "cuda-sgemm": "https://github.com/nicolaswilde/cuda-sgemm",
    "xGeMM": "https://github.com/tgautam03/xGeMM",
    "llm.c": "https://github.com/karpathy/llm.c",
    "fast.cu": "https://github.com/pranjalssh/fast.cu",
}


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A kernel of a repository, and the lines that a user changes in its description."""

    file: str
    """Path in CHECKOUTS."""

    function: str = ""
    """What `--kernel` gets. Empty: the first function that launches kernels."""

    changes: tuple[tuple[str, str], ...] = ()
    """Parts of lines, and what replaces them."""


def _numbered(prefix: str, file: str, functions: str, **facts: Any) -> dict[str, Foreign]:
    """Return kernels by names with a number, which begins with 1."""
    listed = enumerate(functions.split(), 1)
    return {f"{prefix}_{i}": Foreign(file=file, function=name, **facts) for i, name in listed}


LEIMAO = "CUDA-GEMM-Optimization/src/"
FORMS = {
    "00_non_coalesced_global_memory_access": "leimao_00",
    "01_coalesced_global_memory_access": "leimao_01",
    "02_2d_block_tiling": "leimao_02",
    "03_2d_block_tiling_1d_thread_tiling": "leimao_03",
    "04_2d_block_tiling_2d_thread_tiling": "leimao_04",
    "05_2d_block_tiling_2d_thread_tiling_matrix_transpose": "leimao_05",
    "06_2d_block_tiling_2d_warp_tiling_2d_thread_tiling_matrix_transpose": "leimao_06",
    "07_2d_block_tiling_2d_warp_tiling_2d_thread_tiling_matrix_transpose_wmma": "leimao_07",
}
VECTORIZED = "_vectorized_memory_access"

KERNELS = {
    **_numbered(
        "sgemm", "SGEMM_CUDA/src/runner.cu",
        "run_sgemm_naive run_sgemm_coalesce run_sgemm_shared_mem_block runSgemm1DBlocktiling "
        "runSgemm2DBlocktiling runSgemmVectorize runSgemmResolveBankConflicts "
        "runSgemmResolveBankExtraCol runSgemmAutotuned runSgemmWarptiling "
        "runSgemmDoubleBuffering runSgemmDoubleBuffering2",
    ),
    **{name: Foreign(file=f"{LEIMAO}{form}.cu") for form, name in FORMS.items()},
    **{
        f"{name}_vectorized": Foreign(file=f"{LEIMAO}{form}{VECTORIZED}.cu")
        for form, name in FORMS.items()
        if name >= "leimao_02"
    },
    **{
        f"{name}_double_buffered": Foreign(file=f"{LEIMAO}{form}{VECTORIZED}_double_buffered.cu")
        for form, name in FORMS.items()
        if name >= "leimao_06"
    },
    **_numbered(
        "salykova", "sgemm.cu/src/sgemm.cuh", "sgemm sgemm_basic",
        changes=(('common",)', 'common", "-DGPUCC=90")'),),
    ),
    **_numbered(
        "practice", "NVIDIA_SGEMM_PRACTICE/src/utils.cu",
        " ".join(f"test_mysgemm_v{number}" for number in range(1, 8)),
    ),
    **_numbered(
        "wilde", "cuda-sgemm/sgemm.cu", "mySgemmV1Aligned mySgemmV2Aligned mySgemmV3Aligned",
        changes=(("N/32", "N/128"), ("M/32", "M/128"), ("block=(32, 32)", "block=(16, 16)")),
    ),
    **{
        f"xgemm_{number}": Foreign(file=f"xGeMM/src/0{number}_{form}_xgemm.cu")
        for number, form in enumerate(
            ("naive", "coalesced", "tiled", "coarse_1d", "coarse_2d", "coarse_2d_vec"), 1
        )
    },
    "llmc_1": Foreign(file="llm.c/dev/cuda/matmul_forward.cu", function="matmul_forward1"),
    "llmc_4": Foreign(file="llm.c/dev/cuda/matmul_forward.cu", function="matmul_forward4"),
    "fast_1": Foreign(
        file="fast.cu/matmul.cu", function="runKernel1",
        changes=(("dtypes=", 'compile_options=("-DNDEBUG",), dtypes='),),
    ),
}  # fmt: skip
"""Kernels by the names of their variants. The other kernels of fast.cu keep the addresses of their
first call."""


def describe(checkouts: Path, folder: Path, names: Sequence[str]) -> dict[str, int]:
    """Describe kernels as a user would; return the number of changed lines of each.

    `gpubench new-kernel` writes the descriptions into `folder`/gemm.
    """
    changed: dict[str, int] = {}
    for name in names:
        kernel = KERNELS[name]
        source = checkouts.resolve() / kernel.file
        if not source.is_file():
            url = REPOSITORIES[kernel.file.partition("/")[0]]
            sys.exit(f"foreign.py: {source} is missing: clone {url} into {checkouts}")
        with contextlib.redirect_stdout(io.StringIO()):
            describe_source(name, "gemm", source, folder, kernel=kernel.function, force=True)
        path = folder / "gemm" / f"{name}.py"
        lines = path.read_text(encoding="utf-8").splitlines()
        edited = list(lines)
        for old, new in kernel.changes:
            edited = [line.replace(old, new) for line in edited]
        changed[name] = sum(map(ne, lines, edited))
        path.write_text("\n".join((*edited, "")), encoding="utf-8")
    return changed


def compile_all(folder: Path, changed: dict[str, int], architecture: str) -> int:
    """Compile the kernels, print a table and the verdicts, and return the exit status."""
    variants = of_op("gemm", folder)
    with ThreadPoolExecutor(cpu_threads()) as pool:
        results = pool.map(lambda name: compile_one(variants[name], architecture), changed)
    lines = [
        [name, KERNELS[name].file, *map(str, (count, *result))]
        for (name, count), result in zip(changed.items(), results, strict=True)
    ]
    print(markdown(["kernel", "file", "changed lines", "function", "compiled"], lines))
    failed = [line[0] for line in lines if line[-1].startswith("FAILS")]
    repositories = {line[1].partition("/")[0] for line in lines}
    held = [
        verdict(not failed, f"{len(lines) - len(failed)} of {len(lines)} kernels compile"),
        verdict(max(changed.values()) <= MAX_CHANGES,
                f"at most {max(changed.values())} lines of a description are changed"),
        verdict(repositories == REPOSITORIES.keys(), f"{len(repositories)} repositories"),
    ]  # fmt: skip
    return int(not all(held))


def compile_one(variant: Variant, architecture: str) -> tuple[str, str]:
    """Return the name of a variant's function, and how long its compilation took, or its error."""
    started, dtype, what = perf_counter(), variant.dtypes[0], variant.idea
    try:
        if isinstance(variant, HostVariant):
            what = variant.function(None, dtype)
            compile_library(variant, None, dtype, architecture)
        elif isinstance(variant, CudaVariant):
            tile = variant.tiles.defaults[0]
            what, options = variant.instance(tile, dtype), variant.options(tile, dtype)
            compile_instance(variant.source, what, architecture, options)
        else:
            return what, "FAILS: it cannot be described"
    except CompileError as error:
        return named(what), f"FAILS: {error}"
    return named(what), f"{perf_counter() - started:.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", type=Path, help="a folder with checkouts of the repositories")
    parser.add_argument("--only", default=",".join(KERNELS), help="names of kernels, by commas")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--describe", type=Path, help="only write the descriptions, into a folder")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = chosen.describe or Path(name) / "own"
        changed = describe(chosen.checkouts, folder, chosen.only.split(","))
        return 0 if chosen.describe else compile_all(folder, changed, chosen.arch)


if __name__ == "__main__":
    sys.exit(main())
