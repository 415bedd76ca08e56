"""Operand files: a matrix A and a vector v, and the results computed from them.

A binary file is little endian: uint32 columns, uint32 rows, 8 bytes of padding, then the rows of A
and then v, all float32. Its result file holds the elements of the vector alone, float32. A file
named `*.npz` holds `A` and `v` as NumPy arrays of float32, float64 or int32; its result file holds
`result`.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from gpubench.backends.cpu.backend import CpuBackend
from gpubench.errors import UsageError, first_line
from gpubench.model import CORE_DTYPES
from gpubench.output import Output
from gpubench.plan.ranges import shown

_HEADER = struct.Struct("<II8x")
_ITEM = np.dtype("<f4")

_MAX_INFLATED = 1032
"""Bytes that one byte of a deflated stream can become (RFC 1951: 258 bytes from two bits)."""

_LARGEST = 2**31 - 1
"""Kernels take M and N as 32-bit integers."""


def read_operands(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """A (M×N) and v, whose length the operation judges.

    Nothing is allocated before sizes are checked against the file's and free memory. Raises
    UsageError for a file that is not an operand file, truncated, too long, or not finite.
    """
    try:
        if not path.is_file():
            problem = "is not a regular file" if path.exists() else "does not exist"
            raise UsageError(f"{path} {problem}")
        a, v = _read_npz(path) if path.suffix == ".npz" else _read_binary(path)
        for name, array in (("A", a), ("v", v)):
            finite = np.isfinite(array)
            if not finite.all():
                at = tuple(map(int, np.unravel_index(finite.argmin(), array.shape)))
                raise UsageError(
                    f"{path}: {name}{list(at)} is {array[at]}; operands must be finite"
                )
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise UsageError(f"{path}: too little memory for its arrays") from error
    return a, v


def write_operands(output: Output, a: np.ndarray, v: np.ndarray) -> None:
    """Write A and v; a binary file takes float32, and as many elements of v as A has columns.

    Raises UsageError if the file cannot be written; then what was there stays.
    """
    rows, columns = a.shape
    _write(output, _HEADER.pack(columns, rows), {"A": a, "v": v})


def write_result(output: Output, result: np.ndarray) -> None:
    """Write a vector: its elements alone, or `result` of a `*.npz`.

    Raises UsageError as `write_operands` does, and for a binary file of another dtype than float32.
    """
    require_binary(output.path, str(result.dtype))
    _write(output, b"", {"result": result})


def _write(output: Output, head: bytes, arrays: dict[str, np.ndarray]) -> None:
    def write(file: IO[bytes]) -> None:
        if output.path.suffix == ".npz":
            np.savez(file, **arrays)  # type: ignore[arg-type] # none is its option allow_pickle
            return
        file.write(head)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array, _ITEM).data)

    output.write(write)


def require_binary(path: Path, dtype: str) -> None:
    """Raise UsageError where a binary file would hold another dtype than float32."""
    if path.suffix != ".npz" and dtype != "float32":
        raise UsageError(f"--output: {path} would hold float32, not {dtype}: name a file *.npz")


def _read_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
    if len(head) < _HEADER.size:
        raise UsageError(f"{path}: {size} bytes are not an operand file: the header alone has 16")
    columns, rows = _HEADER.unpack(head)
    _require_extents(path, rows, columns)
    expected = _HEADER.size + _ITEM.itemsize * (rows * columns + columns)
    if size != expected:
        raise UsageError(
            f"{path}: {size:,} bytes, but {rows}x{columns} elements of A and {columns} of v "
            f"take {expected:,}: it is {'truncated' if size < expected else 'too long'}"
        )
    _require_memory(path, size)
    values = np.fromfile(path, _ITEM, offset=_HEADER.size).astype(np.float32, copy=False)
    if values.size != rows * columns + columns:
        raise UsageError(f"{path}: its size changed while it was read")
    return values[:-columns].reshape(rows, columns), values[-columns:]


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        _require_members(path)
        with np.load(path, allow_pickle=False) as archive:
            # By the member's whole name: 'A' would be another member, which was not checked.
            a, v = (archive[f"{name}.npy"] for name in ("A", "v"))
    except (UsageError, OSError):
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen types for damaged files
        reason = shown(first_line(error))
        raise UsageError(f"{path}: cannot be read as a NumPy archive: {reason}") from error
    if not (isinstance(a, np.ndarray) and isinstance(v, np.ndarray)):
        raise UsageError(f"{path}: 'A' and 'v' must be NumPy arrays")
    a, v = (x.astype(x.dtype.newbyteorder("="), order="C", copy=False) for x in (a, v))
    if a.ndim != 2 or v.ndim != 1:  # noqa: PLR2004 # a matrix and a vector
        raise UsageError(
            f"{path}: A has {a.ndim} dimensions and v {v.ndim}; they must have 2 and 1"
        )
    _require_extents(path, *a.shape)
    if a.dtype != v.dtype or str(a.dtype) not in CORE_DTYPES:
        known = ", ".join(CORE_DTYPES)
        raise UsageError(f"{path}: A is {a.dtype} and v {v.dtype}; both must be one of {known}")
    return a, v


def _require_members(path: Path) -> None:
    """Check the archive's directory, so that a small file cannot fill the memory."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
    for name in ("A", "v"):
        info = members.get(f"{name}.npy")
        if info is None:
            raise UsageError(f"{path}: holds no array '{name}'; it must hold A and v")
        # zipfile bounds the output of deflate, and not that of bzip2 or LZMA.
        if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise UsageError(f"{path}: '{name}' is compressed by another method than deflate")
        if info.file_size > _MAX_INFLATED * path.stat().st_size:
            raise UsageError(f"{path}: '{name}' claims more bytes than the file can hold")
    _require_memory(path, members["A.npy"].file_size + members["v.npy"].file_size)


def _require_memory(path: Path, needed: int) -> None:
    free = CpuBackend().bytes_free()
    if needed > free:
        raise UsageError(f"{path}: its arrays take {needed:,} bytes, {free:,} are free")


def _require_extents(path: Path, rows: int, columns: int) -> None:
    for extent, what in ((rows, "rows"), (columns, "columns")):
        if not 1 <= extent <= _LARGEST:
            raise UsageError(f"{path}: A has {extent} {what}; there must be 1 to {_LARGEST}")
