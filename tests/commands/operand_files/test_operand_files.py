"""Operand files: a written file is read back, and any other file is refused in one line."""

import pickle
import re
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gpubench.commands.operand_files.files import (
    read_operands,
    require_binary,
    write_operands,
    write_result,
)
from gpubench.engine.operands.make import make_inputs
from gpubench.errors import UsageError
from gpubench.files import Output
from gpubench.model import CORE_DTYPES, Problem


def operands(m: int, n: int, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    a, v = make_inputs(Problem(op="atax", m=m, n=n, dtype=dtype), 1)
    return a, v


def binary(a: np.ndarray, v: np.ndarray) -> bytes:
    """Return a file in the published binary form."""
    rows, columns = a.shape
    values = [*a.ravel().tolist(), *v.tolist()]
    return struct.pack(f"<II8x{len(values)}f", columns, rows, *values)


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_operands(path, "atax")
    message = str(caught.value)
    assert str(path) in message
    assert message.isprintable()
    return message


def test_a_binary_file_is_columns_rows_padding_a_and_v(tmp_path: Path) -> None:
    for m, n in ((1, 1), (3, 5), (2000, 2)):
        a, v = operands(m, n)
        path = tmp_path / "operands"
        write_operands(Output(path, overwrite=True), a, v)
        data = path.read_bytes()
        assert data == binary(a, v)
        path.write_bytes(data[:8] + b"\xff" * 8 + data[16:])  # padding may have any bytes
        _, a_read, v_read = read_operands(path, "atax")
        assert np.array_equal(a, a_read)
        assert np.array_equal(v, v_read)
        assert a_read.flags.c_contiguous


def test_an_archive_holds_any_dtype_byte_order_and_element_order(tmp_path: Path) -> None:
    path = tmp_path / "operands.npz"
    for dtype in CORE_DTYPES:
        a, v = operands(4, 7, dtype)
        write_operands(Output(path, overwrite=True), a, v)
        for save in (None, np.savez, np.savez_compressed):
            if save:
                save(path, A=np.asfortranarray(a).astype(a.dtype.newbyteorder(">")), v=v)
            _, a_read, v_read = read_operands(path, "atax")
            assert (a_read.dtype, v_read.dtype) == (dtype, dtype)
            assert np.array_equal(a, a_read)
            assert np.array_equal(v, v_read)
            assert a_read.flags.c_contiguous


def test_a_result_is_its_elements_alone_or_an_array_of_an_archive(tmp_path: Path) -> None:
    c = np.array([1.5, -2.0, 3.25], np.float32)
    write_result(Output(tmp_path / "c.bin"), c)
    write_result(Output(tmp_path / "c.npz"), c.astype(np.float64))
    assert (tmp_path / "c.bin").read_bytes() == struct.pack("<3f", 1.5, -2.0, 3.25)
    assert np.load(tmp_path / "c.npz")["result"].tolist() == c.tolist()
    with pytest.raises(UsageError, match=r"would hold float32, not float64: name a file \*.npz"):
        write_result(Output(tmp_path / "d.bin"), c.astype(np.float64))
    require_binary(tmp_path / "c.npz", "int32")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.bin", "c.npz"]


# ---- what is refused


def test_a_file_cut_anywhere_or_too_long_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "operands.bin"
    whole = binary(*operands(3, 5))
    for at in range(len(whole)):
        path.write_bytes(whole[:at])
        assert ("truncated" if at >= 16 else "the header of an operand file has 16") in refusal(
            path
        )
    path.write_bytes(whole + b"\0")
    assert "97 bytes, but 3x5 elements of A and 5 of v take 96: it is too long" in refusal(path)


def test_the_sizes_in_a_header_are_checked_before_anything_is_allocated(tmp_path: Path) -> None:
    path = tmp_path / "operands.bin"
    for columns, rows, reason in (
        (0, 3, "A is 3x0"),
        (3, 0, "A is 0x"),
        (0, 0, "A is 0x"),
        (2**31, 1, "A is 1x2147483648"),
        (2**32 - 1, 2**32 - 1, "A is 4294967295x"),
        (2**31 - 1, 2**31 - 1, "truncated"),
    ):
        path.write_bytes(struct.pack("<II8x4f", columns, rows, 1, 2, 3, 4))
        tracemalloc.start()
        try:
            assert reason in refusal(path)
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()


def test_nan_and_infinity_are_refused_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "operands.bin"
    whole = binary(*operands(3, 5))
    for at, value, where in (
        (16, np.nan, "A[0, 0] is nan"),
        (16 + 4 * 7, np.inf, "A[1, 2] is inf"),
        (len(whole) - 4, np.nan, "v[4] is nan"),
    ):
        path.write_bytes(whole[:at] + struct.pack("<f", value) + whole[at + 4 :])
        assert where in refusal(path)


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nothing.bin")
    assert "is not a regular file" in refusal(tmp_path)
    assert "is not a regular file" in refusal(Path("/dev/zero"))


FLOAT_A = np.ones((2, 3), np.float32)
FLOAT_V = np.ones(3, np.float32)


def test_an_archive_of_other_arrays_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "operands.npz"
    for arrays, reason in (
        ({"A": FLOAT_A}, "holds no array 'v'"),
        ({"B": FLOAT_A, "v": FLOAT_V}, "holds no array 'A'"),
        ({"A": FLOAT_V, "v": FLOAT_V}, "A has 1 dimensions and v 1"),
        ({"A": FLOAT_A, "v": FLOAT_A}, "A has 2 dimensions and v 2"),
        ({"A": FLOAT_A, "v": FLOAT_V.astype(float)}, "A is float32 and v float64"),
        ({"A": FLOAT_A.astype("f2"), "v": FLOAT_V.astype("f2")}, "A is float16 and v float16"),
        ({"A": FLOAT_A[:0], "v": FLOAT_V}, "A is 0x"),
        ({"A": FLOAT_A, "v": FLOAT_V[:0]}, "v has no elements"),
        ({"A": FLOAT_A, "v": FLOAT_V * np.nan}, "v[0] is nan"),
    ):
        np.savez(path, **arrays)  # type: ignore[arg-type]
        assert reason in refusal(path)


def test_a_pickle_in_an_archive_is_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "operands.npz"
    np.savez(path, A=np.array([[object()]]), v=FLOAT_V)
    assert "cannot be read as a NumPy archive" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("A.npy", pickle.dumps(FLOAT_A))
        archive.writestr("v.npy", npy("(3,)", b"\0" * 12))
    assert "cannot be read as a NumPy archive" in refusal(path)


def npy(shape: str, data: bytes) -> bytes:
    """Return an array file whose header may be false."""
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


def write_archive(path: Path, a: bytes, method: int = zipfile.ZIP_STORED, **more: bytes) -> None:
    """Write an archive with `a` as the bytes of A, and a valid v."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("A.npy", a)
        archive.writestr("v.npy", npy("(3,)", b"\0" * 12))
        for name, content in more.items():
            archive.writestr(name, content)


def test_an_archive_whose_array_has_a_false_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "operands.npz"
    for content in (
        npy("(1000000, 1000000)", b"\0" * 24),
        npy("(2, 3)", b"\0" * 20),
        b"\x93NUMPY",
        npy("garbage", b""),
    ):
        write_archive(path, content)
        assert re.search("cannot be read as a NumPy|too little memory", refusal(path))
    write_archive(path, b"nothing like it")
    assert "cannot be read as a NumPy archive" in refusal(path)


def test_a_small_archive_that_would_fill_the_memory_is_refused_before_it_is_inflated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "operands.npz"
    np.savez_compressed(path, A=np.zeros((2**11, 2**10), np.float32), v=np.ones(2**10, np.float32))
    assert path.stat().st_size < 2**15
    monkeypatch.setattr("gpubench.commands.operand_files.files.free_memory_bytes", lambda: 2**22)
    tracemalloc.start()
    try:
        assert "bytes, but only 4,194,304 are free" in refusal(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_only_members_whose_size_was_checked_are_read_and_none_of_an_unbounded_compression(
    tmp_path: Path,
) -> None:
    path, array = tmp_path / "operands.npz", npy("(2, 3)", b"\0" * 24)
    write_archive(path, array, A=b"another member, of the short name")
    assert read_operands(path, "atax")[1].shape == (2, 3)
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        write_archive(path, array, method)
        assert "it is compressed by another method than deflate" in refusal(path)
