"""A sweep's CSV in the making: every row is on disk before the next point starts."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from gpubench.errors import UsageError
from gpubench.output import require_free
from gpubench.plan.ranges import shown
from gpubench.row import NAMES, Row, fields_of, parse, write

MARK = "# gpubench sweep in progress: "
"""Before the JSON of the circumstances, on the first line of a partial file."""

MAX_HEAD_BYTES = 2**20
"""Of that line: what is longer was not written by us."""

Context = Mapping[str, Any]
"""The circumstances of a sweep: options, device, versions, sources. JSON values."""


class ResultFile:
    """Rows are appended to `NAME.csv.partial`, one a point and round.

    `finish` writes `NAME.csv`, one row a point, and removes the partial file. A sweep that ended
    early leaves it, and `resume=True` goes on from it.
    """

    def __init__(self, path: Path, *, overwrite: bool = False, resume: bool = False) -> None:
        if not path.name:
            raise UsageError(f"--output: '{path}' names no file")
        self.path = path
        self._overwrite = overwrite
        self._resume = resume
        self._file: IO[bytes] | None = None

    @property
    def partial(self) -> Path:
        """Where the rows are while the sweep runs."""
        return partial_of(self.path)

    def open(self, context: Context) -> list[Row]:
        """Begin, or go on: the rows that are there already, in the order they were measured.

        Raises UsageError if the file exists, cannot be written, or was begun under other
        circumstances.
        """
        try:
            if self._resume:
                return self._go_on(context)
            self._begin(context)
        except OSError as error:
            raise UsageError(f"--output: cannot write {self.path}: {error.strerror}") from error
        return []

    def _begin(self, context: Context) -> None:
        require_free(self.path, overwrite=self._overwrite)
        if self.partial.exists() and not self._overwrite:
            hint = f"--resume {self.path} goes on, --force begins again"
            raise UsageError(f"--output: {self.partial} exists; {hint}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.partial.open("wb")
        self._append(f"{MARK}{json.dumps(context)}\n{','.join(NAMES)}\n".encode())

    def _go_on(self, context: Context) -> list[Row]:
        with self.partial.open("r+b") as file:
            _require_same(read_context(self.path), json.loads(json.dumps(context)), self.path)
            text = file.read()
            whole = text[: text.rfind(b"\n") + 1]  # a line that was being written is measured again
            _, columns, *rest = whole.split(b"\n", 2)
            if rest and columns != ",".join(NAMES).encode():  # new rows would not fit below them
                raise UsageError(
                    f"--resume: {self.path} was begun by a gpubench with other columns; "
                    "--force begins again"
                )
            file.truncate(len(whole))
        rows = parse(whole.decode(errors="replace"), self.partial)
        self._file = self.partial.open("ab")
        return rows

    def add(self, one: Row) -> None:
        """Append a row of one round; it is on disk when this returns."""
        line = _Line()
        cells = [str(cell).replace("\n", " ") for cell in fields_of(one)]  # one row, one line
        csv.writer(line, lineterminator="\n").writerow(cells)
        try:
            self._append(line.text.encode())
        except OSError as error:
            raise self._lost(error) from error

    def close(self) -> None:
        """Leave the file as it is, to go on with later."""
        if self._file is not None:
            self._file.close()

    def finish(self, rows: Iterable[Row], *, complete: bool) -> None:
        """Write the final rows; only a complete sweep needs the partial file no more."""
        if self._file is None:
            raise ValueError("the file is not open")
        try:
            self._file.close()
            write(rows, self.path)
            if complete:
                self.partial.unlink()
        except OSError as error:
            raise self._lost(error) from error

    def _append(self, line: bytes) -> None:
        if self._file is None:
            raise ValueError("the file is not open")
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())

    def _lost(self, error: OSError) -> UsageError:
        return UsageError(
            f"cannot write {self.path}: {error.strerror}; what fitted is in {self.partial}, "
            f"and --resume {self.path} goes on from there"
        )


class _Line:
    """What csv.writer writes to."""

    text = ""

    def write(self, text: str) -> None:
        self.text += text


def partial_of(path: Path) -> Path:
    """`NAME.csv.partial` for `NAME.csv`."""
    return path.with_name(f"{path.name}.partial")


def read_context(path: Path) -> dict[str, Any]:
    """The circumstances that the sweep into `path` began under.

    Raises UsageError where there is no sweep to go on with.
    """
    partial = partial_of(path)
    try:
        with partial.open("rb") as file:
            head = file.readline(MAX_HEAD_BYTES).decode()
        if not head.startswith(MARK) or not head.endswith("\n"):
            raise UsageError(f"--resume: {partial} does not begin like a sweep in progress")
        context = json.loads(head.removeprefix(MARK))
    except FileNotFoundError:
        done = f"{path} is complete" if path.is_file() else f"there is no {partial}"
        raise UsageError(f"--resume: nothing to go on with: {done}") from None
    except OSError as error:
        raise UsageError(f"--resume: cannot read {partial}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--resume: {partial} does not begin like a sweep in progress") from error
    if not isinstance(context, dict) or not isinstance(context.get("options"), dict):
        raise UsageError(f"--resume: {partial} does not say what was swept")
    return context


def _require_same(begun: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Raises UsageError naming the first difference."""
    for group in {**now, **begun}:
        old, new = begun.get(group), now.get(group)
        if isinstance(old, dict) and isinstance(new, dict):
            for name in {**new, **old}:
                if old.get(name) != new.get(name):
                    _refuse(path, f"{group}: {name}", old.get(name), new.get(name))
        elif old != new:
            _refuse(path, group, old, new)


def _refuse(path: Path, what: str, old: object, new: object) -> None:
    raise UsageError(
        f"--resume: {path} was begun under other circumstances: {what} was "
        f"{shown(str(old))}, and is {shown(str(new))} now"
    )
