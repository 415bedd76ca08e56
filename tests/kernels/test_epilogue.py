"""Products with an epilogue: the statement of the operations, and verdicts on their kernels."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from commandline import call
from own_kernels import statuses

from gpubench.engine.judge.probe import all_probes, inputs_of, require_exact
from gpubench.engine.judge.verdict import WrongError
from gpubench.engine.judge.verify import require_right_on
from gpubench.engine.operands.make import make_inputs
from gpubench.errors import UsageError
from gpubench.kernels.gemm_epilogue.operation import FORMS
from gpubench.model import OPERATIONS, Problem
from gpubench.plan.operations import operation_named

HEADERS = Path(__file__).parents[2] / "gpubench" / "kernels" / "lib" / "epilogue"

ACTS = {
    "bias": lambda z: z,
    "relu": lambda z: max(z, 0.0),
    "gelu": lambda z: z / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "silu": lambda z: z / (1 + math.exp(-z)),
}


@pytest.mark.parametrize("op", FORMS)
def test_the_activation_follows_the_bias_and_the_residual_the_activation(op: str) -> None:
    act, has_residual = FORMS[op]
    problem = Problem(op=op, m=3, n=4, k=5, dtype="float64")
    a, b, bias, *residual = make_inputs(problem, 1)
    assert len(residual) == has_residual
    result = problem.operation.reference(np, a, b, bias, *residual)
    for i in range(3):
        for j in range(4):
            z = sum(a[i, k] * b[k, j] for k in range(5)) + bias[j]
            right = ACTS[act](z) + (residual[0][i, j] if residual else 0)
            assert result[i, j] == pytest.approx(right, rel=1e-12)


def test_the_folder_states_several_operations_and_one_is_named() -> None:
    assert OPERATIONS.named_by("gemm_epilogue") == list(FORMS)
    with pytest.raises(UsageError, match="gemm_epilogue states several operations: gemm_bias, "):
        operation_named("gemm_epilogue", None)


@pytest.mark.parametrize("op", ["gemm_bias", "gemm_bias_residual"])
def test_without_an_activation_a_probe_shows_an_error_that_the_tolerance_hides(op: str) -> None:
    problem = Problem(op=op, m=37, n=45, k=64, dtype="float32")

    def cleared(
        a: np.ndarray, b: np.ndarray, bias: np.ndarray, *residual: np.ndarray
    ) -> np.ndarray:
        a = (a.view(np.int32) & ~3).view(np.float32)  # two bits of A are lost
        return sum(residual, a @ b + bias)

    inputs = make_inputs(problem, 1)
    require_right_on(np, problem, inputs, cleared(*inputs))
    hit_count = 0
    for probe in all_probes(problem, 1):
        operands = inputs_of(probe)
        assert [x.shape for x in operands] == list(problem.input_shapes)
        require_exact(probe, np, operands[0] @ operands[1] + operands[2])
        try:
            require_exact(probe, np, cleared(*operands))
        except WrongError as wrong:
            hit_count += "exact probe" in str(wrong)
    assert hit_count
    assert not all_probes(Problem(op="gemm_relu", m=37, n=45, k=64, dtype="float32"), 1)


KERNEL = """from math import erf

import numpy as np

from gpubench.model import CallVariant


def gelu(z):
    return z / 2 * (1 + np.tanh(np.float32(0.7978846) * (z + np.float32(0.044715) * z * z * z)))


def build(_tile, _dtype):
    kept = {}

    def call(a, b, bias, residual, c):
        BODY

    return call


VARIANT = CallVariant(idea="a test", runs_on="cpu", dtypes=("float32",), build=build, threads=1)
"""

BODIES = {
    "right": "c[:] = gelu(a @ b + bias) + residual",
    "early": "c[:] = gelu(a @ b + bias + residual)",
    "other": "z = a @ b + bias; c[:] = z / 2 * (1 + np.vectorize(erf)(z / 2**0.5)) + residual",
    "even": "n = len(bias) // 4 * 4; c[:, :n] = (gelu(a @ b + bias) + residual)[:, :n]",
    "first": "c[:] = kept.setdefault(c.shape, gelu(a @ b + bias) + residual)",
}


@pytest.mark.slow
def test_kernels_of_another_order_another_gelu_and_of_earlier_operands_are_wrong(
    tmp_path: Path,
) -> None:
    status = statuses(tmp_path, "gemm_gelu_residual", "30x41x50", KERNEL, BODIES)
    right = {name for name, each in status.items() if each == "ok"}
    assert right == {"right", "cpu_blas", "cpu_blas_parallel", "cpu_naive"}
    assert set(status) == right | set(BODIES)
    assert {each for name, each in status.items() if name not in right} == {"wrong"}


ELEMENTWISE = """from gpubench.model import CudaVariant, Space

VARIANT = CudaVariant(
    idea="the pass after the product",
    kernel="elementwise<{scalar}, Gelu, true, {lanes}>",
    signature="const float* P, const Scalar* bias, const Scalar* R, Scalar* C, int M, int N",
    grid=("N/(32*lanes)", "M/2"),
    block=(32,),
    dtypes=("float32",),
    tiles=Space(axes={"lanes": (1, 4)}, block=("lanes",), default=("1", "4")),
    refuse=lambda tile, problem: "N has a rest" if problem.n % tile["lanes"] else None,
)
"""

FINISH = """from gpubench.kernels.gemm_epilogue.operation import OPERATION
from gpubench.model import Array, Operation

whole = OPERATION["gemm_gelu_residual"]
OPERATION = Operation(
    idea="what follows the sums P", extents=("M", "N"), flops="M*N", tolerance=1e-6,
    inputs=(Array("P", "M N"), Array("bias", "N"), Array("R", "M N")), output=Array("C", "M N"),
    reference=lambda xp, p, bias, r: whole.reference(xp, p, xp.eye(p.shape[1]), bias, r),
    scale=lambda xp, p, bias, r: xp.abs(p) + xp.abs(bias) + xp.abs(r),
)
"""


@pytest.mark.slow
def test_the_pass_after_the_product_is_right_on_the_cpu(tmp_path: Path) -> None:
    folder = tmp_path / "own" / "finish"
    folder.mkdir(parents=True)
    (folder / "operation.py").write_text(FINISH)
    shutil.copytree(HEADERS.parent, folder / "lib")
    (folder / "elementwise_pass.cu").write_text('#include "lib/epilogue/elementwise.cuh"\n')
    (folder / "elementwise_pass.py").write_text(ELEMENTWISE)
    checked = call(tmp_path, "check", "elementwise_pass", "--op", "finish", "--kernels", "own")
    assert (checked.code, "is right and clean" in checked.out) == (0, True), checked
