"""Prints the variants as a table."""

from collections.abc import Sequence
from pathlib import Path

from gpubench.backends import backends
from gpubench.errors import UsageError
from gpubench.model import OPERATIONS
from gpubench.plan.registry import of_op, variants
from gpubench.plan.selection import matching
from gpubench.plan.sweep import Sweep
from gpubench.text import unknown
from gpubench.view.tables import console, table


def print_variants(
    names: Sequence[str], op: str | None, backend: str | None, kernels: Path | None = None
) -> None:
    """Print the variants of an operation and a backend, by default all variants.

    `names` are names or patterns of the variants to print. Raises UsageError for unknown names.
    """
    if op is not None and op not in OPERATIONS:
        raise UsageError(f"--op: {unknown('operation', op, OPERATIONS)}")
    if backend not in {None, *backends()}:
        raise UsageError(f"--device: {unknown('backend', str(backend), backends())}")
    listed = list(of_op(op or Sweep().op, kernels).values() if op or kernels else variants())
    known = [variant.name for variant in listed]
    if names:
        chosen = {each for name in names for each in matching("VARIANT", "variant", name, known)}
        listed = [variant for variant in listed if variant.name in chosen]
    listing = table("op", "variant", "on", "dtypes", "tiles", "idea", left=None)
    for variant in listed:
        if backend not in {None, variant.backend}:
            continue
        listing.add_row(
            variant.op,
            variant.name,
            variant.backend,
            ", ".join(variant.dtypes),
            variant.tiles.summary if variant.tiles else "",
            variant.idea,
        )
    console().print(listing)
