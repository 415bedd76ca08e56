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
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, for a page or a comment.")
    ] = False,
) -> None:
    """Show the tables of result files again; files with a point in common stand side by side."""
    from gpubench.commands.show.view import build_tables, side_by_side, tables
    from gpubench.plan.selection import read_selected
    from gpubench.results.build_row import is_build_file, read
    from gpubench.view.tables import console
    from gpubench.view.tables import markdown as as_markdown

    if any(map(is_build_file, files)):
        if only or exclude or sort or top:
            raise UsageError(
                "--only, --exclude, --sort and --top: for results, not for build files"
            )
        parts = [part for path in files for part in build_tables(read(path))]
        if markdown:
            print(as_markdown(parts))
        else:
            console().print(*parts, sep="\n")
        return
    sides = [rows for _, rows in read_selected(files, only, exclude)]
    rows = list(chain(*sides))
    if not rows:
        raise UsageError(f"{files[0]}: the file has no rows")
    points = [{row.key for row in side} for side in sides]
    if len(set().union(*points)) < sum(map(len, points)):
        shown = side_by_side([path.stem for path in files], sides, sort, top)
    else:
        shown = tables(rows, sort, top)
    if markdown:
        print(as_markdown(shown.renderables))
    else:
        console().print(shown)
