"""A sweep's file: measurements as JSON lines while it runs, the CSV at its end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, get_type_hints

import msgspec

from gpubench.errors import UsageError
from gpubench.model import Measurement, Point, PointKey
from gpubench.output import make_directory, require_free
from gpubench.plan.ranges import shown
from gpubench.row import Row, write

MAX_CONTEXT_BYTES = 2**20
"""Of a partial file's first line: a longer one was not written by us."""

Context = Mapping[str, Any]
"""What a sweep depends on: options, device, versions, sources. JSON values."""

_TYPES = {
    name: hint
    for name, hint in get_type_hints(Measurement).items()
    if name in {field.name for field in fields(Measurement)} - {"point"}
}


class _Line(msgspec.Struct):
    """A measurement in the partial file, under the key of its point."""

    key: PointKey
    measurement: dict[str, Any]


class ResultFile:
    """Measurements are appended to `NAME.csv.partial`, a JSON line each.

    The first line is the sweep's context. `finish` writes `NAME.csv`, one row a point, and removes
    the partial file, or keeps it as `samples`. A sweep that ended early leaves it, and
    `resume=True` continues it.
    """

    def __init__(
        self,
        path: Path,
        *,
        overwrite: bool = False,
        resume: bool = False,
        samples: Path | None = None,
    ) -> None:
        if not path.name:
            raise UsageError(f"--output: '{path}' does not name a file")
        self.path = path
        self._samples = samples
        self._overwrite = overwrite
        self._resume = resume
        self._file: IO[bytes] | None = None

    @property
    def partial(self) -> Path:
        """Where the measurements are while the sweep runs."""
        return partial_of(self.path)

    def open(self, context: Context, points: Iterable[Point]) -> list[Measurement]:
        """Start the file, or continue it: the measurements it has, in the order they were made.

        Raises UsageError if the file exists, cannot be written, or was started with other
        settings or other points.
        """
        if self._samples:
            require_free(self._samples, overwrite=self._overwrite, flag="--samples")
            make_directory(self._samples.parent, "--samples")
        try:
            if self._resume:
                return self._continue(context, {point.key: point for point in points})
            self._start(context)
        except OSError as error:
            raise UsageError(f"--output: cannot write {self.path}: {error.strerror}") from error
        return []

    def _start(self, context: Context) -> None:
        require_free(self.path, overwrite=self._overwrite)
        if self.partial.exists() and not self._overwrite:
            hint = f"--resume {self.path} continues it, --force starts anew"
            raise UsageError(f"--output: {self.partial} exists; {hint}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.partial.open("wb")
        self._append({"gpubench_sweep": context})

    def _continue(self, context: Context, points: Mapping[PointKey, Point]) -> list[Measurement]:
        with self.partial.open("r+b") as file:
            now = msgspec.json.decode(msgspec.json.encode(context))
            _require_same(read_context(self.path), now, self.path)
            text = file.read()
            whole = text[: text.rfind(b"\n") + 1]  # a line that was being written is measured again
            file.truncate(len(whole))
        measurements = [
            self._read(line, number, points)
            for number, line in enumerate(whole.splitlines()[1:], start=2)
        ]
        self._file = self.partial.open("ab")
        return measurements

    def _read(self, text: bytes, number: int, points: Mapping[PointKey, Point]) -> Measurement:
        try:
            line = msgspec.json.decode(text, type=_Line)
            values = {
                name: msgspec.convert(value, _TYPES[name])
                for name, value in line.measurement.items()
            }
        except (msgspec.MsgspecError, KeyError, UnicodeDecodeError) as error:
            raise UsageError(f"--resume: {self.partial}, line {number}: {error}") from error
        if line.key not in points:
            raise UsageError(
                f"--resume: {self.partial}, line {number}: {shown(str(line.key.variant))} "
                f"{shown(line.key.tile)} is not a point of this sweep"
            )
        return Measurement(point=points[line.key], **values)

    def add(self, measurement: Measurement) -> None:
        """Append a measurement; it is on disk when this returns."""
        values = {name: getattr(measurement, name) for name in _TYPES}
        try:
            self._append(_Line(key=measurement.point.key, measurement=values))
        except OSError as error:
            raise self._lost(error) from error

    def close(self) -> None:
        """Leave the file as it is, to be continued later."""
        if self._file is not None:
            self._file.close()

    def finish(self, rows: Iterable[Row], *, complete: bool) -> None:
        """Write the rows; only a sweep that is not complete needs the partial file further."""
        if self._file is None:
            raise ValueError("the file is not open")
        try:
            self._file.close()
            write(rows, self.path)
            if complete and self._samples:
                shutil.move(self.partial, self._samples)  # which may be on another disk
            elif complete:
                self.partial.unlink()
        except OSError as error:
            raise self._lost(error) from error

    def _append(self, line: object) -> None:
        if self._file is None:
            raise ValueError("the file is not open")
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _lost(self, error: OSError) -> UsageError:
        return UsageError(
            f"cannot write {self.path}: {error.strerror}; what was written is in {self.partial}, "
            f"and --resume {self.path} continues from there"
        )


def partial_of(path: Path) -> Path:
    """`NAME.csv.partial` for `NAME.csv`."""
    return path.with_name(f"{path.name}.partial")


def read_context(path: Path) -> dict[str, Any]:
    """The context in which the sweep into `path` was started.

    Raises UsageError where there is no sweep to continue.
    """
    partial = partial_of(path)
    try:
        with partial.open("rb") as file:
            first = file.readline(MAX_CONTEXT_BYTES)
        context = msgspec.json.decode(first, type=dict[str, dict[str, Any]])["gpubench_sweep"]
        msgspec.convert(context["options"], dict[str, str])
    except FileNotFoundError:
        done = f"{path} is complete" if path.is_file() else f"there is no {partial}"
        raise UsageError(f"--resume: nothing to continue: {done}") from None
    except OSError as error:
        raise UsageError(f"--resume: cannot read {partial}: {error.strerror}") from error
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"--resume: {partial} does not start with the settings of a sweep"
        ) from error
    return context


def _require_same(started: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Raises UsageError naming the first difference."""
    for group in {**now, **started}:
        old, new = started.get(group), now.get(group)
        if isinstance(old, dict) and isinstance(new, dict):
            for name in {**new, **old}:
                if old.get(name) != new.get(name):
                    _refuse(path, f"{group}: {name}", old.get(name), new.get(name))
        elif old != new:
            _refuse(path, group, old, new)


def _refuse(path: Path, what: str, old: object, new: object) -> None:
    raise UsageError(
        f"--resume: {path} was started with other settings: {what} was {shown(str(old))}, "
        f"and is {shown(str(new))} now"
    )
