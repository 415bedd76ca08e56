"""`gpubench history`."""

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
            help="Name that 'gpubench sweep --save NAME' used. Without it, list all names.",
            autocompletion=completion.saved,
        ),
    ] = None,
    only: option.Only = None,
    exclude: option.Exclude = None,
    last: Annotated[
        int, typer.Option(help="Maximum number of saved results per point, the newest.", min=1)
    ] = 10,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Also draw the times: a.svg, a.png or a.pdf."),
    ] = None,
    force: option.Force = False,
) -> None:
    """Show how a kernel's time changed over saved results.

    Show how a kernel's time changed over saved results (commits). Of each variant, the tile that is
    fastest in the newest result is shown; --only 16 shows tile 16.
    """
    if output:
        load_matplotlib()
    from gpubench.commands.history.view import print_history, print_names

    if name is None:
        print_names()
        return
    print_history(
        name,
        only=only,
        exclude=exclude,
        last=last,
        output=output,
        force=force,
    )
