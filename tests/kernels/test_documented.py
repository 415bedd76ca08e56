"""Kernels that the documentation tells a newcomer to write are right, and clean."""

from pathlib import Path

import numpy as np
import pytest
from newcomer import blocks

from gpubench.commands.check.cases import cases, expected
from gpubench.commands.new_kernel.run import write_pair
from gpubench.model import Config, CudaVariant
from gpubench.on_cpu.run import Sanitizer, run_on_cpu
from gpubench.plan.descriptor import load

TILES = {Sanitizer.ADDRESS: (3, 8), Sanitizer.THREAD: (4,)}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The pair of docs/adding-a-kernel.md, and one that new-kernel writes."""
    folder = tmp_path / "gemm"
    folder.mkdir()
    for block in blocks("adding-a-kernel.md"):
        if block.title.startswith("gpubench/"):
            (folder / Path(block.title).name).write_text(block.text, encoding="utf-8")
    write_pair("mine", "gemm", None, tmp_path, force=False)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transposed_tile", "mine"])
def test_a_kernel_from_the_pages_is_right_and_clean(
    written: Path, tmp_path: Path, name: str
) -> None:
    variant = load(written / f"{name}.py", "gemm")
    assert isinstance(variant, CudaVariant)
    for sanitizer, edges in TILES.items():
        of_variant = cases(variant, [Config.parse(str(edge)) for edge in edges], "float32")
        outputs = run_on_cpu(of_variant, sanitizer, tmp_path / "built" / sanitizer.name)
        assert len(outputs) == len(of_variant) >= 3 * len(edges)
        for case, output in zip(of_variant, outputs, strict=True):
            np.testing.assert_array_equal(output, expected(case.problem), err_msg=case.label)


@pytest.mark.slow
def test_check_finds_a_barrier_that_is_missing_from_the_kernel_of_the_page(
    written: Path, tmp_path: Path
) -> None:
    variant = load(written / "transposed_tile.py", "gemm")
    assert isinstance(variant, CudaVariant)
    text = variant.source.read_text(encoding="utf-8").replace("__syncthreads();", "", 1)
    of_variant = cases(variant, [Config.parse("4")], "float32")
    outputs = run_on_cpu(of_variant, Sanitizer.ADDRESS, tmp_path / "built" / "program", text)
    assert any(
        not np.array_equal(output, expected(case.problem))
        for case, output in zip(of_variant, outputs, strict=True)
    )
