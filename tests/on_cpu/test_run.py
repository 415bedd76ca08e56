"""Runs of kernels on the CPU, as programs that write their arrays into files."""

from pathlib import Path

import numpy as np
import pytest

from gpubench.model import Config, CudaVariant, Problem
from gpubench.on_cpu import run
from gpubench.on_cpu.case import Case, expected
from gpubench.on_cpu.run import Sanitizer, run_on_cpu
from gpubench.plan.registry import of_op


@pytest.mark.slow
def test_cases_whose_arrays_exceed_the_limit_of_a_file_run_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = of_op("gemm", None)["naive"]
    assert isinstance(kernel, CudaVariant)
    sizes = ((64, 64, 64), (8, 8, 8), (64, 32, 16), (1, 70, 3))
    tile = Config.parse("8")
    cases = [
        Case(variant=kernel, tile=tile, problem=Problem(op="gemm", m=m, n=n, k=k, dtype="float32"))
        for m, n, k in sizes
    ]
    monkeypatch.setattr(run, "FILE_BYTES", 3 * 64 * 64 * 4 + 100)  # the first case alone fits
    parts = [[case.problem.m for case in part] for part in run._parts(cases)]
    assert parts == [[64], [8, 64, 1]]
    outputs = run_on_cpu(cases, Sanitizer.ADDRESS, tmp_path)
    for case, output in zip(cases, outputs, strict=True):
        np.testing.assert_array_equal(output, expected(case.problem), err_msg=case.label)
