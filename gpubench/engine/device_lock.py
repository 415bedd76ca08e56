"""Locks a GPU for one sweep at a time, because two sweeps would disturb each other."""

import os
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

from gpubench.errors import DeviceBusyError
from gpubench.files import lock, regular
from gpubench.model import Device

LOCKS = Path("/tmp")  # noqa: S108 # files are opened without following links, and are not trusted
"""Directory of the lock files. All users and sessions of the machine share this directory, whatever
their TMPDIR is."""


def lock_device(device: Device, until: ExitStack) -> str:
    """Lock a GPU until the stack `until` closes. Return why locking failed, or an empty text.

    The operating system releases a lock when its process ends, so no lock is ever stale. The text
    that a killed process left in the file is overwritten. The file is never removed, because
    another process may be opening the file. CPUs are not locked. Raises DeviceBusyError if another
    process has the lock. The error names this process, and the time when the GPU was locked.
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
            "two sweeps on one GPU would disturb each other; wait, or end the other sweep"
        )
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    with suppress(OSError):  # the disk may be full
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} since {now}".encode(), 0)
    return ""


def _open(path: Path) -> int:
    """Open a file that every user of the machine may lock."""
    try:
        return regular(path, os.O_RDWR)
    except FileNotFoundError:
        descriptor = regular(path, os.O_RDWR | os.O_CREAT)
        os.fchmod(descriptor, 0o666)  # whatever the umask is
        return descriptor
