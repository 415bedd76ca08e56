"""The errors that a user sees. Only `cli.main` catches these errors."""

import sys
import traceback
from pathlib import Path

DISTRIBUTION = "gpubench-kernels"
"""The name of this package for installers. Another project on PyPI is called `gpubench`."""

BY_SIGNAL = 128
"""Smallest exit code for a process that a signal ended. Such codes also end `git bisect run`."""

NO_MORE_PROCESSES = "no further process or thread can start (ulimit -u, or the container's limit)"

INTERRUPTED = 130
"""Exit code after Ctrl-C, by the convention of shells: 128 + SIGINT."""

OUTPUT_LOST = 74
"""Exit code if stdout or stderr could not be written: EX_IOERR of sysexits.h."""

LONGEST_MESSAGE = 2000
"""Maximum number of characters of a message. A name that a message quotes from a file may have any
length."""


class GpubenchError(Exception):
    """Ends a command with `exit_code`, after the message was printed as one line on stderr."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        cut = len(message) > LONGEST_MESSAGE
        super().__init__(f"{message[: LONGEST_MESSAGE - 1]}…" if cut else message)


class UsageError(GpubenchError):
    """A flag, file or configuration is invalid.

    The message says what is wrong, where, and what would be right.
    """


class NotOnCpuError(UsageError):
    """Programs for the CPU cannot pass a parameter of the kernel. The kernel may be right."""


class OutputLostError(UsageError):
    """A file could not be written, for example because the disk is full."""

    exit_code = OUTPUT_LOST


class DeviceUnavailableError(GpubenchError):
    """The device does not exist. The message says what is missing and how to get it.

    `expected` is true if nothing suggests that the machine has such a device. `--device auto` then
    prints no line about the device.
    """

    def __init__(self, message: str, *, expected: bool = False) -> None:
        super().__init__(message)
        self.expected = expected


class ChildLostError(DeviceUnavailableError):
    """The measuring process crashed, hung or sent an invalid answer. `why` is the reason."""

    @property
    def why(self) -> str:
        """Reason why the process was lost, such as `crashed: Segmentation fault (signal 11)`."""
        return str(self.args[0])

    def __str__(self) -> str:
        return f"the measuring process {self.why}"


class ChildHungError(ChildLostError):
    """The measuring process gave no answer within a time limit, and was killed."""


class LacksMemoryError(ChildLostError):
    """The measuring process has too little memory for a point, which is therefore skipped."""


class PeerLostError(DeviceUnavailableError):
    """A scheduler or worker of `--on` was lost. All measurements so far are kept."""

    exit_code = 1


class DeviceBusyError(GpubenchError):
    """Another sweep measures on the device."""


class HostChangedError(GpubenchError):
    """Another program changed how the system schedules this process, so the times are not valid."""


class CompileError(Exception):
    """A kernel does not compile.

    The row of its point has the status `error`, and the sweep continues.
    """


class LaunchError(Exception):
    """A compiled kernel could not be launched, or the kernel failed while running."""


class DoesNotFitError(Exception):
    """A point is skipped because memory or a module is missing, or its launches are too short."""


def missing_module(error: ModuleNotFoundError) -> DoesNotFitError:
    """Return the error to raise if a function needs a Python module that is not installed.

    The error names only the module, because the package of the module may have another name.
    """
    return DoesNotFitError(f"needs the Python module '{error.name}', which is missing")


def lacks_memory(error: Exception) -> bool:
    """Whether an error says that memory is missing. torch's error is not a MemoryError."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return not names.isdisjoint({"MemoryError", "OutOfMemoryError"})


def install_command(extra: str) -> str:
    """Return the command that installs an extra, such as `pip install '.[cuda13]'` in a checkout.

    The command names the place from which this copy was installed (PEP 610). If this place is
    unknown, the command names the distribution. No package can be added to an environment of `uvx`
    or `pipx run`, so the command for such an environment runs gpubench with the extra.
    """
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote

    origin = Path(__file__).parents[1]
    try:
        record = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        record = {}
    if {"dir_info", "archive_info"} & record.keys():
        origin = Path(unquote(record["url"].removeprefix("file://")))
    if not (origin / "pyproject.toml").is_file() and not origin.is_file():
        name = DISTRIBUTION
    else:
        name = "." if origin == Path.cwd() else str(origin)
    suffix = ""
    if "vcs_info" in record:  # pip install "gpubench-kernels @ git+https://…"
        vcs = record["vcs_info"]
        name, suffix = DISTRIBUTION, f" @ {vcs['vcs']}+{record['url']}"
    environments = Path(sys.prefix).parent.name
    if environments.startswith("archive-v"):  # in uv's cache
        return f"uvx --from '{name}[{extra}]{suffix}' gpubench …"
    if environments == "pipx":  # in pipx's cache; `pipx install` has pipx/venvs
        return f"pipx run --spec '{name}[{extra}]{suffix}' gpubench …"
    return f"pip install '{name}[{extra}]{suffix}'"


def first_line(error: Exception) -> str:
    """Return the first line of an error's text. If the error has no text, return its type."""
    try:
        text = str(error).encode(errors="replace").decode()  # without lone surrogates
    except Exception:  # a kernel's own exception, whose __str__ fails
        text = ""
    return next(iter(text.strip().splitlines()), type(error).__name__)


def with_place(error: Exception, path: Path | None = None) -> str:
    """Return the text of an error with its type and place, such as `KeyError: 'x' (mine.py:3)`.

    The place is the innermost call in `path`. If no call is in `path`, the place is the innermost
    call in a user's file. If no call is in a user's file, the place is `path`, or the innermost
    call if `path` is None. For an error of gpubench, return only the message, because its text says
    what is wrong and where. The text of a SyntaxError has a place of its own.
    """
    if isinstance(error, GpubenchError | CompileError | LaunchError | DoesNotFitError):
        return first_line(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if path and frame.filename == str(path)]
    own = own or [frame for frame in frames if not _is_library(frame.filename)]
    if not own and path and not isinstance(error, SyntaxError):
        return f"{_with_type(error)} ({path.name})"
    if not own and not isinstance(error, SyntaxError):
        own = list(frames)
    return "".join(
        [_with_type(error), *(f" ({Path(at.filename).name}:{at.lineno})" for at in own[-1:])]
    )


def _with_type(error: Exception) -> str:
    text, kind = first_line(error), type(error).__name__
    return kind if text == kind else f"{kind}: {text}"


def _is_library(file: str) -> bool:
    """Whether a file of code belongs to gpubench, to an installed package or to Python."""
    folders = Path(__file__).parent, Path(traceback.__file__).parent
    path = Path(file)
    is_installed = not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
    return is_installed or file.startswith("<frozen ") or any(map(path.is_relative_to, folders))
