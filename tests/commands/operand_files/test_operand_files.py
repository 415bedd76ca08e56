"""Operand files: what is written is read, and what is no operand file is refused in one line."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubench.commands.operand_files import files as module
from gpubench.commands.operand_files.files import (
    read_operands,
    require_binary,
    write_operands,
    write_result,
)
from gpubench.errors import UsageError
from gpubench.measure.operands import make_inputs
from gpubench.model import DTYPES, Problem


def operands(m: int, n: int, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    a, v = make_inputs(Problem(op="atax", m=m, n=n, dtype=dtype), 1)
    return a, v


def binary(a: np.ndarray, v: np.ndarray) -> bytes:
    """The published form, written out by hand."""
    rows, columns = a.shape
    values = [*a.ravel().tolist(), *v.tolist()]
    return struct.pack(f"<II8x{len(values)}f", columns, rows, *values)


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_operands(path)
    message = str(caught.value)
    assert str(path) in message
    assert message.isprintable()
    return message


@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 5), (2000, 2)])
def test_a_binary_file_is_columns_rows_padding_a_and_v(tmp_path: Path, m: int, n: int) -> None:
    a, v = operands(m, n)
    path = tmp_path / "operands"
    write_operands(path, a, v, overwrite=False)
    assert path.read_bytes() == binary(a, v)
    a_read, v_read = read_operands(path)
    assert np.array_equal(a, a_read)
    assert np.array_equal(v, v_read)
    assert a_read.flags.c_contiguous


def test_padding_may_hold_anything(tmp_path: Path) -> None:
    a, v = operands(2, 3)
    path = tmp_path / "operands.bin"
    data = binary(a, v)
    path.write_bytes(data[:8] + b"\xff" * 8 + data[16:])
    assert np.array_equal(read_operands(path)[0], a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_archive_holds_any_dtype(tmp_path: Path, dtype: str) -> None:
    a, v = operands(4, 7, dtype)
    path = tmp_path / "operands.npz"
    write_operands(path, a, v, overwrite=False)
    for save in (None, np.savez, np.savez_compressed):
        if save:
            save(path, A=np.asfortranarray(a).astype(a.dtype.newbyteorder(">")), v=v)
            v = v.astype(dtype)
        a_read, v_read = read_operands(path)
        assert (a_read.dtype, v_read.dtype) == (dtype, dtype)
        assert np.array_equal(a, a_read)
        assert np.array_equal(v, v_read)
        assert a_read.flags.c_contiguous


def test_a_result_is_its_elements_alone_or_an_array_of_an_archive(tmp_path: Path) -> None:
    c = np.array([1.5, -2.0, 3.25], np.float32)
    write_result(tmp_path / "c.bin", c, overwrite=False)
    write_result(tmp_path / "c.npz", c.astype(np.float64), overwrite=False)
    assert (tmp_path / "c.bin").read_bytes() == struct.pack("<3f", 1.5, -2.0, 3.25)
    assert np.load(tmp_path / "c.npz")["result"].tolist() == c.tolist()
    with pytest.raises(UsageError, match=r"would hold float32, not float64: name a file \*.npz"):
        write_result(tmp_path / "d.bin", c.astype(np.float64), overwrite=False)
    require_binary(tmp_path / "c.npz", "int32")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.bin", "c.npz"]


# ---- what is refused


@given(st.integers(0, 3 * 5 * 4 + 5 * 4 + 16 - 1))
def test_a_file_cut_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, at: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "operands.bin"
    path.write_bytes(binary(*operands(3, 5))[:at])
    assert ("truncated" if at >= 16 else "the header alone has 16") in refusal(path)


def test_a_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "operands.bin"
    path.write_bytes(binary(*operands(3, 5)) + b"\0")
    assert "97 bytes, but 3x5 elements of A and 5 of v take 96: it is too long" in refusal(path)


@pytest.mark.parametrize(
    ("columns", "rows", "reason"),
    [
        (0, 3, "A has 0 columns"),
        (3, 0, "A has 0 rows"),
        (0, 0, "A has 0 rows"),
        (2**31, 1, "A has 2147483648 columns"),
        (2**32 - 1, 2**32 - 1, "A has 4294967295 rows"),
        (2**31 - 1, 2**31 - 1, "truncated"),
    ],
)
def test_a_headers_word_is_held_against_the_files_size_before_anything_is_allocated(
    tmp_path: Path, columns: int, rows: int, reason: str
) -> None:
    path = tmp_path / "operands.bin"
    path.write_bytes(struct.pack("<II8x4f", columns, rows, 1, 2, 3, 4))
    tracemalloc.start()
    try:
        assert reason in refusal(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("at", "value", "where"),
    [
        (16, np.nan, "A[0, 0] is nan"),
        (16 + 4 * 7, np.inf, "A[1, 2] is inf"),
        (-4, np.nan, "v[4] is nan"),
    ],
)
def test_a_number_that_is_none_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, value: float, where: str
) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 4)
    data = bytearray(binary(*operands(3, 5)))
    data[at : len(data) + at + 4 if at < 0 else at + 4] = struct.pack("<f", value)
    path = tmp_path / "operands.bin"
    path.write_bytes(data)
    assert where in refusal(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nothing.bin")
    assert "is no regular file" in refusal(tmp_path)
    assert "is no regular file" in refusal(Path("/dev/zero"))


FLOAT_A = np.ones((2, 3), np.float32)
FLOAT_V = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"A": FLOAT_A}, "holds no array 'v'"),
        ({"B": FLOAT_A, "v": FLOAT_V}, "holds no array 'A'"),
        ({"A": FLOAT_V, "v": FLOAT_V}, "A has 1 dimensions and v 1"),
        ({"A": FLOAT_A, "v": FLOAT_A}, "A has 2 dimensions and v 2"),
        ({"A": FLOAT_A, "v": FLOAT_V.astype(float)}, "A is float32 and v float64"),
        ({"A": FLOAT_A.astype("f2"), "v": FLOAT_V.astype("f2")}, "A is float16 and v float16"),
        ({"A": FLOAT_A[:0], "v": FLOAT_V}, "'A' has no elements"),
        ({"A": FLOAT_A, "v": FLOAT_V * np.nan}, "v[0] is nan"),
        ({"A": np.array([[object()]]), "v": FLOAT_V}, "'A' has another size"),
    ],
)
def test_an_archive_of_other_arrays_is_refused(
    tmp_path: Path, arrays: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "operands.npz"
    np.savez(path, **arrays)
    assert reason in refusal(path)


def npy(shape: str, data: bytes) -> bytes:
    """An array file whose header may lie."""
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (npy("(1000000, 1000000)", b"\0" * 24), "another size"),
        (npy("(2, 3)", b"\0" * 20), "another size"),
        (npy("(2, 3)", b"\0" * 28), "another size"),
        (b"\x93NUMPY", "not a NumPy archive"),
        (b"nothing like it", "not a NumPy archive"),
        (npy("garbage", b""), "not a NumPy archive"),
    ],
)
def test_an_archive_whose_header_lies_is_refused(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "operands.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("A.npy", content)
        archive.writestr("v.npy", npy("(3,)", b"\0" * 12))
    assert reason in refusal(path)


def test_an_archive_that_claims_more_than_it_could_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "operands.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("A.npy", npy("(2, 3)", b"\0" * 24))
        archive.writestr("v.npy", npy("(3,)", b"\0" * 12))
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = struct.pack("<I", 2**31)  # the size after inflating
    path.write_bytes(data)
    assert "claims more bytes than the file can hold" in refusal(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"\0" * 100])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "operands.npz"
    path.write_bytes(content)
    assert "not a NumPy archive" in refusal(path)


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_packed_as_numpy_packs_nothing_is_refused(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "operands.npz"
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("A.npy", npy("(2, 3)", b"\0" * 24))
        archive.writestr("v.npy", npy("(3,)", b"\0" * 12))
    assert "'A' is packed as NumPy packs nothing" in refusal(path)


@pytest.mark.parametrize(
    "header",
    [
        *(
            b"(" * 900,
            b"'" * 3,
            b"  x\n y",
            b"{{}: 1}",
            b"{[]: 1}",
            b"1" * 9000,
            b"-" * 9001 + b"1",
        ),
        b"{'shape': (3L,), 'descr': '<f4', 'fortran_order': False}",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3" + b", 1" * 90 + b")}",
    ],
)
def test_an_array_whose_header_is_no_literal_is_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "operands.npz"
    with zipfile.ZipFile(path, "w") as archive:
        content = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + b"\0" * 24
        archive.writestr("A.npy", content)
        archive.writestr("v.npy", npy("(3,)", b"\0" * 12))
    assert len(refusal(path)) < 400


@pytest.mark.parametrize(("at", "value"), [(6, 247), (8, 1), (10, 99)])
def test_a_member_of_another_version_or_encrypted_is_refused(
    tmp_path: Path, at: int, value: int
) -> None:
    path = tmp_path / "operands.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("A.npy", npy("(2, 3)", b"\0" * 24))
        archive.writestr("v.npy", npy("(3,)", b"\0" * 12))
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + at] = value  # version needed, flags, way of packing
    path.write_bytes(data)
    assert "NumPy" in refusal(path)


# ---- what is kept


def test_a_file_that_exists_is_kept_unless_it_may_be_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "operands.bin"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists; --force overwrites it"):
        write_operands(path, *operands(2, 2), overwrite=False)
    assert path.read_text() == "mine"
    write_operands(path, *operands(2, 2), overwrite=True)
    assert path.stat().st_size == 16 + 4 * 6


def test_a_disk_that_fills_up_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.bin"
    path.write_text("mine")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UsageError, match=r"cannot write .*No space left"):
        write_result(path, np.ones(3, np.float32), overwrite=True)
    assert [one.read_text() for one in tmp_path.iterdir()] == ["mine"]


def test_npz_is_written_to_the_file_named(tmp_path: Path) -> None:
    path = tmp_path / "operands.npz"
    write_operands(path, *operands(2, 3), overwrite=False)
    assert set(np.load(io.BytesIO(path.read_bytes())).files) == {"A", "v"}
    assert [one.name for one in tmp_path.iterdir()] == ["operands.npz"]
