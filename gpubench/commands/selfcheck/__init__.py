"""`gpubench selfcheck`."""

from typing import Annotated

import typer

app = typer.Typer()


@app.command(epilog="Example: gpubench selfcheck")
def selfcheck(
    device: Annotated[
        str | None, typer.Option(help="Device: cuda or cuda:1. Default: cuda.")
    ] = None,
) -> None:
    """Time kernels by two timers, to see if they agree.

    Times a set of kernels by events and by CUPTI, and reports whether the times can be trusted.
    """
    from gpubench.commands.selfcheck.check import run_selfcheck

    raise typer.Exit(run_selfcheck(device))
