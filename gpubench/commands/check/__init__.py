"""`gpubench check`."""

from functools import partial
from typing import Annotated, Any

import typer

from gpubench import completion
from gpubench import options as option

app = typer.Typer()


@app.command(
    epilog="Example: gpubench check my_tile --kernels own. A file: gpubench check mine.cu. "
    "Exit codes: 0 right and clean; "
    "1 a fault was found; 3 the kernel cannot run on the CPU."
)
@partial(
    option.chosen_options,
    options={
        "kernels": None,
        "op": None,
        "tiles": ("LIST", "Tiles, such as 1..32. Default: some small and large tiles."),
    },
)
def check(
    variant: Annotated[
        str | None,
        typer.Argument(
            metavar="VARIANT|FILE.cu",
            help="Kernel, such as shared_tile, or a CUDA file. Default: all kernels of --kernels.",
            autocompletion=completion.variants,
        ),
    ] = None,
    *,
    arch: Annotated[
        str | None,
        typer.Option(help="Architecture to compile for. Default: sm_90.", metavar="ARCH"),
    ] = None,
    **options: Any,
) -> None:
    """Check on the CPU whether a kernel is right; no GPU is needed.

    Compiles the kernel for a GPU, and runs it on the CPU under sanitizers.
    """
    from gpubench.commands.check.run import run_check

    raise typer.Exit(run_check(variant, **options, arch=arch))
