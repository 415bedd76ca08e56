"""Converts times, rates, other numbers and lists of tiles to text."""

import re
from collections.abc import Sequence
from math import floor, log10

WHOLE = 1000  # a rate of at least this value is shown without decimals
ROUNDED = 100_000  # a rate of at least this value is rounded to four significant digits

MAX_DECIMALS = 7

UNITS = {
    "gbytes_per_s": "GB/s",
    "flop_per_byte": "FLOP/byte",
    "gflops": "GFLOP/s",
    "tflops": "TFLOP/s",
    "bytes": "bytes",
    "mib": "MiB",
    "bits": "bits",
    "mhz": "MHz",
}
"""Maps the ending of a fact's name to the unit that a table shows for the fact."""


def with_unit(name: str) -> str:
    """Convert the name of a device's fact to a heading: `memory_bytes` becomes `memory, bytes`."""
    for ending, unit in UNITS.items():
        if name.endswith(f"_{ending}"):
            return f"{name.removesuffix(f'_{ending}').replace('_', ' ')}, {unit}"
    return name.replace("_", " ")


def time_text(time_us: float | None) -> str:
    """Return a time with four significant digits, such as `275.3 µs`, `57.10 ms` or `1.204 s`."""
    if time_us is None:
        return ""
    factor, unit = next(
        (entry for entry in ((1e6, "s"), (1e3, "ms")) if time_us >= entry[0]), (1.0, "µs")
    )
    return f"{f'{time_us / factor:#.4g}'.rstrip('.')} {unit}"


def milliseconds(time_us: float | None) -> str:
    """Return a time in milliseconds with four significant digits, such as `0.006385` or `57.10`."""
    if time_us is None:
        return ""
    time_ms = time_us / 1e3
    if 0 < time_ms < 1:
        return f"{time_ms:.{min(MAX_DECIMALS, 3 - floor(log10(time_ms)))}f}"
    return f"{time_ms:#.4g}".rstrip(".")


def number(value: float | None, digits: int) -> str:
    """Return a number with `digits` decimals, or an empty text for None."""
    return "" if value is None else f"{value:,.{digits}f}"


def rate(value: float | None) -> str:
    """Return a rate as text, such as `0.55`, `55,842` or `824,300`.

    The text has four significant digits. A rate between 1,000 and 100,000 becomes a whole number,
    with all its digits.
    """
    if value is None:
        return ""
    if value >= ROUNDED:
        value = round(value, 3 - floor(log10(value)))
    return f"{value:,.0f}" if value >= WHOLE else f"{value:.4g}"


def spans(tiles: Sequence[str]) -> str:
    """Return the tiles as one line. Consecutive numbers are joined to a range such as `33..64`.

    A repeated tile is listed once.
    """
    groups: list[list[str]] = []
    for tile in dict.fromkeys(tiles):
        last = groups[-1][-1] if groups else ""
        if tile.isdecimal() and last.isdecimal() and int(tile) == int(last) + 1:
            groups[-1].append(tile)
        else:
            groups.append([tile])
    return ", ".join(
        group[0] if len(group) == 1 else f"{group[0]}..{group[-1]}" for group in groups
    )


def tile_order(tile: str) -> tuple[object, ...]:
    """Return a key for sorting tiles by the numbers in their names, and then by their names."""
    numbers = [number.lstrip("0") for number in re.findall("[0-9]+", tile)]
    return [(len(number), number) for number in numbers], tile
