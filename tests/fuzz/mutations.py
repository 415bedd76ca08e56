"""Mutations of valid files: their bits, tokens, lines, fields, and the sizes in their headers."""

from __future__ import annotations

import io
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Sequence
from random import Random

import numpy as np

Mutation = Callable[[bytes, Random], bytes]

MAX_BYTES = 2**19

TOKEN = re.compile(rb'"[^"\n]*"|[\w.]+|\s+|.', re.DOTALL)
"""A text in quotation marks, a name or number, white space, or another character."""

VALUES = (
    # numbers, and what looks like numbers
    *(b"nan", b"-inf", b"1e309", b"1e-320", b"-1", b"0", b"-0.0", b"1", b"8", b"16", b"1.5"),
    *(b"9" * 30, b"9" * 5000, b"0x10", b"0x" + b"f" * 5000, b"0b1", b"1_0", "٣".encode(), b"1j"),
    # words of our files
    *(b"true", b"ok", b"wrong", b"skipped", b"eliminated", b"error", b"hot", b"host", b"gemm"),
    *(b"gemv", b"atax", b"cuda", b"cpu", b"status", b"series", b"expect", b"sweep", b"point"),
    *(b"128x128x8/8x8/s3", b"edge=5", b"8/k4", b"1..64:x2", b"1..2147483647", b"3%", b"nan%"),
    *(b"BM", b"stages", b"cluster", b"missing", b"2026-01-01T00:00:00.001+00:00", b"07:32:00"),
    # values of JSON, TOML and Python
    *(b"null", b"None", b"[]", b"{}", b"()", b"[[]]", b"[{}]", b"[1, 'a']", b"{'a': 1}", b'""'),
    *(b'"x"', b"'x'", b"b'x'", b"'''", b'"16"', b'"../x"', b'"/nowhere/x"', b'"a/../../b"'),
    *(b'"\\u0000"', b'"\\ud800"', b'"\\u001b[2J"', b"('float32',)", b"('x',) * 1000", b"type"),
    *(b"lambda: 1", b"lambda *a: 1 / 0", b"print", b"object()", b"exit", b"frozenset()"),
    *(b"edges(5, 1, because='x')", b"edges(1, 10 ** 9, because='x')", b"raise SystemExit(0)"),
    # signs and keywords of expressions and of CUDA C++
    *(b" and ", b" or ", b"not ", b" in ", b"==", b"<", b"%", b"//", b"/", b"-", b"**", b"<<"),
    *(b" if ", b" else ", b":=", b"min()", b"min(*BM)", b"BM.real", b"BM()", b"BM[0]", b"await x"),
    *(b"__import__('os')", b"f'{BM}'", b"/*", b"*/", b'R"x(', b"template <", b"__global__ void"),
    *(b"__launch_bounds__(", b"typename T", b"const", b"float*", b"...", b"&&", b"::", b"#define"),
    *(b"blockIdx.y", b"threadIdx . x", b"M / BM", b"<<<1, 2>>>", b'#include "a.cuh"'),
    # text that is hostile to terminals, spreadsheets and decoders
    *(b"", b" ", b"\0", b"\n", b"\r", b"\t", b"\\\n", b"\x1b[2J", "\u202e".encode(), b"\xff\xfe"),
    *(b"\xed\xa0\x80", b"\xef\xbb\xbf", "🚀".encode(), b"=1+1", b"'=1", b"<script>", b"[red]"),
    *(b"%s", b"{0}", b"../../x", b";", b",", b"1;2;nan", b"1;;2", b'"', b"x" * 140_000),
)
"""Values that replace a token or a field."""

BRACKETS = ((b"(", b")"), (b"[", b"]"), (b"{", b"}"), (b"not ", b""), (b"-", b""))

HEADERS = (
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
    "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 6), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': 6, }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1, " * 70 + "), }",
    "{'descr': '<f4', 'fortran_order': 1, 'shape': (6,), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '|S0', 'fortran_order': False, 'shape': (0,), }",
    "{'descr': '|V24', 'fortran_order': False, 'shape': (1,), }",
    "{'descr': '(2,)<f4', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }",
    "{'descr': [], 'fortran_order': False, 'shape': (6,), }",
    "{'descr': [()], 'fortran_order': False, 'shape': (6,), }",
    "{'descr': (1, 2), 'fortran_order': False, 'shape': (6,), }",
    "{'descr': {}, 'fortran_order': False, 'shape': (6,), }",
    "{'descr': '<f4,<f4,', 'fortran_order': False, 'shape': (6,), }",
    "{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '>f4', 'fortran_order': False, 'shape': (6,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }",
    "{{}: 1}",
    "{[]: 1}",
    "(" * 900,
    "{'descr': " + "(" * 150 + ")" * 150 + "}",
    "-" * 9000 + "1",
    "1" * 9000,
    "'''",
    "  x\n y",
    "{'shape': (3L,), 'descr': '<f4', 'fortran_order': False}",
    "\0",
    "",
)
"""Headers of an array in an archive."""


def bits(data: bytes, chance: Random) -> bytes:
    """Flip some bits."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(data: bytes, chance: Random) -> bytes:
    """Remove the end, or a part in the middle."""
    at, to = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
    return data[:at] if chance.random() < 0.5 else data[:at] + data[to:]


def doubled(data: bytes, chance: Random) -> bytes:
    """Repeat a part."""
    at, to = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
    return data[:to] + data[at : min(to, at + 4096)] + data[to:]


def inserted(data: bytes, chance: Random) -> bytes:
    """Insert a value of `VALUES` anywhere."""
    at = chance.randint(0, len(data))
    return data[:at] + chance.choice(VALUES) + data[at:]


def zeros(data: bytes, chance: Random) -> bytes:
    """Replace the end by zeros, as after a power cut."""
    at = chance.randint(0, len(data))
    return data[:at] + bytes(len(data) - at)


BYTES = (bits, cut, doubled, inserted, zeros)


def edited(parts: list[bytes], chance: Random, glue: bytes) -> bytes:
    """Replace, insert, remove, exchange, repeat or enclose parts, and join all."""
    at, other = chance.randrange(len(parts)), chance.randrange(len(parts))
    value = chance.choice(VALUES)
    what = chance.randrange(7)
    if what <= 1:
        parts[at] = value
    elif what == 2:
        times = chance.choice((1, 1, 1, 50, 3000))
        parts.insert(at, value * min(times, 1 + MAX_BYTES // max(len(value), 1)))
    elif what == 3:
        del parts[at]
    elif what == 4:
        parts[at], parts[other] = parts[other], parts[at]
    elif what == 5:
        parts[at:at] = parts[other : other + chance.randint(1, 20)]
    else:
        times = chance.choice((2, 40, 60, 200, 3000))
        opening, closing = chance.choice(BRACKETS)
        parts[at] = opening * times + parts[at] + closing * times
    return glue.join(parts)


def tokens(data: bytes, chance: Random) -> bytes:
    """Edit tokens."""
    return edited(TOKEN.findall(data) or [b""], chance, b"")


def lines(data: bytes, chance: Random) -> bytes:
    """Edit lines."""
    return edited(data.split(b"\n"), chance, b"\n")


def repeated(data: bytes, chance: Random) -> bytes:
    """Repeat all of it."""
    return b",".join([data] * (2 if len(data) > LONG else chance.choice((2, 50))))


TEXT = (tokens, tokens, tokens, lines, repeated)

LONG = 200
"""Maximum length of data that is repeated many times, in bytes."""


def columns(data: bytes, chance: Random) -> bytes:
    """Edit the same fields of some or all lines of a CSV, and separate fields by another sign."""
    seed, share = chance.random(), chance.choice((0.1, 0.5, 1.0, 1.0))
    separator = chance.choice((b",", b",", b",", b";", b"\t"))
    return b"\n".join(
        line.replace(b",", separator)
        if line.startswith(b"#") or chance.random() >= share
        else edited(line.split(b","), Random(seed), separator)  # noqa: S311 # no secret
        for line in data.split(b"\n")
    )


TABLE = (columns, columns, columns, lines)


def header(data: bytes, chance: Random) -> bytes:
    """Change the sizes in the header of a binary operand file, or an element to NaN or infinity."""
    numbers = (0, 1, 2, 3, 2**31 - 1, 2**31, 2**32 - 1, chance.randrange(2**32))
    columns, rows = chance.choice(numbers), chance.choice(numbers)
    body = data[16:]
    if chance.random() < 0.3:
        at = 4 * chance.randrange(1 + len(body) // 4)
        value = chance.choice((float("nan"), float("inf"), -float("inf"), 1e-45))
        return data[:16] + body[:at] + struct.pack("<f", value) + body[at + 4 :]
    return struct.pack("<II8x", columns, rows) + body


def archive(_data: bytes, chance: Random) -> bytes:
    """Return a ZIP file with random headers, sizes, compression methods and member names."""
    target = io.BytesIO()
    method = chance.choice(
        (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    )
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(target, "w", method) as members:
        for name in ("A.npy", "v.npy"):
            member = _array(chance)
            names = (name, name, name, name, "B.npy", "../A.npy", "A", "\u202e.npy", "/A.npy")
            members.writestr(chance.choice(names), member)
    packed = bytearray(target.getvalue())
    if chance.random() < 0.3:  # a field of a member's record, or of the directory's
        for signature, length in ((b"PK\1\2", 46), (b"PK\3\4", 30), (b"PK\5\6", 22)):
            at = packed.find(signature)
            if at >= 0 and chance.random() < 0.5:
                packed[at + chance.randrange(4, length)] = chance.randrange(256)
    return bytes(packed)


def _array(chance: Random) -> bytes:
    if chance.random() < 0.1:  # compresses a thousand to one
        bomb = io.BytesIO()
        np.lib.format.write_array(bomb, np.zeros(chance.choice((10, 2**20)), "<f4"))
        return bomb.getvalue()
    text = chance.choice(HEADERS).encode()
    if chance.random() < 0.3:
        text = chance.choice(BYTES)(text, chance)
    version = chance.choice((b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\4\0", b"\0\0", b"\xff\xff"))
    length = len(text) if chance.random() < 0.9 else chance.randrange(2**16)
    length = min(length, 2**16 - 1)
    size = struct.pack("<H" if version == b"\1\0" else "<I", length)
    return b"\x93NUMPY" + version + size + text + bytes(chance.choice((24, 24, 0, 1, 7, 4096)))


def mutated(data: bytes, chance: Random, own: Sequence[Mutation]) -> bytes:
    """Return the data after one to three mutations, most of them specific to its format."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        kinds = own if own and chance.random() < 0.7 else BYTES
        data = chance.choice(kinds)(data, chance)[:MAX_BYTES]
    return data
