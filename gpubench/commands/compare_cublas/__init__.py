"""`gpubench compare-cublas`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpubench import options as option

app = typer.Typer()


@app.command("compare-cublas", epilog="Example: gpubench compare-cublas --sizes 1024,4096")
@option.sweep_options
def compare_cublas(
    *,
    config: option.Config = None,
    ladder: Annotated[
        bool, typer.Option("--ladder", help="The steps in order, each with its gain.")
    ] = False,
    resume: option.Resume = None,
    force: option.Force = False,
    **options: Any,
) -> None:
    """Each variant's best tile against cuBLAS, in one sweep."""
    from gpubench.commands.compare_cublas.run import run_compare_cublas

    raise typer.Exit(
        run_compare_cublas(options, config, by_step=ladder, resume=resume, force=force)
    )
