"""Mutations of valid files: their bits, fields, lines, and the sizes in their headers."""

from __future__ import annotations

import io
import json
import struct
import warnings
import zipfile
from collections.abc import Callable, Sequence
from random import Random

import numpy as np

Mutation = Callable[[bytes, Random], bytes]

MAX_BYTES = 2**19

CELLS = (
    *(b"", b" ", b"nan", b"NaN", b"inf", b"-inf", b"1e309", b"1e-320", b"-1", b"0", b"-0.0"),
    *(b"1e300", b"9" * 30, b"9" * 5000, b"0x10", b"1_0", b"1.5", "٣".encode(), b"true", b"ok"),
    *(b"wrong", b"skipped", b"error", b"hot", b"host", b"gemm", b"atax", b"\0", b"\x1b[2J"),
    *("\u202e".encode(), b"\xed\xa0\x80", b"\xff", b"\xef\xbb\xbf", b"=1+1", b"'=1", b'"', b'""'),
    *(b'"\n', b"\r", b"\n", b",", b";", b"\t", b"1;2;nan", b"1;;2", b"<script>", b"x" * 140_000),
    *(b"[red]", b"\xf0\x9f\x92\xa5", b"16", b"128x128x8/8x8/s3", b"%s", b"{0}", b"../../x"),
)
"""Values for a field of a CSV."""

VALUES = (
    *(b"nan", b"inf", b"-inf", b"-1", b"0", b"1e400", b"1e-400", b"9" * 5000, b"0x" + b"f" * 5000),
    *(b"0b1", b"true", b"[]", b"{}", b'""', b"''", b'"\\u0000"', b'"\\u001b[2J"', b'"x"', b"8"),
    *(b'"\\n"', b"1979-05-27", b"07:32:00", b"[" * 3000, b"{ a = " * 900, b"[[[]]]", b"[1, 'a']"),
    *(b"{ variant = [] }", b"[{}]", b"[1]", b'"../x"', b'"/nowhere/x"', b'"a/../../b"', b"'''"),
    *(b'"' + b"x" * 100_000 + b'"', b'"1..2147483647"', b'"1..9999"', b'"3%"', b'"%"', b'"nan%"'),
    *(b'"gemv"', b'"cuda"', b'"cpu"', b"['float32', 'int32']", b'"1..64:x2"', b'"both"'),
)
"""Values for a key of a TOML file."""

LONG = 20
"""Maximum length of a list that is repeated."""

KEYS = (
    b"x",
    b"expect",
    b"point",
    b"sweep",
    b"series",
    b"a.b.c",
    b'""',
    b'"\\u0000"',
    b"k" * 50_000,
)

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
    """Insert a value of `CELLS` anywhere."""
    at = chance.randint(0, len(data))
    return data[:at] + chance.choice(CELLS) + data[at:]


def zeros(data: bytes, chance: Random) -> bytes:
    """Replace the end by zeros, as after a power cut."""
    at = chance.randint(0, len(data))
    return data[:at] + bytes(len(data) - at)


BYTES = (bits, cut, doubled, inserted, zeros)


def number(data: bytes, chance: Random) -> bytes:
    """Replace or repeat an item of a list, or join it with other items."""
    parts = data.split(b",")
    item = b"".join(
        chance.choice(
            (b"1", b"16", b"..", b":", b"x", b"x2", b"/", b"/s3", b"/k4", b"9" * 30, b",")
        )
        for _ in range(chance.randint(1, 6))
    )
    parts[chance.randrange(len(parts))] = chance.choice((item, b"", b" 8 ", *CELLS))
    return b",".join(parts * (chance.choice((1, 1, 1, 2, 50)) if len(parts) < LONG else 1))


def table(data: bytes, chance: Random) -> bytes:
    """Replace, remove, repeat or exchange fields and columns of a CSV."""
    lines = data.split(b"\n")
    first = 1 if lines[0].startswith(b"#") else 0
    rows = [line.split(b",") for line in lines[first:]]
    if not rows:
        return data
    width = max(map(len, rows))
    column, other = chance.randrange(width), chance.randrange(width)
    what = chance.randrange(6)
    for row in rows[chance.randrange(2) :] if what else [chance.choice(rows)]:
        if column >= len(row) or other >= len(row):
            continue
        if what == 0 or (what == 1 and chance.random() < 0.5):
            row[column] = chance.choice(CELLS)
        elif what == 2:
            del row[column]
        elif what == 3:
            row.insert(other, row[column])
        elif what == 4:
            row[column], row[other] = row[other], row[column]
    if what == 5:
        rows.insert(chance.randrange(len(rows)), list(chance.choice(rows)))
    separator = chance.choice((b",", b",", b",", b";", b"\t"))
    return b"\n".join((*lines[:first], *(separator.join(row) for row in rows)))


def toml(data: bytes, chance: Random) -> bytes:
    """Replace keys and values of a TOML file; remove, repeat or exchange its lines."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    line = lines[at]
    what = chance.randrange(6)
    if what <= 2 and b"=" in line:
        key, _, value = line.partition(b"=")
        if what == 0:
            key = chance.choice(KEYS)
        else:
            value = chance.choice(VALUES)
        lines[at] = key + b"= " + value
    elif what == 3:
        del lines[at]
    elif what == 4:
        lines.insert(chance.randrange(len(lines)), line)
    else:
        lines.insert(at, chance.choice(KEYS) + b" = " + chance.choice(VALUES))
    return b"\n".join(lines)


def description(data: bytes, chance: Random) -> bytes:
    """Replace, remove or repeat a field of a kernel's description."""
    lines = data.split(b"\n")
    at = chance.choice([at for at, line in enumerate(lines) if b"=" in line] or [0])
    key, _, _ = lines[at].partition(b"=")
    what = chance.randrange(5)
    if what == 0:
        del lines[at]
    elif what == 1:
        lines.insert(
            at, chance.choice((lines[at], b"    odd=1,", b"return", b"raise SystemExit(0)"))
        )
    else:
        lines[at] = key + b"=" + chance.choice(LITERALS) + b","
    return b"\n".join(lines)


LITERALS = (
    *(
        b"None",
        b"[]",
        b"[[]]",
        b"()",
        b"{}",
        b"{1: 2}",
        b"''",
        b"'x'",
        b"b'x'",
        b"0",
        b"-1",
        b"1e999",
    ),
    *(b"9" * 30, b"True", b"('float32',)", b"(['float32'],)", b"('x',)", b"'\\x1b[2J'", b"'cuda'"),
    *(b"['cpu']", b"edges(1, 2, because='')", b"edges(5, 1, because='x')", b"edges('a', None)"),
    *(
        b"lambda: 1",
        b"lambda *a: 1",
        b"lambda *a: 1 / 0",
        b"lambda *a: 'no'",
        b"print",
        b"object()",
    ),
    *(b"'n' * 100000", b"('float32',) * 1000", b"(0,)", b"('cpu_blas',)", b"'missing'", b"build"),
    *(b"float('nan')", b"frozenset()", b"type", b"edges(1, 10 ** 9, because='x')", b"exit"),
)
"""Values for a field of a description."""


TOKENS = (
    *(b"and", b"or", b"not", b"in", b"(", b")", b",", b"==", b"<", b">=", b"%", b"//", b"/", b"-"),
    *(b"**", b"*", b"+", b"<<", b"~", b"if", b"else", b"lambda:", b"[", b"]", b"{", b"}", b":="),
    *(b"BM", b"stages", b"cluster", b"missing", b"__import__('os')", b"BM.real", b"BM()", b"BM[0]"),
    *(b"min()", b"max(BM, 2)", b"abs(-BM)", b"min(*BM)", b"min(key=1)", b"'2x1'", b'"', b"f'{BM}'"),
    *(b"0", b"1", b"1e308", b"1e999", b"nan", b"9" * 5000, b"0x" + b"f" * 400, b"1j", b"b'x'"),
    *(b"None", b"True", b"...", b"\n", b"#", b"\\", b"yield", b"await x", b"\0", b"\xff"),
)
"""Words of an expression, of which some are refused."""


def expression(data: bytes, chance: Random) -> bytes:
    """Replace, add or remove words of an expression, or enclose or repeat it many times."""
    parts = data.split(b" ")
    at = chance.randrange(len(parts))
    what = chance.randrange(6)
    if what == 0:
        parts[at] = chance.choice(TOKENS)
    elif what == 1:
        parts.insert(at, chance.choice(TOKENS))
    elif what == 2:
        del parts[at]
    elif what == 3:
        times = chance.choice((2, 40, 60, 200, 3000))
        opening, closing = chance.choice(((b"(", b")"), (b"not ", b""), (b"-", b""), (b"[", b"]")))
        parts[at] = opening * times + parts[at] + closing * times
    elif what == 4:
        parts = [chance.choice((b"+", b" and ", b"<", b"*", b",")).join([data[:9]] * 60)]
    else:
        parts = [chance.choice(TOKENS) for _ in range(chance.randint(1, 9))]
    return b" ".join(parts)


SOURCE = (
    *(b"<", b">", b"(", b")", b"{", b"}", b"[", b"]", b"/*", b"*/", b"//", b'"', b"'", b'R"x('),
    *(b"template <", b"__global__", b"__global__ void", b"__launch_bounds__(", b"typename T"),
    *(b"const", b"float*", b"int M", b",", b";", b"=", b"...", b"&&", b"::", b"#define", b"\\\n"),
    *(
        b"blockIdx.y",
        b"threadIdx . x",
        b"M / BM",
        b"<<<1, 2>>>",
        b'#include "a.cuh"',
        b"if (row < M",
    ),
    *("ядро".encode(), "🚀".encode(), b"\xff\xfe", b"\0", b"\r", b"n" * 5000, b"9" * 5000),
)
"""Parts of a CUDA source."""


def source(data: bytes, chance: Random) -> bytes:
    """Insert parts of a source, repeat one very often, or exchange two words."""
    words = data.split(b" ")
    at = chance.randrange(len(words))
    what = chance.randrange(5)
    if what == 0:
        words[at] = chance.choice(SOURCE)
    elif what == 1:
        words.insert(at, chance.choice(SOURCE))
    elif what == 2:
        words.insert(at, chance.choice(SOURCE) * chance.choice((2, 50, 5000)))
    elif what == 3:
        other = chance.randrange(len(words))
        words[at], words[other] = words[other], words[at]
    else:
        return data * chance.choice((2, 20, 200))
    return b" ".join(words)


LEAVES = (
    *("null", "true", "0", "-1", "1", "1e308", "1e-320", "-0.0", "1e999", "9" * 30, "9" * 5000),
    *('""', '"x"', '"ok"', '"skipped"', '"eliminated"', '"\\u0000"', '"\\ud800"', '"\\u001b[2J"'),
    *('"../x"', '"1;2"', '"16"', '"edge=5"', '"2026-01-01T00:00:00.001+00:00"', '"1979"', '"nan"'),
    *("[]", "{}", "[[]]", "[null]", "[0]", "[1e308,1e308]", '{"a":1}', "NaN", "Infinity"),
    *("[" * 3000, '{"a":' * 2000, '"' + "x" * 100_000 + '"', "[" + "1," * 20_000 + "1]"),
)
"""Values of JSON, as text: not all are valid."""

_PLACE = "\ue000"
"""Stands for a value that is replaced after the line was encoded."""


def json_lines(data: bytes, chance: Random) -> bytes:
    """Replace, remove or add a value of a line of JSON; repeat, remove or exchange lines."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    what = chance.randrange(6)
    if what == 0:
        lines.insert(chance.randrange(len(lines) + 1), lines[at])
    elif what == 1:
        del lines[at]
    elif what == 2:
        other = chance.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        try:
            value = json.loads(lines[at])
        except (ValueError, RecursionError):  # a line that is cut, or was mutated before
            return b"\n".join(lines)
        _replace_leaf(value, chance)
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        text = text.replace(f'"{_PLACE}"', chance.choice(LEAVES))
        lines[at] = text.encode(errors="surrogatepass")
    return b"\n".join(lines)


def _replace_leaf(value: object, chance: Random) -> None:
    """Put `_PLACE` somewhere into lists and tables, or remove or rename what is there."""
    while isinstance(value, dict | list) and value:
        key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
        inner = value[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.8:
            value = inner
            continue
        what = chance.random()
        if what < 0.15:
            del value[key]
        elif what < 0.25 and isinstance(value, dict):
            value[chance.choice(("x", "key", "status", "series", "times_us"))] = _PLACE
        elif what < 0.35 and isinstance(value, list):
            value.insert(key, inner)
        else:
            value[key] = _PLACE
        return


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
