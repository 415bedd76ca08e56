"""`gpubench reproduce`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gpubench import options as option
from gpubench.errors import UsageError

app = typer.Typer()


@app.command(epilog="Example: gpubench reproduce p100-tiles")
@partial(
    option.chosen_options,
    options={
        "device": None,
        "rounds": ("INTEGER", "Rounds of every sweep, such as 5. Default: set by each experiment."),
        "budget": ("SECONDS", "Time for all points of each experiment, such as 60, 90s or 2m."),
    },
)
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Experiments, or TOML files of your own. Without NAME, experiments are listed.",
        ),
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Run all shipped experiments, which takes minutes.")
    ] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="List the experiments and measure nothing.")
    ] = False,
    checkout: Annotated[
        Path | None,
        option.files("Checkout of another project whose claim an experiment checks.", "DIR"),
    ] = None,
    folder: Annotated[
        str | None,
        option.directory(
            "Directory for the CSVs and the Markdown, such as results/mine. "
            "Default: results/<time>-<device>-reproduce"
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of a run that ended early and is continued."),
    ] = None,
    on: option.On = None,
    dry_run: option.DryRun = False,
    force: option.ForceFiles = False,
    **options: Any,
) -> None:
    """Run published experiments again, and compare the figures.

    The tables show published and measured figures, their ratio, and whether the curve has the
    published shape.
    """
    from gpubench.commands.reproduce.run import foresee, list_experiments, run_reproduce

    if every and names:
        raise UsageError("--all and NAME: use --all, or name experiments, but not both")
    if listing or not (names or every or resume or dry_run):
        if checkout:
            raise UsageError(
                "--checkout: no experiment is run: leave out --checkout, or name the experiment "
                "that uses it"
            )
        list_experiments(names or [], hint=not listing)
        return
    where = checkout, folder, resume
    if dry_run:
        foresee(names or [], options, *where, force=force)
    else:
        raise typer.Exit(run_reproduce(names or [], options, *where, on=on, force=force))
