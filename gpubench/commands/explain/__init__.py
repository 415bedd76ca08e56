"""`gpubench explain` and `gpubench build` show the compiler's results for one or many kernels."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gpubench import completion
from gpubench import options as option
from gpubench.model import DTYPES

app = typer.Typer()

SIZE = "SIZE", "Matrix size: 1024 or 320x640x320 (MxNxK). Default: 1024."


@app.command(epilog="Example: gpubench explain register_tile --tiles 16 --sizes 512x512x1024")
@partial(
    option.chosen_options,
    options={
        "tiles": ("LIST", "Tile: 16 or 128x128x8. A list or 1..32 shows a table."),
        "sizes": SIZE,
        "dtypes": ("DTYPE", f"Element type: {', '.join(DTYPES)}. Default: the kernel's first."),
        "device": ("DEVICE", "Device: cuda or cuda:1. Default: the first GPU, or else sm_90."),
        "op": None,
        "kernels": None,
    },
)
def explain(
    variant: option.CudaKernel,
    *,
    arch: option.Arch = None,
    every: Annotated[bool, typer.Option("--all", help="Show a table of every legal tile.")] = False,
    times: Annotated[
        Path | None,
        option.files("Results of a sweep, such as a.csv, to compare its times with the bound."),
    ] = None,
    as_json: option.AsJson = False,
    **options: Any,
) -> None:
    """Explain in words why a kernel is as fast as it is.

    Shows registers, spills, occupancy, waves, roofline, accesses and inner loop,
    for any architecture.
    """
    from gpubench.commands.explain.run import explained
    from gpubench.commands.explain.view import print_json, print_text
    from gpubench.model import Status

    answer = explained(variant, options, arch=arch, every=every, times=times)
    if as_json:
        print_json(answer)
    else:
        print_text(answer, as_table=every)
    raise typer.Exit(int(any(each.status == Status.ERROR for each in answer.not_explained)))


@app.command(epilog="Example: gpubench build all --arch sm_80,sm_90 -o build.csv")
@partial(
    option.chosen_options,
    options={
        "dtypes": ("LIST", "Element types: float32,float16. Default: all types of each kernel."),
        "sizes": SIZE,
        "op": (
            "OP",
            "Only this operation, such as gemm. Default: all; with --kernels, those with a folder.",
        ),
        "kernels": None,
    },
)
def build(
    variants: Annotated[
        str,
        typer.Argument(
            metavar="LIST",
            help="CUDA kernels: shared_tile,naive or wgmma* or all.",
            autocompletion=completion.variants,
        ),
    ],
    *,
    arch: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Architectures, such as sm_80,sm_90. Default: this GPU's."
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Compile every legal tile, not only the default tiles.")
    ] = False,
    output: Annotated[
        Path | None, option.output_file("CSV to write, such as build.csv.", "FILE")
    ] = None,
    force: option.Force = False,
    **options: Any,
) -> None:
    """Compile many kernels, and write a build file that 'gpubench diff' compares.

    The file has a row for each tile and launch: registers, spills, occupancy, waves, inner loop and
    accesses. No GPU is needed.
    """
    from gpubench.commands.explain.build import run_build

    raise typer.Exit(
        run_build(variants, options, arch=arch, every=every, output=output, force=force)
    )
