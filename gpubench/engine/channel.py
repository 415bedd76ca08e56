"""Messages between a sweep and the child process that measures."""

from __future__ import annotations

import pickle
import socket
from typing import Any


class Channel:
    """One end of a pair of sockets. A message arrives complete, or an error is raised.

    Messages are pickled. The other end runs the user's kernels anyway, so pickle gives it no
    further rights.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._stream = end.makefile("rb")

    def send(self, message: object, limit_s: float | None = None) -> None:
        """Send a message. Raises OSError if the other end has gone, TimeoutError if it hangs."""
        self._socket.settimeout(limit_s)
        self._socket.sendall(pickle.dumps(message))

    def receive(self, limit_s: float | None = None) -> Any:
        """Return the next message. Raises EOFError, OSError or TimeoutError.

        Bytes that are not a message raise any exception.
        """
        self._socket.settimeout(limit_s)
        return pickle.load(self._stream)  # noqa: S301 # from our own process, see above

    def close(self) -> None:
        """Close this end, even if messages were not read."""
        self._stream.close()
        self._socket.close()
