"""`gpubench plot`: files in, a picture out."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from rich.text import Text

from gpubench.errors import UsageError
from gpubench.plan.ranges import parse_names, parse_sizes
from gpubench.results.row import Row, read
from gpubench.text import unknown
from gpubench.view.pictures import Kind, Theme
from gpubench.view.pictures.kinds import draw, resolve
from gpubench.view.pictures.published import draw as draw_published
from gpubench.view.pictures.published import read_published
from gpubench.view.pictures.series import sources
from gpubench.view.pictures.style import claim, save
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
        figures = [figure for of_file in comparisons for figure in of_file]
        names = _chosen(
            "experiment", experiments, dict.fromkeys(figure.experiment for figure in figures)
        )
        picture = partial(draw_published, [one for one in figures if one.experiment in names])
    elif comparisons or kind == Kind.PUBLISHED:
        raise UsageError(
            "--kind published draws the CSV that 'gpubench reproduce' writes, and nothing else does"
        )
    else:
        rows = of_flags([(path, read(path)) for path in files], sizes, dtypes, variants)
        of = sources(rows, bandwidth_gbytes_per_s)
        kind = resolve(of, kind)
        picture = partial(draw, of, kind)
    path = output or Path(f"{files[0].stem}-{kind}.svg")
    claimed = claim(path, force=force)
    page = theme or (Theme.BOTH if path.suffix.lower() == ".svg" else Theme.LIGHT)
    save(picture(theme=page), claimed, provenance(kind, files))
    console().print(Text(str(path)), soft_wrap=True)


def provenance(kind: str, files: Sequence[Path]) -> str:
    """What a picture was made from: `tiles of sweep.csv (sha256 0123456789abcdef)`."""
    hashes = ((path, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files)
    return f"{kind} of {', '.join(f'{path.name} (sha256 {of[:16]})' for path, of in hashes)}"


def of_flags(files: Files, sizes: str | None, dtypes: str | None, variants: str | None) -> Files:
    """The rows that the flags name, all where a flag is not given.

    Raises UsageError for a size, dtype or variant that no file has.
    """
    every = [row for _, rows in files for row in rows]
    there = {(row.m, row.n, row.k): row.size for row in every}
    wanted = set(there if sizes is None else parse_sizes(sizes))
    if sizes is not None and not wanted & set(there):
        held = ", ".join(there[size] for size in sorted(there))
        raise UsageError(f"--sizes: no row has {sizes}; there are {held}")
    of_dtypes = _chosen("dtype", dtypes, sorted({row.compute_mode for row in every}))
    of_variants = _chosen("variant", variants, sorted({row.variant for row in every}))

    def is_chosen(row: Row) -> bool:
        is_wanted = (row.m, row.n, row.k) in wanted
        return is_wanted and row.compute_mode in of_dtypes and row.variant in of_variants

    return [(path, list(filter(is_chosen, rows))) for path, rows in files]


def _chosen(kind: str, names: str | None, known: Collection[str]) -> set[str]:
    """The names of a flag's list, all where it is not given. Raises UsageError for unknown ones."""
    if names is None:
        return set(known)
    chosen = parse_names(names)
    for name in chosen:
        if name not in known:
            raise UsageError(f"--{kind}s: {unknown(kind, name, known)}")
    return set(chosen)
