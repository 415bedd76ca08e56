"""`gpubench new-operation`."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench import options as option

app = typer.Typer()


@app.command("new-operation", epilog="Example: gpubench new-operation softmax")
def new_operation(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the operation, such as softmax.")
    ],
    folder: Annotated[
        Path,
        option.directory("Folder of your kernels, for --kernels; the files go into DIR/NAME."),
    ] = Path("own"),
    force: option.ForceFiles = False,
) -> None:
    """Write the files of an operation of your own: a statement and working kernels, to change."""
    from gpubench.commands.new_operation.run import write_operation

    write_operation(name, folder, force=force)
