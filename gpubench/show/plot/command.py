"""`gpubench plot`: files in, a picture out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from gpubench.errors import UsageError
from gpubench.plan.ranges import parse_names, parse_sizes
from gpubench.plan.registry import unknown
from gpubench.show.tables import console
from gpubench.table import Row, read

Files = list[tuple[Path, list[Row]]]


def run_plot(
    files: Sequence[Path],
    kind: str,
    output: Path | None,
    *,
    sizes: str | None,
    dtypes: str | None,
    variants: str | None,
    theme: str | None,
    bandwidth_gbytes_per_s: float | None,
    force: bool,
) -> None:
    """`gpubench plot`: write the picture, print its name."""
    from gpubench.show.plot import files as pictures
    from gpubench.show.plot import kinds
    from gpubench.show.plot.series import sources

    read_files = chosen([(path, read(path)) for path in files], sizes, dtypes, variants)
    of = sources(read_files, bandwidth_gbytes_per_s)
    kind = kinds.resolve(of, kind)
    path = output or Path(f"{files[0].stem}-{kind}.svg")
    pictures.check(path, force=force)
    page = theme or ("both" if path.suffix.lower() == ".svg" else "light")
    made_from = ", ".join(str(one) for one in files)
    pictures.save(kinds.draw(of, kind, theme=page), path, f"{kind} of {made_from}")
    console().print(Text(str(path)), soft_wrap=True)


def chosen(files: Files, sizes: str | None, dtypes: str | None, variants: str | None) -> Files:
    """The rows that the flags name, all where a flag is not given.

    Raises UsageError for a size, dtype or variant that no file has.
    """
    kept = files
    if sizes is not None:
        wanted = set(parse_sizes(sizes))
        there = {(row.m, row.n, row.k): row.size for row in _rows(files)}
        if not wanted & set(there):
            held = ", ".join(there[size] for size in sorted(there))
            raise UsageError(f"--sizes: no row has {sizes}; there are {held}")
        kept = [(path, [r for r in rows if (r.m, r.n, r.k) in wanted]) for path, rows in kept]
    for flag, column, text in (("dtypes", "dtype", dtypes), ("variants", "variant", variants)):
        if text is None:
            continue
        names = parse_names(text)
        known = sorted({getattr(row, column) for row in _rows(files)})
        for name in names:
            if name not in known:
                raise UsageError(f"--{flag}: {unknown(column, name, known)}")
        kept = [(path, [r for r in rows if getattr(r, column) in names]) for path, rows in kept]
    return kept


def _rows(files: Files) -> list[Row]:
    return [row for _, rows in files for row in rows]
