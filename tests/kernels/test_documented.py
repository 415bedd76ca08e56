"""The example kernel of docs/adding-a-kernel.md is right, and sanitizers report nothing."""

from pathlib import Path

import numpy as np
import pytest
from newcomer import blocks

from gpubench.commands.check.cases import cases
from gpubench.model import Config, CudaVariant
from gpubench.on_cpu.case import expected
from gpubench.on_cpu.run import Sanitizer, run_on_cpu
from gpubench.plan.descriptor import load

TILES = {Sanitizer.ADDRESS: (3, 8), Sanitizer.THREAD: (4,)}


@pytest.mark.slow
def test_the_kernel_of_the_page_is_right_and_clean(tmp_path: Path) -> None:
    for block in blocks("adding-a-kernel.md"):
        if block.title.startswith("gpubench/"):
            (tmp_path / Path(block.title).name).write_text(block.text, encoding="utf-8")
    variant = load(tmp_path / "transposed_tile.py", "gemm")
    assert isinstance(variant, CudaVariant)
    for sanitizer, edges in TILES.items():
        of_variant = cases(variant, [Config.parse(str(edge)) for edge in edges], "float32")
        outputs = run_on_cpu(of_variant, sanitizer, tmp_path / "built" / sanitizer.name)
        assert len(outputs) == len(of_variant) >= 3 * len(edges)
        for case, output in zip(of_variant, outputs, strict=True):
            np.testing.assert_array_equal(output, expected(case.problem), err_msg=case.label)
