"""One sweep at a time on a GPU: two sweeps would disturb each other."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gpubench.errors import DeviceBusyError
from gpubench.model import Device
from gpubench.results.output import lock, regular

LOCKS = Path("/tmp")  # noqa: S108 # opened without following links, and nothing in it is trusted
"""One directory for all users and sessions of the machine, whatever their TMPDIR is."""


class DeviceLock:
    """A lock on a GPU, by its UUID, held until it is given back or the process ends.

    The operating system drops the lock with its process, so no lock is ever stale. The text that a
    killed process left in the file is overwritten. CPUs are not locked.
    """

    def __init__(self, device: Device) -> None:
        uuid = str(device.facts.get("uuid") or "")
        self._device = device.name
        self._path = LOCKS / f"gpubench-{uuid}.lock" if uuid else None
        self._descriptor: int | None = None

    def take(self) -> str:
        """Lock the GPU. If no file can be locked, return a line with the reason.

        Raises DeviceBusyError with the process that holds the lock, and since when.
        """
        if self._path is None:
            return ""
        try:
            descriptor = _open(self._path)
        except OSError as error:
            return f"the GPU is not locked against other sweeps: {self._path}: {error.strerror}"
        if not lock(descriptor):
            holder = os.read(descriptor, 200).decode(errors="replace").strip()
            os.close(descriptor)
            raise DeviceBusyError(
                f"{self._device} is being measured by {holder or 'another gpubench'}: "
                "two sweeps on one GPU would measure each other; wait, or end that one"
            )
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        with suppress(OSError):  # a full disk
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} since {now}".encode(), 0)
        self._descriptor = descriptor
        return ""

    def give_back(self) -> None:
        """Release the lock. The file stays: another process may be opening it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _open(path: Path) -> int:
    """Open a file that every user of the machine may lock."""
    try:
        return regular(path, os.O_RDWR)
    except FileNotFoundError:
        descriptor = regular(path, os.O_RDWR | os.O_CREAT)
        os.fchmod(descriptor, 0o666)  # whatever the umask
        return descriptor
