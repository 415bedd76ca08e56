"""`gpubench plot`: files in, a picture out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from gpubench.errors import UsageError
from gpubench.plan.ranges import parse_names, parse_sizes
from gpubench.plan.registry import unknown
from gpubench.row import Row, read
from gpubench.view.pictures import Kind, Theme
from gpubench.view.pictures.kinds import draw, resolve
from gpubench.view.pictures.published import Figure, read_published
from gpubench.view.pictures.published import draw as draw_published
from gpubench.view.pictures.series import sources
from gpubench.view.pictures.style import require_writable, save
from gpubench.view.tables import console

Files = list[tuple[Path, list[Row]]]


def run_plot(
    files: Sequence[Path],
    kind: Kind = Kind.AUTO,
    output: Path | None = None,
    *,
    sizes: str | None = None,
    dtypes: str | None = None,
    variants: str | None = None,
    experiments: str | None = None,
    theme: Theme | None = None,
    bandwidth_gbytes_per_s: float | None = None,
    force: bool = False,
) -> None:
    """`gpubench plot`: write the picture, print its name."""
    comparisons = [figures for path in files if (figures := read_published(path)) is not None]
    if len(comparisons) == len(files) and kind in {Kind.AUTO, Kind.PUBLISHED}:
        kind = Kind.PUBLISHED
        chosen = _of_experiments([one for figures in comparisons for one in figures], experiments)
    elif comparisons or kind == Kind.PUBLISHED:
        raise UsageError(
            "--kind published draws the CSV that 'gpubench reproduce' writes, and nothing else does"
        )
    else:
        rows = of_flags([(path, read(path)) for path in files], sizes, dtypes, variants)
        of = sources(rows, bandwidth_gbytes_per_s)
        kind = resolve(of, kind)
    path = output or Path(f"{files[0].stem}-{kind}.svg")
    require_writable(path, force=force)
    page = theme or (Theme.BOTH if path.suffix.lower() == ".svg" else Theme.LIGHT)
    is_comparison = kind == Kind.PUBLISHED
    picture = draw_published(chosen, page) if is_comparison else draw(of, kind, theme=page)
    save(picture, path, provenance(kind, files))
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


def of_flags(files: Files, sizes: str | None, dtypes: str | None, variants: str | None) -> Files:
    """The rows that the flags name, all where a flag is not given.

    Raises UsageError for a size, dtype or variant that no file has.
    """
    every = [row for _, rows in files for row in rows]
    kept = {id(row) for row in every}
    if sizes is not None:
        wanted = set(parse_sizes(sizes))
        there = {(row.m, row.n, row.k): row.size for row in every}
        if not wanted & set(there):
            held = ", ".join(there[size] for size in sorted(there))
            raise UsageError(f"--sizes: no row has {sizes}; there are {held}")
        kept -= {id(row) for row in every if (row.m, row.n, row.k) not in wanted}
    for flag, column, text in (("dtypes", "dtype", dtypes), ("variants", "variant", variants)):
        if text is None:
            continue
        names, known = parse_names(text), sorted({getattr(row, column) for row in every})
        for name in names:
            if name not in known:
                raise UsageError(f"--{flag}: {unknown(column, name, known)}")
        kept -= {id(row) for row in every if getattr(row, column) not in names}
    return [(path, [row for row in rows if id(row) in kept]) for path, rows in files]
