"""Rates derived from a time and a problem. Pure."""

from __future__ import annotations

from gpubench.model import Problem


def gflops(problem: Problem, time_us: float) -> float:
    """Operations per nanosecond, that is 10⁹ operations per second."""
    return problem.flops / time_us / 1e3


def gbytes_per_s(problem: Problem, time_us: float) -> float:
    """The bytes that must move (each operand once) over the time: a lower bound of the traffic."""
    return problem.bytes / time_us / 1e3


def arithmetic_intensity(problem: Problem) -> float:
    """FLOP per byte that must move (Williams, Waterman, Patterson: Roofline, 2009)."""
    return problem.flops / problem.bytes


def cgma(problem: Problem, reuse: tuple[int, int]) -> float:
    """Compute to global memory access ratio: operations per element loaded from or stored to it.

    `reuse` is the rows×columns of C that share their loads: for each of K steps they take
    rows + columns loads and make 2·rows·columns operations, and store each element once (Kirk and
    Hwu, Programming Massively Parallel Processors). 1 for a kernel without tiling, T for T×T. A
    vector is a matrix of one column: `rows` elements of the result share a load of x.
    """
    rows, columns = reuse
    accesses = problem.terms * (rows + columns) + rows * columns
    return 2 * rows * columns * problem.terms / accesses


def percent(part: float | None, whole: float | None) -> float | None:
    """100 · part / whole; None where either is missing."""
    return 100 * part / whole if part is not None and whole else None
