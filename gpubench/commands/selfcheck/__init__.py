"""`gpubench selfcheck`."""

from typing import Annotated

import typer

from gpubench import completion

app = typer.Typer()


@app.command(epilog="Example: gpubench selfcheck")
def selfcheck(
    device: Annotated[
        str | None,
        typer.Option(help="cuda or cuda:1. Default: cuda.", autocompletion=completion.devices),
    ] = None,
) -> None:
    """Time kernels by two timers, to see if they agree.

    Times a set of kernels by events and by CUPTI, and reports whether the times can be trusted.
    """
    from gpubench.commands.selfcheck.check import run_selfcheck

    raise typer.Exit(run_selfcheck(device))
