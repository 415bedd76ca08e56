"""What can go wrong, as far as a user must know. `cli.main` is the one place that catches it."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 + SIGINT."""


class GpubenchError(Exception):
    """Ends a command with one line on stderr and `exit_code`; the message is that line."""

    exit_code = 2


class UsageError(GpubenchError):
    """A flag, a file or a configuration that cannot be used: what, where, what would be right."""


class DeviceUnavailableError(GpubenchError):
    """The device asked for is not there: what is missing and how to get it."""


class DeviceBusyError(GpubenchError):
    """The device is there, and another sweep measures on it."""


class CompileError(Exception):
    """A kernel does not compile. The point becomes an `error` row; the sweep goes on."""


class LaunchError(Exception):
    """A kernel compiled but could not be launched or failed while running."""


class DoesNotFitError(Exception):
    """A point needs more memory than is free. The point becomes a `skipped` row."""


def first_line(error: Exception) -> str:
    """What a library's error says in one line; its type if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
