"""`gpubench plot`: draw files as a picture."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.text import Text

from gpubench.commands.plot import published
from gpubench.errors import UsageError
from gpubench.plan.ranges import parse_names
from gpubench.plan.selection import read_selected
from gpubench.text import unknown
from gpubench.view.pictures import Kind, Theme
from gpubench.view.pictures.kinds import draw, resolve
from gpubench.view.pictures.series import sources
from gpubench.view.pictures.style import claim, default_theme, save
from gpubench.view.tables import console


def run_plot(
    files: Sequence[Path],
    kind: Kind = Kind.AUTO,
    output: Path | None = None,
    *,
    only: str | None = None,
    exclude: str | None = None,
    experiments: str | None = None,
    theme: Theme | None = None,
    bandwidth_gbytes_per_s: float | None = None,
    force: bool = False,
) -> None:
    """Write the picture and print its name. Raises UsageError for rows that the kind cannot use."""
    comparisons = [
        figures for path in files if (figures := published.read_published(path)) is not None
    ]
    if len(comparisons) == len(files) and kind in {Kind.AUTO, Kind.PUBLISHED}:
        if only is not None or exclude is not None:
            raise UsageError(
                "--only and --exclude: use --experiments for the CSV of a reproduction"
            )
        kind = Kind.PUBLISHED
        figures = [figure for figures in comparisons for figure in figures]
        picture = partial(published.draw, _of_experiments(figures, experiments))
    elif comparisons or kind == Kind.PUBLISHED:
        raise UsageError(
            "--kind published draws the CSV that 'gpubench reproduce' writes, and nothing else does"
        )
    else:
        together = sources(read_selected(files, only, exclude), bandwidth_gbytes_per_s)
        kind = resolve(together, kind)
        picture = partial(draw, together, kind)
    path = output or Path(f"{files[0].stem}-{kind}.svg")
    claimed = claim(path, force=force)
    save(picture(theme=theme or default_theme(path)), claimed, provenance(kind, files))
    console().print(Text(str(path)), soft_wrap=True)


def provenance(kind: str, files: Sequence[Path]) -> str:
    """Return what a picture was made from: `tiles of sweep.csv (sha256 0123456789abcdef)`."""
    hashes = ((path, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files)
    return f"{kind} of {', '.join(f'{path.name} (sha256 {text[:16]})' for path, text in hashes)}"


def _of_experiments(
    figures: Sequence[published.Figure], names: str | None
) -> list[published.Figure]:
    """Return the figures of the named experiments. Raises UsageError for an unknown name."""
    experiments = dict.fromkeys(figure.experiment for figure in figures)
    chosen = experiments if names is None else parse_names(names)
    for name in chosen:
        if name not in experiments:
            raise UsageError(f"--experiments: {unknown('experiment', name, experiments)}")
    return [figure for figure in figures if figure.experiment in chosen]
