"""Writes the file of a sweep: JSON lines while the sweep runs, and a CSV when the sweep ends."""

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, get_type_hints

import msgspec

from gpubench.errors import UsageError
from gpubench.files import Output, lock, make_directory, not_written, open_regular
from gpubench.model import Measurement, Point, PointKey, Status
from gpubench.results.columns import MIN_VALUE, in_range, packed
from gpubench.results.row import Row, encode, read
from gpubench.results.store import slug
from gpubench.rewording import reworded
from gpubench.text import shown

MAX_CONTEXT_BYTES = 2**20
"""Maximum length of the first line of a partial file. gpubench never writes a longer line."""

PointOf = Callable[[PointKey], Point | None]
"""Function that returns the point with a key, or None if the sweep has no such point."""

Context = Mapping[str, Any]
"""Facts that must be the same when a sweep is continued: options, device, versions, sources
(JSON)."""

_HINTS = get_type_hints(Measurement)
_MEASUREMENT: Any = msgspec.defstruct(
    "Measurement",
    [(name, _HINTS[name]) for name in _HINTS if name not in {"point", "fingerprints"}],
    forbid_unknown_fields=True,
)


class _Line(msgspec.Struct):
    """A line of the partial file, with a measurement and the key of the measured point."""

    key: PointKey
    measurement: _MEASUREMENT


def encode_line(measurement: Measurement) -> bytes:
    """Encode a measurement as a line of the partial file."""
    values = {name: getattr(measurement, name) for name in _MEASUREMENT.__struct_fields__}
    return _line(_Line(key=measurement.point.key, measurement=_MEASUREMENT(**values)))


def decode_line(text: bytes, point_of: PointOf) -> Measurement:
    """Return the measurement in a line of `encode_line`. Raises ValueError with the reason."""
    try:
        line = msgspec.json.decode(text, type=_Line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(reworded(error).removeprefix(": ")) from error
    if (point := point_of(line.key)) is None:
        raise ValueError(
            f"{shown(str(line.key.variant))} {shown(line.key.tile)} is not a point of this sweep"
        )
    measurement = Measurement(point=point, **msgspec.structs.asdict(line.measurement))
    _require_times(measurement)
    return measurement


def _require_times(measurement: Measurement) -> None:
    """Raise ValueError if the times of a measurement are missing or impossible."""
    series = measurement.series
    if series is None:
        if measurement.status == Status.OK:
            raise ValueError("the status of the point is ok, but the point has no times")
        return
    if not series.times_us:
        raise ValueError("times_us is empty")
    for time_us in series.times_us:
        in_range(time_us, MIN_VALUE)
    if series.launches_per_sample < 1:
        raise ValueError(
            f"launches_per_sample is {series.launches_per_sample}, and must be at least 1"
        )


def has_results(rows: Iterable[Row]) -> bool:
    """Whether any point was measured."""
    return any(row.status != Status.SKIPPED for row in rows)


class ResultFile:
    """Appends each measurement to `NAME.csv.partial` as a JSON line, and writes `NAME.csv`.

    The first line is the sweep's context. `finish` removes the partial file or keeps it as
    `samples`. If a sweep ends early, the partial file stays, and `resume=True` continues the sweep.
    No other process can continue the sweep while the partial file is open.
    """

    def __init__(
        self,
        path: Path,
        *,
        overwrite: bool = False,
        resume: bool = False,
        samples: Path | None = None,
    ) -> None:
        self.path, self.partial = path, partial_of(path)
        self.continued_by = path  # the path that the user must give to `--resume`

        self.keeps_partial = False
        """Whether the partial file of a complete sweep stays until `remove_partial`."""

        self._overwrite, self.resume = overwrite, resume
        self._samples_path = samples
        self._file: IO[bytes] | None = None

        self._replacement: Output | None = None
        """The partial file of a new sweep, while the older partial file stays. `_file` is the older
        file then, and `_waiting` has the lines of the new sweep."""

        self._waiting = b""
        self._csv: Output
        self._samples: Output | None = None

    def open(self, context: Context, point_of: PointOf) -> list[Measurement]:
        """Start or continue the partial file, and return the file's measurements in order.

        An older partial file that is overwritten stays until a point is measured.

        Raises UsageError if the file exists, cannot be written, is being written by another
        process, or was started with other settings or other points.
        """
        if self.resume:
            self._claim_samples()
            self._make_directory_of_samples()
            return self._continue(context, point_of)
        partial = self.claim()
        self._make_directory_of_samples()
        start = _line({"gpubench_sweep": context})
        if self.partial.exists():
            self._file, self._replacement = _open_partial(self.path), partial
            self._waiting = start
        else:
            self._file = partial.create(start)
        return []

    def claim(self) -> Output:
        """Check the files that a new sweep writes, and return the partial file. Create no file.

        Raises UsageError if a file exists or cannot be written.
        """
        self._claim_samples()
        self._csv = Output(self.path, overwrite=self._overwrite)
        hint = f"--resume {self.path} continues the sweep, --force starts a new sweep"
        return Output(self.partial, overwrite=self._overwrite, hint=hint)

    def _make_directory_of_samples(self) -> None:
        if self._samples_path:
            make_directory(self._samples_path.parent, "--samples")

    def _claim_samples(self) -> None:
        if self._samples_path:
            paths = {os.path.realpath(path): path for path in (self.path, self.partial)}
            if path := paths.get(os.path.realpath(self._samples_path)):
                raise UsageError(
                    f"--samples: {self._samples_path} is {path}, which the sweep writes itself"
                )
            self._samples = Output(self._samples_path, overwrite=self._overwrite, flag="--samples")

    def _continue(self, context: Context, point_of: PointOf) -> list[Measurement]:
        with ExitStack() as if_refused:
            file = if_refused.enter_context(_open_partial(self.path))
            now = msgspec.json.decode(msgspec.json.encode(context))
            _require_same(_context_of(file, self.partial), now, self.path)
            file.seek(0)
            text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            measurements: list[Measurement] = []
            for number, line in enumerate(whole.split(b"\n")[1:-1], start=2):
                try:
                    measurements.append(decode_line(line, point_of))
                except ValueError as error:
                    place = f"--resume: {self.partial}:{number}"
                    raise UsageError(f"{place}: {error}") from error
            self._csv = Output(self.path, overwrite=self._overwrite or self._is_ours(measurements))
            file.truncate(len(whole))  # drop an unfinished line; its point is measured again
            file.seek(len(whole))
            self._file = file
            if_refused.pop_all()
        return measurements

    def _is_ours(self, measurements: Iterable[Measurement]) -> bool:
        """Return whether this sweep wrote the existing CSV before the sweep was continued."""
        ours = {(taken.point.key, taken.started_utc) for taken in measurements}
        try:
            return all((row.key, row.started_utc or "") in ours for row in read(self.path))
        except UsageError:
            return False

    def add(self, measurement: Measurement) -> None:
        """Append a measurement. The measurement is on disk when the function returns."""
        file, line = self._opened(), encode_line(measurement)
        if self._replacement:
            self._waiting += line
            if measurement.status != Status.SKIPPED:
                self._file = self._replacement.create(self._waiting)
                self._replacement = None
                file.close()
            return
        try:
            file.write(line)
            file.flush()
            if measurement.status != Status.ELIMINATED:  # the other lines determine this status
                os.fsync(file.fileno())
        except OSError as error:
            what = f"cannot write {self.partial}: {error.strerror}"
            raise self._lost(what, not_written(error)) from error

    def close(self) -> None:
        """Close the partial file without changing it, so that the sweep can be continued later."""
        if self._file is not None:
            with suppress(OSError):  # a full disk was reported by `add`
                self._file.close()

    def finish(self, rows: Collection[Row], *, complete: bool) -> bool:
        """Write the rows, and return whether they were written.

        If nothing was measured, existing files stay, and the partial file of a new sweep is
        removed. Otherwise, the partial file stays if the sweep is not complete.
        """
        file = self._opened()
        if not has_results(rows) and (self._replacement or self.path.exists()):
            if complete or not self.resume:
                self.remove_partial()
            self.close()
            return False
        try:
            self._csv.write(packed(self.path, encode(rows)))
            if complete and self._samples:
                file.seek(0)
                self._samples.write(lambda samples: shutil.copyfileobj(file, samples))
            if complete and not self.keeps_partial:
                self.remove_partial()
        except UsageError as error:
            raise self._lost(str(error), type(error)) from error
        finally:
            self.close()
        return True

    def remove_partial(self) -> None:
        """Remove this sweep's partial file, if the file still exists."""
        if self._replacement:  # the partial file is an older sweep's
            return
        with suppress(OSError):  # the file stays in a read-only directory
            self.partial.unlink(missing_ok=True)

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            raise ValueError("the file is not open")
        return self._file

    def _lost(self, what: str, kind: type[UsageError]) -> UsageError:
        return kind(
            f"{what}; what was measured is in {self.partial}, "
            f"and --resume {self.continued_by} continues from there"
        )


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def partial_of(path: Path, flag: str = "--output") -> Path:
    """Return `NAME.csv.partial` for `NAME.csv`. Raises UsageError for a path without a name."""
    if not path.name:
        raise UsageError(f"{flag}: '{path}' does not name a file")
    return path.with_name(f"{path.name}.partial")


def read_context(path: Path) -> dict[str, Any]:
    """Return the context of the sweep whose results go to `path`.

    Raises UsageError if there is no sweep to continue, or if the sweep still runs.
    """
    with _open_partial(path) as file:
        return _context_of(file, partial_of(path))


def _open_partial(path: Path) -> IO[bytes]:
    """Open and lock the partial file that belongs to `path`. Raises UsageError if this fails."""
    partial = partial_of(path, "--resume")
    try:
        file = open_regular(partial, "r+b")
    except FileNotFoundError:
        complete = f"{path} is complete, so neither points nor counters can be added to it"
        done = complete if path.is_file() else f"there is no {partial}"
        raise UsageError(f"--resume: nothing to continue: {done}") from None
    except OSError as error:
        raise UsageError(f"--resume: cannot read {partial}: {error.strerror}") from error
    if not lock(file.fileno()) or not _is_at(partial, file):
        file.close()
        raise UsageError(f"--resume: {partial} is being written by another gpubench")
    return file


def _is_at(path: Path, file: IO[bytes]) -> bool:
    """Return whether the path still names the open file. Someone may have removed the directory."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except OSError:
        return False


def _context_of(file: IO[bytes], partial: Path) -> dict[str, Any]:
    try:
        first = file.readline(MAX_CONTEXT_BYTES)
        context = msgspec.json.decode(first, type=dict[str, dict[str, Any]])["gpubench_sweep"]
        msgspec.convert(context["options"], dict[str, str])
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"--resume: {partial} does not start with the settings of a sweep"
        ) from error
    return context


MAY_DIFFER = {("options", "samples"), ("options", "budget")}


def _require_same(started: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Raise UsageError if the settings of a sweep differ. The message names the first difference.

    The file of samples and the budget may differ, because they change no measurement. The devices
    may differ, because one device can complete a sweep of several devices.
    """
    old, new = _settings(started), _settings(now)
    for at in {**new, **old}:
        if old.get(at) != new.get(at) and at[0] != "on" and at not in MAY_DIFFER:
            raise UsageError(
                f"--resume: {path} was started with other settings: {': '.join(filter(None, at))} "
                f"was {shown(str(old.get(at)))}, and is {shown(str(new.get(at)))} now"
            )


def _settings(context: Mapping[str, Any]) -> dict[tuple[str, str], object]:
    """Return each value of a context. The key of a value is a pair of a group and a name."""
    return {
        (group, name): value
        for group, values in context.items()
        for name, value in (values if isinstance(values, dict) else {"": values}).items()
    }


def default_path(device: str, ending: str) -> Path:
    """Return `results/<utc time>-<device>-<ending>`."""
    return Path("results") / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{slug(device)}-{ending}"
