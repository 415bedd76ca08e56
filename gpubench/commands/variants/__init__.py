"""`gpubench variants`."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench import completion

app = typer.Typer()


@app.command(epilog="Example: gpubench variants --device cpu")
def variants(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[VARIANT]...",
            help="Only these kernels, or patterns such as 'cpu_*'.",
            autocompletion=completion.variants,
        ),
    ] = None,
    *,
    op: Annotated[
        str | None,
        typer.Option(
            help="Only this operation, such as gemm.", autocompletion=completion.operations
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="Only this backend: cuda or cpu.", autocompletion=completion.backends),
    ] = None,
    kernels: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also list your own of --op (default: gemm): mine.py in DIR, or in DIR/gemm. "
            "This runs the code of every .py there, as you.",
            autocompletion=completion.folders,
        ),
    ] = None,
) -> None:
    """List the kernels with their dtypes, legal tiles and idea."""
    from gpubench.commands.variants.listing import print_variants

    print_variants(names or (), op, device, kernels)
