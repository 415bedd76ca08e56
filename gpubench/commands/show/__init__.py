"""`gpubench show`."""

from itertools import chain
from typing import Annotated, Literal

import typer

from gpubench import options as option
from gpubench.errors import UsageError

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
) -> None:
    """Show the tables of result files again."""
    from gpubench.commands.show.view import point_key, side_by_side, tables
    from gpubench.plan.selection import read_selected
    from gpubench.view.tables import console
    from gpubench.view.tables import markdown as as_markdown

    if compare and len(files) == 1:
        raise UsageError("--compare: needs two files or more")
    sides = [rows for _, rows in read_selected(files, only, exclude)]
    rows = list(chain(*sides))
    if not rows:
        raise UsageError(f"{files[0]}: the file has no rows")
    points = [{point_key(row) for row in side} for side in sides]
    if compare or len(set().union(*points)) < sum(map(len, points)):
        shown = side_by_side([path.stem for path in files], sides, sort, top)
    else:
        shown = tables(rows, sort, top)
    if markdown:
        print(as_markdown(shown.renderables))
    else:
        console().print(shown)
