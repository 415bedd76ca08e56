"""`gpubench show`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from gpubench import options as option

app = typer.Typer()


Sort = Literal["time", "rate", "blas", "name"]


@app.command(epilog="Example: gpubench show sweep.csv --sort rate --top 10")
def show(
    files: option.Results,
    sort: Annotated[
        Sort | None,
        typer.Option(
            help="List the points: fastest, highest rate or percent of BLAS first.",
            metavar="[time|rate|blas|name]",
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(help="List at most so many points a problem, such as 10.", min=1)
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="The files' times side by side, a row a point.")
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="As Markdown, for a page or a comment.")
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="As CSV: the figures of the tables, a row a point.")
    ] = False,
) -> None:
    """Show the tables of result files again."""
    from gpubench.commands.show.view import print_files

    print_files(files, sort=sort, top=top, compare=compare, markdown=markdown, as_csv=csv)
