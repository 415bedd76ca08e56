"""Operand files: a matrix A and a vector v, and what was computed from them.

A binary file is little endian: uint32 columns, uint32 rows, 8 bytes of padding, then the rows of A
and then v, all float32. Its results are the vector alone, float32. A file named `*.npz` holds `A`
and `v` as NumPy arrays of float32, float64 or int32; its results hold `result`.
"""

from __future__ import annotations

import math
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from gpubench.errors import UsageError
from gpubench.model import DTYPES
from gpubench.output import require_free, write_whole
from gpubench.plan.ranges import shown

HEADER = struct.Struct("<II8x")
ITEM = np.dtype("<f4")

MAX_INFLATED = 1032
"""Bytes that one byte of a deflated stream can become (RFC 1951: 258 bytes from two bits)."""

_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, LookupError, SyntaxError),
    *(NotImplementedError, RuntimeError, OverflowError, struct.error, tokenize.TokenError),
)
"""What `zipfile` and NumPy's reading of a header raise at what is not theirs: of another version,
encrypted, nested too deeply, or no literal of Python's."""

LARGEST = 2**31 - 1
"""Kernels take M and N as 32-bit integers."""

CHUNK_ROWS = 1024
CHUNK_ELEMENTS = 2**24
"""Written and looked at at once: what is made of them takes memory too."""


def read_operands(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """A (M×N) and v, whose length the operation judges.

    Sizes are compared with the file's before anything is allocated. Raises UsageError for a file
    that is no operand file, too short or too long, without elements, or with NaN or infinity.
    """
    try:
        if not path.is_file():
            problem = "is no regular file" if path.exists() else "does not exist"
            raise UsageError(f"{path} {problem}")
        a, v = _read_npz(path) if path.suffix == ".npz" else _read_binary(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise UsageError(f"{path}: too little memory for {path.stat().st_size:,} bytes") from error
    for name, array in (("A", a), ("v", v)):
        _require_finite(path, name, array)
    return a, v


def write_operands(path: Path, a: np.ndarray, v: np.ndarray, *, overwrite: bool) -> None:
    """Write A and v; for a binary file, of float32, and v with as many elements as A has columns.

    Raises UsageError if the file exists or cannot be written; then what was there stays.
    """
    if path.suffix == ".npz":
        _written(path, lambda file: np.savez(file, A=a, v=v), overwrite=overwrite)
        return
    rows, columns = a.shape

    def write(file: IO[bytes]) -> None:
        file.write(HEADER.pack(columns, rows))
        for start in range(0, rows, CHUNK_ROWS):
            file.write(a[start : start + CHUNK_ROWS].astype(ITEM, copy=False).tobytes())
        file.write(v.astype(ITEM, copy=False).tobytes())

    _written(path, write, overwrite=overwrite)


def write_result(path: Path, result: np.ndarray, *, overwrite: bool) -> None:
    """Write a vector: its elements alone, or `result` of a `*.npz`.

    Raises UsageError as `write_operands` does, and for a binary file of another dtype than float32.
    """
    if path.suffix == ".npz":
        _written(path, lambda file: np.savez(file, result=result), overwrite=overwrite)
        return
    require_binary(path, str(result.dtype))
    _written(path, lambda file: file.write(result.astype(ITEM).tobytes()), overwrite=overwrite)


def require_binary(path: Path, dtype: str) -> None:
    """Raise UsageError where a binary file would hold another dtype than float32."""
    if path.suffix != ".npz" and dtype != "float32":
        raise UsageError(f"--output: {path} would hold float32, not {dtype}: name a file *.npz")


def _read_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(HEADER.size)
        if len(head) < HEADER.size:
            raise UsageError(f"{path}: {size} bytes are no operand file: the header alone has 16")
        columns, rows = HEADER.unpack(head)
        _require_extents(path, rows, columns)
        expected = HEADER.size + ITEM.itemsize * (rows * columns + columns)
        if size != expected:
            raise UsageError(
                f"{path}: {size:,} bytes, but {rows}x{columns} elements of A and {columns} of v "
                f"take {expected:,}: it is {'truncated' if size < expected else 'too long'}"
            )
        a = np.fromfile(file, ITEM, rows * columns)
        v = np.fromfile(file, ITEM, columns)
    if a.size != rows * columns or v.size != columns:
        raise UsageError(f"{path}: it became shorter while it was read")
    return a.reshape(rows, columns).astype(np.float32, copy=False), v.astype(np.float32, copy=False)


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            a, v = (_read_member(path, archive, name) for name in ("A", "v"))
    except _UNREADABLE as error:
        raise UsageError(f"{path}: not a NumPy archive: {shown(str(error))}") from error
    if a.ndim != 2 or v.ndim != 1:  # noqa: PLR2004 # a matrix and a vector
        raise UsageError(
            f"{path}: A has {a.ndim} dimensions and v {v.ndim}; they must have 2 and 1"
        )
    _require_extents(path, *a.shape)
    if a.dtype != v.dtype or str(a.dtype) not in DTYPES:
        known = ", ".join(DTYPES)
        raise UsageError(f"{path}: A is {a.dtype} and v {v.dtype}; both must be one of {known}")
    return a, v


def _read_member(path: Path, archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of an archive, once its header, the archive's word and the file's size agree."""
    try:
        info = archive.getinfo(f"{name}.npy")
    except KeyError:
        raise UsageError(f"{path}: holds no array '{name}'; it must hold A and v") from None
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise UsageError(f"{path}: '{name}' is packed as NumPy packs nothing")
    if info.compress_size > path.stat().st_size or info.file_size > MAX_INFLATED * (
        info.compress_size + 1
    ):
        raise UsageError(f"{path}: '{name}' claims more bytes than the file can hold")
    # A warning of NumPy's, on a header of Python 2, is no news to whoever gave the file.
    with archive.open(info) as member, warnings.catch_warnings(action="ignore"):
        version = np.lib.format.read_magic(member)
        read_header: Callable[..., Any] = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version, np.lib.format.read_array_header_2_0)
        shape, fortran, dtype = read_header(member)
        count = math.prod(shape)
        if dtype.hasobject or count * dtype.itemsize != info.file_size - member.tell():
            raise UsageError(f"{path}: '{name}' has another size than its header says")
        if count == 0:
            raise UsageError(f"{path}: '{name}' has no elements")
        values = np.frombuffer(member.read(), dtype)
    array = values.reshape(shape, order="F" if fortran else "C")
    return np.ascontiguousarray(array, dtype.newbyteorder("="))


def _require_extents(path: Path, rows: int, columns: int) -> None:
    for extent, what in ((rows, "rows"), (columns, "columns")):
        if not 1 <= extent <= LARGEST:
            raise UsageError(f"{path}: A has {extent} {what}; there must be 1 to {LARGEST}")


def _require_finite(path: Path, name: str, array: np.ndarray) -> None:
    flat = array.reshape(-1)
    for start in range(0, flat.size, CHUNK_ELEMENTS):
        bad = np.flatnonzero(~np.isfinite(flat[start : start + CHUNK_ELEMENTS]))
        if bad.size:
            first = start + int(bad[0])
            at = [int(index) for index in np.unravel_index(first, array.shape)]
            raise UsageError(f"{path}: {name}{at} is {flat[first]}; operands must be finite")


def _written(path: Path, write: Callable[[IO[bytes]], object], *, overwrite: bool) -> None:
    require_free(path, overwrite=overwrite)
    write_whole(path, write)
