"""Copies the lines that children print to the standard error of this process.

Each line is cleaned, and begins with the name of its speaker, such as a kernel. The number of lines
and their length are limited. A child prints into a pipe, and never has a descriptor of this
process's streams. So the child's text never reaches a terminal or the log of a CI job unchanged.
"""

import os
import re
import sys
from collections import Counter
from select import select
from threading import Lock, Thread

from gpubench.text import clean, counted

MAX_LINES = 50
"""Maximum number of lines that are shown for one speaker."""

MAX_LINE = 500
"""Maximum number of characters that are shown of a line."""

BLOCK_BYTES = 2**16  # capacity of a pipe
MAX_BLOCKS = 16

_COMMAND = re.compile(r"##(?=\w*\[)")
"""Matches the beginning of a command to a CI service, such as `##[group]` or `##vso[`, anywhere in
a line. `::` is a command only at the beginning of a line, but each line begins with the speaker's
name."""


class Copier:
    """A pipe, and a thread that copies the text in the pipe to standard error."""

    def __init__(self, speaker: str) -> None:
        self._speaker, self._rest = speaker, b""
        self._lines: Counter[str] = Counter()  # number of lines written, by speaker
        self._read, self.descriptor = os.pipe()
        self._has_ended = False
        self._lock, self._thread = Lock(), Thread(target=self._copy_all, daemon=True)

    def start(self) -> None:
        """Begin to copy. Call this function after the child has inherited `descriptor`."""
        os.close(self.descriptor)
        self._thread.start()

    def close(self) -> None:
        """Close the pipe of a child that was not started."""
        os.close(self.descriptor)
        os.close(self._read)

    def speak_as(self, speaker: str) -> None:
        """Change the name that is put before the lines.

        The new name applies to text that the child prints later.
        """
        with self._lock:
            blocks = 0
            while blocks < MAX_BLOCKS and self._copy():
                blocks += 1
            self._speaker = speaker

    def finish(self, limit_s: float) -> None:
        """Wait until all text is copied.

        Stop after `limit_s`, because a process may keep the pipe open.
        """
        self._thread.join(limit_s)

    def _copy_all(self) -> None:
        while not self._has_ended:
            select([self._read], [], [])
            with self._lock:
                self._copy()
        os.close(self._read)
        if self._rest:
            self._show(self._rest)
        for speaker, count in self._lines.items():
            if count > MAX_LINES:
                _print(speaker, f"({counted(count - MAX_LINES, 'more line')}, not shown)")

    def _copy(self) -> bool:
        """Copy a block of the child's output. Return False if the pipe has no output."""
        if self._has_ended or not select([self._read], [], [], 0)[0]:
            return False
        block = os.read(self._read, BLOCK_BYTES)
        *lines, rest = (self._rest + block).split(b"\n")
        self._rest = rest[: 4 * MAX_LINE]  # UTF-8 has at most 4 bytes for a character
        for line in lines:
            self._show(line)
        self._has_ended = not block
        return bool(block)

    def _show(self, line: bytes) -> None:
        self._lines[self._speaker] += 1
        if self._lines[self._speaker] <= MAX_LINES:
            _print(self._speaker, line.decode(errors="replace"))


def _print(speaker: str, text: str) -> None:
    print(f"[{harmless(speaker)}] {harmless(text)[:MAX_LINE]}", file=sys.stderr, flush=True)


def harmless(text: str) -> str:
    """Return the text as one line without commands to a terminal or to a CI service."""
    return _COMMAND.sub("# #", clean(text))
