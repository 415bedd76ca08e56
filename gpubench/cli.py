"""The command line. `main` is the only place that catches errors.

A command's module is imported when the command is used. The list in `--help` comes from the sources
of the modules, because importing all of them takes three times as long as importing Typer.
"""

import ast
import errno
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from threading import Timer
from time import monotonic
from types import CodeType, FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gpubench.errors import (
    BY_SIGNAL,
    INTERRUPTED,
    NO_MORE_PROCESSES,
    OUTPUT_LOST,
    GpubenchError,
    UsageError,
)
from gpubench.files import guard_streams, not_written
from gpubench.process.descendants import all_ended
from gpubench.text import clean, shown

PACKAGES = {
    **dict.fromkeys(("ab", "bisect"), "diff"),
    **dict.fromkeys(("generate", "run"), "operand_files"),
    "build": "explain",
}
"""Maps a command to the name of its package in `gpubench.commands`, if the two names differ."""

SECTIONS = {
    "Measure": ("sweep", "compare-cublas", "tune", "reproduce"),
    "Look": ("show", "report", "plot"),
    "Compare and gate": ("diff", "ab", "history", "bisect", "judge"),
    "Understand": ("explain", "build", "variants"),
    "Your own kernels": ("new-kernel", "new-operation", "check", "export"),
    "Machines": ("deviceinfo", "selfcheck", "fleet"),
    "Operand files": ("generate", "run"),
}
"""Maps a section of `--help` to the commands of the section. The most important section comes
first."""

COMMANDS = tuple(name for names in SECTIONS.values() for name in names)


class Group(TyperGroup):
    """The group of all commands. A command's module is imported when the command is looked up."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)

    def get_command(self, _ctx: Any, name: str) -> Any:
        """Return a command, or None if there is no command with this name."""
        if name in COMMANDS and self.commands[name] is None:
            # If a Typer app has no name, its commands become commands of the parent app.
            parent = typer.Typer(rich_markup_mode=None, add_completion=False)
            parent.add_typer(import_module(f"gpubench.commands.{package(name)}").app)
            parent.callback()(lambda: None)
            self.commands |= typer.main.get_group(parent).commands
        return self.commands.get(name)

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """List the commands with the first line of their help, without importing them."""
        widest = max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), summary(name)) for name in names])


def package(command: str) -> str:
    """Return the name of the command's package in `gpubench.commands`."""
    return PACKAGES.get(command, command.replace("-", "_"))


def summary(command: str) -> str:
    """Read the source of a command, and return the first line of the docstring of its function."""
    source = Path(__file__).parent / "commands" / package(command) / "__init__.py"
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == command.replace("-", "_"):
            return inspect.cleandoc(ast.get_docstring(node) or "").partition("\n")[0]
    return ""


_UNMAPPED = "failed to map segment"
"""Part of the dynamic loader's message about a library that does not fit into memory."""

app = typer.Typer(
    name="gpubench",
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Try: gpubench sweep --sizes 1024,2048 --tiles 1..32",
    rich_markup_mode=None,  # Rich's help takes twice the time of all other work
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


def main() -> None:
    """Run the command line, and end the process with the command's exit code.

    An expected failure is reported by one line on stderr.
    """
    _received_s.clear()
    for number in _INTERRUPTING:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, _interrupt)
    streams = guard_streams()
    with all_ended(), _interrupted_again():
        try:
            code = _run()
            _ignore(_INTERRUPTING)
        except KeyboardInterrupt:  # a signal arrived while the command ended
            code = INTERRUPTED
        except Exception:  # the signal interrupted a library in C
            if not _received_s:
                raise
            code = INTERRUPTED
        _ignore(_INTERRUPTING)  # gpubench ends in any case
        if descriptions := sys.modules.get("gpubench.plan.description_process"):
            descriptions.end()  # also if an earlier command started the process
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if code < BY_SIGNAL and (lost := next((s.lost for s in streams if s.lost), None)):
        code = OUTPUT_LOST
        if lost.errno != errno.EPIPE:  # a reader such as `head` has closed the pipe: no error
            _fail(f"cannot write the output: {lost.strerror}", code)
    sys.exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End the command, and end the programs that threads wait for.

    The command keeps its measurements.

    During an import, the signal is sent again later, because C libraries print a traceback if one
    of their imports fails. `IMPORT_S` limits this delay. The signal is also sent again if it
    arrives in `_send_if_ignored`, whose exceptions Python ignores. While the command ends, SIGTERM
    and SIGHUP are ignored, because systems send these signals in pairs.
    """
    _received_s.append(monotonic())
    importing = any(code.co_filename.startswith("<frozen importlib") for code in _codes(frame))
    if (importing and _received_s[-1] < _received_s[0] + IMPORT_S) or (
        _send_if_ignored.__code__ in _codes(frame)
    ):
        _send_again(number)
        return
    _ignore((signal.SIGTERM, signal.SIGHUP))
    module = sys.modules.get("gpubench.process.child")  # the import may be unfinished
    if end_programs := getattr(module, "end_programs", None):
        end_programs()
    raise KeyboardInterrupt


_received_s: list[float] = []
"""Times at which signals interrupted this command."""

IMPORT_S = 2.0  # time that an import may take before a signal interrupts it
AGAIN_S = 0.01  # time until a signal is sent again


def _codes(frame: FrameType | None) -> Iterator[CodeType]:
    """Yield the code of a frame and of its callers."""
    while frame:
        yield frame.f_code
        frame = frame.f_back


def _send_again(number: int) -> None:
    Timer(AGAIN_S, os.kill, (os.getpid(), number)).start()


@contextmanager
def _interrupted_again() -> Iterator[None]:
    """Send SIGTERM to this process if Python ignored a KeyboardInterrupt, as in a destructor."""
    report = sys.unraisablehook
    sys.unraisablehook = partial(_send_if_ignored, report)
    try:
        yield
    finally:
        sys.unraisablehook = report


def _send_if_ignored(report: Callable[[Any], object], ignored: Any) -> None:
    if ignored.exc_type is KeyboardInterrupt:
        signal.signal(signal.SIGTERM, _interrupt)
        _send_again(signal.SIGTERM)
    else:
        report(ignored)


_INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _ignore(signals: Iterable[signal.Signals]) -> None:
    for number in signals:
        signal.signal(number, signal.SIG_IGN)


def _run() -> int:
    try:
        code = app(standalone_mode=False)
    except GpubenchError as error:
        code = _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the error's message is the help
            typer.echo(error.format_message(), err=True)
            code = 2
        else:
            code = _fail(str(UsageError(_usage_message(error))), 2)  # Typer quotes whole arguments
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except (MemoryError, ImportError) as error:
        if isinstance(error, ImportError) and _UNMAPPED not in str(error):
            raise
        code = _fail("this needs more memory than is free; use fewer files, or smaller files", 2)
    except RuntimeError as error:
        if str(error) != "can't start new thread":
            raise
        code = _fail(NO_MORE_PROCESSES, 2)
    except OSError as error:
        place = error.filename or _NAMELESS.get(error.errno or 0, "the system")
        refusal = not_written(error)(f"{place}: {error.strerror or error}")
        code = _fail(str(refusal), refusal.exit_code)
    return code or 0


_NAMELESS = {
    errno.ENOENT: "the current directory",  # the directory was deleted
    errno.EAGAIN: NO_MORE_PROCESSES,
}
"""Beginning of the message about a system error without a file name, by the number of the error."""


_NOT_TAKEN = {
    "int_parsing": "is not a whole number",
    "float_parsing": "is not a number",
    "greater_than_equal": "is below the minimum, {ge}",
    "less_than_equal": "is above the maximum, {le}",
}
"""Text about an invalid value, by the type of Pydantic's error. The text of Pydantic does not
contain the value."""


def _usage_message(error: Any) -> str:
    """Return Typer's message, with the invalid value and without Pydantic's own words."""
    message: str = error.format_message()
    details = getattr(error.__cause__, "errors", None)
    if details and (parameter := getattr(error, "param", None)):
        first = details()[0]
        name = max(parameter.opts, key=len)
        if why := _NOT_TAKEN.get(first["type"]):
            return f"{name}: '{shown(str(first['input']))}' {why.format(**first.get('ctx', {}))}"
        return f"{name}: {first['msg'].removeprefix('Value error, ')}"
    if message.startswith("Missing") and (context := getattr(error, "ctx", None)):
        return f"{message.rstrip('.')}; usage: {context.get_usage().removeprefix('Usage: ')}"
    if message.startswith("Got unexpected extra"):
        for before, word in pairwise(sys.argv[1:]):
            if before.endswith(","):
                return (
                    f"'{shown(before)} {shown(word)}': a list cannot have blanks: "
                    f"write {before}{word}"
                )
    return message


def _fail(message: str, code: int) -> int:
    line = clean(" ".join(message.split()))  # names may hold control characters
    typer.echo(f"gpubench: {line}", err=True)
    return code
