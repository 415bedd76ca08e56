"""Operands from a seed, and what the result must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpubench.model import Problem

INTEGER_BOUND = 1000
"""Integer operands are drawn from [−1000, 1000]: sums wrap, as integer kernels must allow."""

SLICE_BITS = 53
"""Bits of a float64 significand; a product of slices whose sum needs no more is exact."""

EXACT_STEP = 2**20
"""A sum of this many products of 16-bit halves (< 2³²) stays exact in float64."""


def make_inputs(problem: Problem, seed: int) -> tuple[np.ndarray, ...]:
    """The operands of a problem: uniform in [−1, 1], or integers in [−1000, 1000].

    Random rather than zeros: zeros switch fewer gates, and run up to 15 % faster.
    """
    rng = np.random.default_rng(seed)
    return tuple(_uniform(rng, shape, problem.dtype) for shape in problem.input_shapes)


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "int32":
        return rng.integers(
            -INTEGER_BOUND, INTEGER_BOUND, size=shape, dtype=np.int32, endpoint=True
        )
    values = rng.random(shape, dtype=np.dtype(dtype).type)
    values *= 2
    values -= 1
    return values


def verifying_bytes(problem: Problem) -> int:
    """Memory that making a reference and comparing with it take at the most."""
    m, n, k = problem.m, problem.n, problem.k
    return 8 * (4 * (m * k + k * n) + 8 * m * n)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The result in higher precision, and the scale that errors are held against.

    Arrays of NumPy or CuPy, wherever the operands are.
    """

    parts: tuple[Any, ...]
    """Arrays whose exact sum is the result: one for float32 and int32, three for float64."""

    terms: int
    """K: products summed for an element."""

    row_norms: Any
    """‖row of A‖₂, M×1."""

    column_norms: Any
    """‖column of B‖₂, 1×N."""


def make_reference(xp: Any, a: Any, b: Any) -> Reference:
    """The product A·B in higher precision than the operands', in the array module `xp`.

    float32 in float64; int32 exactly, modulo 2³²; float64 to about 2⁻⁶⁰ of ‖a‖·‖b‖.
    """
    if a.dtype == np.int32:
        parts: tuple[Any, ...] = (_product_modulo_2_32(xp, a, b),)
    elif a.dtype == np.float32:
        parts = (a.astype(np.float64) @ b.astype(np.float64),)
    else:
        parts = _product_in_parts(xp, a, b)
    return Reference(
        parts=parts,
        terms=a.shape[1],
        row_norms=xp.linalg.norm(a.astype(np.float64), axis=1)[:, None],
        column_norms=xp.linalg.norm(b.astype(np.float64), axis=0)[None, :],
    )


def _product_modulo_2_32(xp: Any, a: Any, b: Any) -> Any:
    """An exact integer product through float64: 16-bit halves, a million of K at a time."""
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
    """A float64 product beyond float64: slices of so few bits that their products are exact.

    Ozaki, Ogita, Oishi, Rump: Error-free transformations of matrix multiplication (2012).
    """
    bits = (SLICE_BITS - (a.shape[1] - 1).bit_length()) // 2
    a_slices, b_slices = _slices(xp, a, bits), _slices(xp, b, bits)
    return tuple(
        sum(a_slices[i] @ b_slices[order - i] for i in range(order + 1))
        for order in range(len(a_slices))
    )


def _slices(xp: Any, values: Any, bits: int) -> list[Any]:
    """Three arrays that sum to `values`, each with `bits` significant bits against one scale."""
    _, exponent = np.frexp(float(xp.abs(values).max()))
    slices, rest = [], values
    for index in range(1, 4):
        unit = np.ldexp(1.0, int(exponent) - index * bits)
        slices.append(xp.rint(rest / unit) * unit)
        rest = rest - slices[-1]
    slices[-1] = slices[-1] + rest  # what is left is below 2^(−3·bits); it joins the last slice
    return slices
