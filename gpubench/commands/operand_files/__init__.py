"""`gpubench generate` and `gpubench run`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gpubench import options as option

app = typer.Typer()


@app.command(epilog="Example: gpubench generate operands.bin --sizes 4096x8192")
def generate(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="File to write: *.npz, or any other name for the binary form."
        ),
    ],
    sizes: Annotated[
        str, typer.Option(metavar="SIZE", help="Rows and columns of A: 4096x8192, or 4096.")
    ],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the operands.")] = 2006,
    force: option.ForceFiles = False,
) -> None:
    """Write a random matrix and vector for 'gpubench run'."""
    from gpubench.commands.operand_files.run import generate as write

    write(file, sizes, seed, force=force)


@app.command(epilog="Example: gpubench run operands.bin --op atax --output c.bin")
@partial(
    option.chosen_options,
    options={
        "op": ("[atax|gemv|gemv_t]", "Operation. Default: atax."),
        "variants": ("NAME", "Kernel, such as atax_fused. Default: the device's BLAS."),
        "tiles": ("TILE", "Tile, such as 128x14. Default: the kernel's first tile that fits."),
        "device": None,
    },
)
def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Operand file, as 'gpubench generate' writes it.")
    ],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to write the result, such as c.bin.")
    ],
    force: option.Force = False,
    **options: Any,
) -> None:
    """Compute from an operand file once; verify the result."""
    from gpubench.commands.operand_files.run import run as compute

    raise typer.Exit(compute(file, output, options, force=force))
