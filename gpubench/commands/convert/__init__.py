"""`gpubench convert`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gpubench import completion
from gpubench import options as option

app = typer.Typer()

JSON_FORMAT = 2
"""Version of the JSON. It increases when a column is removed or changes its meaning."""


class Form(StrEnum):
    """A form of results that `convert` writes."""

    CSV = "csv"
    JSON = "json"


@app.command(epilog="Example: gpubench convert sweep.csv --to json -o sweep.json")
def convert(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="CSV of a sweep.", autocompletion=completion.files),
    ],
    *,
    to: Annotated[
        Form | None,
        typer.Option(
            help="Form to write. Default: that of the name of --output.",
            metavar=f"[{'|'.join(Form)}]",
        ),
    ] = None,
    only: option.Only = None,
    exclude: option.Exclude = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write, such as sweep.json. Default: stdout."),
    ] = None,
    force: option.Force = False,
) -> None:
    """Write results as JSON for other programs, or some rows as a CSV."""
    import json

    import gpubench
    from gpubench.errors import UsageError
    from gpubench.plan.selection import read_selected
    from gpubench.results.output import Output
    from gpubench.results.row import encode, objects

    if to is None:
        suffix = output.suffix.removeprefix(".") if output else ""
        if suffix not in {*Form}:
            raise UsageError("--to: write --to json or --to csv, or -o with a name that ends so")
        to = Form(suffix)
    claimed = Output(output, overwrite=force) if output else None
    ((_, rows),) = read_selected([file], only, exclude)
    content = encode(rows)
    if to == Form.JSON:
        document = {"format": JSON_FORMAT, "gpubench": gpubench.__version__, "rows": objects(rows)}
        content = f"{json.dumps(document, indent=1, ensure_ascii=False)}\n".encode()
    if claimed:
        claimed.write(content)
    else:
        typer.echo(content.decode(), nl=False)
