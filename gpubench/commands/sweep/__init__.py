"""`gpubench sweep`."""

import shlex
from typing import Annotated, Any

import typer

from gpubench import options as option
from gpubench.errors import UsageError

app = typer.Typer()


@app.command(epilog="Example: gpubench sweep --sizes 1024,2048 --tiles 1..32")
@option.sweep_options
def sweep(
    *,
    config: option.Config = None,
    resume: option.Resume = None,
    force: option.Force = False,
    on: option.On = None,
    dry_run: option.DryRun = False,
    to_find: option.ToFind = None,
    save: option.Save = None,
    counters: Annotated[
        str | None,
        typer.Option(
            metavar="METRICS",
            help="Also launch each timed point once under Nsight Compute, and show these metrics, "
            "such as dram__bytes.sum,sm__cycles_elapsed.max.",
        ),
    ] = None,
    **options: Any,
) -> None:
    """Time kernels over tile and matrix sizes; save a CSV."""
    from rich.console import Group

    from gpubench.commands.sweep.counters import read_counters, require_counters
    from gpubench.engine.prepare import prepare_dry
    from gpubench.engine.run import measure
    from gpubench.view.counters import counter_tables
    from gpubench.view.job import conclude, print_plan
    from gpubench.view.problem_list import list_summaries
    from gpubench.view.progress import SweepProgress
    from gpubench.view.row_tables import results
    from gpubench.view.sentences import sentences
    from gpubench.view.tables import console, say

    if dry_run:
        from gpubench.engine.scatter import rounds_needed  # it loads SciPy

        sweep = option.read_sweep(options, config)
        if counters is not None:
            require_counters(counters, sweep, on, overwrite=force, is_dry=True)
        job = prepare_dry(sweep)
        needed = rounds_needed(to_find, job.device) if to_find else None
        print_plan(job, f"{job.sweep.op}.csv", resume=resume, force=force)
        if needed:
            say(f"\n{needed.sentence}")
        return
    if to_find:
        raise UsageError("--to-find: add --dry-run, which prints how many rounds to measure")
    if resume:
        options, config = option.resumed(resume, option.option_texts(options, config)), None
    sweep = option.read_sweep(options, config)
    overwrite, metrics = force or resume is not None, list[str]()
    if counters is not None:
        metrics = require_counters(counters, sweep, on, overwrite=overwrite)
    with SweepProgress() as watcher:
        outcome = measure(sweep, watcher, on=on, resume=resume is not None, force=force, save=save)
    rows = outcome.rows
    console().print(Group(*results(rows).renderables, *list_summaries(rows), *sentences(rows)))
    try:
        if metrics and outcome.timed and not outcome.interrupted:
            counted = read_counters(outcome, metrics, overwrite=overwrite)
            console().print(*counter_tables(rows, counted), sep="\n")
    finally:
        code = conclude(outcome)
    if metrics and outcome.interrupted:
        say("no counters were read: add --counters to --resume", err=True)
    if outcome.timed and outcome.path and console(stderr=True).is_terminal:
        say(f"next: {shlex.join(['gpubench', 'plot', str(outcome.path)])}", err=True)
    raise typer.Exit(code)
