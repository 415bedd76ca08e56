"""`gpubench plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpubench import completion
from gpubench import options as option
from gpubench.view.pictures import Kind, Theme, load_matplotlib

app = typer.Typer()


@app.command(epilog="Example: gpubench plot sweep.csv --sizes 2048 -o tiles.svg")
def plot(
    files: option.Results,
    kind: Annotated[Kind, typer.Option(help="What to show; auto: what suits them.")] = Kind.AUTO,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Picture to write, such as a.svg, a.png or a.pdf. Default: "
            "<file>-<kind>.svg here.",
        ),
    ] = None,
    sizes: Annotated[str | None, typer.Option(help="Only these sizes, such as 1024,2048.")] = None,
    dtypes: Annotated[str | None, typer.Option(help="Only these, such as float32.")] = None,
    variants: Annotated[
        str | None,
        typer.Option(
            help="Only these, such as shared_tile,cublas.", autocompletion=completion.variants
        ),
    ] = None,
    experiments: Annotated[
        str | None,
        typer.Option(help="Only these of a CSV of 'gpubench reproduce', such as p100-tiles."),
    ] = None,
    theme: Annotated[
        Theme | None,
        typer.Option(
            help="Page it is read on; both: grey on no page. Default: both for SVG, else light."
        ),
    ] = None,
    bandwidth: option.Bandwidth = None,
    force: option.Force = False,
) -> None:
    """Draw results: by tile, by size, % of cuBLAS, roofline.

    Draw results: time against tile size, speed against size, percent of cuBLAS, roofline.
    """
    load_matplotlib()
    from gpubench.commands.plot.run import run_plot

    run_plot(
        files,
        kind,
        output,
        sizes=sizes,
        dtypes=dtypes,
        variants=variants,
        experiments=experiments,
        theme=theme,
        bandwidth_gbytes_per_s=bandwidth,
        force=force,
    )
