"""`gpubench plot`: files in, a picture out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from gpubench.errors import UsageError
from gpubench.plan.ranges import parse_names, parse_sizes
from gpubench.plan.registry import unknown
from gpubench.row import Row, read
from gpubench.view.tables import console

if TYPE_CHECKING:
    from gpubench.view.pictures.published import Figure

Files = list[tuple[Path, list[Row]]]


def run_plot(
    files: Sequence[Path],
    kind: str,
    output: Path | None,
    *,
    sizes: str | None,
    dtypes: str | None,
    variants: str | None,
    experiments: str | None,
    theme: str | None,
    bandwidth_gbytes_per_s: float | None,
    force: bool,
) -> None:
    """`gpubench plot`: write the picture, print its name."""
    from gpubench.view.pictures import kinds, published
    from gpubench.view.pictures.files import check, save
    from gpubench.view.pictures.series import sources

    comparisons = [published.is_published(path) for path in files]
    if all(comparisons) and kind in {"auto", kinds.PUBLISHED}:
        kind = kinds.PUBLISHED
    elif any(comparisons) or kind == kinds.PUBLISHED:
        raise UsageError(
            "--kind published draws the CSV that 'gpubench reproduce' writes, and nothing else does"
        )
    if kind == kinds.PUBLISHED:
        figures = [one for path in files for one in published.read_published(path)]
        figures = _of_experiments(figures, experiments)
    else:
        read_files = chosen([(path, read(path)) for path in files], sizes, dtypes, variants)
        of = sources(read_files, bandwidth_gbytes_per_s)
        kind = kinds.resolve(of, kind)
    path = output or Path(f"{files[0].stem}-{kind}.svg")
    check(path, force=force)
    page = kinds.known_theme(theme or ("both" if path.suffix.lower() == ".svg" else "light"))
    drawn = (
        published.draw(figures, page)
        if kind == kinds.PUBLISHED
        else kinds.draw(of, kind, theme=page)
    )
    save(drawn, path, provenance(kind, files))
    console().print(Text(str(path)), soft_wrap=True)


def provenance(kind: str, files: Sequence[Path]) -> str:
    """What a picture was made from: `tiles of sweep.csv (sha256 0123456789abcdef)`."""
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in files]
    names = (f"{path.name} (sha256 {of})" for path, of in zip(files, hashes, strict=True))
    return f"{kind} of {', '.join(names)}"


def _of_experiments(figures: list[Figure], experiments: str | None) -> list[Figure]:
    """The figures of the experiments named, or all."""
    if experiments is None:
        return figures
    names, known = parse_names(experiments), dict.fromkeys(one.experiment for one in figures)
    for name in names:
        if name not in known:
            raise UsageError(f"--experiments: {unknown('experiment', name, known)}")
    return [one for one in figures if one.experiment in names]


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
