"""Reads what a cubin says about a kernel beside its code. Pure.

A cubin is a 64-bit ELF file. The section `.nv.info.KERNEL` is a list of attributes: a byte of the
format, a byte of the attribute, and a value of 2 bytes, or its size in 2 bytes and then the value.
`nvdisasm` without `-c` prints the attributes with their names.
"""

import struct
from collections.abc import Iterator

MAX_THREADS = 0x05
"""Attribute EIATTR_MAX_THREADS: the largest block in x, y and z, from `__launch_bounds__`."""

SIZED = 0x04
"""Format of an attribute whose value has a size of its own."""

_HEADER = struct.Struct("<40xQ10xHHH")
"""Offset of the table of sections, size of an entry, number of entries, entry of the names."""

_SECTION = struct.Struct("<I20xQQ")
"""Offset of the name, offset and size of the content."""


def max_threads(cubin: bytes, symbol: str) -> int | None:
    """Return the threads per block that a kernel was compiled for, or None without a limit."""
    try:
        for attribute, value in _attributes(_section(cubin, f".nv.info.{symbol}")):
            if attribute == MAX_THREADS:
                x, y, z = struct.unpack_from("<3I", value)
                return int(x) * int(y) * int(z)
    except (struct.error, IndexError):  # another form of cubin
        pass
    return None


def machine_code(cubin: bytes, symbol: str) -> bytes:
    """Return the instructions of a kernel, or nothing for another form of cubin."""
    try:
        return _section(cubin, f".text.{symbol}")
    except (struct.error, IndexError):
        return b""


def _section(cubin: bytes, name: str) -> bytes:
    """Return the content of a section, or nothing without it."""
    table, entry_size, count, names_at = _HEADER.unpack_from(cubin)

    def entry(index: int) -> tuple[int, int, int]:
        name_at, offset, size = _SECTION.unpack_from(cubin, table + index * entry_size)
        return name_at, offset, size

    _, names, _ = entry(names_at)
    encoded = name.encode() + b"\0"
    for index in range(count):
        name_at, offset, size = entry(index)
        if cubin.startswith(encoded, names + name_at):
            return cubin[offset : offset + size]
    return b""


def _attributes(section: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(section):
        form, attribute = section[at], section[at + 1]
        at += 4
        size = struct.unpack_from("<H", section, at - 2)[0] if form == SIZED else 0
        yield attribute, section[at : at + size]
        at += size
