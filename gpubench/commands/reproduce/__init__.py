"""`gpubench reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpubench import completion
from gpubench import options as option

app = typer.Typer()


def _experiments(incomplete: str) -> list[str]:
    """Published experiments that come with gpubench, and TOML files of the user's."""
    from gpubench.commands.reproduce.experiment import shipped

    return [
        *completion.words(*shipped())(incomplete),
        *(completion.configs(incomplete) if incomplete else []),
    ]


@app.command(epilog="Example: gpubench reproduce p100-tiles")
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Experiments, or TOML files of your own. Default: all there are.",
            autocompletion=_experiments,
        ),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="List the experiments and measure nothing.")
    ] = False,
    device: option.DeviceName = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for the CSVs and the markdown, such as results/mine. "
            "Default: results/<time>-<device>-reproduce",
        ),
    ] = None,
    rounds: Annotated[
        str | None,
        typer.Option(help="Rounds of every sweep, such as 10. Default: as each experiment says."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Seconds for each experiment, shared out among its points, such as 60."),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Continue a run that ended early, by its folder."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite what the folder holds of an earlier run.")
    ] = False,
) -> None:
    """Run published experiments again, and compare.

    Run published experiments again: their figures, yours, and whether the shape holds.
    """
    from gpubench.commands.reproduce.run import list_experiments, run_reproduce

    if listing:
        list_experiments(names or [])
        return
    options = {"device": device, "output": output, "rounds": rounds, "budget": budget}
    raise typer.Exit(run_reproduce(names or [], options, resume=resume, force=force))
