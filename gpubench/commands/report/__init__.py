"""`gpubench report`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from gpubench import options as option
from gpubench.errors import UsageError
from gpubench.view.pictures import load_matplotlib

app = typer.Typer()


@app.command(epilog="Example: gpubench report sweep.csv -o report.html")
def report(
    files: option.Results,
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML page to write.")] = Path(
        "report.html"
    ),
    only: option.Only = None,
    exclude: option.Exclude = None,
    bandwidth: option.Bandwidth = None,
    force: option.Force = False,
) -> None:
    """Make one HTML page of results."""
    load_matplotlib()
    from gpubench.commands.report.page import page
    from gpubench.files import Output
    from gpubench.plan.ranges import require_ending
    from gpubench.plan.selection import read_selected
    from gpubench.view.tables import say

    if os.path.realpath(output) in map(os.path.realpath, files):
        raise UsageError(f"--output: {output} is one of the files to show")
    require_ending("--output", output, ".html")
    claimed = Output(output, overwrite=force)
    claimed.write(page(read_selected(files, only, exclude), bandwidth).encode())
    say(str(output))
