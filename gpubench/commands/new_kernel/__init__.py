"""`gpubench new-kernel`."""

from pathlib import Path
from typing import Annotated

import typer

from gpubench import completion
from gpubench import options as option
from gpubench.errors import UsageError

app = typer.Typer()


@app.command("new-kernel", epilog="Example: gpubench new-kernel my_tile --like shared_tile")
def new_kernel(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Name of the kernel and its files, such as my_tile."),
    ],
    op: option.Op = None,
    like: Annotated[
        str | None,
        typer.Option(
            help="Kernel to start from, such as shared_tile. Default: naive.",
            autocompletion=completion.variants,
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Existing CUDA or Python source to describe, unchanged."
        ),
    ] = None,
    kernel: Annotated[
        str,
        typer.Option(
            metavar="FUNCTION",
            help="Function of --from to describe: a host function, a kernel, or all (described as "
            "NAME_1, NAME_2, …). Default: NAME, or the first function that launches kernels.",
        ),
    ] = "",
    folder: Annotated[
        Path,
        option.directory("Folder of your kernels, for --kernels; the files go into DIR/gemm."),
    ] = Path("own"),
    force: option.ForceFiles = False,
) -> None:
    """Write a kernel of your own: a working copy to change, or a description of your source."""
    from gpubench.commands.new_kernel.run import describe_source, write_pair

    if source and like:
        raise UsageError(
            "--from and --like: use only one: --from describes a source, --like starts from a "
            "kernel"
        )
    if kernel and not source:
        raise UsageError("--kernel needs --from FILE, the file of the function")
    if source:
        describe_source(name, op, source, folder, kernel=kernel, force=force)
    else:
        write_pair(name, op, like, folder, force=force)
