"""`gpubench judge`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubench import completion
from gpubench import options as option
from gpubench.errors import INTERRUPTED, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpubench.commands.judge.reproducible import Reproducibility
    from gpubench.engine.pool import Pool
    from gpubench.engine.prepare import Job
    from gpubench.model import Variant
    from gpubench.plan.sweep import Sweep
    from gpubench.results.row import Row

app = typer.Typer()

ROUNDS = 15
"""Default number of rounds. With fewer rounds, a drift of times may look like a faster kernel."""


@app.command(
    epilog="Example: gpubench judge mm --kernels own --sizes 1024,333x555x777 --json. Exit codes: "
    "0 as claimed or faster; 1 slower or wrong; 2 wrong usage; 3 not decided or refused."
)
@partial(option.sweep_options, without=("variants", "exclude"))
def judge(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KERNEL",
            help="Kernels to judge, such as mm or 'my_*', or a file: mine.cu, mine.cu:run, "
            "mine.py:product, or libmine.so with the declaration of its function. Default: all of "
            "--kernels.",
            autocompletion=completion.variants,
        ),
    ] = None,
    *,
    solution: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="solution.json or Python file to judge, if KERNEL is a problem of SOL-ExecBench, "
            "FlashInfer-Trace, gpu-mode or KernelBench, or a folder of problems. May be repeated. "
            "Default: the solutions beside a problem.",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Continue the judgement of problems whose results are in this folder.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Compare with the fastest of these: cublas, or cublas,cublaslt. Default: the "
            "library that the kernel's description names, and the operation's library.",
        ),
    ] = None,
    claim: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=1e6,
            metavar="RATIO",
            help="Claimed speed relative to the baseline, such as 1.07.",
        ),
    ] = 1.0,
    threshold: Annotated[
        str,
        typer.Option(
            metavar="PERCENT", help="Largest relative difference that counts as the same."
        ),
    ] = "2%",
    reproducible: Annotated[
        bool,
        typer.Option(
            help="Also compare the bits of results: of several runs, of results with 1, 7, 64 "
            "and 1024 rows, and of all tiles. The comparison changes no verdict."
        ),
    ] = False,
    as_json: option.AsJson = False,
    force: option.Force = False,
    **options: Any,
) -> None:
    """Judge whether kernels are right, and as fast as claimed, in each shape."""
    from rich.console import Group

    from gpubench.backends import first_device
    from gpubench.commands.judge import view
    from gpubench.commands.judge.measured import measured, read_judged
    from gpubench.commands.judge.problems import Choices, judge_problems, names_problem
    from gpubench.commands.judge.reproducible import as_members, as_table, compare_bits
    from gpubench.commands.judge.verdicts import exit_code, judge_rows
    from gpubench.model import Launches
    from gpubench.plan.ranges import parse_fraction
    from gpubench.view.job import NOTHING_MEASURED, where_time_went
    from gpubench.view.tables import console

    same = parse_fraction(threshold, "--threshold", low=0.0001, high=0.5)
    timing = replace(option.DEFAULT.timing, rounds=ROUNDS, examined_in=1)
    defaults = replace(option.DEFAULT, timing=timing)
    if names_problem(names or [], solution):
        if reproducible or baseline:
            raise UsageError("--reproducible and --baseline are not for problems of other projects")
        choices = Choices(claim=claim, same=same, resume=resume, force=force)
        code = judge_problems(names or [], solution, options, defaults, choices, as_json=as_json)
        raise typer.Exit(code)
    if resume:
        raise UsageError("--resume: only problems of other projects can be resumed")
    sweep = read_judged(options, defaults)
    backend = first_device(sweep.device).backend

    sweep, baselines, compared = _with_baselines(sweep, backend, names, baseline)
    if backend == "cuda" and "launches" not in sweep.options:
        sweep = replace(sweep, launches=(Launches.ALONE, Launches.GRAPH))
    bits: list[Reproducibility] = []

    def add_bits(job: Job, pool: Pool, rows: Sequence[Row]) -> list[Row]:
        bits.extend(compare_bits(job, pool, rows))
        return list(rows)

    outcome = measured(
        sweep, compared - {*baselines}, add_bits if reproducible else None, force=force
    )
    judged = judge_rows(outcome.rows, baselines, claim=claim, threshold=same)
    if as_json:
        facts = {"claim": claim, "threshold": same, "csv": str(outcome.path or "")}
        facts |= {"bits": as_members(bits)} if reproducible else {}
        typer.echo(view.as_json(judged, outcome.rows, facts))
    else:
        console().print(Group(*view.as_tables(judged, claim)))
        if bits:
            console().print("\nbits of the results:", as_table(bits))
        console(stderr=True).print(where_time_went(outcome))
        path = outcome.path or NOTHING_MEASURED
        console().print(f"\n{path}", markup=False, soft_wrap=True)
    raise typer.Exit(INTERRUPTED if outcome.interrupted else exit_code(judged))


def _with_baselines(
    sweep: Sweep, backend: str, names: list[str] | None, named: str | None
) -> tuple[Sweep, dict[str, tuple[str, ...]], set[str]]:
    """Add baselines to a sweep. Return the sweep, each kernel's baselines, and all baselines.

    Raises UsageError for arguments that cannot be used.
    """
    from gpubench.commands.judge.from_file import described, is_file_name
    from gpubench.plan.registry import choose, is_ours, library_of, of_op

    if names and any(map(is_file_name, names)):
        if sweep.kernels or len(names) > 1:
            raise UsageError(
                "KERNEL: a file is judged alone: leave out --kernels and other kernels"
            )
        name, sweep = described(names[0], sweep, backend)
        names = [name]
    if not names and not sweep.kernels:
        raise UsageError("name a kernel, or the directory of your kernels as --kernels")
    own = names or [
        variant.name for variant in of_op(sweep.op, sweep.kernels).values() if not is_ours(variant)
    ]
    kernels = choose(sweep.op, backend, own, sweep.kernels)
    usual = library_of(sweep.op, backend)
    ours = {each.name for each in of_op(sweep.op, sweep.kernels).values() if is_ours(each)}
    baselines = {each.name: _baselines(each, named, usual, ours) for each in kernels}
    patterns = [*dict.fromkeys(chain.from_iterable(baselines.values()))]
    compared = [each.name for each in choose(sweep.op, backend, patterns, sweep.kernels)]
    sweep = replace(sweep, variants=tuple(dict.fromkeys((*baselines, *compared))))
    return sweep, baselines, {*compared}


def _baselines(
    variant: Variant, named: str | None, usual: str, ours: Collection[str]
) -> tuple[str, ...]:
    """Return the names of a kernel's baselines.

    `named` is the value of `--baseline`. Without `named`, the baselines are the library that the
    description names, and `usual`, the library of the operation, because an untrusted description
    may name a slow library. `ours` has the names of gpubench's variants of the operation. Raises
    UsageError if the description names anything else than a library, and if no baseline is left.
    """
    from gpubench.plan.ranges import parse_names
    from gpubench.plan.registry import libraries

    library = variant.baseline or usual
    others = dict.fromkeys((library, usual) if usual in ours else (library,))
    # The library on all CPUs is a baseline too, because a function may use several threads.
    on_all_cpus = [name for each in others if (name := f"{each}_parallel") in ours]
    baselines = parse_names(named) if named else (*dict.fromkeys((*others, *on_all_cpus)),)
    if not baselines or not all(baselines) or variant.name in baselines:
        raise UsageError(f"--baseline: {variant.name} needs another kernel as its baseline")
    if not named and library not in libraries():
        raise UsageError(
            f"--baseline: the description of {variant.name} names {variant.baseline}, which is no "
            "library: name the baseline"
        )
    return baselines
