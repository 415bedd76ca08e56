"""Operand files hold a matrix A and a vector v. Result files hold what was computed from them.

A binary file is little endian. It holds uint32 columns, uint32 rows, 8 bytes of padding, then the
rows of A, then v, all in float32. Its result file holds only the vector's elements in float32. A
file named `*.npz` holds `A` and `v` as NumPy arrays of float32, float64 or int32, and its result
file holds `result`.
"""

import math
import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from gpubench.errors import UsageError, first_line
from gpubench.hardware.host import free_memory_bytes
from gpubench.model import CORE_DTYPES, LARGEST, Problem
from gpubench.results.output import Output
from gpubench.text import shown

_HEADER = struct.Struct("<II8x")
_ITEM = np.dtype("<f4")


def read_problem(path: Path, op: str) -> Problem:
    """Return the problem of `op` on a file's operands. Only the headers are read.

    Raises UsageError for a file that is not an operand file, that is truncated or too long, or
    whose operands `op` does not take.
    """
    with _reading(path):
        shape, v_size, dtype = _npz_shapes(path) if path.suffix == ".npz" else _shapes(path)
    problem = Problem(op=op, m=shape[0], n=shape[1], dtype=dtype)
    (elements,) = problem.input_shapes[1]
    if v_size != elements:
        raise UsageError(
            f"{path}: v has {v_size} elements, and {op} of {problem.m}x{problem.n} takes {elements}"
        )
    return problem


def read_operands(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return A (M×N) and v. The operation decides whether the length of v is right.

    Sizes are compared with the file's size and with free memory before anything is allocated.
    Raises UsageError for a file that is not an operand file, that is truncated or too long, or
    whose elements are not finite.
    """
    with _reading(path):
        a, v = _read_npz(path) if path.suffix == ".npz" else _read_binary(path)
    for name, array in (("A", a), ("v", v)):
        if not all(map(np.isfinite, (array.min(), array.max()))):  # allocates nothing
            at = tuple(map(int, np.unravel_index(np.isfinite(array).argmin(), array.shape)))
            raise UsageError(f"{path}: {name}{list(at)} is {array[at]}; operands must be finite")
    return a, v


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise UsageError if a path is not a file, or if reading it fails inside the block."""
    if not path.is_file():
        problem = "is not a regular file" if path.exists() else "does not exist"
        raise UsageError(f"{path} {problem}")
    try:
        with warnings.catch_warnings(action="ignore"):  # NumPy's about headers of Python 2
            yield
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise UsageError(f"{path}: too little memory for its arrays") from error
    except UsageError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen types for damaged files
        reason = shown(first_line(error))
        raise UsageError(f"{path}: cannot be read as a NumPy archive: {reason}") from error


def write_operands(output: Output, a: np.ndarray, v: np.ndarray) -> None:
    """Write A and v. For a binary file they are float32, and v has an element per column of A.

    Raises UsageError if the file cannot be written. An existing file then stays.
    """
    rows, columns = a.shape
    _write(output, _HEADER.pack(columns, rows), {"A": a, "v": v})


def write_result(output: Output, result: np.ndarray) -> None:
    """Write a vector: only its elements, or `result` in a `*.npz`.

    Raises UsageError if the file cannot be written, and for a binary file in another dtype than
    float32.
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
    """Raise UsageError for a binary file in another dtype than float32."""
    if path.suffix != ".npz" and dtype != "float32":
        raise UsageError(f"--output: {path} would hold float32, not {dtype}: name a file *.npz")


_MAX_INFLATED = 1032
"""Maximum number of bytes from one byte of a deflated stream (RFC 1951: 258 bytes from 2 bits)."""

_Shapes = tuple[tuple[int, int], int, str]
"""M and N of A, elements of v, dtype."""


def _shapes(path: Path) -> _Shapes:
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
    return (rows, columns), columns, "float32"


def _read_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    (rows, columns), _, _ = _shapes(path)
    values = np.fromfile(path, _ITEM, offset=_HEADER.size).astype(np.float32, copy=False)
    if values.size != rows * columns + columns:
        raise UsageError(f"{path}: its size changed while it was read")
    return values[:-columns].reshape(rows, columns), values[-columns:]


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray]:
    _npz_shapes(path)
    with np.load(path, allow_pickle=False) as archive:
        # By the member's whole name: 'A' would be another member, which was not checked.
        a, v = (archive[f"{name}.npy"] for name in ("A", "v"))
    a, v = (x.astype(x.dtype.newbyteorder("="), order="C", copy=False) for x in (a, v))
    return a, v


def _npz_shapes(path: Path) -> _Shapes:
    """Read only the directory and the headers, because a small file can inflate to a large one."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        shapes, dtypes, held = [], [], []
        for name in ("A", "v"):
            info = members.get(f"{name}.npy")
            if info is None:
                raise UsageError(f"{path}: holds no array '{name}'; it must hold A and v")
            # zipfile bounds the output of deflate, and not that of bzip2 or LZMA.
            if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise UsageError(f"{path}: '{name}' is compressed by another method than deflate")
            if info.file_size > _MAX_INFLATED * path.stat().st_size:
                raise UsageError(f"{path}: '{name}' claims more bytes than the file can hold")
            with archive.open(info) as member:
                version = np.lib.format.read_magic(member)
                if version not in _READ_HEADER:
                    raise UsageError(f"{path}: '{name}' has a format of NumPy's for other arrays")
                shape, _, dtype = _READ_HEADER[version](member)
                held.append(info.file_size - member.tell())
            shapes.append(shape)
            dtypes.append(dtype.newbyteorder("="))
    if tuple(map(len, shapes)) != (2, 1):
        raise UsageError(
            f"{path}: A has {len(shapes[0])} dimensions and v {len(shapes[1])}; "
            "they must have 2 and 1"
        )
    (rows, columns), (v_size,) = shapes
    _require_extents(path, rows, columns)
    if len(set(dtypes)) > 1 or str(dtypes[0]) not in CORE_DTYPES:
        known = ", ".join(CORE_DTYPES)
        raise UsageError(f"{path}: A is {dtypes[0]} and v {dtypes[1]}; both must be one of {known}")
    if held != [math.prod(shape) * dtypes[0].itemsize for shape in shapes]:
        raise UsageError(f"{path}: the bytes of A and v are not those of their shapes")
    _require_memory(path, sum(held))
    return (rows, columns), v_size, str(dtypes[0])


_READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""By version of the format. Later versions are for names of fields, which operands lack."""


def _require_memory(path: Path, needed: int) -> None:
    free = free_memory_bytes()
    if needed > free:
        raise UsageError(f"{path}: its arrays take {needed:,} bytes, {free:,} are free")


def _require_extents(path: Path, rows: int, columns: int) -> None:
    for extent, what in ((rows, "rows"), (columns, "columns")):
        if not 1 <= extent <= LARGEST:
            raise UsageError(f"{path}: A has {extent} {what}; there must be 1 to {LARGEST}")
