"""`gpubench plot`."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench import options as option
from gpubench.view.pictures import Kind, Theme, load_matplotlib

app = typer.Typer()


@app.command(epilog="Example: gpubench plot sweep.csv --only 2048 -o tiles.svg")
def plot(
    files: option.Results,
    kind: Annotated[
        Kind, typer.Option(help="What to show; auto: what the rows vary in.")
    ] = Kind.AUTO,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Picture to write, such as a.svg, a.png or a.pdf. Default: "
            "<file>-<kind>.svg in the current directory.",
        ),
    ] = None,
    only: option.Only = None,
    exclude: option.Exclude = None,
    theme: Annotated[
        Theme | None,
        typer.Option(
            help="Page that the picture is for; both: grey, without a background. "
            "Default: both for SVG, else light."
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
        only=only,
        exclude=exclude,
        theme=theme,
        bandwidth_gbytes_per_s=bandwidth,
        force=force,
    )
