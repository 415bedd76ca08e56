"""`gpubench compare-cublas`."""

from __future__ import annotations

from typing import Annotated

import typer

from gpubench import options as option

app = typer.Typer()


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
    asked = option.named(locals())
    from gpubench.commands.compare_cublas.run import run_compare_cublas

    raise typer.Exit(run_compare_cublas(asked, config, by_step=ladder, resume=resume, force=force))
