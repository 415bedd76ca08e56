"""`gpubench selfcheck`."""

from __future__ import annotations

from typing import Annotated

import typer

from gpubench import completion

app = typer.Typer()


@app.command(epilog="Example: gpubench selfcheck")
def selfcheck(
    device: Annotated[
        str,
        typer.Option(help="cuda or cuda:1. Default: cuda.", autocompletion=completion.devices),
    ] = "cuda",
) -> None:
    """Time kernels by two timers, to see if they agree.

    Time kernels by events and by CUPTI, and say whether this machine can be trusted.
    """
    from gpubench.commands.selfcheck.check import run_selfcheck

    raise typer.Exit(run_selfcheck(device))
