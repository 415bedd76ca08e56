"""Makes operands from a seed, and computes references, which are results in higher precision."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import ml_dtypes  # noqa: F401 # names for NumPy: bfloat16 and float8
import numpy as np
from numpy.typing import NDArray

from gpubench.backends.arrays import NEW_VALUES, new_elements, on_host
from gpubench.backends.rotation import in_sets, set_size
from gpubench.model import OPERATIONS, Compared, Fill, Operation, Problem

SEED_BITS = 62  # bits of a seed that is chosen at random

SLICE_BITS = 53
"""Number of bits of a float64 significand. A product of slices is exact if its sums need at most
this number of bits."""

LARGEST_SMALL = 4  # largest magnitude of operands with `--operands integers`
LOW_BITS = 4  # bits of mantissa of operands with `--operands low-entropy`
EXACT_STEP = 2**20  # number of products of 16-bit halves (< 2³²) whose sum is exact in float64


PART = 2**16
"""Number of uniform values that are made at once. An operand of 545 million values in bfloat16 then
takes a quarter of the time."""


def make_inputs(
    problem: Problem, seed: int, fill: Fill = Fill.UNIFORM, content: int = 0
) -> tuple[np.ndarray, ...]:
    """Return the operands of a problem. By default, their values are uniform in [−1, 1].

    Integers are uniform in the range of their type. Products of int32 wrap. Operands of int8 omit
    −128, because sets of operands differ in sign, and int8 has no +128. Random numbers are the
    default because operands of zeros switch fewer gates, so that kernels run up to 15 % faster.
    `Fill` describes other kinds of values. With `Fill.INDEX`, element i of operand p (from 1) is
    p·i, and integers wrap. An operation may make its operands itself. Each value of `content` gives
    different operands.
    """
    if make := problem.operation.make:
        made = make(np.random.default_rng([seed, content]), problem.input_shapes)
        return tuple(np.asarray(x, kind) for x, kind in zip(made, problem.types, strict=False))
    arrays = _shapes_and_types(problem)
    if fill == Fill.INDEX:
        return tuple(_index(shape, kind, factor) for factor, (shape, kind) in enumerate(arrays, 1))
    rng = np.random.default_rng([seed, content] if content else seed)
    return tuple(_values(rng, shape, kind, fill) for shape, kind in arrays)


def _index(shape: tuple[int, ...], kind: np.dtype[Any], factor: int) -> np.ndarray:
    values = (factor * np.arange(math.prod(shape), dtype=np.int64)).astype(kind).reshape(shape)
    return np.maximum(values, -np.iinfo(kind).max) if kind == np.int8 else values


def exceeds_range(problem: Problem, inputs: Sequence[np.ndarray]) -> bool:
    """Whether an operand, or the largest result of a product, exceeds the range of its type.

    The operands are those of `Fill.INDEX`, so the last element of the result is the largest.
    """
    if problem.precision.is_integer:
        return False
    with np.errstate(over="ignore"):
        wide = [x.astype(np.float64) for x in inputs]
        is_finite = all(np.isfinite(x).all() for x in wide)
        if is_finite and problem.operation.is_product:
            first, second = wide
            second = first @ second if problem.operation.is_chain else second
            line = first[:, -1] if problem.operation.first_is_transposed else first[-1]
            largest = line @ second if second.ndim == 1 else line @ second[:, -1]
            is_finite = bool(np.isfinite(largest.astype(problem.types[-1]).astype(np.float64)))
    return not is_finite


def make_many(
    problem: Problem, seed: int, fill: Fill, count: int
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the operands of `count` launches, with values of the kind that `fill` describes."""
    if problem.operation.make or fill == Fill.INDEX:
        yield from (make_inputs(problem, seed + each, fill) for each in range(count))
        return
    rng = np.random.default_rng(seed)
    arrays = _shapes_and_types(problem)
    yield from zip(
        *(_values(rng, (count, *shape), kind, fill) for shape, kind in arrays), strict=True
    )


def _shapes_and_types(problem: Problem) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Return the shape and the element type of each operand."""
    types = map(np.dtype, problem.types[: len(problem.input_shapes)])
    return list(zip(problem.input_shapes, types, strict=True))


def make_new_values(
    problem: Problem, seed: int, fill: Fill, shape: tuple[int, ...] = (NEW_VALUES,)
) -> np.ndarray:
    """Return an array of random values, which new operands may have as elements.

    By default, the array has `NEW_VALUES` values, from which the elements of new operands are
    drawn. If the fill has no random values, the array has uniform values.
    """
    rng, kind = np.random.default_rng(seed), np.dtype(problem.precision.element)
    return _values(rng, shape, kind, random_fill(fill))


def random_fill(fill: Fill) -> Fill:
    """Return the fill of operands that no kernel can know in advance."""
    return fill if fill.is_random else Fill.UNIFORM


def transposed(problem: Problem) -> Problem:
    """Return the problem that computes Cᵀ = Bᵀ·Aᵀ from the same matrices, with Bᵀ as its A."""
    layout = (
        to for to, matrix in zip("ABC", "BAC", strict=True) if matrix not in problem.column_major
    )
    return replace(problem, m=problem.n, n=problem.m, column_major=tuple(layout))


def new_operand(problem: Problem, values: NDArray[Any], seed: int, copy: int) -> NDArray[Any]:
    """Return a new first operand, whose elements are drawn from `values`.

    The seed and the index `copy` of the operand decide which elements are drawn.
    """
    shape = problem.input_shapes[0]
    places = np.arange(size := set_size(shape, values.itemsize)) + copy * size
    elements = new_elements(values, seed, places)[None]
    new: NDArray[Any] = in_sets(elements, shape, problem.by_columns[0])[0]
    return new


def new_rows(
    problem: Problem, values: NDArray[Any], seed: int, copies: Sequence[int], rows: Sequence[int]
) -> NDArray[Any]:
    """Return rows of new first operands (`new_operand`).

    The first row comes from the operand with the index `copies[0]`, and so on.
    """
    (height, width), by_columns = problem.input_shapes[0], problem.by_columns[0]
    row, column = np.asarray(rows)[:, None], np.arange(width)
    place = column * height + row if by_columns else row * width + column
    start = np.asarray(copies)[:, None] * set_size((height, width), values.itemsize)
    return new_elements(values, seed, start + place)


def _values(
    rng: np.random.Generator, shape: tuple[int, ...], kind: np.dtype[Any], fill: Fill
) -> np.ndarray:
    match fill:
        case Fill.ZEROS | Fill.ONES:
            return np.full(shape, fill == Fill.ONES, kind)
        case Fill.INTEGERS:
            return rng.integers(-LARGEST_SMALL, LARGEST_SMALL, shape, endpoint=True).astype(kind)
        case Fill.POSITIVE:
            return _positive(rng, shape, kind)
        case Fill.NORMAL:
            return _normal(rng, shape, kind)
        case Fill.LOW_ENTROPY:
            return _low_entropy(_uniform(rng, shape, kind.name))
        case _:
            return _uniform(rng, shape, kind.name)


def _positive(rng: np.random.Generator, shape: tuple[int, ...], kind: np.dtype[Any]) -> np.ndarray:
    if kind.kind == "i":
        return rng.integers(0, np.iinfo(kind).max, shape, kind.type, endpoint=True)
    values = _uniform(rng, shape, kind.name)
    values[values < 0] *= -1
    return values


def _normal(rng: np.random.Generator, shape: tuple[int, ...], kind: np.dtype[Any]) -> np.ndarray:
    """Return normally distributed values with mean 0. Integers are clipped to their range."""
    if kind.kind == "i":
        largest = np.iinfo(kind).max
        values = np.rint(rng.standard_normal(shape) * (largest / 4))
        return np.clip(values, -largest, largest).astype(kind)
    wide = np.float64 if kind == np.float64 else np.float32
    return rng.standard_normal(shape, dtype=wide).astype(kind, copy=False)


def _low_entropy(values: np.ndarray) -> np.ndarray:
    """Return values whose lower bits are cut off.

    Floating-point values keep `LOW_BITS` bits after the leading bit, and integers keep their
    `LOW_BITS` upper bits.
    """
    kind = values.dtype
    if kind.kind == "i":
        step = kind.type(2 ** (8 * kind.itemsize - LOW_BITS))
        cut: np.ndarray = values - np.fmod(values, step)
        return cut
    wide = values if kind == np.float64 else values.astype(np.float32)
    significand, exponent = np.frexp(wide)
    scale = 2 ** (LOW_BITS + 1)
    cut = np.ldexp(np.trunc(significand * scale) / scale, exponent)
    return cut.astype(kind)


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind == "i":
        limits = np.iinfo(kind)
        lowest = -limits.max if kind == np.int8 else limits.min
        return rng.integers(lowest, limits.max, size=shape, dtype=kind.type, endpoint=True)
    values = np.empty(math.prod(shape), kind)
    for start in range(0, values.size, PART):  # a part stays in the cache, so it is made faster
        part = rng.random(
            min(PART, values.size - start), np.float64 if kind == np.float64 else np.float32
        )
        part *= 2
        part -= 1
        values[start : start + PART] = part
    return values.reshape(shape)


def widened(array: np.ndarray) -> np.ndarray:
    """Return an operand in a type that CuPy supports. A float8 operand is converted to float32."""
    return array.astype(np.float32) if array.dtype.name.startswith("float8") else array


def verifying_bytes(problem: Problem) -> int:
    """Return how many bytes are needed, at most, to make a reference and to compare a result."""
    inputs = sum(math.prod(shape) for shape in problem.input_shapes)
    return 8 * (4 * inputs + 8 * math.prod(problem.output_shape))


class Errors(NamedTuple):
    """Errors of a result's elements, as `engine.judge.verify.relative_error` defines them."""

    judged: float = 0.0
    """The largest error that remains if the final rounding to the result's type is not counted."""

    largest: float = 0.0
    rms: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The right result in higher precision, and the scale with which errors are compared.

    The arrays are of NumPy or CuPy. For operations on vectors, A is the matrix of the last product
    (Aᵀ for gemv_t and atax), and B is the vector of the last product.
    """

    parts: tuple[Any, ...]
    """Arrays whose exact sum is the result. Float64 operands, and `atax` in a floating-point type,
    require several arrays. Any other result is a single array."""

    terms: int  # K: the number of products in the sum of an element
    row_norms: Any  # ‖row of A‖₂, of shape M×1; if the result is a vector, of shape M
    column_norms: Any  # ‖column of B‖₂, of shape 1×N; if the result is a vector, a number
    inherited: Any = 0.0
    """Scale of the errors that errors of A·v cause in the result of atax. This scale is added to
    the scale of other errors."""

    compare: Callable[[Any], Compared] | None = None
    """Function of the operation that compares an output. If there is such a function, `parts` and
    the scale are not used."""

    errors: dict[tuple[int, int], Errors] = field(default_factory=dict)
    """Errors of right outputs. A key consists of the factor of the output's set and the output's
    fingerprint."""


@dataclass(frozen=True)
class _Factor:
    """An operand in an operation's formula.

    Products with this factor are computed in higher precision.
    """

    xp: Any
    matrix: Any  # a vector is a matrix with one column

    @property
    def T(self) -> "_Factor":  # noqa: N802 # the name that arrays have
        return _Factor(self.xp, self.matrix.T)

    def __matmul__(self, right: "_Factor | Reference") -> Reference:
        if isinstance(right, Reference):
            return _product_of_result(self.xp, self.matrix, right)
        return product(self.xp, self.matrix, right.matrix)


def make_reference(xp: Any, op: str, *inputs: Any) -> Reference:
    """Compute the result of an operation in higher precision, with the array module `xp`.

    Products of float32 operands are computed in float64, and products of int32 operands exactly
    modulo 2³². Products of float64 operands have an error of about 2⁻⁶⁰·‖a‖·‖b‖.
    """
    operation = OPERATIONS[op]
    if not operation.is_product:
        return _plain_reference(xp, operation, inputs)
    matrices = (x if x.ndim > 1 else x[:, None] for x in inputs)
    reference: Reference = operation.reference(xp, *(_Factor(xp, x) for x in matrices))
    return _of_vector(reference) if len(operation.output.dimensions) == 1 else reference


def reference_of_host(xp: Any, op: str, inputs: Iterable[Any]) -> Reference:
    """Compute the reference for operands in host memory.

    If the operation has a comparison of its own, the reference is also in host memory.
    """
    if OPERATIONS[op].comparison:
        return make_reference(np, op, *inputs)
    return make_reference(xp, op, *(xp.asarray(widened(array)) for array in inputs))


def _plain_reference(xp: Any, operation: Operation, inputs: Sequence[Any]) -> Reference:
    """Compute the reference of an operation that is not a product, by the operation's function.

    If the operation has no comparison of its own, the function gets operands in float64, or in
    integers of 64 bits.
    """
    if operation.comparison:
        result, compare = operation.comparison(*map(on_host, inputs))
        return Reference(parts=(result,), terms=1, row_norms=0.0, column_norms=1.0, compare=compare)
    wide = [x.astype(np.int64 if x.dtype.kind in "iu" else np.float64) for x in inputs]
    return Reference(
        parts=(operation.reference(xp, *wide),),
        terms=1,
        row_norms=operation.scale(xp, *wide) if operation.scale else 0.0,
        column_norms=1.0,
    )


def _of_vector(reference: Reference) -> Reference:
    """Convert the reference of a matrix with one column into the reference of a vector."""
    return replace(
        reference,
        parts=tuple(part[:, 0] for part in reference.parts),
        row_norms=reference.row_norms[:, 0],
        column_norms=reference.column_norms[0, 0],
        inherited=reference.inherited[:, 0] if np.ndim(reference.inherited) else 0.0,
    )


def _product_of_result(xp: Any, a: Any, first: Reference) -> Reference:
    """Compute c = A·b for a product b = B·v, with the errors that a kernel may make in b.

    A kernel may compute bᵢ with an error δᵢ of at most τ·sᵢ. Here τ is the tolerance, and sᵢ = ‖row
    i of B‖·‖v‖ + √N·|bᵢ| is the scale of bᵢ. The errors δᵢ change cⱼ by Σᵢ Aⱼᵢ·δᵢ. The errors of
    different rows are independent, so this sum grows as the root of the sum of its terms' squares.
    Therefore √(Σᵢ (Aⱼᵢ·sᵢ)²) is added to the scale of cⱼ.
    """
    leading, *corrections = first.parts
    if a.dtype == np.int32:
        return product(xp, a, leading)
    last = product(xp, a, leading.astype(a.dtype))
    a_64 = a.astype(np.float64)
    # The leading part is multiplied in the operands' precision, and the corrections in float64.
    correction = leading - leading.astype(a.dtype) + sum(corrections)
    scale = first.row_norms * first.column_norms + math.sqrt(first.terms) * xp.abs(leading)
    # Division by the largest element keeps the squares from overflowing.
    tiny = np.finfo(np.float64).tiny
    a_max, scale_max = (max(float(xp.abs(values).max()), tiny) for values in (a_64, scale))
    return replace(
        last,
        parts=(*last.parts, a_64 @ correction),
        inherited=a_max
        * scale_max
        * xp.sqrt(xp.square(a_64 / a_max) @ xp.square(scale / scale_max)),
    )


def product(xp: Any, a: Any, b: Any) -> Reference:
    """Compute the product of two matrices in higher precision."""
    if a.dtype.kind == "i":
        parts: tuple[Any, ...] = (_product_modulo_2_32(xp, a.astype(np.int32), b.astype(np.int32)),)
    elif a.dtype == np.float64:
        parts = _product_in_parts(xp, a, b)
    else:
        parts = (a.astype(np.float64) @ b.astype(np.float64),)
    return Reference(
        parts=parts,
        terms=a.shape[1],
        row_norms=_row_norms(xp, a)[:, None],
        column_norms=_row_norms(xp, b.T)[None, :],
    )


def _row_norms(xp: Any, matrix: Any) -> Any:
    """Return the norm ‖row‖₂ of each row of a matrix.

    The BLAS computes the norms, because CuPy's own function takes seconds for each new shape.
    """
    return xp.sqrt(xp.square(matrix.astype(np.float64)) @ xp.ones(matrix.shape[1]))


def _product_modulo_2_32(xp: Any, a: Any, b: Any) -> Any:
    """Compute the product of two int32 matrices, exactly modulo 2³².

    The upper and lower 16 bits of the elements are multiplied separately, in float64. Each sum has
    at most `EXACT_STEP` terms, so that the sum is exact.
    """
    total = xp.zeros((a.shape[0], b.shape[1]), dtype=np.int64)
    for start in range(0, a.shape[1], EXACT_STEP):
        a_step, b_step = a[:, start : start + EXACT_STEP], b[start : start + EXACT_STEP]
        a_high, a_low = (half.astype(np.float64) for half in (a_step >> 16, a_step & 0xFFFF))
        b_high, b_low = (half.astype(np.float64) for half in (b_step >> 16, b_step & 0xFFFF))
        # high·high is a multiple of 2³² and vanishes.
        total += (a_high @ b_low).astype(np.int64) << 16
        total += (a_low @ b_high).astype(np.int64) << 16
        total += (a_low @ b_low).astype(np.int64)
    return total.astype(np.int32)


def _product_in_parts(xp: Any, a: Any, b: Any) -> tuple[Any, ...]:
    """Compute a product of float64 matrices more exactly than in float64.

    The matrices are cut into slices whose products are exact. (Ozaki, Ogita, Oishi, Rump:
    Error-free transformations of matrix multiplication, 2012.)
    """
    bits = (SLICE_BITS - (a.shape[1] - 1).bit_length()) // 2
    a_slices, b_slices = _slices(xp, a, bits), _slices(xp, b, bits)
    return tuple(
        sum(a_slices[i] @ b_slices[order - i] for i in range(order + 1))
        for order in range(len(a_slices))
    )


def _slices(xp: Any, values: Any, bits: int) -> list[Any]:
    """Return three arrays that sum to `values`. Each array holds `bits` bits on a common scale."""
    _, exponent = np.frexp(float(xp.abs(values).max()))
    slices, remainder = [], values
    for index in range(1, 4):
        unit = np.ldexp(1.0, int(exponent) - index * bits)
        slices.append(xp.rint(remainder / unit) * unit)
        remainder = remainder - slices[-1]
    slices[-1] = slices[-1] + remainder  # below 2^(−3·bits)
    return slices
