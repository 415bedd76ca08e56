"""`gpubench explain` and `gpubench build`: what the compiler made of one kernel, and of many."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpubench import completion
from gpubench import options as option
from gpubench.model import DTYPES

app = typer.Typer()

Size = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Matrix size: 1024 or 320x640x320 (MxNxK). Default: 1024."),
]


@app.command(epilog="Example: gpubench explain register_tile --tiles 16 --sizes 512x512x1024")
def explain(
    variant: Annotated[
        str,
        typer.Argument(
            help="A CUDA kernel; see 'gpubench variants'.", autocompletion=completion.variants
        ),
    ],
    tiles: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Tile: 16 or 128x128x8. A list or 1..32 gives a table."),
    ] = None,
    sizes: Size = None,
    dtypes: Annotated[
        str | None,
        typer.Option(
            metavar=f"[{'|'.join(DTYPES)}]",
            help="Element type. Default: float32.",
            autocompletion=completion.dtypes,
        ),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(
            metavar="ARCH",
            help="Architecture, such as sm_80; no GPU is needed. Default: the GPU's.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE", help="cuda or cuda:1. Default: the first GPU, or else sm_90."
        ),
    ] = None,
    op: option.Op = None,
    kernels: option.Kernels = None,
    every: Annotated[bool, typer.Option("--all", help="Show a table of every legal tile.")] = False,
    times: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Results of a sweep, such as a.csv, to compare its times with the bound.",
            autocompletion=completion.results,
        ),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time the kernel here, to compare it with the bound.")
    ] = False,
    as_json: option.AsJson = False,
) -> None:
    """Explain in words why a kernel is as fast as it is.

    Shows registers, spills, occupancy, waves, roofline and inner loop, for any architecture.
    """
    from gpubench.commands.explain.run import run_explain

    code = run_explain(
        variant,
        {
            "sizes": sizes,
            "tiles": tiles,
            "dtypes": dtypes,
            "op": op,
            "device": device,
            "kernels": kernels,
        },
        arch=arch,
        every=every,
        times=times,
        measure=measure,
        as_json=as_json,
    )
    raise typer.Exit(code)


@app.command(epilog="Example: gpubench build all --arch sm_80,sm_90 -o build.csv")
def build(
    variants: Annotated[
        str,
        typer.Argument(
            metavar="LIST",
            help="CUDA kernels: shared_tile,naive or wgmma* or all.",
            autocompletion=completion.variants,
        ),
    ],
    op: option.Op = None,
    kernels: option.Kernels = None,
    arch: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Architectures, such as sm_80,sm_90. Default: the GPU's."
        ),
    ] = None,
    dtypes: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Element types, such as float32,float16. Default: all of each kernel.",
            autocompletion=completion.dtypes,
        ),
    ] = None,
    sizes: Size = None,
    every: Annotated[
        bool, typer.Option("--all", help="Compile every legal tile, not only the kernel's own.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file, such as build.csv."),
    ] = None,
) -> None:
    """Compile many kernels, and write a build file that 'gpubench diff' compares.

    It has a row for each tile and launch: registers, spills, occupancy, waves, inner loop and
    accesses. No GPU is needed.
    """
    from gpubench.commands.explain.build import run_build

    code = run_build(
        variants,
        op=op,
        kernels=kernels,
        arch=arch,
        dtypes=dtypes,
        size=sizes,
        every=every,
        output=output,
    )
    raise typer.Exit(code)
