"""The Typer application that every command registers with."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

ORDER = (
    *("sweep", "compare-cublas", "reproduce"),
    *("diff", "explain", "plot", "report"),
    *("deviceinfo", "selfcheck", "variants", "new-kernel"),
    *("generate", "run"),
)
"""As `--help` lists the commands: measure, look, know the machine and the kernels, single runs."""


class Commands(TyperGroup):
    """The commands in `ORDER`; one that is not named there comes last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names in their order."""
        names = super().list_commands(ctx)
        return [*(n for n in ORDER if n in names), *(n for n in names if n not in ORDER)]


app = typer.Typer(
    name="gpubench",
    cls=Commands,
    epilog="Try: gpubench sweep --sizes 1024,2048 --tiles 1..32",
    rich_markup_mode=None,  # Rich's help costs twice the time of the rest
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=True,
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Time matrix kernels over tile sizes and matrix sizes, against the hardware and cuBLAS."""
    if version:
        from gpubench import __version__

        typer.echo(f"gpubench {__version__}")
        raise typer.Exit
