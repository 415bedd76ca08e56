"""Starts a process that runs the code of users or other projects, and sends requests to it."""

import atexit
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from gpubench.cache import DESCRIPTIONS, environment_of_foreign, part_of
from gpubench.errors import ChildLostError, UsageError
from gpubench.process.channel import MAX_BYTES
from gpubench.process.child import Child, open_channel, start
from gpubench.process.requests import answer_requests, ask


class ProcessEndedError(UsageError):
    """The process ended, or gave no answer within the time limit."""


class ForeignProcess:
    """A process that is started when a request needs it, and started again if it has ended."""

    def __init__(self, module: str) -> None:
        """Prepare a process in which the function `serve` of `module` answers the requests."""
        self._module = module
        self._child: Child | None = None
        self._serves: tuple[Path, str] | None = None  # the folder, and the name of the function
        self._lock = Lock()
        atexit.register(self.end)

    def ask(
        self,
        request: bytes,
        path: Path,
        limit_s: float,
        *,
        where: str = "",
        max_bytes: int = MAX_BYTES,
        is_alone: bool = False,
        function: str = "",
    ) -> bytes:
        """Return the answer to a request about a file.

        With `is_alone`, the process runs only files in the folder of `path`. If `function` is not
        empty, the process writes where this function's measuring processes write. Raises
        ProcessEndedError, whose text begins with `where`, if the process ends or answers too late.
        """
        with self._lock:
            child = self._started(path.parent, is_alone=is_alone, function=function)
            child.streams.speak_as(path.stem)
            try:
                return ask(child, request, (limit_s,), max_bytes=max_bytes)
            except ChildLostError as lost:
                self.end()
                raise ProcessEndedError(f"{where or path}: its process {lost.why}") from lost
            except KeyboardInterrupt:
                self.end()
                raise

    def begin(self, path: Path) -> None:
        """Start the process ahead of requests about a file, unless the process runs already.

        The requests must have `is_alone`, which restricts the process to the file's folder.
        """
        with self._lock:
            self._started(path.parent, is_alone=True)

    def _started(self, folder: Path, *, is_alone: bool, function: str = "") -> Child:
        is_other = is_alone and self._serves != (folder, function)
        if self._child is None or self._child.has_ended or is_other:
            self.end()
            self._serves = folder, function
            part = part_of(function) if function else DESCRIPTIONS
            environment, writable = environment_of_foreign(folder, part)
            self._child = start(
                self._module, "serve", speaker="", environment=environment, folder=writable
            )
        return self._child

    def end_between_requests(self) -> None:
        """Wait until the current request is answered, and then end the process."""
        with self._lock:
            self.end()

    def end(self) -> None:
        """End the process and all processes that it started."""
        child, self._child = self._child, None
        if child:
            child.kill()


def serve_requests(descriptor_of_socket: int, answer: Callable[[bytes], bytes]) -> None:
    """Answer requests until the channel closes, and end this process."""
    channel = open_channel(descriptor_of_socket)
    try:
        answer_requests(channel, lambda content, _report: answer(content))
    finally:
        os._exit(1)  # this also ends all threads, and prints no traceback
