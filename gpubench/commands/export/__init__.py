"""`gpubench export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpubench import completion
from gpubench import options as option
from gpubench.model import DTYPES, LAYOUTS

app = typer.Typer()


@app.command(epilog="Example: gpubench export shared_tile --tiles 32 --sizes 4096")
def export(
    variant: Annotated[
        str,
        typer.Argument(
            help="A CUDA kernel; see 'gpubench variants'.", autocompletion=completion.variants
        ),
    ],
    tiles: Annotated[
        str | None,
        typer.Option(
            metavar="TILE", help="Tile, such as 32. Default: what --tiles auto names first."
        ),
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Matrix size. Default: 4096.")
    ] = None,
    dtypes: Annotated[
        str | None,
        typer.Option(
            metavar=f"[{'|'.join(DTYPES)}]",
            help="Element type. Default: the kernel's first.",
            autocompletion=completion.dtypes,
        ),
    ] = None,
    layouts: Annotated[
        str | None,
        typer.Option(
            metavar=f"[{'|'.join(LAYOUTS)}]",
            help="How A and B lie in memory. Default: the kernel's own layout.",
            autocompletion=completion.words(*LAYOUTS),
        ),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(metavar="ARCH", help="Architecture. Default: this GPU's, or else sm_90."),
    ] = None,
    op: option.Op = None,
    kernels: option.Kernels = None,
    folder: Annotated[
        Path,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Directory for VARIANT.cu and VARIANT.py.",
            autocompletion=completion.folders,
        ),
    ] = Path("exported"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Write a kernel as two files that need no gpubench.

    The .cu file has launch code, and checks and times itself. It needs only nvcc. The Python file
    calls the kernel on CuPy's arrays.
    """
    from gpubench.commands.export.run import run_export

    options = {
        "tiles": tiles,
        "sizes": sizes,
        "dtypes": dtypes,
        "layouts": layouts,
        "op": op,
        "kernels": kernels,
    }
    run_export(variant, options, arch, folder, force=force)
