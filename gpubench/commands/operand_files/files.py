"""Operand files hold a matrix A and a vector v. Result files hold the result computed from them.

A binary file is little endian. The file holds the number of columns and the number of rows as
uint32, 8 bytes of padding, the rows of A, and v. A and v are float32. A binary result file holds
only the elements of the resulting vector, in float32. An operand file named `*.npz` holds `A` and
`v` as NumPy arrays of float32, float64 or int32. A result file named `*.npz` holds `result`.
"""

import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from gpubench.errors import UsageError, first_line
from gpubench.files import Output
from gpubench.hardware.host import free_memory_bytes
from gpubench.model import CORE_DTYPES, LARGEST, Problem
from gpubench.text import shown

_HEADER = struct.Struct("<II8x")
_ITEM = np.dtype("<f4")


def read_operands(path: Path, op: str) -> tuple[Problem, np.ndarray, np.ndarray]:
    """Return a problem of `op`, and the file's operands: A (M×N) and v.

    Sizes are compared with the file's size and with free memory before anything is allocated.
    Raises UsageError for a file that is not an operand file, that is truncated or too long, whose
    elements are not finite, or whose operands `op` does not take.
    """
    with _reading(path):
        a, v = _read_npz(path) if path.suffix == ".npz" else _read_binary(path)
    for name, array in (("A", a), ("v", v)):
        if not all(map(np.isfinite, (array.min(), array.max()))):  # allocates nothing
            at = tuple(map(int, np.unravel_index(np.isfinite(array).argmin(), array.shape)))
            raise UsageError(f"{path}: {name}{list(at)} is {array[at]}; operands must be finite")
    problem = Problem(op=op, m=a.shape[0], n=a.shape[1], dtype=str(a.dtype))
    (elements,) = problem.input_shapes[1]
    if v.size != elements:
        raise UsageError(
            f"{path}: v has {v.size} elements, but {op} of {problem.m}x{problem.n} needs {elements}"
        )
    return problem, a, v


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise UsageError if a path is not a file, or if reading it fails inside the block."""
    if not path.is_file():
        problem = "is not a regular file" if path.exists() else "does not exist"
        raise UsageError(f"{path} {problem}")
    try:
        with warnings.catch_warnings(action="ignore"):  # NumPy warns about files of Python 2
            yield
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise UsageError(f"{path}: too little memory for its arrays") from error
    except UsageError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise many exceptions for damaged files
        reason = shown(first_line(error))
        raise UsageError(f"{path}: cannot be read as a NumPy archive: {reason}") from error


def write_operands(output: Output, a: np.ndarray, v: np.ndarray) -> None:
    """Write the matrix A and the vector v. A binary file stores both as float32.

    v has one element for each column of A.

    Raises UsageError if the file cannot be written. An existing file then stays unchanged.
    """
    rows, columns = a.shape
    _write(output, _HEADER.pack(columns, rows), {"A": a, "v": v})


def write_result(output: Output, result: np.ndarray) -> None:
    """Write a vector to a binary file, or as the array `result` to a file named `*.npz`.

    Raises UsageError if the file cannot be written, and for a binary file in another dtype than
    float32.
    """
    require_binary(output.path, str(result.dtype))
    _write(output, b"", {"result": result})


def _write(output: Output, head: bytes, arrays: dict[str, np.ndarray]) -> None:
    def write(file: IO[bytes]) -> None:
        if output.path.suffix == ".npz":
            np.savez(file, **arrays)  # type: ignore[arg-type] # no array is named allow_pickle
            return
        file.write(head)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array, _ITEM).data)

    output.write(write)


def require_binary(path: Path, dtype: str) -> None:
    """Raise UsageError for a binary file in another dtype than float32."""
    if path.suffix != ".npz" and dtype != "float32":
        raise UsageError(f"--output: {path} would hold float32, not {dtype}: name a file *.npz")


def _read_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
    if len(head) < _HEADER.size:
        raise UsageError(f"{path} has only {size} bytes, but the header of an operand file has 16")
    columns, rows = _HEADER.unpack(head)
    _require_extents(path, rows, columns)
    expected = _HEADER.size + _ITEM.itemsize * (rows * columns + columns)
    if size != expected:
        raise UsageError(
            f"{path}: {size:,} bytes, but {rows}x{columns} elements of A and {columns} of v "
            f"take {expected:,}: it is {'truncated' if size < expected else 'too long'}, "
            "or no operand file"
        )
    _require_memory(path, size)
    values = np.fromfile(path, _ITEM, offset=_HEADER.size).astype(np.float32, copy=False)
    if values.size != rows * columns + columns:
        raise UsageError(f"{path}: its size changed while it was read")
    return values[:-columns].reshape(rows, columns), values[-columns:]


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
    if missing := [name for name in ("A", "v") if f"{name}.npy" not in members]:
        raise UsageError(f"{path}: holds no array '{missing[0]}'; it must hold A and v")
    # The names end in .npy, because a member that is named 'A' would be another member.
    infos = [members["A.npy"], members["v.npy"]]
    # zipfile limits the inflated size to the size in the archive's directory only for deflate.
    if not {info.compress_type for info in infos} <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise UsageError(f"{path}: it is compressed by another method than deflate")
    _require_memory(path, sum(info.file_size for info in infos))
    with np.load(path, allow_pickle=False) as arrays:
        a, v = (arrays[info.filename] for info in infos)
    if (a.ndim, v.ndim) != (2, 1):
        raise UsageError(
            f"{path}: A has {a.ndim} dimensions and v {v.ndim}; they must have 2 and 1"
        )
    _require_extents(path, *a.shape)
    if not v.size:
        raise UsageError(f"{path}: v has no elements")
    a, v = (x.astype(x.dtype.newbyteorder("="), order="C", copy=False) for x in (a, v))
    if a.dtype != v.dtype or str(a.dtype) not in CORE_DTYPES:
        dtypes = ", ".join(CORE_DTYPES)
        raise UsageError(f"{path}: A is {a.dtype} and v {v.dtype}; both must be one of {dtypes}")
    return a, v


def _require_memory(path: Path, needed: int) -> None:
    free = free_memory_bytes()
    if needed > free:
        raise UsageError(f"{path}: its arrays take {needed:,} bytes, but only {free:,} are free")


def _require_extents(path: Path, rows: int, columns: int) -> None:
    if not (1 <= rows <= LARGEST and 1 <= columns <= LARGEST):
        raise UsageError(f"{path}: A is {rows}x{columns}; an extent must be 1 to {LARGEST}")
