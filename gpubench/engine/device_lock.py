"""One sweep at a time on a GPU: two sweeps would disturb each other."""

import os
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

from gpubench.errors import DeviceBusyError
from gpubench.files import lock, regular
from gpubench.model import Device

LOCKS = Path("/tmp")  # noqa: S108 # opened without following links, and nothing in it is trusted
"""All users and sessions of the machine share this directory, whatever their TMPDIR is."""


def lock_device(device: Device, until: ExitStack) -> str:
    """Lock a GPU, by its UUID, until the stack closes. Without a lock, return a line that says why.

    The operating system drops the lock with its process, so no lock is ever stale. The text that a
    killed process left in the file is overwritten. The file stays, because another process may be
    opening it. CPUs are not locked. Raises DeviceBusyError with the process that holds the lock,
    and since when.
    """
    if not (uuid := device.facts.get("uuid")):
        return ""
    path = LOCKS / f"gpubench-{uuid}.lock"
    try:
        descriptor = _open(path)
    except OSError as error:
        return f"the GPU is not locked against other sweeps: {path}: {error.strerror}"
    until.callback(os.close, descriptor)
    if not lock(descriptor):
        holder = os.read(descriptor, 200).decode(errors="replace").strip()
        raise DeviceBusyError(
            f"{device.name} is being measured by {holder or 'another gpubench'}: "
            "two sweeps on one GPU would measure each other; wait, or end that one"
        )
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    with suppress(OSError):  # a full disk
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} since {now}".encode(), 0)
    return ""


def _open(path: Path) -> int:
    """Open a file that every user of the machine may lock."""
    try:
        return regular(path, os.O_RDWR)
    except FileNotFoundError:
        descriptor = regular(path, os.O_RDWR | os.O_CREAT)
        os.fchmod(descriptor, 0o666)  # whatever the umask
        return descriptor
