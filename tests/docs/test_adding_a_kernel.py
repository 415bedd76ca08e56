"""docs/adding-a-kernel.md and docs/own-kernels.md: their kernels, and commands typed as written."""

import shlex
from contextlib import nullcontext
from pathlib import Path

import pytest
from commandline import call
from newcomer import blocks, write
from stub import nothing_measured

from gpubench.backends.cuda.compile import compile_instance
from gpubench.model import CudaVariant
from gpubench.plan.descriptor import load
from gpubench.plan.sweep import Sweep, plan
from gpubench.results.row import read

ADDING = blocks("adding-a-kernel.md")
OWN = blocks("own-kernels.md")

pytestmark = pytest.mark.slow

GPU = "on a machine with a GPU"

TYPED_ELSEWHERE = {"check", "explain"}
"""Commands of which docs/first-steps.md types the like, so they are read here, and not run."""


def test_the_page_adds_a_kernel_of_two_files_that_compiles_at_every_tile(tmp_path: Path) -> None:
    files = [block for block in ADDING if block.title.startswith("gpubench/")]
    stem = "gpubench/kernels/gemm/transposed_tile"
    assert [block.title for block in files] == [f"{stem}.cu", f"{stem}.py"]
    *_, description = [write(block, tmp_path) for block in files]
    kernel = load(description, "gemm")
    assert isinstance(kernel, CudaVariant)
    points = plan(Sweep(variants=("transposed_tile",), kernels=description.parent), "cuda")
    assert [str(point.tile) for point in points] == ["1", "2", "4", "8", "16", "32"]
    for tile in kernel.tiles.defaults:
        built = compile_instance(kernel.source, kernel.instance(tile, "float32"), "sm_90")
        assert built.resources.spill_bytes == 0
    assert built.resources.shared_bytes == 8320  # as the page says


def test_every_kind_of_kernel_on_the_page_comes_to_its_first_row_or_compiles(
    tmp_path: Path,
) -> None:
    for block in OWN:
        if block.title.endswith((".cu", ".py")):
            write(block, tmp_path)
    for block in OWN:
        if block.language == "sh" and not block.title:
            assert len(block.commands) == len(block.text.replace("\\\n", "").splitlines())
            done = []
            for command in block.commands:
                name, *words = shlex.split(command)
                if name not in TYPED_ELSEWHERE:
                    with nothing_measured() if name == "sweep" else nullcontext():
                        done.append(call(tmp_path, name, *words))
            assert {one.code for one in done} <= {0}, done
            assert not done or "my_" in "".join(one.out for one in done), block.text
    for name in ("my_tile.cu", "my_tile.py", "my_sgemm.py"):
        assert (tmp_path / "own/gemm" / name).is_file()
    rows = {(row.variant, row.tile): row.status for row in read(tmp_path / "my_blocks.csv")}
    tiles = [("my_blocks", edge) for edge in ("8", "32", "128")]
    assert rows == dict.fromkeys([*tiles, ("cpu_blas", "")], "ok")
    assert (tmp_path / "my_blocks.svg").is_file()
    assert (tmp_path / "my_export/shared_tile.cu").is_file()
    lines = [line for block in OWN if block.title == GPU for line in block.commands]
    assert lines
    for line in lines:
        refused = call(tmp_path, *shlex.split(line), "--device", "cuda")
        assert (refused.code, refused.out) == (2, "")
        assert "CUDA" in refused.err
