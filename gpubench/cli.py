"""The command line: registers the commands. `main` is the only place that catches errors.

Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import errno
import signal
import sys
from typing import Annotated

import typer

from gpubench.commands import (
    check,
    compare_cublas,
    deviceinfo,
    diff,
    explain,
    export,
    fleet,
    history,
    new_kernel,
    operand_files,
    plot,
    report,
    reproduce,
    selfcheck,
    show,
    sweep,
    tune,
    variants,
)
from gpubench.errors import INTERRUPTED, OUTPUT_LOST, GpubenchError
from gpubench.results.output import guard_streams
from gpubench.text import clean

LONGEST = 1500
"""Characters of a message."""

_UNMAPPED = "failed to map segment"
"""What the dynamic loader reports for a library that does not fit into memory."""


app = typer.Typer(
    name="gpubench",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Try: gpubench sweep --sizes 1024,2048 --tiles 1..32",
    rich_markup_mode=None,  # Rich's help costs twice the time of the rest
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=True,
)


# As `--help` lists them: measure, look, know the machine and the kernels, single runs.
for command in (
    *(sweep, tune, compare_cublas, reproduce),
    *(show, diff, history, explain, plot, report),
    *(deviceinfo, selfcheck, fleet, variants, new_kernel, check, export),
    operand_files,
):
    app.add_typer(command.app)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Time matrix kernels over tile sizes and matrix sizes, against the hardware and cuBLAS."""
    if version:
        from gpubench import __version__

        typer.echo(f"gpubench {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; every expected failure is one line on stderr and an exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a command as Ctrl-C does
    streams = guard_streams()
    code = _run()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if code != INTERRUPTED and (lost := next((s.lost for s in streams if s.lost), None)):
        code = OUTPUT_LOST
        if lost.errno != errno.EPIPE:  # `head` has read enough: no error
            _fail(f"cannot write the output: {lost.strerror}", code)
    sys.exit(code)


def _run() -> int:
    try:
        code = app(standalone_mode=False)
    except GpubenchError as error:
        code = _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
            typer.echo(error.format_message(), err=True)
            code = 2
        else:
            code = _fail(error.format_message(), 2)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except (MemoryError, ImportError) as error:
        if isinstance(error, ImportError) and _UNMAPPED not in str(error):
            raise
        code = _fail("the memory is too small for this; use fewer files, or smaller ones", 2)
    except OSError as error:  # of a path, such as a current directory that was deleted
        code = _fail(f"{error.filename or 'the current directory'}: {error.strerror}", 2)
    return code or 0


def _fail(message: str, code: int) -> int:
    line = clean(" ".join(message.split()))  # of names, which may hold what steers a terminal
    if len(line) > LONGEST:  # Typer quotes an argument whole, whatever its length
        line = f"{line[: LONGEST - 1]}…"
    typer.echo(f"gpubench: {line}", err=True)
    return code
