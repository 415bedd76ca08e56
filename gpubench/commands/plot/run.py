"""`gpubench plot`: draw files as a picture."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from gpubench.plan.selection import read_selected
from gpubench.view.pictures import Kind, Theme
from gpubench.view.pictures.kinds import draw, resolve
from gpubench.view.pictures.series import sources
from gpubench.view.pictures.style import claim, default_theme, save
from gpubench.view.tables import say


def run_plot(
    files: Sequence[Path],
    kind: Kind = Kind.AUTO,
    output: Path | None = None,
    *,
    only: str | None = None,
    exclude: str | None = None,
    theme: Theme | None = None,
    bandwidth_gbytes_per_s: float | None = None,
    force: bool = False,
) -> None:
    """Write the picture and print its name. Raises UsageError for rows that the kind cannot use."""
    together = sources(read_selected(files, only, exclude), bandwidth_gbytes_per_s)
    kind = resolve(together, kind)
    path = output or Path(f"{files[0].stem}-{kind}.svg")
    claimed = claim(path, force=force)
    picture = draw(together, kind, theme=theme or default_theme(path))
    save(picture, claimed, provenance(kind, files))
    say(str(path))


def provenance(kind: str, files: Sequence[Path]) -> str:
    """Return what a picture was made from: `tiles of sweep.csv (sha256 0123456789abcdef)`."""
    hashes = ((path, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files)
    return f"{kind} of {', '.join(f'{path.name} (sha256 {text[:16]})' for path, text in hashes)}"
