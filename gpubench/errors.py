"""What can go wrong, as far as a user must know. `cli.main` is the one place that catches it."""

from __future__ import annotations

import json
import traceback
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

DISTRIBUTION = "gpubench-kernels"
"""What installers know this package as: `gpubench` is another project's name there."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 + SIGINT."""

OUTPUT_LOST = 74
"""Exit code when stdout or stderr could not be written: EX_IOERR of sysexits.h."""


LONGEST_MESSAGE = 2000
"""Characters; names that a message quotes may come from files, and have any length."""


class GpubenchError(Exception):
    """Ends a command with one line on stderr and `exit_code`; the message is that line."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        cut = len(message) > LONGEST_MESSAGE
        super().__init__(f"{message[: LONGEST_MESSAGE - 1]}…" if cut else message)


class UsageError(GpubenchError):
    """A flag, a file or a configuration that cannot be used: what, where, what would be right."""


class DeviceUnavailableError(GpubenchError):
    """The device asked for is not there: what is missing and how to get it.

    `expected`: nothing suggests that the machine has such a device, so its absence needs no line.
    """

    def __init__(self, message: str, *, expected: bool = False) -> None:
        super().__init__(message)
        self.expected = expected


class ChildLostError(DeviceUnavailableError):
    """The process that measures crashed, hung or sent nonsense; `why` says which."""

    @property
    def why(self) -> str:
        """What became of it: `crashed: Segmentation fault (signal 11)`."""
        return str(self.args[0])

    def __str__(self) -> str:
        return f"the measuring process {self.why}"


class DeviceBusyError(GpubenchError):
    """The device is there, and another sweep measures on it."""


class CompileError(Exception):
    """A kernel does not compile. The point becomes an `error` row; the sweep goes on."""


class LaunchError(Exception):
    """A kernel compiled but could not be launched or failed while running."""


class DoesNotFitError(Exception):
    """A point needs more memory than is free, or launches too short to sustain: it is skipped."""


def install_command(extra: str) -> str:
    """What adds an extra to this copy: in a checkout `pip install '.[cuda13]'`.

    A copy from a folder names that folder (PEP 610), every other one the distribution.
    """
    folder = Path(__file__).parents[1]
    try:
        origin = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    if "dir_info" in origin:
        folder = Path(origin["url"].removeprefix("file://"))
    if not (folder / "pyproject.toml").is_file():
        return f"pip install '{DISTRIBUTION}[{extra}]'"
    return f"pip install '{'.' if folder == Path.cwd() else folder}[{extra}]'"


def first_line(error: Exception) -> str:
    """What a library's error says in one line; its type if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def with_place(error: Exception, path: Path | None = None) -> str:
    """`KeyError: 'x' (mine.py, line 3)`: its type, and the innermost call, of `path` if any is."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if path and frame.filename == str(path)]
    said, kind = first_line(error), type(error).__name__
    what = kind if said == kind else f"{kind}: {said}"
    return "".join(
        [what, *(f" ({Path(at.filename).name}, line {at.lineno})" for at in (own or frames)[-1:])]
    )
