"""The options of commands that take one kernel: name, size, dtype, tiles and architecture."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpubench.errors import UsageError
from gpubench.model import CudaVariant, HostVariant, Variant
from gpubench.options import read_sweep
from gpubench.plan.operations import operation_named
from gpubench.plan.python_file import described_by
from gpubench.plan.registry import of_op, unknown_variant, variants
from gpubench.plan.sweep import AUTO_TILES, Sweep, tuned_file
from gpubench.text import did_you_mean, shown


def find_variant(name: str, op: str | None, kernels: Path | None) -> Variant:
    """Return the variant that has this name. `op` and `kernels` limit the search to one operation.

    Raises UsageError if the variant does not exist, or if the user's directory cannot be used.
    """
    if op is not None or kernels:
        by_name = of_op(operation_named(op, kernels), kernels, [name])
    else:
        by_name = {variant.name: variant for variant in reversed(variants())}
    if name not in by_name:
        raise UsageError(unknown_variant(name, by_name, kernels))
    return by_name[name]


HOST_HINT = (
    "describe a kernel that it launches with 'gpubench new-kernel NAME --from FILE --kernel KERNEL'"
)
"""Advice that is printed if a command needs a kernel, but the user named a host function."""


def find_kernel(name: str, op: str | None, kernels: Path | None, command: str) -> CudaVariant:
    """Return the CUDA kernel that has this name.

    Raises UsageError if the variant is no CUDA kernel.
    """
    variant = find_variant(name, op, kernels)
    if isinstance(variant, HostVariant):
        raise UsageError(f"'{name}' is a host function, and {command} needs a kernel: {HOST_HINT}")
    if not isinstance(variant, CudaVariant):
        raise UsageError(
            f"'{name}' is a function that runs on {variant.backend}, and {command} needs a CUDA "
            "source, such as shared_tile"
        )
    return variant


def read_options(
    kernel: CudaVariant, options: Mapping[str, Any], *, size: str, every: bool = False
) -> Sweep:
    """Return the sweep of one kernel at one size in one dtype, with at least one legal tile.

    `size` is the default size. If `every` is true, the sweep has all legal tiles. Raises UsageError
    if the options are invalid.
    """
    texts = {"sizes": size, "dtypes": kernel.dtypes[0]}
    texts |= {name: value for name, value in options.items() if value is not None}
    sweep = read_sweep(texts | {"op": kernel.op, "variants": kernel.name})
    for name in ("sizes", "dtypes", "layouts"):
        values = getattr(sweep, name)
        if len(values) > 1:
            raise UsageError(f"--{name}: name one value, not {len(values)}")
    if sweep.dtypes[0] not in kernel.dtypes:
        dtypes = ", ".join(kernel.dtypes)
        raise UsageError(f"--dtypes: {kernel.name} has no {sweep.dtypes[0]}, only {dtypes}")
    return replace(sweep, tiles=_tiles(kernel, sweep.tiles, every=every))


def _tiles(kernel: CudaVariant, tiles: tuple[str, ...], *, every: bool) -> tuple[str, ...]:
    """Return the tiles as users write them. Return no tiles if the kernel has no tile to choose."""
    space = kernel.tiles
    if tiles and every:
        raise UsageError("--all and --tiles: use only one of them; --all chooses all tiles")
    if tiles == (AUTO_TILES,) or tuned_file(tiles):
        raise UsageError(
            f"--tiles: name tiles, such as 16; '{shown(tiles[0])}' is only for sweep and "
            "compare-cublas"
        )
    if not space.axes:
        if tiles:
            raise UsageError(f"--tiles: {kernel.name} has no tile to choose")
        return ()
    with described_by(kernel.path):
        refusals = [space.why_not(space.read(tile)) for tile in tiles]
        if refusals and all(refusals):
            raise UsageError(f"--tiles: {kernel.name} {refusals[0]}")
        return tiles or tuple(map(str, space if every else space.defaults))


def require_architecture(name: str) -> None:
    """Raise UsageError for an architecture that the compiler does not support."""
    from gpubench.backends.cuda import compile as compiler

    architectures = compiler.architectures()
    if re.sub("[af]$", "", name) not in architectures:
        near = did_you_mean(name, architectures)
        raise UsageError(
            f"--arch: '{shown(name)}' is not an architecture that {compiler.version()} compiles "
            f"for: {', '.join(architectures)}{f'; {near}' if near else ''}"
        )
