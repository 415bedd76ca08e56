"""`gpubench deviceinfo`."""

from typing import Annotated

import typer

from gpubench import options as option

app = typer.Typer()


@app.command(epilog="Example: gpubench deviceinfo --json")
def deviceinfo(
    device: option.DeviceName = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Also measure the rates of memory and arithmetic.")
    ] = False,
    as_json: option.AsJson = False,
) -> None:
    """Show properties and peaks of every GPU, and of the CPU."""
    from gpubench.commands.deviceinfo.view import print_deviceinfo

    print_deviceinfo("auto" if device is None else device, measure=measure, as_json=as_json)
