"""Slow loops on the CPU are measured once on a machine: their rows are kept in the user's cache.

A row is found again by the CPU's name and the number of cores, everything that identifies the
point (variant, size, dtype, …), the hash of the variant's source, and Numba's version, which
compiled it.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path

import platformdirs

from gpubench.errors import UsageError
from gpubench.measure.rows import row
from gpubench.measure.session import source_hash
from gpubench.model import Device, Measurement, Point, Status
from gpubench.row import Row, read, write


def folder() -> Path:
    """Where the rows are kept, a file a row."""
    return Path(platformdirs.user_cache_dir("gpubench")) / "loops"


def recall(point: Point, device: Device) -> Row | None:
    """The row that an earlier run measured for this point, or None."""
    blank = row(Measurement(point=point, status=Status.SKIPPED), device, source_hash(point.variant))
    try:
        (kept,) = read(_file(blank, device))
    except (UsageError, ValueError):  # not there, of an older schema, or damaged
        return None
    return kept if kept.key == blank.key else None


def remember(measured: Row, device: Device) -> None:
    """Keep a row that is right. A cache that cannot be written costs time, nothing else."""
    if measured.status != Status.OK:
        return
    try:
        folder().mkdir(parents=True, exist_ok=True)
        write([measured], _file(measured, device))
    except OSError:
        return


def _file(one: Row, device: Device) -> Path:
    key = (
        *(device.name, device.multiprocessors, *one.key),
        *(one.source_hash, version("numba")),
    )
    return folder() / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.csv"
