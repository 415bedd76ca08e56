"""Which rows of result files a command is about: `--only` and `--exclude`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from gpubench.errors import UsageError
from gpubench.plan.ranges import parse_names, parse_sizes
from gpubench.results.row import Row
from gpubench.text import unknown

_Size = tuple[str, int, int, int]
"""Operation, M, N and K."""


def matching(flag: str, kind: str, item: str, known: Collection[str]) -> list[str]:
    """The known names that an item means: itself, or all that fit a pattern such as `cpu_*`.

    Raises UsageError if there is none.
    """
    if found := [name for name in known if fnmatchcase(name, item)]:
        return found
    raise UsageError(f"{flag}: {unknown(kind, item, known)}")


def selection(only: str | None, exclude: str | None, rows: Sequence[Row]) -> Callable[[Row], bool]:
    """Whether `--only` and `--exclude`, lists of variants and sizes, keep a row.

    They keep a row of an `only` variant and an `only` size, where the list has any, and of no
    `exclude` variant or size. A variant may be a pattern. Raises UsageError for an item that no
    row has.
    """
    present = dict.fromkeys(row.variant for row in rows)
    sizes = {_size(row) for row in rows}

    def parse(flag: str, text: str | None) -> tuple[set[str], set[_Size]]:
        chosen_variants: set[str] = set()
        chosen_sizes: set[_Size] = set()
        for item in parse_names(text or ""):
            if item in present or not item[0].isdecimal():
                chosen_variants |= set(matching(flag, "variant or size", item, present))
            elif found := _sizes(item, {op for op, *_ in sizes}, flag) & sizes:
                chosen_sizes |= found
            else:
                raise UsageError(f"{flag}: no point has the size {item}")
        return chosen_variants, chosen_sizes

    (only_variants, only_sizes), excluded = parse("--only", only), parse("--exclude", exclude)

    def keep(row: Row) -> bool:
        return (
            (not only_variants or row.variant in only_variants)
            and (not only_sizes or _size(row) in only_sizes)
            and row.variant not in excluded[0]
            and _size(row) not in excluded[1]
        )

    return keep


def _size(row: Row) -> _Size:
    return row.op, row.m, row.n, row.k


def _sizes(item: str, ops: Iterable[str], flag: str) -> set[_Size]:
    """The sizes that an item of a list means, for each operation that it can be a size of."""
    sizes: set[_Size] = set()
    error = None
    for op in sorted(ops):
        try:
            sizes |= {(op, *size) for size in parse_sizes(item, op, flag)}
        except UsageError as refused:
            error = refused
    if error and not sizes:
        raise error
    return sizes
