"""Reads and writes the winners of `gpubench tune`, and picks a sweep's tiles from the winners."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import msgspec

from gpubench.errors import UsageError
from gpubench.files import Output, lock
from gpubench.model import PRECISIONS, Config, Device, Problem, Variant, layout_text, size_of
from gpubench.plan.python_file import described_by
from gpubench.plan.registry import choose
from gpubench.plan.sweep import TUNED, Picked, Sweep, tuned_file
from gpubench.plan.toml_file import decode, read_toml
from gpubench.results import tile_table
from gpubench.results.provenance import source_hash
from gpubench.text import clean, shown

WAIT_S = 60.0  # maximum time to wait for other processes that write a file of winners
RETRY_S = 0.05  # time between two attempts to get the lock

HEADING = "# What `gpubench tune` found: `--tiles {}` takes each kernel's tile from here.\n"


class Winner(msgspec.Struct, frozen=True, kw_only=True):
    """The best configuration of a variant for a problem on a device."""

    device: str
    op: str
    variant: str
    dtype: str
    m: int
    n: int
    k: int
    extents: str = ""  # the extents beyond M, N and K, in the form of the CSV's column

    tile: str
    layout: str = ""
    """The layout in the form of the CSV's column. Older files have no layouts. An empty layout
    means the layout of a sweep without `--layouts`."""

    simplest: str
    """The tile whose values come first on their axes, among the tiles that were not shown to be
    slower."""

    group: int  # number of configurations that were not shown to be slower, out of `configurations`
    configurations: int
    within: float  # configurations that are slower by at most this fraction count as equal
    median_us: float  # the confirmed time, measured in fresh processes
    percent_of_blas: float | None = None
    source_hash: str
    gpubench: str
    tuned_utc: str

    @property
    def key(self) -> tuple[object, ...]:
        """The device, variant and problem for which this winner is the best configuration."""
        problem = self.dtype, self.layout, *size_of(self)
        return self.device, self.op, self.variant, *problem

    def distance(self, problem: Problem) -> float:
        """Return the distance to a problem, which is the sum of |log₂(ratio)| over all extents."""
        pairs = zip(size_of(self), problem.numbers, strict=True)
        return sum(abs(math.log2(own / other)) for own, other in pairs)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    winner: list[Winner] = []  # msgspec copies the default


def tiles_of(path: Path) -> str:
    """Return the value of `--tiles` that selects the winners in a file."""
    return "tuned" if path == TUNED else str(path)


def read_winners(path: Path, flag: str = "--tiles") -> list[Winner]:
    """Read the winners of a TOML file or a table. Raises UsageError for an invalid file."""
    is_table = path.suffix == ".csv"
    if not os.path.lexists(path):
        what = f"--table {shown(str(path))}" if is_table else "VARIANT"
        raise UsageError(f"--tiles: {path} does not exist; 'gpubench tune {what}' writes it")
    if is_table:
        return _winners_of_table(path)
    winners = decode(read_toml(path, flag), _File, f"{flag}: {path}").winner
    if any(min(winner.m, winner.n, winner.k) <= 0 for winner in winners):
        raise UsageError(f"{flag}: {path}: m, n and k of a winner must be positive")
    layouts = {name: layout_text(each.column_major) for name, each in PRECISIONS.items()}
    return [
        msgspec.structs.replace(winner, layout=winner.layout or layouts.get(winner.dtype, ""))
        for winner in winners
    ]


def _winners_of_table(path: Path) -> list[Winner]:
    """Read a table that `gpubench tune --table` wrote, and return its choices as winners."""
    try:
        rows = tile_table.read(path)
    except UsageError as error:
        raise UsageError(f"--tiles: {error}") from error
    shared = [name for name in Winner.__struct_fields__ if name in tile_table.NAMES]
    return [
        Winner(
            **{name: getattr(row, name) for name in shared},
            simplest=row.tile,
            group=row.ties or 1,
            within=0.0,
            tuned_utc=row.started_utc or "",
        )
        for row in rows
    ]


def keep_winners(path: Path, new: Iterable[Winner]) -> None:
    """Put winners into a file, where they replace older winners of the same problems.

    Concurrent calls wait for each other, so no winner is lost. Raises UsageError for a file with
    other contents, and if the file cannot be written.
    """
    first: dict[tuple[object, ...], Winner] = {}
    for winner in new:
        first.setdefault(winner.key, winner)  # cold and hot have the same key; cold comes first
    with _only_writer(path.parent):
        old = read_winners(path) if path.exists() else []
        winners = {winner.key: winner for winner in old} | first
        tables = "".join(map(_table, winners.values()))
        text = HEADING.format(clean(tiles_of(path))) + tables
        Output(path, overwrite=True, flag="--winners").write(text.encode())


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Hold a folder's lock. After `WAIT_S`, continue, because the file has its own lock."""
    ends_s = monotonic() + WAIT_S
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(f"--winners: cannot write to {folder}: {error.strerror}") from error
    try:
        while not lock(descriptor) and monotonic() < ends_s:
            sleep(RETRY_S)
        yield
    finally:
        os.close(descriptor)


def _table(winner: Winner) -> str:
    """Write a winner as a TOML table. TOML writes texts and numbers as JSON does."""
    facts = msgspec.structs.asdict(winner).items()
    texts_by_name = {
        name: json.dumps(value, ensure_ascii=False) for name, value in facts if value is not None
    }
    return "".join(
        ("\n[[winner]]\n", *(f"{name} = {text}\n" for name, text in texts_by_name.items()))
    )


def tuned_tiles(sweep: Sweep, device: Device) -> tuple[Picked | None, Sequence[str]]:
    """Return a function that picks the winners' tiles, and notes for the user.

    Without `--tiles tuned`, the function is None. A variant takes the winner of the problem's size
    and dtype, or else of the nearest size. Winners of the problem's layout are preferred. A variant
    that was not tuned on this device keeps its default tiles. Raises UsageError if no variant was
    tuned.
    """
    path = tuned_file(sweep.tiles)
    if path is None:
        return None, ()
    winners_of_all = read_winners(path)
    every = [winner for winner in winners_of_all if winner.device == device.name]
    if winners_of_all and not every:
        others = ", ".join(dict.fromkeys(shown(winner.device) for winner in winners_of_all))
        raise UsageError(
            f"--tiles: {path} has winners of {others}, not of {shown(device.name)}; "
            "'gpubench tune' finds the tiles of this device"
        )
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
            "'gpubench tune' finds a winner"
        )
    with_axes = [variant for variant in tiled if variant.tiles and variant.tiles.axes]

    def picked(variant: Variant, problem: Problem) -> tuple[Config, ...]:
        of_dtype = [w for w in winners[variant.name] if w.dtype == problem.dtype]
        if not of_dtype or variant.tiles is None:
            return ()
        nearest = min(of_dtype, key=lambda w: (w.layout != problem.layout, w.distance(problem)))
        with described_by(variant.path):
            return (variant.tiles.read(nearest.tile),)

    return picked, tuple(_notes(with_axes, winners))


def _notes(variants: Iterable[Variant], winners: dict[str, list[Winner]]) -> Iterable[str]:
    untuned = [variant.name for variant in variants if not winners[variant.name]]
    if untuned:
        was, its = ("was", "its") if len(untuned) == 1 else ("were", "their")
        yield f"{', '.join(untuned)} {was} not tuned on this device: {its} default tiles are used"
    for variant in variants:
        if winners[variant.name] and {winner.source_hash for winner in winners[variant.name]} != {
            source_hash(variant)
        }:
            yield f"{variant.name} has changed since it was tuned: run 'gpubench tune' again"
