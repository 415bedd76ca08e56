"""Judges solutions of problems that other projects state, one problem after the other."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from gpubench.cache import cache_file
from gpubench.commands.judge import view
from gpubench.commands.judge.ahead import Ahead
from gpubench.commands.judge.budget import Budget
from gpubench.commands.judge.measured import measured, read_judged
from gpubench.commands.judge.verdicts import Judged, exit_code, judge_rows
from gpubench.errors import INTERRUPTED, UsageError
from gpubench.foreign import forms, process
from gpubench.foreign.folder import is_compiled
from gpubench.foreign.operation import REFERENCE, Record, read_record
from gpubench.plan.registry import is_ours, of_op
from gpubench.plan.sweep import Sweep
from gpubench.results.row import Row, read
from gpubench.text import counted, shown
from gpubench.view.job import NOTHING_MEASURED
from gpubench.view.numbers import time_text
from gpubench.view.tables import console, say, table

NOT_JUDGED = 3  # exit code if a problem of a folder cannot be used

FEW_BITS = 2  # results that lose at most this number of the reference's bits are not reported


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Values that some options of `gpubench judge` have."""

    claim: float
    same: float  # the largest relative difference that counts as the same
    resume: Path | None  # the folder of the results of an earlier call
    force: bool


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem that was judged, with the verdicts and the measured rows."""

    record: Record
    judged: list[Judged]
    rows: list[Row]
    path: Path | None  # None if nothing was measured, and an existing file stays


def names_problem(names: Sequence[str], solutions: Sequence[Path] | None) -> bool:
    """Return whether the arguments of judge name a problem of another project."""
    name = names[0] if len(names) == 1 else ""
    is_folder = name.endswith("/") or os.path.isdir(name)  # noqa: PTH112 # Path.is_dir raises for a name that is too long
    is_named = is_folder or Path(name).suffix in {".yml", ".json"}
    return bool(solutions or is_named or forms.is_model(Path(name)))


def judge_problems(
    names: Sequence[str],
    solutions: Sequence[Path] | None,
    options: Mapping[str, Any],
    defaults: Sweep,
    choices: Choices,
    *,
    as_json: bool,
) -> int:
    """Judge the solutions of all problems of a path, print the verdicts, and return the exit code.

    The problems share the budget. Raises UsageError for arguments that cannot be used.
    """
    problems = _with_solutions(names, solutions)
    output = Path(options["output"]) if options.get("output") else None
    if choices.resume and output:
        raise UsageError("-o: --resume already names the folder")
    if choices.resume and not choices.resume.exists():
        raise UsageError(f"--resume: {shown(str(choices.resume))}: no such folder")
    folder = choices.resume or output
    if folder and folder.suffix == ".csv" and len(problems) > 1:
        raise UsageError("-o: the results of several problems need a folder")
    done, code = _judge_all(problems, options, defaults, choices, folder)
    judged = [each for problem in done for each in problem.judged]
    if as_json:
        facts: dict[str, object] = {"claim": choices.claim, "threshold": choices.same}
        facts |= {"problems": [*map(_members, done)]}
        rows = [row for problem in done for row in problem.rows]
        typer.echo(view.as_json(judged, rows, facts))
    else:
        console().print(Group(*as_tables(done, choices.claim)))
    return code if code == INTERRUPTED else exit_code(judged) or code


def _judge_all(
    problems: Sequence[tuple[Path, Sequence[Path]]],
    options: Mapping[str, Any],
    defaults: Sweep,
    choices: Choices,
    folder: Path | None,
) -> tuple[list[Problem], int]:
    """Judge problems until the budget is used up. Return the judged problems and the exit code."""
    done, code, budget = list[Problem](), 0, Budget(len(problems))
    # Problems with compiled solutions are judged last, because a compilation takes a minute.
    problems = sorted(problems, key=lambda each: is_compiled(each[1]))
    try:
        with Ahead(problems, options) as ahead:
            for number, (path, beside) in enumerate(problems):
                budget.begin()
                own = {**options, "op": str(path), "output": None}
                functions = len(beside) + 1
                try:
                    if budget.has_time:
                        ahead.prepare(number)
                        sweep = read_judged(own, defaults, beside)
                        results = _results_of(sweep, folder, choices)
                        rounds = budget.share(sweep, functions, ahead.prepared).timing.rounds
                        if not results.is_complete:
                            ahead.start_children(sweep, rounds)
                    if not budget.has_time:
                        used = f"--budget {budget.budget_s:g} is used up"
                        say(f"{used}, with {_left(budget, folder)}", "yellow", err=True)
                        return done, NOT_JUDGED
                except UsageError as error:
                    if len(problems) == 1:
                        raise
                    say(f"not judged: {error}", "yellow", err=True)
                    code = NOT_JUDGED
                    continue
                sweep = budget.share(sweep, functions, ahead.prepared)
                problem, is_interrupted = _judged(sweep, results, choices)
                done.append(problem)
                budget.judged(sum(row.rounds or 1 for row in problem.rows))
                if is_interrupted:
                    return done, _interrupted(budget, folder)
    except KeyboardInterrupt:
        if not done:
            raise
        return done, _interrupted(budget, folder)
    return done, code


def _interrupted(budget: Budget, folder: Path | None) -> int:
    """Say how to judge the rest after Ctrl-C. Return the exit code."""
    say(f"interrupted, with {_left(budget, folder)}", err=True)
    return INTERRUPTED


def _left(budget: Budget, folder: Path | None) -> str:
    """Return how many problems are left, with the one that began last, and how to judge them."""
    how = (
        f"--resume {shown(str(folder))} judges the rest"
        if folder
        else "name a folder with -o, so that --resume can judge the rest"
    )
    return f"{counted(budget.problems_left + 1, 'problem')} left to judge; {how}"


def _with_solutions(
    names: Sequence[str], solutions: Sequence[Path] | None
) -> list[tuple[Path, Sequence[Path]]]:
    """Return the problems of a path, each with its solutions.

    Problems without solutions are left out. Raises UsageError if no problem is left.
    """
    if len(names) != 1:
        raise UsageError("--solution: name the problem, or a folder of problems, as KERNEL")
    problems = forms.find(Path(names[0]))
    if not problems:
        name = shown(names[0])
        if not os.path.exists(names[0]):  # noqa: PTH110 # Path.exists raises for a long name
            raise UsageError(f"KERNEL: {name}: no such file or folder")
        *other_forms, last = forms.NAMES
        raise UsageError(f"KERNEL: {name} has no problem of {', '.join(other_forms)} or {last}")
    for solution in solutions or ():
        if not os.path.exists(solution):  # noqa: PTH110 # Path.exists raises for a long name
            raise UsageError(f"--solution: {shown(str(solution))}: no such file")
        if solution.is_dir():
            raise UsageError(f"--solution: {shown(str(solution))} is a folder: name its files")
    pairs = ((path, solutions or forms.solutions(form, path)) for form, path in problems)
    if judged := [(path, beside) for path, beside in pairs if beside]:
        return judged
    form, path = problems[0]
    raise UsageError(
        f"--solution: name a solution of {shown(path.name)}; none lies beside it as "
        f"{forms.place_of_solutions(form, path)}"
    )


class _Results(NamedTuple):
    """The file of a problem's results, and whether the results exist already."""

    path: Path | None
    is_begun: bool  # whether an earlier call began the problem and was interrupted
    is_complete: bool


def _results_of(sweep: Sweep, folder: Path | None, choices: Choices) -> _Results:
    path = folder
    if folder and folder.suffix != ".csv":
        options = {name: text for name, text in sweep.options.items() if name != "budget"}
        home = sweep.kernels or Path()
        key = cache_file("", options, home.name).name[:8]  # home.name depends on the sources
        path = folder / f"{sweep.op}-{key}.csv"
    resumed = path if choices.resume else None
    is_begun = bool(resumed and resumed.with_name(f"{resumed.name}.partial").is_file())
    return _Results(path, is_begun, bool(resumed and resumed.is_file() and not is_begun))


def _judged(sweep: Sweep, results: _Results, choices: Choices) -> tuple[Problem, bool]:
    """Judge a problem by new or kept measurements, and return whether it was interrupted."""
    home = sweep.kernels or Path()
    record = read_record(home / sweep.op)
    own = [name for name, each in of_op(sweep.op, home).items() if not is_ours(each)]
    names = [name for name in own if name != REFERENCE]
    sweep = replace(sweep, output=results.path, variants=(*names, REFERENCE))
    is_interrupted, kept = False, results.path
    if kept and results.is_complete:
        rows = read(kept)
    else:
        process.begin(record.statement.path)
        outcome = measured(sweep, {REFERENCE}, force=choices.force, resume=results.is_begun)
        rows, is_interrupted, kept = outcome.rows, outcome.interrupted, outcome.path
    baselines = dict.fromkeys(names, (REFERENCE,))
    judged = judge_rows(rows, baselines, claim=choices.claim, threshold=choices.same)
    return Problem(record=record, judged=judged, rows=rows, path=kept), is_interrupted


def as_tables(problems: Sequence[Problem], claim: float) -> list[RenderableType]:
    """Return a table of all verdicts, then the reasons, then the tolerances."""
    grid = table(
        "verdict", "problem", "workload", "solution", "time", "speed-up", "roofline", "bits",
        left={"verdict", "problem", "workload", "solution"},
    )  # fmt: skip
    reasons, stated = list[RenderableType](), list[RenderableType]()
    for problem in problems:
        statement = problem.record.statement
        for each in problem.judged:
            row = each.row
            number = workload_of(row)
            name = statement.workloads[number - 1].name
            time = time_text(row.median_us) if row.median_us else ""
            roofline = f"{share:.1f} %" if (share := roofline_of(row)) is not None else ""
            bits = bits_of(row)
            cells = str(each.verdict), statement.name, name, row.variant, time, view.ratio(each)
            grid.add_row(*cells, roofline, "" if bits is None else str(bits))
            where = f"{row.variant} at {statement.name} {name}"
            reasons += [Text(f"{each.verdict}: {where}: {each.reason}")] if each.reason else []
            reasons += [Text(f"{where}: {note}")] if (note := why_few_bits(each)) else []
        facts = problem.record.facts.values()
        tolerances = {str(tolerance): None for each in facts for tolerance in each.tolerances}
        limits = "; ".join(tolerances)
        how = "" if all(each.is_wide for each in facts) else "; the reference has no float64 form"
        stated.append(
            Text(f"{statement.name} ({statement.form}): a result is right if {limits}{how}")
        )
        stated.append(Text(f"  {problem.path or NOTHING_MEASURED}"))
    headline = view.headline([each for problem in problems for each in problem.judged], claim)
    return [grid, *reasons, Text(""), *stated, Text(f"\n{headline}")]


def workload_of(row: Row) -> int:
    """Return the number of a row's workload."""
    return int(row.extents.rpartition("=")[2])


def roofline_of(row: Row) -> float | None:
    """Return a row's percentage of the peak or of the speed of a copy, whichever is larger."""
    shares = [each for each in (row.percent_of_peak, row.percent_of_copy) if each is not None]
    return max(shares, default=None)


def bits_of(row: Row | None) -> int | None:
    """Return the mean number of right bits of a row's results, or None if exact or wrong."""
    bits = row.error_rms_bits if row else None
    return None if bits is None else round(bits)


def why_few_bits(each: Judged) -> str:
    """Return a remark if a kernel's right results are less exact than the reference's results."""
    bits, of_reference = bits_of(each.row), bits_of(each.baseline)
    if bits is None or of_reference is None or bits >= of_reference - FEW_BITS:
        return ""
    return (
        f"results are within their tolerance, but keep only {bits} bits; the reference's results "
        f"keep {of_reference} bits"
    )


def _members(problem: Problem) -> dict[str, Any]:
    """Return a JSON object that describes a problem and the scores of the solutions."""
    statement = problem.record.statement
    scores = [
        {
            "workload": workload_of(each.row),
            "name": statement.workloads[workload_of(each.row) - 1].name,
            "solution": each.row.variant,
            "verdict": str(each.verdict),
            "passes": each.row.status == "ok",
            "speed_up": each.ratio._asdict() if each.ratio else None,
            "percent_of_roofline": roofline_of(each.row),
            "bits": bits_of(each.row),
            "reference_bits": bits_of(each.baseline),
        }
        for each in problem.judged
    ]
    facts = {
        number: {
            "tolerances": [json.loads(msgspec.json.encode(each)) for each in facts.tolerances],
            "reference_in_float64": facts.is_wide,
        }
        for number, facts in problem.record.facts.items()
    }
    return {
        "form": statement.form,
        "path": statement.path,
        "op": problem.rows[0].op if problem.rows else "",
        "csv": str(problem.path or ""),
        "workloads": facts,
        "scores": scores,
    }
