"""`gpubench history`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpubench import completion
from gpubench import options as option
from gpubench.view.pictures import load_matplotlib

app = typer.Typer()


@app.command(epilog="Example: gpubench history main --only shared_tile,1024 -o history.svg")
def history(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="What 'gpubench sweep --save NAME' kept; without it, the names there are.",
            autocompletion=completion.saved,
        ),
    ] = None,
    only: option.Only = None,
    exclude: option.Exclude = None,
    tile: Annotated[
        str | None,
        typer.Option(help="Only this tile, such as 16. Default: each variant's best one today."),
    ] = None,
    last: Annotated[int, typer.Option(help="So many of the newest.", min=1)] = 10,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Draw them too: a.svg, a.png or a.pdf."),
    ] = None,
    force: option.Force = False,
) -> None:
    """How a point's time went over commits, of saved results."""
    if output:
        load_matplotlib()
    from gpubench.commands.history.view import print_history, print_names

    if name is None:
        print_names()
        return
    print_history(
        name, only=only, exclude=exclude, tile=tile, last=last, output=output, force=force
    )
