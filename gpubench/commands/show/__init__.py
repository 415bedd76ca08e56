"""`gpubench show`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from gpubench import options as option
from gpubench.errors import UsageError

app = typer.Typer()

JSON_FORMAT = 2
"""Version of the JSON. The version increases when a column is removed or changes its meaning."""

Sort = Literal["time", "rate", "blas", "name"]


class Format(StrEnum):
    """A form of results: tables for people, or rows for programs."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"


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
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="text prints tables; other formats are for programs. Default: the format that the "
            "name of --output has, or else text.",
            metavar=f"[{'|'.join(Format)}]",
        ),
    ] = None,
    output: Annotated[
        Path | None, option.output_file("File to write, such as sweep.json. Default: stdout.")
    ] = None,
    force: option.Force = False,
) -> None:
    """Show the tables of result files again; files with common points are shown side by side."""
    from gpubench.commands.show.view import (
        as_json,
        build_tables,
        result_tables,
        tables_of_counters,
    )
    from gpubench.files import Output
    from gpubench.plan.ranges import format_of
    from gpubench.plan.selection import read_selected
    from gpubench.results.build_row import is_build_file, read
    from gpubench.results.columns import packed
    from gpubench.results.counter_row import counters_path
    from gpubench.results.row import encode
    from gpubench.view.tables import console, markdown, plain

    beside = {*map(counters_path, files)}  # `*.csv` also names the counters
    files = [path for path in files if path not in beside]
    form = form or format_of(output, Format)
    claimed = Output(output, overwrite=force) if output else None
    are_rows = form in {Format.CSV, Format.JSON}
    if any(map(is_build_file, files)):
        if only or exclude or sort or top or are_rows:
            raise UsageError(
                "--only, --exclude, --sort, --top and --format csv or json: only for results, not "
                "for build files"
            )
        parts = [part for path in files for part in build_tables(read(path))]
    else:
        if are_rows and (sort or top or len(files) > 1):
            raise UsageError(f"--format: {form} takes one file, and no --sort or --top")
        sides = [rows for _, rows in read_selected(files, only, exclude)]
        if are_rows:
            content = encode(sides[0]) if form == Format.CSV else as_json(sides[0], JSON_FORMAT)
        else:
            parts = result_tables(files, sides, sort, top)
            parts += tables_of_counters(files, sides, sort, top)
    if not are_rows:
        if claimed is None and form == Format.TEXT:
            console().print(*parts, sep="\n")
            return
        text = markdown(parts) if form == Format.MARKDOWN else plain(parts)
        content = f"{text}\n".encode()
    if claimed:
        claimed.write(packed(claimed.path, content))
    else:
        typer.echo(content.decode(), nl=False)
