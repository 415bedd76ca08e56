"""The file of winners of `gpubench tune`, and the tiles that a sweep takes from it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from gpubench.errors import UsageError
from gpubench.model import Device, Point, Variant
from gpubench.plan.registry import choose
from gpubench.plan.sweep import Sweep, tuned_file
from gpubench.plan.toml_file import decode, read_toml
from gpubench.results.output import Output
from gpubench.results.provenance import source_hash
from gpubench.text import shown

HEADING = "# What `gpubench tune` found: `--tiles tuned` takes each kernel's tile from here.\n"


class Winner(msgspec.Struct, frozen=True, kw_only=True):
    """The best configuration of a variant for a problem on a device."""

    device: str
    op: str
    variant: str
    dtype: str
    m: int
    n: int
    k: int
    tile: str
    simplest: str
    """The configuration with the earliest parameters among those not shown to be slower."""

    group: int
    """Number of configurations that were not shown to be slower, out of `configurations`."""

    configurations: int
    within: float
    """Configurations that are slower by at most this fraction count as equal."""

    median_us: float
    """The confirmed time, measured in fresh processes."""

    percent_of_blas: float | None = None
    source_hash: str
    gpubench: str
    tuned_utc: str

    @property
    def key(self) -> tuple[object, ...]:
        """What this configuration is the winner of."""
        return self.device, self.op, self.variant, self.dtype, self.m, self.n, self.k

    def distance(self, point: Point) -> float:
        """Return the distance to the point's problem: powers of two, summed over M, N and K."""
        of = point.problem
        pairs = ((self.m, of.m), (self.n, of.n), (self.k, of.k))
        return sum(abs(math.log2(mine / other)) for mine, other in pairs)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    winner: list[Winner] = []  # msgspec copies it


def read_winners(path: Path) -> list[Winner]:
    """Read the winners of a file. Raises UsageError for an invalid file."""
    found = decode(read_toml(path, "--tiles"), _File, f"--tiles: {path}").winner
    return [winner for winner in found if min(winner.m, winner.n, winner.k) > 0]


def keep_winners(path: Path, new: Iterable[Winner]) -> None:
    """Put winners into a file, where they replace older winners of the same problems.

    Raises UsageError for a file with other contents, and if it cannot be written.
    """
    kept = {winner.key: winner for winner in (read_winners(path) if path.exists() else ())}
    first: dict[tuple[object, ...], Winner] = {}
    for winner in new:
        first.setdefault(winner.key, winner)  # of cold and hot caches, which share a key: cold
    kept |= first
    tables = (
        "\n[[winner]]\n"
        + "".join(
            f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
            for name, value in msgspec.structs.asdict(winner).items()
            if value is not None
        )
        for winner in kept.values()
    )
    text = HEADING + "".join(tables)
    Output(path, overwrite=True, flag="--winners").write(text.encode())


def with_tuned_tiles(
    sweep: Sweep, device: Device
) -> tuple[Sweep, Callable[[Point], bool], Sequence[str]]:
    """Return the sweep with the tiles of `--tiles tuned`, which of its points to keep, and notes.

    Each variant takes the winner of each size and dtype, or of the nearest size. A variant that was
    not tuned on this device keeps its default tiles. Raises UsageError if no variant was tuned.
    """
    path = tuned_file(sweep.tiles)
    if path is None:
        return sweep, lambda _point: True, ()
    every = [winner for winner in read_winners(path) if winner.device == device.name]
    variants = choose(sweep.op, device.backend, sweep.variants, sweep.kernels)
    winners = {
        variant.name: [w for w in every if (w.op, w.variant) == (sweep.op, variant.name)]
        for variant in variants
    }
    tiled = [variant for variant in variants if variant.tiles]
    tuned = [variant for variant in tiled if winners[variant.name]]
    if not tuned:
        names = ", ".join(variant.name for variant in tiled) or "no variant with tiles"
        raise UsageError(
            f"--tiles: {path} has no winner of {names} on {shown(device.name)}; "
            "'gpubench tune' finds it"
        )
    tiles = dict.fromkeys(one.tile for variant in tuned for one in winners[variant.name])
    tiles |= dict.fromkeys(
        str(tile)
        for variant in tiled
        if variant not in tuned and variant.tiles
        for tile in variant.tiles.defaults
    )

    with_axes = [variant for variant in tiled if variant.tiles and variant.tiles.axes]

    def wanted(point: Point) -> bool:
        of_dtype = [w for w in winners[point.variant.name] if w.dtype == point.problem.dtype]
        if point.tile is None or point.variant not in tuned or not of_dtype:
            defaults = point.variant.tiles.defaults if point.variant.tiles else (None,)
            return point.tile in defaults
        return str(point.tile) == min(of_dtype, key=lambda one: one.distance(point)).tile

    return replace(sweep, tiles=tuple(tiles)), wanted, tuple(_notes(with_axes, winners))


def _notes(variants: Iterable[Variant], winners: dict[str, list[Winner]]) -> Iterable[str]:
    for variant in variants:
        if not winners[variant.name]:
            yield f"{variant.name} was not tuned on this device: its default tiles"
        elif {one.source_hash for one in winners[variant.name]} != {source_hash(variant)}:
            yield f"{variant.name} has changed since it was tuned: 'gpubench tune' again"
