"""Compares a point's results with a reference, before the point is timed and while it is timed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from secrets import randbelow
from typing import Any

import ml_dtypes
import numpy as np

from gpubench.backends.arrays import on_host
from gpubench.backends.rotation import OperandSets, content_of
from gpubench.engine.judge.rounding import (
    can_show_rounding,
    choose_lines,
    find_rounding,
    finishes_product,
    why_rounded_early,
)
from gpubench.engine.judge.verdict import WrongError, missing, require, why_inaccurate, why_rounded
from gpubench.engine.operands.cache import OperandCache
from gpubench.engine.operands.make import (
    Errors,
    Reference,
    make_reference,
    reference_of_host,
)
from gpubench.errors import DoesNotFitError, LaunchError
from gpubench.model import (
    Cache,
    CallVariant,
    Compared,
    HostVariant,
    Measurement,
    Point,
    Problem,
    Variant,
)
from gpubench.plan.scrutiny import scrutiny_of

INTEGER_POISON = -(2**31) + 12345
"""Number that fills an integer output before the kernel runs. It is an unlikely result."""

BYTE_POISON = 0xFF
"""Content of each byte of an output that holds several results, before the kernel runs."""

CHECKED_ROWS = 16
"""Number of rows of a product that are compared, if each launch has operands of its own."""

SMALL = 32  # largest extent of a result that is compared while kernels compile

KEPT_OUTPUTS = 8
"""Maximum number of outputs of a point that are kept until its timed launches have ended."""

MAX_MULTIPLE = 2**20  # largest multiple of the right result that is recognized
SAME = 1e-2  # maximum relative difference of a result from such a multiple

ROUNDED_ONCE = 1.01
"""Factor by which the unit roundoff is multiplied. The factor exceeds 1, because the sum that is
rounded has errors of its own."""

STALE = (
    "it left its output as it was. The arguments had moved since earlier launches: the kernel may "
    "keep old addresses, such as in a tensor map. Make the map again if an address differs from "
    "that of the last call, or write fixed_addresses=True"
)
"""Reason if a call wrote its result to the address of an earlier output."""


WROTE_NAN = "the kernel wrote NaN into all elements of the result"
"""Reason if the elements have other bits than the NaN that the output held before the launch."""


class Check:
    """Compares the outputs of a point's launches with the right result.

    An output with the same bits as a right output is right. Only outputs with other bits are
    compared with the reference, so every timed output can be checked in every round. `xp` is the
    array module.

    Copies of the outputs of a user's kernel are kept until `settle`. The reference of such an
    output is then made after the timed launches, so that no launch can find the reference in
    memory. The errors of a user's kernel on random operands are compared with the errors that
    rounded operands cause.
    """

    def __init__(
        self,
        xp: Any,
        point: Point,
        operands: OperandSets,
        reference: Callable[..., Reference],
        earlier: Measurement | None = None,
    ) -> None:
        self._later = scrutiny_of(point.variant).is_compared_later
        self._finds_rounding = point.operands.has_all_bits and self._later
        self._kept: list[tuple[Any, int]] = []
        """Outputs that are not compared yet, with the contents of their operands (`content_of`)."""

        self._accepted = False  # whether an earlier output was right
        self._xp = xp
        self._reads_output = point.variant.reads_output
        self.operands = operands
        self._reference = reference
        self.fingerprints = dict(earlier.fingerprints) if earlier else {}
        """The fingerprints of right outputs, by the contents of their operands (`content_of`)."""

        self.errors = Errors()
        if earlier:
            so_far = earlier.max_relative_error, earlier.largest_error, earlier.rms_error
            self.errors = Errors(*(error or 0.0 for error in so_far))
        """Largest errors of the outputs that were compared so far."""

    def start(self) -> None:
        """Overwrite, with poison (`poison_of`), the outputs into which launches wrote.

        Variants that read their output need zeros, and all other variants need poison. If the
        outputs were last filled for the other kind of variant, fill all outputs.
        """
        rotation, sets = self.operands.rotation, self.operands.sets
        if rotation.zeroed != self._reads_output:
            rotation.zeroed = self._reads_output
            rotation.used.update(range(len(sets)))
        self.operands.fill_outputs(poison_of(sets[0][-1], reads_output=self._reads_output))
        rotation.used.clear()

    def look(self) -> None:
        """Check the outputs that launches wrote since `start` was called, and call `start` again.

        Raises WrongError if an output is wrong. Outputs that are kept are compared by `settle`.
        """
        for index, fingerprint in self.operands.fingerprints().items():
            content = content_of(self.operands.problem, index)
            if self.fingerprints.get(content) == fingerprint:
                continue
            output = self.operands.sets[index][-1]
            if self._later:
                self._keep(output, content)
            else:
                errors = self._reference_of(content).errors
                if (content, fingerprint) not in errors:
                    errors[content, fingerprint] = self._compare(output, content)
                self._accept(errors[content, fingerprint])
            self.fingerprints[content] = fingerprint
        self.start()

    def _keep(self, output: Any, content: int) -> None:
        """Keep a copy of an output. If too many outputs are kept, the copy replaces one of them."""
        place = len(self._kept)
        if place >= KEPT_OUTPUTS:
            place = KEPT_OUTPUTS // 2 + randbelow(KEPT_OUTPUTS // 2)
        self._kept[place : place + 1] = [(output.copy(order="K"), content)]

    def settle(self) -> None:
        """Compare the outputs that `look` kept. Raises WrongError if an output is wrong."""
        while self._kept:
            self._accept(self._compare(*self._kept.pop(0)))

    def _compare(self, output: Any, content: int) -> Errors:
        try:
            return require_right(
                self._xp,
                self.operands,
                output,
                self._reference_of(content),
                content if self.operands.problem.operation.is_linear else 1,
                finds_rounding=self._finds_rounding,
            )
        except WrongError:
            if self._accepted and not self._reads_output and is_unchanged(self._xp, output):
                raise missing(STALE) from None
            raise

    def _reference_of(self, content: int) -> Reference:
        """Return the reference for a set. All sets of a linear operation share one reference."""
        is_linear = self.operands.problem.operation.is_linear
        return self._reference() if is_linear else self._reference(content)

    def _accept(self, errors: Errors) -> None:
        self._accepted = True
        self.errors = Errors(*map(max, self.errors, errors))


def require_right(
    xp: Any,
    operands: OperandSets,
    output: Any,
    reference: Reference,
    factor: int = 1,
    *,
    finds_rounding: bool,
) -> Errors:
    """Return the errors of an output. Raises WrongError if the output is wrong."""
    problem = operands.problem
    precision = problem.precision
    if reference.compare:
        return _require_compared(reference.compare(output))
    errors = errors_of(xp, output, reference, precision.result_roundoff, factor)
    error = errors.judged
    if why_inaccurate(error, problem.tolerance):
        multiple = _multiple(xp, output, reference, factor)
        require(why_inaccurate(error, problem.tolerance, multiple), error)
    if finds_rounding and can_show_rounding(problem):
        rows, part = _some_rows(problem, output)
        part = part / np.asarray(factor, output.dtype)
        require(why_rounded(*find_rounding(problem, operands.host_inputs, rows, part)))
    return errors


def _some_rows(problem: Problem, output: Any) -> tuple[list[int], Any]:
    """Return the indices of random rows of a result, and these rows in host memory."""
    rows = choose_lines(problem, problem.output_shape[0])
    return rows, on_host(take_rows(output, rows))


def right_on(
    xp: Any, problem: Problem, inputs: Sequence[Any], *, at_once: bool = False
) -> Callable[[Any], None]:
    """Return a function that raises WrongError unless an output is the result on `inputs`.

    `inputs` are operands in host memory. The reference is made when the first output is compared,
    or immediately if `at_once` is true.
    """

    @cache
    def reference() -> Reference:
        return reference_of_host(xp, problem.op, inputs)

    def judge(output: Any) -> None:
        if compare := reference().compare:
            _require_compared(compare(output))
            return
        error = relative_error(xp, output, reference(), problem.precision.result_roundoff)
        if (why := why_inaccurate(error, problem.tolerance)) and finishes_product(problem):
            why = why_rounded_early(problem, inputs, *_some_rows(problem, output)) or why
        require(why, error)

    if at_once:
        reference()
    return judge


def require_right_on(xp: Any, problem: Problem, inputs: Sequence[Any], output: Any) -> None:
    """Raise WrongError unless an output is right for `inputs`, which are in host memory."""
    right_on(xp, problem, inputs)(output)


def _require_compared(compared: Compared) -> Errors:
    """Return the errors that an operation's own comparison has found. Raises WrongError."""
    require(compared.reason, compared.judged)
    return Errors(compared.judged, compared.largest, compared.rms)


def _multiple(xp: Any, output: Any, reference: Reference, factor: int) -> int:
    """Return n if an output is n times the right result, and n is at least 2. Else, return 0."""
    right = factor * reference.parts[0].ravel().astype(np.float64)
    largest = int(xp.abs(right).argmax())
    ratio = float(output.ravel()[largest]) / (float(right[largest]) or 1.0)
    multiple = round(ratio) if abs(ratio) < MAX_MULTIPLE else 0
    if multiple <= 1:
        return 0
    scaled = output.ravel().astype(np.float64) / multiple
    return multiple if xp.allclose(scaled, right, rtol=SAME) else 0


def poison(output: Any, *, reads_output: bool = False) -> None:
    """Fill an output with poison, which reveals elements that the kernel does not write."""
    output.fill(poison_of(output, reads_output=reads_output))


def poison_of(output: Any, *, reads_output: bool = False) -> float:
    """Return the poison that fills an output before a launch. Poison is NaN or an unlikely integer.

    An output that the kernel reads is filled with zeros. An element that is not written is then
    wrong unless it should be 0.
    """
    if reads_output:
        return 0
    if output.dtype.kind == "u":  # bytes of several results: NaN in each floating-point type
        return BYTE_POISON
    if output.dtype.kind == "i":
        return max(INTEGER_POISON, int(np.iinfo(output.dtype).min))
    return np.nan


def never_written(xp: Any, output: Any, variant: Variant) -> str:
    """Return the reason, with advice, for a variant whose output `is_unwritten`."""
    if not is_unchanged(xp, output, reads_output=variant.reads_output):
        return WROTE_NAN
    advice = "; if it reads the result, as beta * C does, write reads_output=True"
    if isinstance(variant, CallVariant) and not isinstance(variant, HostVariant):
        advice = "; write into the last argument, as in c[:] = …, and not c += …; returns=True is "
        advice += "for a function that takes the inputs alone and returns the result"
    return f"the result is unchanged by the launch{advice}"


def why_unwritten(output: Any) -> str:
    """Return what an output that `is_unwritten` shows. A kernel may also have computed NaN."""
    if output.dtype.kind in "iu":
        return "the result was never written"
    return "all elements of the result are NaN: were they never written?"


def is_unchanged(xp: Any, output: Any, *, reads_output: bool = False) -> bool:
    """Return whether an output has the bits that `poison` wrote."""
    before = xp.empty_like(output)
    poison(before, reads_output=reads_output)
    bits = f"u{output.dtype.itemsize}"
    return bool(count_true(output.view(bits) == before.view(bits)) == output.size)


def is_unwritten(xp: Any, output: Any) -> bool:
    """Return whether an output holds only NaN or the unlikely integer of `poison_of`."""
    is_integer = output.dtype.kind in "iu"
    held = output == poison_of(output) if is_integer else xp.isnan(output.astype(np.float64))
    return bool(count_true(held) == output.size)


def count_true(where: Any) -> int:
    """Return how many elements are true.

    The elements are summed as float64, because CuPy compiles a reduction of booleans for each size,
    which takes a second or more.
    """
    return int(where.astype(np.float64).sum())


def relative_error(
    xp: Any, output: Any, reference: Reference, result_roundoff: float = 0.0, factor: int = 1
) -> float:
    """Return the largest error of an element relative to ‖row of A‖·‖column of B‖ + √K·|element|.

    The first term bounds the partial sums if the operands have random signs. The second term bounds
    the partial sums if the operands have one sign. The partial sums then grow to the result, and
    their K roundings add up as √K (Higham, Accuracy and Stability of Numerical Algorithms, 2.8).
    For a chained product, the scale also includes the errors that the first product may have. The
    rounding of the sum to the result's type, which is at most `result_roundoff` times the element,
    does not count as an error.

    The right output is `factor` times the reference. Return NaN if any element is NaN. For
    integers, return the largest difference from the result modulo 2³².
    """
    return errors_of(xp, output, reference, result_roundoff, factor).judged


def errors_of(
    xp: Any, output: Any, reference: Reference, result_roundoff: float = 0.0, factor: int = 1
) -> Errors:
    """Return the errors of an output, both without and with the rounding to the result's type."""
    if reference.compare:
        compared = reference.compare(output)
        judged = math.inf if compared.reason else compared.judged
        return Errors(judged, compared.largest, compared.rms)
    if output.shape != (shape := np.shape(reference.parts[0])):
        raise LaunchError(f"the operation's reference has the shape {shape}, not {output.shape}")
    if output.dtype.kind == "i":
        expected = (reference.parts[0].astype(np.int64) * factor).astype(output.dtype)
        return Errors(judged=float(xp.abs(output.astype(np.int64) - expected).max()))
    error = output.astype(np.float64)
    for part in reference.parts:
        error -= factor * part
    error = xp.abs(error)
    size = xp.abs(factor * reference.parts[0])
    scale = math.sqrt(reference.terms) * size  # a NumPy scalar would make CuPy import SciPy
    scale += abs(factor) * reference.row_norms * reference.column_norms
    scale += abs(factor) * reference.inherited
    # A zero row or column must give exact zeros: an error divided by the tiny scale is huge.
    scale = xp.maximum(scale, np.finfo(np.float64).tiny)
    relative = error / scale
    largest = float(relative.max())
    rms = largest
    if largest and math.isfinite(largest):  # squares of quotients below 1 do not overflow
        relative /= largest
        rms *= math.sqrt(float(xp.square(relative).mean()))
    if not result_roundoff:
        return Errors(largest, largest, rms)
    limits: Any = ml_dtypes.finfo  # ml_dtypes has no type annotations
    underflow = float(limits(output.dtype).smallest_subnormal) / 2
    result_roundoff = min(result_roundoff, float(limits(output.dtype).eps) / 2)
    error = xp.maximum(error - (ROUNDED_ONCE * result_roundoff * size + underflow), 0.0)
    return Errors(float((error / scale).max()), largest, rms)


def compare_small(operand_cache: OperandCache, xp: Any, points: Sequence[Point]) -> None:
    """Compare a small result in each precision, so that CuPy compiles the kernels of comparisons.

    No kernel writes this result, and the error of the result is not used.
    """
    products = (point for point in points if point.problem.operation.is_product)
    for point in {point.problem.dtype: point for point in products}.values():
        problem = point.problem.at(tuple(min(extent, SMALL) for extent in point.problem.numbers))
        small = replace(point, problem=problem, cache=Cache.HOT)
        try:
            output = operand_cache.operands(small).output
        except DoesNotFitError:  # the values of `--operands index` exceed the type's range
            continue
        poison(output)
        reference = operand_cache.reference(small)
        relative_error(xp, output, reference, problem.precision.result_roundoff)


def rows_error(
    xp: Any, problem: Problem, inputs: Sequence[Any], rows: Sequence[int], output: Any
) -> float:
    """Return the `relative_error` of some rows of a product.

    `inputs` are the operands, as arrays of the module `xp`. `output` has only these rows. For
    operations on vectors, `output` is the complete result, because the result is short.
    """
    first, second = inputs
    part = take_rows(first, rows) if problem.operation.is_by_rows else first
    reference = make_reference(xp, problem.op, part, second)
    return relative_error(xp, output, reference, problem.precision.result_roundoff)


def rows_to_check(problem: Problem) -> list[int]:
    """Choose the rows of a result that are compared, and return their indices.

    The rows are random, so that no kernel can know them in advance. If a row cannot be computed
    from a row of the first operand, all rows are compared.
    """
    count = problem.output_shape[0]
    if not problem.operation.is_by_rows:
        return list(range(count))
    return sorted({randbelow(count) for _ in range(CHECKED_ROWS)})


def take_rows(array: Any, rows: Sequence[int]) -> Any:
    """Return rows of an array of any element type. CuPy indexes only arrays of its own types."""
    return array.view(f"u{array.dtype.itemsize}")[list(rows)].view(array.dtype)
