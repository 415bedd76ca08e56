"""Proves a description by running its function at two sizes on the CPU, and judging the results.

g++ compiles the unchanged source. A source with inline PTX, or with a library of CUDA, cannot be
proved in this way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from pathlib import Path

import numpy as np

from gpubench.backends import backends
from gpubench.engine.judge.verify import INTEGER_POISON
from gpubench.engine.small_sweep import rows_at
from gpubench.errors import CompileError, UsageError
from gpubench.model import (
    OPERATIONS,
    CallVariant,
    Config,
    CudaVariant,
    HostVariant,
    Problem,
    Status,
    Variant,
)
from gpubench.model.signature import why_incomplete
from gpubench.model.sources import include_folders, included_names, read_source, whole_source
from gpubench.on_cpu.case import Case, differs, is_of_row_major_b, right_result, row_major_only
from gpubench.on_cpu.fault import HUNG, KernelFaultError
from gpubench.on_cpu.only_nvcc import why_only_nvcc
from gpubench.on_cpu.run import Sanitizer, run_on_cpu
from gpubench.plan.from_source.files import expanded
from gpubench.temporary import temporary_folder

SIZES = ((256, 512, 64), (512, 256, 32), (128, 128, 128), (256, 256, 256))
"""M, N and K, or other extents, at which a function is run. The first two sizes that the function
takes are used. The squares are for functions that take only square matrices. Most tiles divide
these sizes."""

BATCH = 2
"""Number of products of an operation that computes many products. This extent is the first."""

SMALL = ((32, 32, 32), (13, 7, 5))
"""M, N and K at which a Python function is called. M, N and K are small, because the function may
be a plain loop, which is slow."""

_CUTLASS = re.compile(r"\b(?:cute|cutlass)(?:::|\s*;)")
SUMS = ("float16", "float16_sum16")  # products of float16 that sum in float32, and in float16
BIG = 2048  # a sum that float16 cannot increase by 1

RUNS = 2
MAX_WRONG_SHARE = 0.5  # share of wrong results above which other layouts are tried
LAYOUTS = tuple(chain.from_iterable(combinations("ABC", count) for count in range(4)))
LIMIT_S = 5.0  # time limit of a launch on the CPU, in seconds


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The result of an attempt to prove a description."""

    reason: str = ""  # why the description was not proved, or an empty text
    sizes: str = ""  # the sizes at which the description was proved
    column_major: tuple[str, ...] | None = None  # another layout with right results
    squares_only: bool = False  # whether results are right only if all extents are equal
    is_wrong: bool = False  # whether results were wrong, or an access was wrong


def prove(variant: Variant, kernels: Path, *, as_is: bool = False) -> Proof:
    """Run a described function of the folder `kernels` at two sizes, and verify the results.

    If the results are wrong, other layouts of the matrices are tried, and then square matrices.
    Neither is tried with `as_is`.
    """
    if isinstance(variant, CallVariant) and not isinstance(variant, HostVariant):
        return _of_call(variant, kernels)
    if not isinstance(variant, CudaVariant | HostVariant):
        return Proof(reason=variant.idea)
    tile = variant.tiles.defaults[0] if variant.tiles else None
    problems = list(_problems(variant))
    taken = [each for each in problems if variant.why_not(tile, each) is None][:RUNS]
    lack = why_incomplete(variant.signature, variant.op)
    if lack or not taken:
        return Proof(reason=lack or variant.why_not(tile, problems[0]) or "")
    with temporary_folder() as folder:
        trial = Trial(variant=variant, tile=tile, folder=folder)
        try:
            return _tried(trial, taken, problems[RUNS:], as_is=as_is)
        except CompileError as error:
            options = variant.options(tile, variant.dtypes[0])
            return Proof(reason=why_only_nvcc(variant.source, options, trial.text) or str(error))
        except (KernelFaultError, UsageError, ValueError) as error:
            fault = f"on the CPU: {error.finding}" if isinstance(error, KernelFaultError) else ""
            return Proof(reason=fault or str(error), is_wrong=bool(fault))


def _of_call(variant: CallVariant, kernels: Path) -> Proof:
    """Verify a function that takes arrays in the same way as a sweep, and return the proof."""
    if not backends()[variant.backend].host_arrays:
        return Proof(reason="the function needs a GPU; sweep it on a GPU")
    rows = rows_at(variant, kernels, SMALL)
    reason = next((str(row.reason or row.status) for row in rows if row.status != Status.OK), "")
    return Proof(reason=reason, sizes=" and ".join(row.size for row in rows))


def _tried(
    trial: Trial, problems: Sequence[Problem], squares: Sequence[Problem], *, as_is: bool
) -> Proof:
    """Return the proof of the description as it is, in another layout, or for squares only."""
    reasons, share = trial.reasons(problems)
    if not any(reasons):
        sizes = " and ".join(problem.size for problem in problems)
        return Proof(sizes=sizes, reason=trial.of_sums(problems[0]))
    if HUNG in reasons[0] or as_is:
        return Proof(reason=next(filter(None, reasons)))
    if problems[0].operation.has_layouts and share > MAX_WRONG_SHARE:
        layouts = [layout for layout in LAYOUTS if layout != problems[0].column_major]
        others = [replace(problems[0], column_major=layout) for layout in layouts]
        tried = zip(layouts, trial.reasons(others)[0], strict=True)
        right = [layout for layout, wrong in tried if not wrong]
        if len(right) == 1:
            return Proof(column_major=right[0], is_wrong=True)
    if problems[0] not in squares and not any(trial.reasons(squares)[0]):
        return Proof(squares_only=True, is_wrong=True)
    return Proof(reason=next(filter(None, reasons)), is_wrong=True)


@dataclass(kw_only=True)
class Trial:
    """A described function, and the folder in which it is compiled."""

    variant: CudaVariant | HostVariant
    tile: Config | None
    folder: Path

    @cached_property
    def text(self) -> str:
        """The system's includes, then the source with its own headers and macros expanded."""
        options = self.variant.options(self.tile, self.variant.dtypes[0])
        folders = include_folders(options)
        *_, text = expanded(self.variant.source, folders)
        files = whole_source(self.variant.source, folders)
        near = {file.name for file in files}
        names = {name for file in files for name in included_names(read_source(file))}
        if not re.search(r"\bstd\b", text):  # C++'s headers take seconds to compile
            names = {"ctime", *(each for each in names if each.endswith(".h") or each[0] == "c")}
        missing = sorted(name for name in names if Path(name).name not in near)
        return "".join(f"#include <{name}>\n" for name in missing) + text

    def reasons(self, problems: Sequence[Problem]) -> tuple[list[str], float]:
        """Return for each problem why its results are wrong, or an empty text.

        Also return the share of wrong results. Raises CompileError if g++ cannot compile the
        source.
        """
        if _CUTLASS.search(self.text):
            raise CompileError("the headers of CUTLASS do not compile with g++")
        cases = [
            Case(variant=self.variant, tile=self.tile, problem=problem) for problem in problems
        ]
        try:
            outputs = run_on_cpu(
                cases, Sanitizer.NONE, self.folder / "trial", self.text, stalled_s=LIMIT_S
            )
        except KernelFaultError as error:
            return [f"on the CPU: {error.finding}"] * len(problems), 0.0
        reasons, wrong, count = [], 0, 0
        for case, output in zip(cases, outputs, strict=True):
            problem = case.problem
            where = differs(output, *right_result(problem))
            wrong, count = wrong + int(np.count_nonzero(where)), count + output.size
            by_rows = is_of_row_major_b(case, output)
            reason = row_major_only(problem.dtype) if by_rows else ""
            reasons.append(reason or _why_wrong(problem, output, where))
        return reasons, wrong / count

    def of_sums(self, problem: Problem) -> str:
        """Return a text if a float16 product sums in another type than stated, else an empty text.

        Each result is the sum of 2048, then ones, then -2048. A sum in float16 loses each 1.
        """
        stated = problem.dtype
        if stated not in SUMS or len(problem.input_shapes) != len("AB"):
            return ""
        kinds = zip(problem.input_shapes, problem.types, strict=False)
        left, right = (np.ones(shape, kind) for shape, kind in kinds)
        right[0], right[-1] = BIG, -BIG
        case = Case(variant=self.variant, tile=self.tile, problem=problem, inputs=(left, right))
        (output,) = run_on_cpu(
            [case], Sanitizer.NONE, self.folder / "trial", self.text, stalled_s=LIMIT_S
        )
        is_wide = bool(np.all(output == len(right) - 2))
        summed = SUMS[not is_wide]
        width = "float32" if is_wide else "float16"
        return "" if summed == stated else f'it sums in {width}: write dtypes=("{summed}",)'


def _problems(variant: CudaVariant | HostVariant) -> Iterator[Problem]:
    """Yield problems in the variant's first dtype and its own layout."""
    dtype, operation = variant.dtypes[0], OPERATIONS[variant.op]
    for size in SIZES:
        count = len(operation.extents)
        extents = (*[BATCH] * (count - len(size)), *size)[:count]
        problem = Problem.of(variant.op, operation.size_of(extents), dtype)
        yield replace(problem, column_major=variant.own_layout(dtype))


def _why_wrong(problem: Problem, output: np.ndarray, differs: np.ndarray) -> str:
    """Return why a result is wrong, or an empty text."""
    is_integer = output.dtype.kind == "i"
    unwritten = output == INTEGER_POISON if is_integer else np.isnan(output.astype(np.float64))
    for what, where in (("were not written", unwritten), ("are wrong", differs)):
        if count := int(np.count_nonzero(where)):
            return f"{count:,} of {output.size:,} results at {problem.size} {what}"
    return ""
