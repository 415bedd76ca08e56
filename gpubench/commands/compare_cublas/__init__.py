"""`gpubench compare-cublas`."""

from dataclasses import replace
from typing import Annotated, Any

import typer

from gpubench import options as option
from gpubench.errors import DeviceUnavailableError, UsageError

app = typer.Typer()

BACKEND = "cuda"

COMPILING_S = 600.0
"""Time limit of a point with --rivals. The rivals' compilers time candidates at each new size."""

WITHOUT_GPU = "'gpubench sweep --device cpu' compares against the CPU's BLAS"


@app.command("compare-cublas", epilog="Example: gpubench compare-cublas --sizes 1024,4096")
@option.sweep_options
def compare_cublas(
    *,
    config: option.Config = None,
    ladder: Annotated[
        bool, typer.Option("--ladder", help="Show the kernels as steps, each with its gain.")
    ] = False,
    rivals: Annotated[
        bool,
        typer.Option(
            "--rivals", help="Also measure Triton, torch.matmul and torch.compile if installed."
        ),
    ] = False,
    resume: option.Resume = None,
    force: option.Force = False,
    on: option.On = None,
    dry_run: option.DryRun = False,
    save: option.Save = None,
    **options: Any,
) -> None:
    """Compare each variant's best tile with cuBLAS, in one sweep."""
    from gpubench.backends import AUTO
    from gpubench.commands.compare_cublas.ladder import ladder_tables, steps, with_libraries
    from gpubench.commands.compare_cublas.sustained_pairs import add_pairs, pairs_s
    from gpubench.commands.compare_cublas.view import screen
    from gpubench.engine.prepare import prepare_dry
    from gpubench.engine.run import measure
    from gpubench.plan.registry import choose
    from gpubench.plan.sweep import AUTO_TILES
    from gpubench.view.job import conclude, print_plan
    from gpubench.view.progress import SweepProgress
    from gpubench.view.tables import console

    if resume and not dry_run:
        options, config = option.resumed(resume, option.option_texts(options, config)), None
    # A launch of a variant's best tile, which this command searches for, never takes over a second.
    timing = replace(option.DEFAULT.timing, launch_limit_s=1.0)
    if rivals:
        timing = replace(timing, point_limit_s=COMPILING_S)
    default = replace(option.DEFAULT, timing=timing, tiles=(AUTO_TILES,))
    sweep = option.read_sweep(options, config, default)
    if sweep.device.partition(":")[0] not in {AUTO, BACKEND}:
        raise UsageError(f"compare-cublas needs an NVIDIA GPU; {WITHOUT_GPU}")
    order = steps(choose(sweep.op, BACKEND, (), sweep.kernels)) if ladder else {}
    sweep = replace(
        sweep,
        variants=with_libraries(sweep, BACKEND, sweep.variants or tuple(order), rivals=rivals),
        device=sweep.device.replace(AUTO, BACKEND),
    )
    try:
        if dry_run:
            job = prepare_dry(sweep)
            job = replace(job, afterwards_s=0.0 if on else pairs_s(job))
            print_plan(job, f"{sweep.op}.csv", resume=resume, force=force)
            return
        with SweepProgress() as watcher:
            outcome = measure(
                sweep,
                watcher,
                on=on,
                resume=resume is not None,
                force=force,
                save=save,
                add_more=add_pairs,
                add_more_s=None if on else pairs_s,
            )
        rows = outcome.rows
    except DeviceUnavailableError as error:
        missing = str(error).partition(";")[0]  # the text after `;` is about --device cpu
        message = f"compare-cublas needs an NVIDIA GPU: {missing}; {WITHOUT_GPU}"
        raise DeviceUnavailableError(message) from error
    for part in screen(rows, ladder_tables(rows, order) if ladder else None):
        console().print(part)
    raise typer.Exit(conclude(outcome))
