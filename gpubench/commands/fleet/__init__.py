"""`gpubench fleet`."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench import options as option

app = typer.Typer()


@app.command(
    epilog="Example: gpubench fleet --on local. Exit codes: 0 all devices are fine; 1 a device "
    "is slow or wrong; 2 wrong usage; 3 a device cannot be judged; 4 a device is ambiguous, or "
    "half of the devices are slow."
)
def fleet(
    on: option.On = None,
    device: option.DeviceName = None,
    rounds: Annotated[
        int,
        typer.Option(
            min=2,
            max=100,
            help="Number of rounds that each device measures alone, and then together with others.",
        ),
    ] = 3,
    threshold: Annotated[
        str, typer.Option(metavar="PERCENT", help="Smallest relative difference that matters.")
    ] = "3%",
    output: Annotated[
        Path | None,
        option.output_file(
            "CSV to write, such as fleet.csv. Default: results/<time>-fleet-units.csv."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the units and how long they may take; run nothing."),
    ] = False,
    force: option.Force = False,
    as_json: option.AsJson = False,
) -> None:
    """Find which of your GPUs is slow or wrong, and why."""
    from gpubench.commands.fleet.run import foresee, run_fleet
    from gpubench.commands.fleet.view import as_json as json_of
    from gpubench.commands.fleet.view import as_tables
    from gpubench.errors import INTERRUPTED
    from gpubench.plan.ranges import parse_fraction, require_ending
    from gpubench.view.tables import console, say

    settings = option.read_sweep({"device": device})
    on, smallest = on or option.LOCAL, parse_fraction(threshold, "--threshold", low=1e-6)
    if output:
        require_ending("--output", output, ".csv")
    if dry_run:
        foresee(on, settings.device, rounds=rounds, output=output, force=force)
        return
    outcome, path = run_fleet(
        on, settings.device, rounds=rounds, threshold=smallest, output=output, force=force
    )
    where = path or "no unit was measured, so no file was written"
    if outcome is None:
        say(f"interrupted: {where}", err=True)
        raise typer.Exit(INTERRUPTED)
    if as_json:
        print(json_of(outcome))
    else:
        console().print(as_tables(outcome))
    say(f"\n{where}", err=True)
    raise typer.Exit(outcome.exit_code)
