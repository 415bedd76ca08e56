"""`gpubench diff`."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from gpubench import completion
from gpubench import options as option
from gpubench.commands.diff.options import Format, Options
from gpubench.errors import UsageError

app = typer.Typer()


class _SeveralFilesPerSide(TyperCommand):
    """`--base a.csv b.csv` for `--base a.csv --base b.csv`, as a shell expands `--base base-*`."""

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


def _threshold(value: object) -> float:
    from gpubench.plan.ranges import parse_fraction

    if isinstance(value, float):  # the default
        return value
    return parse_fraction(value, "--threshold", low=1e-6)


def _format(value: str) -> Format:
    from gpubench.text import unknown

    if value not in set(Format):
        raise UsageError(f"--format: {unknown('format', value, Format)}")
    return Format(value)


@app.command(
    cls=_SeveralFilesPerSide,
    epilog="Example: gpubench diff base.csv new.csv. Exit codes: 0 no confirmed regression; "
    "1 a point is slower; 2 not comparable; 3 not settled under --strict; "
    "4 a point is broken.",
)
def diff(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="BASE NEW",
            help="Result files; BASE may be a TOML file with [expect].",
            autocompletion=completion.results,
        ),
    ] = None,
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
            help="What 'gpubench sweep --save v0.1' kept for this device; instead of BASE.",
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
    threshold: Annotated[
        float,
        typer.Option(
            parser=_threshold,
            metavar="<percentage>",
            show_default="2%",
            help="Smallest relative difference that matters.",
        ),
    ] = 0.02,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Exit 3 if a point is ambiguous or missing, or the machine shifted."
        ),
    ] = False,
    ignore_device: Annotated[
        bool, typer.Option("--ignore-device", help="Compare different GPUs, drivers or CUDA.")
    ] = False,
    only: option.Only = None,
    exclude: option.Exclude = None,
    format: Annotated[  # noqa: A002 # the option's name
        Format,
        typer.Option(
            parser=_format,
            metavar="<str>",
            help="text, markdown, json or junit.",
            autocompletion=completion.words(*Format),
        ),
    ] = Format.TEXT,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write --format there, such as to diff.md; the terminal gets the text.",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="List every point that is ambiguous, missing or faster.")
    ] = False,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Measure the ambiguous points again, and decide.")
    ] = False,
) -> None:
    """Has it changed? Compare results; the exit code is for CI."""
    from gpubench.commands.diff.run import run_diff

    rest = iter(files or [])
    options = Options(
        base=base or list(islice(rest, 0 if against else 1)),
        against=against,
        new=new or list(islice(rest, 1)),
        threshold=threshold,
        strict=strict,
        ignore_device=ignore_device,
        only=only,
        exclude=exclude,
        format=format,
        output=output,
        rerun=rerun,
        full=full,
    )
    if extra := next(rest, None):
        raise typer.BadParameter(
            f"'{extra}' is one file too many; several per side: --base a.csv b.csv --new c.csv"
        )
    raise typer.Exit(run_diff(options))
