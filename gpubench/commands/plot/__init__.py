"""`gpubench plot`."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench import options as option
from gpubench.errors import UsageError
from gpubench.view.pictures import Kind, load_matplotlib

app = typer.Typer()


@app.command(epilog="Example: gpubench plot sweep.csv --only 2048 -o tiles.svg")
def plot(
    files: option.Results,
    kind: Annotated[
        Kind,
        typer.Option(help="Kind of picture; auto chooses by the columns in which rows differ."),
    ] = Kind.AUTO,
    output: Annotated[
        Path | None,
        option.output_file(
            "Picture to write, such as a.svg, a.png or a.pdf. Default: "
            "<file>-<kind>.svg in the current directory."
        ),
    ] = None,
    only: option.Only = None,
    exclude: option.Exclude = None,
    bandwidth: option.Bandwidth = None,
    force: option.Force = False,
) -> None:
    """Draw results: by tile, by size, % of cuBLAS, roofline."""
    load_matplotlib()
    from gpubench.plan.selection import read_selected
    from gpubench.view.pictures.kinds import FEW_PANELS, draw, resolve
    from gpubench.view.pictures.series import sources
    from gpubench.view.pictures.style import claim, default_theme, provenance, save
    from gpubench.view.tables import say

    together = sources(read_selected(files, only, exclude), bandwidth)
    if not together:
        names = ", ".join(map(str, files))
        raise UsageError(f"nothing to draw: no row with a time is in {names}")
    kind = resolve(together, kind)
    path = output or Path(f"{files[0].stem}-{kind}.svg")
    claimed = claim(path, force=force)
    max_panels = None if only or exclude else FEW_PANELS
    picture = draw(together, kind, theme=default_theme(path), max_panels=max_panels)
    save(picture, claimed, provenance(kind, files))
    say(str(path))
