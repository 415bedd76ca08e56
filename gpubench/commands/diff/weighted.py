"""`diff --weights`: compare the total time of a list of problems, each with its weight."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpubench.commands.diff.findings import DiffVerdict, Finding, Key, Limits
from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.model.operation import size_of
from gpubench.plan.problems import ListedProblem, read_problems, with_dtypes

PART = 0.25
"""A total counts as slower if it is slower by more than this fraction of the threshold. The scatter
of single points cancels in a total, so a smaller difference counts."""


@dataclass(frozen=True, kw_only=True)
class Total:
    """A kernel's total time for all problems, with the tiles that are fastest on the base side."""

    kernel: str
    """The kernel's variant and precision, such as `own float32`. Further columns of the key follow,
    if they differ between the totals."""

    verdict: DiffVerdict
    """`slower`, `faster`, `same` or `ambiguous`."""

    problems: int
    base_us: float
    ratio: float
    """Ratio of the new total to the base total, without the machine's shift."""

    ratio_low: float | None
    """Lower end of the ratio's interval, or None if a point has no interval."""

    ratio_high: float | None

    def __str__(self) -> str:
        low, high = (
            "" if end is None else f"{100 * (end - 1):+.2f}"
            for end in (self.ratio_low, self.ratio_high)
        )
        interval = f" ({low} .. {high} %)" if low else ""
        return f"{self.kernel} {100 * (self.ratio - 1):+.2f} %{interval} {self.verdict}"


def weighted_totals(path: Path, findings: Mapping[Key, Finding], limits: Limits) -> list[Total]:
    """Return a total for each kernel that has times on both sides for every problem of a list.

    Raises UsageError for a list that cannot be read, and if no kernel has times of all problems of
    the list.
    """
    two_sided = [key for key, finding in findings.items() if finding.ratio]
    ops = {key.op for key in two_sided}
    if len(ops) != 1:
        raise UsageError(
            f"--weights: the files have times of {len(ops)} operations on both sides, and a list"
            " is for one operation; choose the operation with --only"
        )
    problems = read_problems(path, ops.pop(), "--weights")
    sides = grouped(two_sided, lambda key: key._replace(tile="", m=0, n=0, k=0, extents=""))
    differing = [
        name
        for name in Key._fields
        if name not in {"variant", "dtype", "compute_mode"}
        and len({getattr(kernel, name) for kernel in sides}) > 1
    ]
    totals, missing = list[Total](), ""
    for kernel, keys in sides.items():
        listed = [
            each
            for each in with_dtypes(problems, [kernel.compute_mode])
            if each.dtype == kernel.compute_mode
        ]
        by_size = grouped(keys, size_of)
        absent = next((each for each in listed if each.size not in by_size), None)
        if absent or not listed:
            missing = missing or (
                f"the time of '{absent.name}' is missing"
                if absent
                else f"the list has no problem in {kernel.compute_mode}"
            )
            continue
        chosen = [
            min((findings[key] for key in by_size[each.size]), key=lambda item: item.base_us or 0.0)
            for each in listed
        ]
        columns = ("variant", "compute_mode", *differing)
        name = " ".join(str(getattr(kernel, column)) for column in columns)
        totals.append(_total(name, listed, chosen, limits))
    if not totals:
        raise UsageError(f"--weights: no kernel has times of all problems; {missing}")
    return totals


def _total(
    kernel: str, problems: Sequence[ListedProblem], findings: Sequence[Finding], limits: Limits
) -> Total:
    """Return the total over a kernel's problems.

    The half-width of the total's interval is the mean of the points' half-widths, weighted by the
    points' shares of the total. This half-width is valid even if all points deviate together, for
    example in a slow process.
    """
    parts = [
        problem.weight * (finding.base_us or 0.0)
        for problem, finding in zip(problems, findings, strict=True)
    ]
    new = [part * (item.judged_ratio or 1.0) for part, item in zip(parts, findings, strict=True)]
    effect = math.log(sum(new) / sum(parts))
    halves = [
        math.log(item.ratio_high / item.ratio) if item.ratio and item.ratio_high else math.inf
        for item in findings
    ]
    half = sum(part * each for part, each in zip(parts, halves, strict=True)) / sum(parts)
    limit = math.log1p(PART * limits.threshold)
    verdict = DiffVerdict.AMBIGUOUS
    if abs(effect) - half > limit:
        verdict = DiffVerdict.SLOWER if effect > 0 else DiffVerdict.FASTER
    elif abs(effect) + half <= limit:
        verdict = DiffVerdict.SAME
    return Total(
        kernel=kernel,
        verdict=verdict,
        problems=len(problems),
        base_us=sum(parts),
        ratio=math.exp(effect),
        ratio_low=math.exp(effect - half) if half < math.inf else None,
        ratio_high=math.exp(effect + half) if half < math.inf else None,
    )
