"""Messages between a sweep and the child process that measures."""

from __future__ import annotations

import pickle
import socket
from typing import Any


class Channel:
    """One end of a pair of sockets. A message arrives whole, or an error is raised.

    The objects are our own: what the other end loads and runs are the user's kernels, so pickle
    gives it no rights that it does not have.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._stream = end.makefile("rb")

    def send(self, message: object, limit_s: float | None = None) -> None:
        """Raises OSError if the other end has gone, TimeoutError if it does not read."""
        self._socket.settimeout(limit_s)
        self._socket.sendall(pickle.dumps(message))

    def receive(self, limit_s: float | None = None) -> Any:
        """The next message. Raises EOFError, OSError, TimeoutError, or anything if it is none."""
        self._socket.settimeout(limit_s)
        return pickle.load(self._stream)  # noqa: S301 # from our own process, see above

    def close(self) -> None:
        """Close this end, whatever is still to be read."""
        self._stream.close()
        self._socket.close()
