"""What the shell offers on TAB. Looks at names alone: nothing heavy is loaded, no kernel is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import typer

Completer = Callable[[str], list[str]]


def words(*known: str) -> Completer:
    """One of a few words."""
    return lambda incomplete: [word for word in known if word.startswith(incomplete)]


def variants(ctx: typer.Context, incomplete: str) -> list[str]:
    """Variants of the operation named so far, the user's own too; a list goes on at commas."""
    from gpubench.plan.registry import KERNELS, descriptors
    from gpubench.plan.sweep import Sweep

    op = ctx.params.get("op") or Sweep().op
    folders = [KERNELS / op]
    if own := ctx.params.get("kernels"):
        folders += [Path(own), Path(own) / op]
    return _next_item((path.stem for folder in folders for path in descriptors(folder)), incomplete)


def dtypes(incomplete: str) -> list[str]:
    """Element types; a list goes on at commas."""
    from gpubench.model import DTYPES

    return _next_item(DTYPES, incomplete)


def operations(incomplete: str) -> list[str]:
    """Operations."""
    from gpubench.model import OPERATIONS

    return words(*OPERATIONS)(incomplete)


def devices(incomplete: str) -> list[str]:
    """Backends, and the devices of those that number them."""
    from gpubench.backends import AUTO, backends

    known = backends()
    numbered = [f"{e.name}:{n}" for e in known.values() if e.numbers for n in e.numbers()]
    return words(AUTO, *sorted(known), *numbered)(incomplete)


def backends(incomplete: str) -> list[str]:
    """What variants run on."""
    from gpubench.backends import backends as known

    return words(*sorted(known()))(incomplete)


def folders(incomplete: str) -> list[str]:
    """Folders, with a slash behind them."""
    return [path for path in _below(incomplete) if path.endswith("/")]


def configs(incomplete: str) -> list[str]:
    """TOML files, and the folders on the way to them."""
    return _files(".toml", incomplete)


def results(incomplete: str) -> list[str]:
    """CSV files, and the folders on the way to them."""
    return _files(".csv", incomplete)


def saved(incomplete: str) -> list[str]:
    """Names that results are kept under."""
    from gpubench.results.store import names

    return words(*names())(incomplete)


def _files(suffix: str, incomplete: str) -> list[str]:
    found = [path for path in _below(incomplete) if path.endswith(("/", suffix))]
    # A shell sets a blank behind the only answer, so a lone folder is opened instead of offered.
    while len(found) == 1 and found[0].endswith("/") and found[0] != incomplete:
        incomplete = found[0]
        found = _files(suffix, incomplete) or found
    return found


def _below(incomplete: str) -> list[str]:
    """Paths that go on from what is typed, written as it is typed; hidden ones when asked for."""
    folder, _, name = incomplete.rpartition("/")
    base = f"{folder}/" if "/" in incomplete else ""
    try:
        paths = sorted(Path(base or ".").iterdir())
    except OSError:
        return []
    return [
        f"{base}{path.name}{'/' * path.is_dir()}"
        for path in paths
        if path.name.startswith(name) and (name or not path.name.startswith("."))
    ]


def _next_item(known: Iterable[str], incomplete: str) -> list[str]:
    """The list so far with each name that its last item may become."""
    done, comma, item = incomplete.rpartition(",")
    taken = done.split(",")
    return [f"{done}{comma}{name}" for name in known if name.startswith(item) and name not in taken]
