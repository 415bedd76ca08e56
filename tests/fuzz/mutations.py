"""Mutations of valid files: their bytes, tokens, lines and fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

Mutation = Callable[[bytes, Random], bytes]

MAX_BYTES = 2**19

TOKEN = re.compile(rb'"[^"\n]*"|[\w.]+|\s+|.', re.DOTALL)
"""A token: a quoted text, a name or number, white space, or another character."""

VALUES = (
    # numbers, and texts like numbers
    b"nan", b"-inf", b"1e309", b"1e-320", b"-1", b"0", b"-0.0", b"8", b"16", b"1.5", b"9" * 5000,
    b"0x" + b"f" * 5000, b"0b1", b"1_0", "٣".encode(), b"1j",
    # words from files of gpubench
    b"true", b"ok", b"wrong", b"skipped", b"eliminated", b"hot", b"gemv", b"atax", b"cuda",
    b"128x128x8/8x8/s3", b"edge=5", b"1..64:x2", b"1..2147483647", b"nan%", b"BM", b"stages",
    b"2026-01-01T00:00:00.001+00:00", b"07:32:00",
    # values of JSON, TOML and Python
    b"null", b"None", b"[]", b"{}", b"()", b"[{}]", b"[1, 'a']", b"{'a': 1}", b'""', b"'''",
    b'"../x"', b'"/nowhere/x"', b'"\\u0000"', b'"\\ud800"', b'"\\u001b[2J"', b"('x',) * 1000",
    b"lambda *a: 1 / 0", b"object()", b"exit", b"edges(1, 10 ** 9, because='x')",
    # signs and keywords of expressions and of CUDA C++
    b" and ", b"not ", b" in ", b"==", b"//", b"**", b" if ", b":=", b"min(*BM)", b"BM.real",
    b"BM[0]", b"await x", b"__import__('os')", b"f'{BM}'", b"/*", b'R"x(', b"template <",
    b"__global__ void", b"__launch_bounds__(", b"typename T", b"float*", b"...", b"#define",
    b"blockIdx.y", b"M / BM", b"<<<1, 2>>>", b'#include "a.cuh"',
    # text that attacks terminals, spreadsheets and decoders
    b"", b"\0", b"\n", b"\r", b"\\\n", b"\x1b[2J", "\u202e".encode(), b"\xff\xfe", b"\xed\xa0",
    b"\xef\xbb\xbf", "🚀".encode(), b"=1+1", b"'=1", b"<script>", b"[red]", b"%s", b"{0}",
    b";", b",", b"1;2;nan", b"1;;2", b'"', b"x" * 140_000,
)  # fmt: skip
"""Values that replace a part of an input."""

NESTED = ((b"(", b")"), (b"[", b"]"), (b"{", b"}"), (b"not ", b""), (b"-", b""))


def changed_bytes(data: bytes, chance: Random) -> bytes:
    """Return data with a flipped bit, a removed, repeated or new part, or zeros at its end."""
    at, to = sorted(chance.randint(0, len(data)) for _ in range(2))
    return chance.choice(
        (
            data[:at] + bytes(byte ^ 1 << chance.randrange(8) for byte in data[at : at + 1]),
            data[:at],
            data[:at] + data[to:],
            data[:to] + data[at : min(to, at + 4096)] + data[to:],
            data[:at] + chance.choice(VALUES) + data[at:],
            data[:at] + bytes(len(data) - at),
        )
    )


def edited(parts: list[bytes], chance: Random, glue: bytes) -> bytes:
    """Replace, insert, remove, exchange, repeat or enclose parts, and return all parts joined."""
    at, other = chance.randrange(len(parts)), chance.randrange(len(parts))
    value = chance.choice(VALUES)
    match chance.randrange(7):
        case 0 | 1:
            parts[at] = value
        case 2:
            times = chance.choice((1, 1, 1, 50, 3000))
            parts.insert(at, value * min(times, 1 + MAX_BYTES // max(len(value), 1)))
        case 3:
            del parts[at]
        case 4:
            parts[at], parts[other] = parts[other], parts[at]
        case 5:
            parts[at:at] = parts[other : other + chance.randint(1, 20)]
        case _:
            times, (opening, closing) = chance.choice((2, 60, 3000)), chance.choice(NESTED)
            parts[at] = opening * times + parts[at] + closing * times
    return glue.join(parts)


def tokens(data: bytes, chance: Random) -> bytes:
    """Return data with edited tokens."""
    return edited(TOKEN.findall(data) or [b""], chance, b"")


def lines(data: bytes, chance: Random) -> bytes:
    """Return data with edited lines."""
    return edited(data.split(b"\n"), chance, b"\n")


def columns(data: bytes, chance: Random) -> bytes:
    """Return a CSV with the same fields edited in some or all lines, and another separator."""
    seed, share = chance.random(), chance.choice((0.1, 0.5, 1.0, 1.0))
    separator = chance.choice((b",", b",", b",", b";", b"\t"))
    return b"\n".join(
        line.replace(b",", separator)
        if line.startswith(b"#") or chance.random() >= share
        else edited(line.split(b","), Random(seed), separator)  # noqa: S311 # no secret
        for line in data.split(b"\n")
    )


TEXT = (tokens, tokens, tokens, lines)
TABLE = (columns, columns, columns, lines)
BINARY = (changed_bytes,)


def mutated(data: bytes, chance: Random, own: Sequence[Mutation]) -> bytes:
    """Return the data after one to three mutations, most of them specific to its format."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        mutation = chance.choice(own) if chance.random() < 0.7 else changed_bytes
        data = mutation(data, chance)[:MAX_BYTES]
    return data
