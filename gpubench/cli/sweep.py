"""`gpubench sweep` and `gpubench compare-cublas`."""

from __future__ import annotations

from typing import Annotated

import typer

from gpubench.cli import options as option
from gpubench.cli.app import app


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
    asked = _named(locals())
    if dry_run:
        from gpubench.show.dry_run import print_plan

        print_plan(asked, config, resume)
        return
    from gpubench.show.commands import run_sweep

    raise typer.Exit(run_sweep(asked, config, resume=resume, force=force))


@app.command("compare-cublas", epilog="Example: gpubench compare-cublas --sizes 1024,4096")
def compare_cublas(
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
    ladder: Annotated[
        bool, typer.Option("--ladder", help="The steps in order, each with its gain.")
    ] = False,
    resume: option.Resume = None,
    force: option.Force = False,
) -> None:
    """Each variant's best tile against cuBLAS, in the same run and compute mode."""
    asked = _named(locals())
    from gpubench.show.commands import run_compare_cublas

    raise typer.Exit(run_compare_cublas(asked, config, by_step=ladder, resume=resume, force=force))


def _named(arguments: dict[str, object]) -> dict[str, str | None]:
    """A command's arguments as options of a sweep: each is named like its option there."""
    own = {"config", "resume", "force", "dry_run", "ladder"}
    return {
        name: None if value is None else str(value)
        for name, value in arguments.items()
        if name not in own
    }
