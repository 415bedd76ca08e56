"""`gpubench report`."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench import options as option
from gpubench.view.pictures import load_matplotlib

app = typer.Typer()


@app.command(epilog="Example: gpubench report sweep.csv -o report.html")
def report(
    files: option.Results,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="HTML page to write. Default: report.html.")
    ] = Path("report.html"),
    only: option.Only = None,
    exclude: option.Exclude = None,
    bandwidth: option.Bandwidth = None,
    force: option.Force = False,
) -> None:
    """Make one HTML page of results."""
    load_matplotlib()
    from gpubench.commands.report.page import run_report

    run_report(
        files,
        output,
        only=only,
        exclude=exclude,
        bandwidth_gbytes_per_s=bandwidth,
        force=force,
    )
