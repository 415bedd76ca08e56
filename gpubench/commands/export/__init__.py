"""`gpubench export`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gpubench import options as option
from gpubench.model import DTYPES

app = typer.Typer()


@app.command(epilog="Example: gpubench export shared_tile --tiles 32 --sizes 4096")
@partial(
    option.chosen_options,
    options={
        "tiles": ("TILE", "Tile, such as 32. Default: the first tile of --tiles auto."),
        "sizes": ("SIZE", "Matrix size. Default: 4096."),
        "dtypes": ("DTYPE", f"Element type: {', '.join(DTYPES)}. Default: the kernel's first."),
        "layouts": ("LAYOUT", "How A and B lie in memory, such as nt. Default: the kernel's own."),
        "op": None,
        "kernels": None,
    },
)
def export(
    variant: option.CudaKernel,
    *,
    arch: option.Arch = None,
    folder: Annotated[Path, option.directory("Directory for VARIANT.cu and VARIANT.py.")] = Path(
        "exported"
    ),
    force: option.ForceFiles = False,
    **options: Any,
) -> None:
    """Write a kernel as two files that need no gpubench.

    The .cu file contains code that launches, checks and times the kernel. The file needs only nvcc.
    The Python file calls the kernel on CuPy's arrays.
    """
    from gpubench.commands.export.run import run_export

    run_export(variant, options, arch, folder, force=force)
