"""The commands: parse, call, print. `main` is the only place that catches errors.

A command is a module here that parses, and one in `show` that does and prints. Nothing heavy is
imported before a command runs.
"""

from __future__ import annotations

import io
import os
import sys

import typer

from gpubench.cli import (
    device,
    diff,
    explain,
    new_kernel,
    operand_files,
    plot,
    report,
    reproduce,
    sweep,
)
from gpubench.cli.app import app
from gpubench.errors import INTERRUPTED, GpubenchError

__all__ = [
    "app",
    "device",
    "diff",
    "explain",
    "main",
    "new_kernel",
    "operand_files",
    "plot",
    "report",
    "reproduce",
    "sweep",
]

LONGEST = 1500
"""Signs of a message."""


def main() -> None:
    """Run the command line; every expected failure is one line on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without × is no reason to fail
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
    except BrokenPipeError:
        # Whoever read our output (head, less) has gone; Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code or 0)


def _fail(message: str, code: int) -> int:
    # A file's name in it may hold what steers a terminal.
    line = "".join(sign if sign.isprintable() else "?" for sign in " ".join(message.split()))
    if len(line) > LONGEST:  # Typer quotes an argument whole, whatever its length
        line = f"{line[: LONGEST - 1]}…"
    typer.echo(f"gpubench: {line}", err=True)
    return code
