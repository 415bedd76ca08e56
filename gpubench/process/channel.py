"""A channel between two processes. Each message arrives complete, or an error is raised."""

import os
import socket
from collections.abc import Sequence
from time import perf_counter

LENGTH_BYTES = 8  # bytes of the length that precedes each message

MAX_BYTES = 2**34
"""Maximum length of a message in bytes. No message of this package is longer."""


MAX_DESCRIPTORS = 2  # maximum number of open files that arrive with a message


class Channel:
    """One end of a pair of sockets."""

    def __init__(self, end: socket.socket, *, takes_files: bool = False) -> None:
        self._socket, self._takes_files = end, takes_files
        self.descriptors: list[int] = []
        """Descriptors of open files that arrived with messages. A reader removes the descriptors
        that it uses."""

    def send(
        self, message: bytes, limit_s: float | None = None, descriptors: Sequence[int] = ()
    ) -> None:
        """Send a message. The descriptors of open files can be sent with the message.

        The other end gets the open files only if its `takes_files` is true.

        Raises OSError if the other end is closed, and TimeoutError if no one reads in time.
        """
        self._socket.settimeout(limit_s)
        length = len(message).to_bytes(LENGTH_BYTES, "big")
        if descriptors:
            socket.send_fds(self._socket, [length], descriptors)
        else:
            self._socket.sendall(length)
        self._socket.sendall(message)

    def receive(self, limit_s: float | None = None, max_bytes: int = MAX_BYTES) -> bytes:
        """Return the next message.

        Raises EOFError if the other end is closed, TimeoutError after the time limit, and
        ValueError if the message is longer than `max_bytes`. Raises OSError if the socket fails.
        """
        deadline_s = None if limit_s is None else perf_counter() + limit_s
        count = int.from_bytes(self._exactly(LENGTH_BYTES, deadline_s), "big")
        if count > max_bytes:
            raise ValueError(f"a message of {count} bytes")
        return self._exactly(count, deadline_s)

    def _exactly(self, count: int, deadline_s: float | None) -> bytes:
        content = bytearray()
        while len(content) < count:
            left_s = None if deadline_s is None else deadline_s - perf_counter()
            if left_s is not None and left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            block = self._receive(min(count - len(content), 2**20))
            if not block:
                raise EOFError
            content += block
        return bytes(content)

    def _receive(self, count: int) -> bytes:
        if not self._takes_files:  # then the system closes files that arrive
            return self._socket.recv(count)
        block, descriptors, _, _ = socket.recv_fds(self._socket, count, MAX_DESCRIPTORS)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self.descriptors += descriptors
        return block

    def close(self) -> None:
        """Close this end, even if messages were not read."""
        self._socket.close()
