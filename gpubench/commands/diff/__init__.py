"""`gpubench diff`."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from gpubench import completion
from gpubench.commands.diff.options import Options, diff_options

app = typer.Typer()


class _FilesPerSide(TyperCommand):
    """Accept `--base a.csv b.csv` for `--base a.csv --base b.csv`, as shells expand `base-*`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each further file."""
        words: list[str] = []
        side = ""
        for word in args:
            if word.startswith("-"):
                side = ""
            elif side and words[-1] != side:
                words.append(side)
            words.append(word)
            if word in {"--base", "--new"}:
                side = word
        return super().parse_args(ctx, words)


@app.command(
    cls=_FilesPerSide,
    epilog="Example: gpubench diff base.csv new.csv. Exit codes: 0 no confirmed regression; "
    "1 a point is slower; 2 not comparable; 3 not settled under --strict; "
    "4 a point is broken.",
)
@diff_options
def diff(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="BASE NEW",
            help="Result files; BASE may be a TOML file with [expect].",
            autocompletion=completion.results,
        ),
    ] = None,
    *,
    base: Annotated[
        list[Path] | None,
        typer.Option(
            help="Files of the base side, pooled, such as a1.csv a2.csv; instead of BASE.",
            autocompletion=completion.results,
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Results that 'gpubench sweep --save v0.1' kept for this device; instead of BASE.",
            metavar="NAME",
            autocompletion=completion.saved,
        ),
    ] = None,
    new: Annotated[
        list[Path] | None,
        typer.Option(
            help="Files of the new side, pooled, such as b1.csv b2.csv; instead of NEW.",
            autocompletion=completion.results,
        ),
    ] = None,
    **options: Any,
) -> None:
    """Has it changed? Compare results; the exit code is for CI."""
    from gpubench.commands.diff.run import run_diff, saved_base

    rest = iter(files or [])
    base = base or list(islice(rest, 0 if against else 1))
    new = new or list(islice(rest, 1))
    if extra := next(rest, None):
        raise typer.BadParameter(
            f"'{extra}' is one file too many; several per side: --base a.csv b.csv --new c.csv"
        )
    settings = Options(**options)
    if against:
        base = saved_base(against, base, new, settings)
    raise typer.Exit(run_diff(base, new, settings))
