"""Writes the rows of `gpubench fleet` as CSV, and keeps the rows of each device."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import IO, Annotated

import msgspec

from gpubench.files import Output, not_written
from gpubench.grouping import grouped
from gpubench.results import store
from gpubench.results.columns import MAX_VALUE, MIN_VALUE, encode_csv
from gpubench.rewording import reworded
from gpubench.view.tables import say

NAME = "fleet"  # the name under which the store keeps the times of earlier runs
SUFFIX = ".jsonl"


class UnitTime(msgspec.Struct, frozen=True, kw_only=True):
    """The time that one device took for one unit in one round."""

    host: str
    slot: str  # address of the device on the PCI bus; for a CPU, the name of the Dask worker
    device_uuid: str | None
    device: str  # name of the device
    unit: str  # `float32 product`, `copy`
    phase: str  # `alone`: the other devices of the host do nothing; `together`: they measure too
    status: str = "ok"
    reason: str | None = None
    time_us: Annotated[float, msgspec.Meta(ge=MIN_VALUE, le=MAX_VALUE)] | None = None
    """Median time of a launch, or None if the unit failed."""

    sm_mhz: float | None = None  # clock of the multiprocessors while sampling
    nvml_sm_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle: str | None = None  # the causes that limited the clock, joined by `;`
    driver: str | None = None
    cuda: str | None = None
    gpubench: str | None = None
    started_utc: str | None = None

    @property
    def identity(self) -> str:
        """Text that identifies the device in all runs: the UUID, or else the host and the slot."""
        return self.device_uuid or f"{self.host} {self.slot}"


COLUMNS = UnitTime.__struct_fields__


def encode(times: Iterable[UnitTime]) -> bytes:
    """Return the times as a CSV."""
    return encode_csv(COLUMNS, (msgspec.structs.astuple(time) for time in times))


class TimesFile:
    """The CSV of a run, which gets the times of each turn. An existing file stays until then."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        """Raise UsageError if the path must not be written."""
        self._path, self._output = path, Output(path, overwrite=overwrite)
        self._file: IO[bytes] | None = None

    @property
    def path(self) -> Path | None:
        """The path of the file, or None if no time was written."""
        return self._path if self._file else None

    def write(self, times: Sequence[UnitTime]) -> None:
        """Append the times, if there are any. Raises UsageError if the file cannot be written."""
        if not times:
            return
        if self._file is None:
            self._file = self._output.create(encode([]))
        try:
            self._file.write(encode(times).partition(b"\n")[2])
            self._file.flush()
        except OSError as error:
            with suppress(OSError):  # the same error again
                self._file.close()
            message = f"--output: cannot write {self._path}: {error.strerror}"
            raise not_written(error)(message) from error

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


def keep(times: Iterable[UnitTime]) -> None:
    """Keep the times in the store, in a file for each device name. Raises UsageError."""
    for device, of_device in grouped(times, attrgetter("device")).items():
        lines = msgspec.json.Encoder().encode_lines(of_device)
        store.keep(device, NAME, SUFFIX, lines, flag=store.VARIABLE)


def earlier(times: Iterable[UnitTime], runs: int) -> Iterator[UnitTime]:
    """Yield the times of each device's newest runs in the store. `times` has the devices.

    A run in which all units of a device failed is not counted as a run of the device. A damaged
    file is skipped, and a line on stderr names it.
    """
    decoder = msgspec.json.Decoder(UnitTime)
    for name, of_name in grouped(times, attrgetter("device")).items():
        missing = {time.identity: runs for time in of_name}  # number of runs not yet found
        for path in reversed(store.saved(NAME, name, SUFFIX)):
            if not any(missing.values()):
                break
            try:
                timed = [time for time in decoder.decode_lines(path.read_bytes()) if time.time_us]
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OSError) as error:
                say(f"{path} is skipped: not a run of gpubench fleet{reworded(error)}", err=True)
                continue
            for device, of_device in grouped(timed, attrgetter("identity")).items():
                if missing.get(device):
                    missing[device] -= 1
                    yield from of_device
