"""`gpubench deviceinfo`, `gpubench selfcheck` and `gpubench variants`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpubench.cli import completion
from gpubench.cli import options as option
from gpubench.cli.app import app


@app.command(epilog="Example: gpubench deviceinfo --json")
def deviceinfo(
    device: option.DeviceName = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Also measure copy bandwidth and arithmetic rate.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Properties and theoretical peaks of every GPU, and of the CPU."""
    from gpubench.show.commands import print_deviceinfo

    print_deviceinfo(device or "auto", measure=measure, as_json=as_json)


@app.command(epilog="Example: gpubench selfcheck")
def selfcheck(
    device: Annotated[
        str,
        typer.Option(help="cuda or cuda:1. Default: cuda.", autocompletion=completion.devices),
    ] = "cuda",
) -> None:
    """Time kernels by events and by CUPTI, and say whether this machine can be trusted."""
    from gpubench.show.commands import run_selfcheck

    raise typer.Exit(run_selfcheck(device))


@app.command(epilog="Example: gpubench variants --device cpu")
def variants(
    op: Annotated[
        str | None,
        typer.Option(
            help="Only this operation, such as gemm.", autocompletion=completion.operations
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="Only cuda or cpu.", autocompletion=completion.words("cuda", "cpu")),
    ] = None,
    kernels: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="List your own of --op (default: gemm) too: mine.py in DIR, or in DIR/gemm. "
            "This runs the code of every .py there, as you.",
            autocompletion=completion.folders,
        ),
    ] = None,
) -> None:
    """What can be swept: dtypes, legal tiles and the idea of each kernel."""
    from gpubench.show.commands import print_variants

    print_variants(op, device, kernels)
