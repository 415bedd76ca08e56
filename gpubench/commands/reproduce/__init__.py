"""`gpubench reproduce`."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench import completion
from gpubench import options as option

app = typer.Typer()


def _experiments(incomplete: str) -> list[str]:
    """Complete the names of the shipped experiments, and the user's TOML files."""
    from gpubench.commands.reproduce.experiment import shipped

    own = completion.configs(incomplete) if incomplete else []
    return [*completion.words(*shipped(), *shipped("claims"))(incomplete), *own]


@app.command(epilog="Example: gpubench reproduce p100-tiles")
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Experiments, or TOML files of your own. Default: all shipped experiments.",
            autocompletion=_experiments,
        ),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="List the experiments and measure nothing.")
    ] = False,
    checkout: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Checkout of the code of other people whose claim an experiment checks.",
            autocompletion=completion.folders,
        ),
    ] = None,
    device: option.DeviceName = None,
    on: option.On = None,
    folder: Annotated[
        str | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Directory for the CSVs and the Markdown, such as results/mine. "
            "Default: results/<time>-<device>-reproduce",
            autocompletion=completion.folders,
        ),
    ] = None,
    samples: Annotated[Path | None, option.OPTIONS["samples"].typer] = None,
    rounds: Annotated[
        str | None,
        typer.Option(
            metavar="INTEGER",
            help="Rounds of every sweep, such as 10. Default: set by each experiment.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            help="Time for each experiment, such as 60, 90s or 2m, for all its points.",
        ),
    ] = None,
    dry_run: option.DryRun = False,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Continue a run that ended early, by its folder."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Overwrite the files of an earlier run in the directory."),
    ] = False,
) -> None:
    """Run published experiments again, and compare the figures.

    The tables show published and measured figures, their ratio, and whether the shape holds.
    """
    from gpubench.commands.reproduce.run import foresee, list_experiments, run_reproduce

    if listing:
        list_experiments(names or [])
        return
    options = {"device": device, "samples": samples, "rounds": rounds, "budget": budget}
    if dry_run:
        foresee(names or [], options, checkout)
        return
    raise typer.Exit(
        run_reproduce(
            *(names or [], options),
            checkout=checkout,
            folder=folder,
            on=on,
            resume=resume,
            force=force,
        )
    )
