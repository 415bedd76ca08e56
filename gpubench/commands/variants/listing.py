"""Prints the variants as a table."""

from __future__ import annotations

from pathlib import Path

from gpubench.backends import backends
from gpubench.errors import UsageError
from gpubench.model import OPERATIONS
from gpubench.plan.registry import of_op, variants
from gpubench.plan.sweep import Sweep
from gpubench.text import unknown
from gpubench.view.tables import console, table


def print_variants(op: str | None, backend: str | None, kernels: Path | None = None) -> None:
    """Print the variants of an operation and a backend, by default all variants."""
    if op is not None and op not in OPERATIONS:
        raise UsageError(f"--op: {unknown('operation', op, OPERATIONS)}")
    if backend not in {None, *backends()}:
        raise UsageError(f"--device: {unknown('backend', str(backend), backends())}")
    listed = of_op(op or Sweep().op, kernels).values() if op or kernels else variants()
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
