"""Calls cuBLASLt, with an algorithm that measurements or the library's heuristic chose.

cuBLASLt is called through ctypes, because CuPy's wrapper is only for CuPy's own use. The names and
numbers of constants are taken from `cublasLt.h`.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import cupy
from cupy.cuda import device, runtime

from gpubench.backends.cuda.fastest_algorithm import choose_algorithm
from gpubench.backends.cuda.gemm_types import GEMM_TYPES, OP_N, OP_T, operation_of
from gpubench.backends.functions import Prepared
from gpubench.errors import LaunchError
from gpubench.model import Problem
from gpubench.model.variant import Sample

MAX_ALGORITHMS = 32
"""Maximum number of algorithms that the heuristic may return, the best first. cuBLAS 13.1 returns
at most 8."""

WORKSPACE_BYTES = 64 * 2**20  # NVIDIA recommends 32 MiB for Hopper; splitting K may use more
MAX_WORKSPACE_BYTES, REDUCTION_SCHEME_MASK = 1, 3  # cublasLtMatmulPreferenceAttributes_t

FULL_REDUCTION = 1 | 2
"""CUBLASLT_REDUCTION_SCHEME_INPLACE and COMPUTE_TYPE. The third scheme, OUTPUT_TYPE, is left out,
because it rounds partial sums over K to the result's type."""

TRANSA, TRANSB, EPILOGUE, BIAS_POINTER, FAST_ACCUM = 3, 4, 7, 8, 25
SCALE_POINTERS, SCALE_MODES = (17, 18), (31, 32)  # attributes of A and of B
"""Numbers of a product's attributes in cublasLtMatmulDescAttributes_t."""

Shape = tuple[int, int, int]  # M, K, N

Operations = tuple[tuple[int, int], tuple[int, int]]
"""A pair for A and a pair for B. Each pair has the operation and the leading dimension that
`operation_of` returns."""


class Finish(NamedTuple):
    """What the library does with a product before it stores the result. The default is nothing."""

    epilogue: int = 1  # cublasLtEpilogue_t: CUBLASLT_EPILOGUE_DEFAULT
    adds_matrix: bool = False  # whether a matrix is added to the product
    stores_sums: bool = False  # whether the result has the type of the sums
    scale_modes: tuple[int, ...] = ()
    """The scale modes of A and of B, as numbers of cublasLtMatmulMatrixScale_t. If there are scale
    modes, the arguments after B are the two scales."""

    @property
    def has_bias(self) -> bool:
        """Whether the epilogue adds a vector to each row of the result (CUBLASLT_EPILOGUE_BIAS)."""
        return bool(self.epilogue & 4)


PLAIN = Finish()


class _Heuristic(ctypes.Structure):
    """An algorithm that the heuristic proposes (cublasLtMatmulHeuristicResult_t)."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True, kw_only=True)
class _Product:
    """A product of one shape, described by objects of the library."""

    describe: Callable[[Sequence[Any]], ctypes.c_void_p]
    """Function that takes the addresses of the arrays between B and C, and returns the descriptor.
    It is called for each set of addresses."""

    finish: Finish
    descriptor: ctypes.c_void_p
    layouts: tuple[ctypes.c_void_p, ...]  # the layouts of the library's A, B and C
    alpha: Any
    beta: Any
    workspace: Any


def gemm(dtype: str, finish: Finish = PLAIN) -> Prepared:
    """Return a function that computes C = A·B by the algorithm that the heuristic rates best.

    The function takes A, B, the arrays that `finish` needs, and C. The arrays for `finish` are the
    bias and the matrix to add, or the scales of A and of B.
    """
    heuristic: dict[tuple[Shape, Operations], Prepared] = {}

    def bind(a: Any, b: Any, *others: Any) -> Callable[[], None]:
        key = (*a.shape, b.shape[1]), (operation_of(a), operation_of(b))
        if key not in heuristic:
            heuristic[key] = algorithms(dtype, *key, finish)[0][1]
        return heuristic[key].bind(a, b, *others)

    return Prepared(bind)


def tuned_gemm(
    problem: Problem,
    cold: bool,
    sample: Sample,
    max_launches: int,
    finish: Finish = PLAIN,
    completed: Callable[[Prepared], Prepared] = lambda product: product,
) -> tuple[Prepared, str]:
    """Return the function that computes C = A·B fastest, and a text on how it was chosen.

    A `CallVariant.tune` calls this function. `completed` takes a product, and returns the function
    that is used instead of the product. Cold and hot operands have different fastest algorithms. On
    an H200 at size 256, the algorithm that is fastest for hot operands takes 1.5 times the best
    time if the operands are cold. Raises LaunchError.
    """
    dtype, shape = problem.dtype, (problem.m, problem.k, problem.n)
    a_columns, b_columns, *_ = problem.by_columns
    operations = (
        (OP_T, problem.m) if a_columns else (OP_N, problem.k),
        (OP_T, problem.k) if b_columns else (OP_N, problem.n),
    )
    proposed = algorithms(dtype, shape, operations, finish)
    names = [name for name, _ in proposed]
    products = [completed(product) for _, product in proposed]
    index, how = choose_algorithm(
        names,
        _facts(problem, shape, cold, finish),
        lambda index, launches: sample(products[index], launches),
        max_launches,
    )
    return products[index], f"heuristic {index + 1} of {len(names)}, {how}"


def algorithms(
    dtype: str, shape: Shape, operations: Operations, finish: Finish = PLAIN
) -> list[tuple[str, Prepared]]:
    """Return the name and the function of each algorithm that the heuristic proposes.

    The algorithm that the heuristic rates best is first.

    The name is the library's own description of the algorithm (cublasLtMatmulAlgo_t), in hex.
    Within one version of the library, a name always selects the same algorithm.
    """
    product = _product(dtype, shape, operations, _workspace(), finish)
    proposals = (_Heuristic * MAX_ALGORITHMS)()
    count = ctypes.c_int()
    call(
        "cublasLtMatmulAlgoGetHeuristic",
        _handle(),
        product.descriptor,
        *product.layouts,
        product.layouts[-1],
        _preference(),
        MAX_ALGORITHMS,
        proposals,
        ctypes.byref(count),
    )
    proposed = {
        bytes(proposal.algorithm).hex(): Prepared(partial(_bound, product, proposal))
        for proposal in proposals[: count.value]
        if proposal.status == 0
    }
    if not proposed:
        raise LaunchError(f"cuBLASLt has no algorithm for M, K, N = {shape} in {dtype}")
    return list(proposed.items())


def _facts(problem: Problem, shape: Shape, cold: bool, finish: Finish) -> dict[str, object]:
    """Return the facts that decide which algorithm is fastest."""
    version = library().cublasLtGetVersion
    version.restype = ctypes.c_size_t
    properties = runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {
        "cublasLt": version(),
        "gpu": properties["name"].decode(),
        "multiprocessors": properties["multiProcessorCount"],
        "dtype": problem.dtype,
        "layout": problem.layout,
        "m k n": shape,
        "operands": "cold" if cold else "hot",
        "workspace bytes": WORKSPACE_BYTES,
        "reduction": FULL_REDUCTION,
        **({} if finish == PLAIN else {"finish": finish}),
    }


@cache
def _workspace() -> Any:
    """Return the workspace. All products share it, because products run one after the other."""
    return cupy.empty(WORKSPACE_BYTES, "uint8")


def _product(
    dtype: str, shape: Shape, operations: Operations, workspace: Any, finish: Finish
) -> _Product:
    m, k, n = shape
    types, ((operation_a, lda), (operation_b, ldb)) = GEMM_TYPES[dtype], operations
    result = types.scale if finish.stores_sums else types.result

    def describe(others: Sequence[Any]) -> ctypes.c_void_p:
        descriptor = _created("cublasLtMatmulDescCreate", types.compute, types.scale)
        # cuBLAS is column-major, so it reads row-major matrices as transposes and computes
        # Cᵀ = Bᵀ·Aᵀ. The rows of its result are our columns, and the bias has an element for each
        # column.
        for attribute, operation in ((TRANSA, operation_b), (TRANSB, operation_a)):
            if operation == OP_T:
                _set("MatmulDesc", descriptor, attribute, ctypes.c_int32(OP_T))
        if types.fast_accumulation and not finish.scale_modes:
            _set("MatmulDesc", descriptor, FAST_ACCUM, ctypes.c_int8(1))
        if finish.has_bias:
            _set("MatmulDesc", descriptor, EPILOGUE, ctypes.c_uint32(finish.epilogue))
            _set("MatmulDesc", descriptor, BIAS_POINTER, others[0])
        scales = zip(finish.scale_modes, others, strict=False)
        for (mode, address), of_mode, of_address in zip(
            scales, reversed(SCALE_MODES), reversed(SCALE_POINTERS), strict=False
        ):
            _set("MatmulDesc", descriptor, of_mode, ctypes.c_int32(mode))
            _set("MatmulDesc", descriptor, of_address, address)
        return descriptor

    return _Product(
        describe=describe,
        finish=finish,
        # The heuristic depends on the alignment of addresses, and all arrays have the same
        # alignment.
        descriptor=describe([ctypes.c_void_p(workspace.data.ptr)] * 2),
        layouts=tuple(
            _created(
                "cublasLtMatrixLayoutCreate",
                kind,
                ctypes.c_uint64(rows),
                ctypes.c_uint64(columns),
                ctypes.c_int64(leading),
            )
            for kind, rows, columns, leading in (
                (types.operand, *((k, n) if operation_b == OP_T else (n, k)), ldb),
                (types.operand, *((m, k) if operation_a == OP_T else (k, m)), lda),
                (result, n, m, n),
            )
        ),
        alpha=types.scalar(1),
        beta=types.scalar(int(finish.adds_matrix)),
        workspace=workspace,
    )


def _set(kind: str, described: ctypes.c_void_p, attribute: int, value: Any) -> None:
    size = ctypes.c_size_t(ctypes.sizeof(value))
    call(f"cublasLt{kind}SetAttribute", described, attribute, ctypes.byref(value), size)


def _bound(product: _Product, chosen: _Heuristic, *arrays: Any) -> Callable[[], None]:
    a, b, *added, c = (ctypes.c_void_p(array.data.ptr) for array in arrays)
    left, right, result = product.layouts
    needs_addresses = product.finish.has_bias or product.finish.scale_modes
    descriptor = product.describe(added) if needs_addresses else product.descriptor
    matrix = added[-1] if product.finish.adds_matrix else c
    arguments = (
        _handle(), descriptor,
        ctypes.byref(product.alpha), b, left, a, right,
        ctypes.byref(product.beta), matrix, result, c, result,
        chosen.algorithm, ctypes.c_void_p(product.workspace.data.ptr),
        ctypes.c_size_t(WORKSPACE_BYTES),
        ctypes.c_void_p(cupy.cuda.get_current_stream().ptr),
    )  # fmt: skip

    routine = library().cublasLtMatmul

    def multiply(_alive: object = (product, chosen, arrays)) -> None:
        require_success("cublasLtMatmul", routine(*arguments))

    return multiply


@cache
def _preference() -> ctypes.c_void_p:
    """Return the limits for algorithms: the workspace's size, and the ways to add partial sums."""
    preference = _created("cublasLtMatmulPreferenceCreate")
    limit, schemes = ctypes.c_size_t(WORKSPACE_BYTES), ctypes.c_uint32(FULL_REDUCTION)
    _set("MatmulPreference", preference, MAX_WORKSPACE_BYTES, limit)
    _set("MatmulPreference", preference, REDUCTION_SCHEME_MASK, schemes)
    return preference


def _handle() -> ctypes.c_void_p:
    """Return a cuBLAS handle, which is valid for cuBLASLt too (cublasLtHandle_t)."""
    return ctypes.c_void_p(device.get_cublas_handle())


def _created(function: str, *arguments: Any) -> ctypes.c_void_p:
    """Return the object that a function `…Create` of the library makes."""
    created = ctypes.c_void_p()
    call(function, ctypes.byref(created), *arguments)
    return created


def call(function: str, *arguments: Any, of_library: str = "cublasLt") -> None:
    """Call a function of a library. Raises LaunchError if the function fails or does not exist.

    A Python integer is passed as a C int.
    """
    try:
        routine = getattr(library(of_library), function)
    except AttributeError as error:
        raise LaunchError(f"this cuBLAS has no {function}: install a newer version") from error
    require_success(function, routine(*arguments))


def require_success(function: str, status: int) -> None:
    """Raise LaunchError unless a function of a library returned 0."""
    if status:
        raise LaunchError(f"{function} failed with status {status} (cublasStatus_t)")


@cache
def library(name: str = "cublasLt") -> ctypes.CDLL:
    """Return the shared library that CuPy has loaded for `cublasLt` or `cublas`."""
    device.get_cublas_handle()
    for major in (13, 12):
        try:
            return ctypes.CDLL(f"lib{name}.so.{major}")
        except OSError:
            continue
    raise LaunchError(f"CuPy is installed without lib{name}")
