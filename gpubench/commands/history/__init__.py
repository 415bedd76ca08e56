"""`gpubench history`."""

from typing import Annotated

import typer

from gpubench import options as option

app = typer.Typer()


@app.command(epilog="Example: gpubench history main --only shared_tile,1024 --against v1")
def history(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name that 'gpubench sweep --save NAME' used.")
    ],
    only: option.Only = None,
    exclude: option.Exclude = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of saved results that the newest results are compared with, such as v1. "
            "Exit code 1: a point is slower.",
        ),
    ] = None,
) -> None:
    """Show how a kernel's time changed over saved results, when it moved, and why.

    Each variant is shown with the tile that is fastest in the newest result; --only 16 shows tile
    16.
    """
    from gpubench.commands.history.view import print_history

    raise typer.Exit(print_history(name, only, exclude, against))
