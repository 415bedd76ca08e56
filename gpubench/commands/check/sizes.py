"""Finds the sizes at which a kernel is right, if it is wrong at other sizes.

Kernels without bounds checks are right only if their tiles divide the extents, and vector loads are
aligned only if the vector divides the row. Only the user knows whether this is intended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpubench.commands.check.cases import SMALL_K, rounded_up
from gpubench.errors import UsageError
from gpubench.model import OPERATIONS, Problem
from gpubench.model.operation import PRODUCT_EXTENTS
from gpubench.on_cpu.case import Case, differs, right_result
from gpubench.on_cpu.fault import KernelFaultError
from gpubench.on_cpu.run import Sanitizer, run_on_cpu
from gpubench.temporary import temporary_folder

STEPS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128)
"""Numbers that are tried as divisors of M, N and K, in this order. At 256, a run takes 10 s."""

SQUARE = 128  # extents of the square matrices on which a race is searched

SQUARES = (SQUARE, 96)
"""Extents of square matrices: each of `STEPS` divides one of them. A kernel that is wrong at a
square is wrong under each condition that the square meets."""

BATCHES = 2  # maximum of the extents beside M, N and K

MIN_SIZES = 2  # minimum number of different sizes that support a condition

LIMIT_S = 10.0  # time limit of a launch, in seconds

Cases = Mapping[Sanitizer, Sequence[Case]]


@dataclass(frozen=True, kw_only=True)
class SizeRule:
    """A condition on the extents of a problem."""

    divisors: Mapping[str, int]  # numbers that must divide M, N and K, by extent
    is_square: bool = False  # whether these extents must be equal

    def __str__(self) -> str:
        """Return the condition, such as `M % 64 == 0 and K % 8 == 0`."""
        return self._condition({name: name for name in self.divisors})

    @property
    def field(self) -> str:
        """The field of a description that refuses all other sizes, as Python code."""
        names = {name: f"problem.{name.lower()}" for name in self.divisors}
        return f'refuse=lambda _, problem: None if {self._condition(names)} else "needs {self}",'

    def _condition(self, names: Mapping[str, str]) -> str:
        """Return the condition in Python. `names` has the text for each extent."""
        divided = [
            f"{names[each]} % {step} == 0" for each, step in self.divisors.items() if step > 1
        ]
        if self.is_square:  # a number that divides an extent divides all extents
            divided = [" == ".join(names.values()), *divided[:1]]
        return " and ".join(divided)

    def cases(self, cases: Sequence[Case]) -> list[Case]:
        """Return the cases at the nearest larger sizes that meet the condition."""
        larger = {
            (case.tile, problem): replace(case, problem=problem)
            for case in cases
            for problem in [self._nearest(case.problem)]
            if case.variant.why_not(case.tile, problem) is None
        }
        return [*larger.values()]

    def _nearest(self, problem: Problem) -> Problem:
        extents = {name: problem.extents[name] for name in self.divisors}
        if self.is_square:
            extents = dict.fromkeys(extents, sorted(extents.values())[len(extents) // 2])
        larger = {name: _multiple(extents[name], step) for name, step in self.divisors.items()}
        few = {name: min(extent, BATCHES) for name, extent in problem.extents.items()}
        return problem.at(problem.operation.size_of([*(few | larger).values()]))


def _multiple(extent: int, step: int) -> int:
    """Return a multiple of the step.

    Extents below the step become one or two steps, so that extents that differ remain different.
    """
    if extent >= step:
        return rounded_up(extent, step)
    return 2 * step if extent > SMALL_K else step


def right_sizes(cases: Cases) -> SizeRule | None:
    """Return the weakest condition under which a kernel is right, and clean under all sanitizers.

    `cases` has the cases of each sanitizer, of which some have a fault. Return None if the kernel
    is wrong under each condition that is tried.
    """
    searched = cases[Sanitizer.ADDRESS]
    if OPERATIONS[searched[0].problem.op].listed:
        return None
    with temporary_folder() as folder:
        squares = [
            edge
            for edge in SQUARES
            if _is_right(_rule(searched, edge, is_square=True), searched, folder)
        ]
        steps = [step for step in STEPS if any(edge % step == 0 for edge in squares)]
        for is_square in (False, True):
            rules = (_rule(searched, step, is_square=is_square) for step in steps[not is_square :])
            rule = next((each for each in rules if _is_right(each, searched, folder)), None)
            if rule:
                weakest = rule if is_square else _weakest(rule, searched, folder)
                is_clean = _is_right(weakest, cases[Sanitizer.THREAD], folder, Sanitizer.THREAD)
                return weakest if is_clean else None
    return None


def race_of_square(cases: Cases) -> KernelFaultError | None:
    """Return a race in shared memory on square matrices of `SQUARE`, or None.

    At other sizes, a kernel without bounds checks may stop before the race.
    """
    watched = cases[Sanitizer.THREAD]
    if OPERATIONS[watched[0].problem.op].listed:
        return None
    for case in _rule(watched, SQUARE, is_square=True).cases(watched)[:1]:
        with temporary_folder() as folder:
            try:
                run_on_cpu([case], Sanitizer.THREAD, folder, stalled_s=LIMIT_S)
            except KernelFaultError as fault:
                return fault if fault.is_race_in_block else None
            except UsageError:  # ThreadSanitizer cannot be used here
                return None
    return None


def _rule(cases: Sequence[Case], step: int, *, is_square: bool) -> SizeRule:
    """Return the rule that a number divides M, N and K, or those of them that a problem has."""
    names = [name for name in cases[0].problem.extents if name in PRODUCT_EXTENTS]
    return SizeRule(divisors=dict.fromkeys(names, step), is_square=is_square)


def _weakest(rule: SizeRule, cases: Sequence[Case], folder: Path) -> SizeRule:
    """Return the rule with the smallest divisor of each extent.

    K is first, because a smaller K shortens the runs for the other extents.
    """
    for name, step in reversed([*rule.divisors.items()]):
        smaller = (each for each in range(1, step) if step % each == 0)
        weaker = (replace(rule, divisors={**rule.divisors, name: each}) for each in smaller)
        rule = next((each for each in weaker if _is_right(each, cases, folder)), rule)
    return rule


def _is_right(
    rule: SizeRule, cases: Sequence[Case], folder: Path, by: Sanitizer = Sanitizer.ADDRESS
) -> bool:
    """Whether the results at sizes that meet a rule are right, without a fault."""
    larger = rule.cases(cases)
    if len({case.problem for case in larger}) < MIN_SIZES:
        return False
    instances = [name for case in larger for name in case.instances]
    program = folder / f"{by.name}{hash(tuple(dict.fromkeys(instances)))}"
    try:
        outputs = run_on_cpu(larger, by, program, stalled_s=LIMIT_S)
    except (KernelFaultError, UsageError):
        return False
    pairs = zip(larger, outputs, strict=True)
    return not any(differs(out, *right_result(case.problem)).any() for case, out in pairs)
