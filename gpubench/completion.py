"""Completes words for the shell from lists of names.

Completing a word imports no large package and runs no kernel.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import typer


def variants(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a list of variants with the operation's variants and the user's own variants."""
    from gpubench.plan.registry import descriptors, home
    from gpubench.plan.sweep import Sweep

    op = ctx.params.get("op") or Sweep().op
    folders = [home(op)]
    if own := ctx.params.get("kernels"):
        folders += [Path(own), home(op, Path(own))]
    return _next_item((path.stem for folder in folders for path in descriptors(folder)), incomplete)


def dtypes(incomplete: str) -> list[str]:
    """Complete a list of element types."""
    from gpubench.model import DTYPES

    return _next_item(DTYPES, incomplete)


def one_of(choices: Sequence[str]) -> Callable[[str], list[str]]:
    """Return the function that completes an option whose value is one of these texts."""
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


def files(_incomplete: str) -> list[str]:
    """Return no words, because the shell itself completes names of files."""
    return []


def _next_item(names: Iterable[str], incomplete: str) -> list[str]:
    """Return copies of the typed list, each completed with another name as its last item."""
    done, comma, item = incomplete.rpartition(",")
    taken = done.split(",")
    return [f"{done}{comma}{name}" for name in names if name.startswith(item) and name not in taken]
