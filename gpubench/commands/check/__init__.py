"""`gpubench check`."""

from __future__ import annotations

from typing import Annotated

import typer

from gpubench import completion
from gpubench import options as option

app = typer.Typer()


@app.command(
    epilog="Example: gpubench check my_tile --kernels own. Exit codes: 0 right and clean; "
    "1 a fault was found; 3 it could not be run on the CPU."
)
def check(
    variant: Annotated[
        str,
        typer.Argument(help="Kernel, such as shared_tile.", autocompletion=completion.variants),
    ],
    kernels: option.Kernels = None,
    op: option.Op = None,
    tiles: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Tiles to check, such as 1..32. Default: a few, small and large."
        ),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(help="Architecture to compile for too, such as sm_90.", metavar="ARCH"),
    ] = None,
) -> None:
    """Is a kernel right? Run it on the CPU, without a GPU.

    Is a kernel right? Compile it for a GPU, and run it on the CPU under sanitizers: no GPU needed.
    """
    from gpubench.commands.check.run import run_check

    raise typer.Exit(run_check(variant, kernels, op, tiles, arch))
