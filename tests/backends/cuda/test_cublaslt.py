"""Calls of cuBLASLt, on a stand-in that reads descriptors and memory as NVIDIA documents them.

The stand-in computes D = epilogue(α·op(A)·op(B) + β·C) of column-major matrices, with NumPy.
"""

import ctypes
import importlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fakes import install_modules

from gpubench.engine.operands.make import make_inputs
from gpubench.kernels.gemm_epilogue.operation import FORMS, OPERATION
from gpubench.kernels.gemm_scaled import cublaslt
from gpubench.model import Problem

NAMES = ("cublaslt", "launching", "epilogue")
EPILOGUES = {"bias": 4, "relu": 6, "gelu": 36}  # cublasLtEpilogue_t in cublasLt.h
KINDS = {
    0: np.float32,
    2: np.float16,
    14: ml_dtypes.bfloat16,
    28: ml_dtypes.float8_e4m3fn,
}  # cudaDataType_t


class OnDevice(np.ndarray):
    """A NumPy array that has its address in the attribute of CuPy's arrays."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


class Library:
    """A stand-in for cuBLASLt. A descriptor is the number of an entry in `table`."""

    def __init__(self) -> None:
        self.table: dict[int, dict[Any, Any]] = {}
        self.calls = 0

    def _create(self, to: Any, content: dict[Any, Any]) -> int:
        self.table[len(self.table) + 1] = content
        to._obj.value = len(self.table)
        return 0

    def cublasLtMatmulDescCreate(self, to: Any, compute: int, scale: int) -> int:  # noqa: N802 # cuBLASLt's name
        return self._create(to, {"compute": compute, "scale": scale})

    def cublasLtMatmulPreferenceCreate(self, to: Any) -> int:  # noqa: N802 # cuBLASLt's name
        return self._create(to, {})

    def cublasLtMatrixLayoutCreate(  # noqa: N802 # cuBLASLt's name
        self, to: Any, kind: int, rows: Any, columns: Any, leading: Any
    ) -> int:
        facts = {"kind": KINDS[kind], "rows": rows.value, "columns": columns.value}
        return self._create(to, {**facts, "leading": leading.value})

    def _set(self, described: Any, attribute: int, value: Any, size: Any) -> int:
        assert size.value == ctypes.sizeof(value._obj)
        self.table[described.value][attribute] = value._obj.value
        return 0

    cublasLtMatmulDescSetAttribute = cublasLtMatmulPreferenceSetAttribute = _set  # noqa: N815 # cuBLASLt's name

    def cublasLtMatmulAlgoGetHeuristic(self, *arguments: Any) -> int:  # noqa: N802 # cuBLASLt's name
        *_, descriptor, _a, _b, c, d, _preference, _most, _proposals, count = arguments
        if self.table[descriptor.value].get(7, 1) & 4:  # there is a bias, which must be aligned
            assert self.table[descriptor.value][8] % 256 == 0
        assert c.value == d.value
        count._obj.value = 1
        return 0

    def matrix(self, layout: Any, address: Any) -> np.ndarray:
        facts = self.table[layout.value]
        kind, leading = np.dtype(facts["kind"]), facts["leading"]
        size = leading * facts["columns"] * kind.itemsize
        memory = np.frombuffer((ctypes.c_char * size).from_address(address.value), kind)
        return memory.reshape(facts["columns"], leading)[:, : facts["rows"]].T

    def scaled(self, left: Any, right: Any, of_blocks: int, of_columns: int) -> tuple[Any, Any]:
        """Return both matrices times their scales, for blocks of the left and vectors of the right.

        Their formats are BLK128x128_32F (rows along k, padded) and VEC128_32F (along n).
        """
        (rows, depth), columns = left.shape, right.shape[1]
        along_k, padded, down = -(-depth // 128), -(-depth // 512) * 4, -(-rows // 128)
        blocks = (ctypes.c_float * (padded * down)).from_address(of_blocks)
        vectors = (ctypes.c_float * (along_k * columns)).from_address(of_columns)
        left, right = left.copy(), right.copy()
        for i in range(rows):
            for k in range(depth):
                left[i, k] *= blocks[i // 128 * padded + k // 128]
        for k in range(depth):
            for j in range(columns):
                right[k, j] *= vectors[k // 128 * columns + j]
        return left, right

    def cublasLtMatmul(self, *arguments: Any) -> int:  # noqa: N802 # cuBLASLt's name
        (_handle, described, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout) = (
            arguments[:12]
        )
        self.calls += 1
        facts = self.table[described.value]
        left, right = self.matrix(a_layout, a), self.matrix(b_layout, b)
        left = left.T if facts.get(3) else left
        right = right.T if facts.get(4) else right
        left, right = left.astype(np.float64), right.astype(np.float64)
        if 31 in facts:
            assert (facts[31], facts[32], facts.get(25, 0)) == (5, 4, 0)
            left, right = self.scaled(left, right, facts[17], facts[18])
        z = alpha._obj.value * (left @ right)
        if beta._obj.value:
            z += beta._obj.value * self.matrix(c_layout, c).astype(np.float64)
        result, epilogue = self.matrix(d_layout, d), facts.get(7, 1)
        if epilogue & 4:  # a vector with an element for each row of D
            kind = result.dtype
            memory = (ctypes.c_char * (len(z) * kind.itemsize)).from_address(facts[8])
            z += np.frombuffer(memory, kind).astype(np.float64)[:, None]
        if epilogue & 2:
            z = np.maximum(z, 0)
        if epilogue & 32:
            z = 0.5 * z * (1 + np.tanh((2 / np.pi) ** 0.5 * (z + 0.044715 * z**3)))
        result[...] = z.astype(result.dtype)
        return 0


def aligned(shape: tuple[int, ...], kind: Any) -> OnDevice:
    kind = np.dtype(kind)
    size = int(np.prod(shape)) * kind.itemsize
    memory = np.zeros(size + 256, np.uint8)
    start = -memory.ctypes.data % 256
    return memory[start : start + size].view(kind).reshape(shape).view(OnDevice)


@pytest.fixture
def lt(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The backend's modules with stand-ins for CuPy and cuBLASLt."""
    launches: list[Any] = []
    parts: dict[str, dict[str, Any]] = {
        "cupy": {"empty": aligned, "ndarray": OnDevice},
        "cupy.cuda": {
            "Device": lambda: SimpleNamespace(compute_capability="90", id=0),
            "get_current_stream": lambda: SimpleNamespace(ptr=0),
        },
        "cupy.cuda.device": {"get_cublas_handle": lambda: 1},
        "cupy.cuda.runtime": {},
        "cupy_backends": {},
        "cupy_backends.cuda": {},
        "cupy_backends.cuda.api": {},
        "cupy_backends.cuda.api.driver": {"launchKernel": lambda *launch: launches.append(launch)},
    }
    install_modules(monkeypatch, parts)
    own = [f"gpubench.backends.cuda.{name}" for name in NAMES]
    before = {name: sys.modules.pop(name, None) for name in own}
    cublaslt, _, epilogues = map(importlib.import_module, own)
    library = Library()
    monkeypatch.setattr(cublaslt, "library", lambda _name="cublasLt": library)
    yield SimpleNamespace(
        gemm=cublaslt.gemm,
        Finish=cublaslt.Finish,
        epilogues=epilogues,
        library=library,
        launches=launches,
    )
    for name, module in before.items():
        sys.modules.pop(name, None)
        if module:
            sys.modules[name] = module


def operands(op: str, kind: Any, *, by_columns: str = "") -> list[OnDevice]:
    problem = Problem(op=op, m=7, n=12, k=5, dtype="float32")
    rng = np.random.default_rng(3)
    arrays = []
    for array, shape in zip(
        (*OPERATION[op].inputs, OPERATION[op].output), problem.shapes, strict=True
    ):
        is_turned = array.name in by_columns
        made = aligned(shape[::-1] if is_turned else shape, kind)
        made[...] = rng.uniform(-1, 1, made.shape).astype(made.dtype)
        arrays.append(made.T if is_turned else made)
    return arrays


FUSED = [
    op for op, (act, has_residual) in FORMS.items()
    if act in EPILOGUES and (act == "bias" or not has_residual)
]  # fmt: skip


@pytest.mark.parametrize("op", FUSED)
@pytest.mark.parametrize(
    ("dtype", "kind", "by_columns"),
    [
        ("float32", np.float32, ""),
        ("float16", np.float16, "B"),
        ("bfloat16", ml_dtypes.bfloat16, "AB"),
    ],
)
def test_the_library_computes_the_operation_that_the_folder_states(
    lt: SimpleNamespace, op: str, dtype: str, kind: Any, by_columns: str
) -> None:
    *inputs, c = operands(op, kind, by_columns=by_columns)
    wide = [np.asarray(array, np.float64) for array in inputs]
    expected = OPERATION[op].reference(np, *wide)
    finish = lt.epilogues.fused(*FORMS[op])
    assert finish.epilogue == EPILOGUES[FORMS[op].act]
    lt.gemm(dtype, finish).bind(*inputs, c)()
    tolerance = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}[dtype]
    np.testing.assert_allclose(c.astype(np.float64), expected, tolerance, tolerance)
    plain = np.asarray(c, np.float64) - wide[0] @ wide[1]
    assert np.abs(plain).max() > 0.1  # the result shows whether the epilogue was applied


def test_each_set_of_operands_has_the_address_of_its_own_bias(lt: SimpleNamespace) -> None:
    product = lt.gemm("float32", lt.epilogues.fused("bias", has_residual=False))
    first, second = (operands("gemm_bias", np.float32) for _ in range(2))
    second[2][...] = 5
    calls = [product.bind(*arrays) for arrays in (first, second)]
    for call in calls:
        call()
    difference = np.asarray(second[3]) - np.asarray(first[3])
    np.testing.assert_allclose(difference, 5 - np.asarray(first[2])[None, :] + 0 * difference, 1e-5)


def test_the_library_multiplies_blocks_by_the_scales_that_the_folder_states(
    lt: SimpleNamespace,
) -> None:
    problem = Problem(op="gemm_scaled", m=8, n=144, k=400, dtype="float8_e4m3")
    arrays = []
    for values, by_columns in zip(make_inputs(problem, 1), problem.by_columns, strict=False):
        made = aligned(values.shape[::-1] if by_columns else values.shape, values.dtype)
        made = made.T if by_columns else made
        made[...] = values
        arrays.append(made)
    c = aligned(problem.output_shape, ml_dtypes.bfloat16)
    modes = (cublaslt.VEC128_32F, cublaslt.BLK128X128_32F)
    lt.gemm("float8_e4m3", lt.Finish(scale_modes=modes)).bind(*arrays, c)()
    wide = [np.asarray(array, np.float64) for array in arrays]
    expected = problem.operation.reference(np, *wide)
    np.testing.assert_allclose(c.astype(np.float64), expected, 4e-3)


@pytest.mark.parametrize(("dtype", "kind"), [("float32", np.float32), ("float16", np.float16)])
def test_the_pass_reads_sums_that_are_not_rounded(
    lt: SimpleNamespace, dtype: str, kind: Any
) -> None:
    form = FORMS["gemm_silu_residual"]
    *inputs, c = operands("gemm_silu_residual", kind)
    product = lt.gemm(dtype, lt.epilogues.before_pass(dtype))
    lt.epilogues._elementwise = lambda *arguments: (
        launched.append(arguments) or SimpleNamespace(ptr=7)
    )
    launched: list[Any] = []
    call = lt.epilogues.with_pass(form.act, dtype, product).bind(*inputs, c)
    call()
    assert launched == [("silu", True, dtype, 4)]  # twelve columns make three vectors of four
    ((function, *dimensions, _shared, _stream, arguments, _extra),) = lt.launches
    assert (function, dimensions) == (7, [1, 7, 1, 128, 1, 1])
    pointers = (ctypes.c_void_p * 6).from_address(arguments)
    addresses = [ctypes.c_void_p.from_address(at).value for at in pointers[:4]]
    assert addresses[1:] == [array.ctypes.data for array in (inputs[2], inputs[3], c)]
    assert (addresses[0] == c.ctypes.data) == (dtype == "float32")
    assert [ctypes.c_int.from_address(at).value for at in pointers[4:]] == [7, 12]
    memory = (ctypes.c_float * 84).from_address(addresses[0] or 0)
    sums = np.frombuffer(memory, np.float32).reshape(7, 12)
    right = np.asarray(inputs[0], np.float64) @ np.asarray(inputs[1], np.float64)
    np.testing.assert_allclose(sums, right, 1e-6, 1e-6)
