"""`gpubench sweep`."""

from __future__ import annotations

from typing import Annotated

import typer

from gpubench import options as option

app = typer.Typer()


@app.command(epilog="Example: gpubench sweep --sizes 1024,2048 --tiles 1..32")
def sweep(
    sizes: option.Sizes = None,
    tiles: option.Tiles = None,
    variants: option.Variants = None,
    dtypes: option.Dtypes = None,
    op: option.Op = None,
    device: option.DeviceName = None,
    kernels: option.Kernels = None,
    output: option.Output = None,
    config: option.Config = None,
    seed: option.Seed = None,
    operands: option.Operands = None,
    rounds: option.Rounds = None,
    precision: option.Precision = None,
    cache: option.CacheState = None,
    scope: option.ScopeName = None,
    timer: option.TimerName = None,
    budget: option.Budget = None,
    launch_limit: option.LaunchLimit = None,
    point_limit: option.PointLimit = None,
    resume: option.Resume = None,
    force: option.Force = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the points and how long they may take; do nothing."),
    ] = False,
) -> None:
    """Time kernels over tile sizes and matrix sizes; show tables, save a CSV."""
    asked = option.named(locals())
    if dry_run:
        from gpubench.commands.sweep.dry_run import print_plan

        print_plan(asked, config, resume)
        return
    from gpubench.commands.sweep.run import run_sweep

    raise typer.Exit(run_sweep(asked, config, resume=resume, force=force))
