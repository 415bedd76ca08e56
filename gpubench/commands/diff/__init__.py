"""`gpubench diff`."""

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from gpubench import completion
from gpubench import options as option
from gpubench.commands.diff.options import (
    AB_CPU_PAIRS,
    AB_PAIRS,
    BISECT_PAIRS,
    Options,
    diff_options,
)
from gpubench.errors import GpubenchError

app = typer.Typer()


class _FilesPerSide(TyperCommand):
    """Accepts several files after `--base` or `--new`, such as all files that match `base-*`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `--base` or `--new` before each further file of the side, then parse the words."""
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
        typer.Argument(metavar="BASE NEW", help="Result files.", autocompletion=completion.files),
    ] = None,
    *,
    base: Annotated[
        list[Path] | None,
        option.files(
            "Files that are pooled as the base side, such as a1.csv a2.csv. They replace BASE.",
            None,
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Results that 'gpubench sweep --save v0.1' saved on this device. They replace "
            "BASE.",
            metavar="NAME",
        ),
    ] = None,
    new: Annotated[
        list[Path] | None,
        option.files(
            "Files that are pooled as the new side, such as b1.csv b2.csv. They replace NEW.", None
        ),
    ] = None,
    **options: Any,
) -> None:
    """Compare results: which points changed? CI can use the exit code."""
    from gpubench.commands.diff.run import run_diff, saved_base

    positional = iter(files or [])
    base = base or list(islice(positional, 0 if against else 1))
    new = new or list(islice(positional, 1))
    if extra := next(positional, None):
        raise typer.BadParameter(
            f"'{extra}' is one file too many; to compare several files per side, write "
            "--base a.csv b.csv --new c.csv"
        )
    settings = Options(**options)
    if against:
        base = saved_base(against, base, new, settings)
    raise typer.Exit(run_diff(base, new, settings))


AB_OPTIONS = ("threshold", "strict", "format", "output", "force", "full")


@app.command(
    epilog="Example: gpubench ab old/.venv/bin/python new/.venv/bin/python --sizes 512 "
    "--tiles 8,16. The exit codes are the same as for diff."
)
@partial(option.sweep_options, without=("output", "samples", "rounds"))
@partial(diff_options, names=AB_OPTIONS)
def ab(
    base: Annotated[
        Path,
        typer.Argument(
            metavar="BASE",
            help="Python interpreter or environment with a gpubench, or a directory of kernels; "
            "v1:kernels is the directory kernels in git revision v1.",
        ),
    ],
    new: Annotated[
        Path,
        typer.Argument(
            metavar="NEW", help="Interpreter, environment or directory of the new side."
        ),
    ],
    *,
    config: option.Config = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            help="Maximum number of pairs of sweeps if there is no --budget. "
            f"Default: {AB_PAIRS}, and {AB_CPU_PAIRS} on a CPU."
        ),
    ] = None,
    to_find: option.ToFind = None,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Directory of the sweeps' CSVs. Default: results/<utc time>-ab."
        ),
    ] = None,
    **options: Any,
) -> None:
    """Measure two installations or kernel directories in turns, and compare them.

    Sweeps of one round alternate on one device, and are judged by the rules of diff. Each side runs
    its own gpubench. --budget is the time of the whole comparison.
    """
    from gpubench.commands.diff.ab import compare_builds

    settings = Options(**{name: options.pop(name) for name in AB_OPTIONS})
    code = compare_builds(
        base, new, options, settings, config=config, pairs=pairs, to_find=to_find, results=results
    )
    raise typer.Exit(code)


class _EndsBisect(TyperCommand):
    """Ends `git bisect run` if the command line is wrong.

    Otherwise, typer would exit with code 2, and git would take the commit for a bad commit.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises BisectEndedError if the arguments are wrong."""
        try:
            return super().parse_args(ctx, args)
        except (typer.TyperException, GpubenchError) as error:
            from gpubench.commands.diff.bisect import BisectEndedError

            said = error.format_message() if isinstance(error, typer.TyperException) else str(error)
            raise BisectEndedError(said) from error


@app.command(
    cls=_EndsBisect,
    epilog="Example: gpubench bisect v1:kernels kernels --variants rows,cpu_blas --sizes 256. "
    "Exit codes: 0 good, 1 bad, 125 not judged, 128 or more: the bisection ends.",
)
@partial(option.sweep_options, without=("output", "samples", "rounds"))
@partial(diff_options, names=("threshold",))
def bisect(
    base: Annotated[
        Path,
        typer.Argument(
            metavar="BASE", help="The good version, as 'gpubench ab' takes it, such as v1:kernels."
        ),
    ],
    new: Annotated[
        Path, typer.Argument(metavar="NEW", help="The directory of kernels that is checked out.")
    ],
    *,
    config: option.Config = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            help=f"Number of pairs of sweeps if there is no --budget. Default: {BISECT_PAIRS}."
        ),
    ] = None,
    **options: Any,
) -> None:
    """Find the commit that slowed a kernel, with git bisect run.

    Measures the checked-out kernels and the good version in turns, as 'ab' does. The commit is bad
    if a point is slower, and good if every point is shown not to be slower.
    """
    from gpubench.commands.diff.bisect import judge_commit

    threshold = options.pop("threshold")
    raise typer.Exit(judge_commit(base, new, options, threshold, config=config, pairs=pairs))
