"""`gpubench show`."""

from typing import Annotated, Literal

import typer

from gpubench import options as option

app = typer.Typer()

Sort = Literal["time", "rate", "blas", "name"]


@app.command(epilog="Example: gpubench show sweep.csv --sort rate --top 10")
def show(
    files: option.Results,
    only: option.Only = None,
    exclude: option.Exclude = None,
    sort: Annotated[
        Sort | None,
        typer.Option(
            help="List the points: fastest, highest rate or percent of BLAS first.",
            metavar="[time|rate|blas|name]",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(help="Maximum number of points to list per problem, such as 10.", min=1),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Times side by side, as for files with points in common."),
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, for a page or a comment.")
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print the figures of the tables as CSV, a row per point.")
    ] = False,
) -> None:
    """Show the tables of result files again."""
    from gpubench.commands.show.view import print_files

    print_files(
        files,
        only=only,
        exclude=exclude,
        sort=sort,
        top=top,
        compare=compare,
        markdown=markdown,
        csv=csv,
    )
