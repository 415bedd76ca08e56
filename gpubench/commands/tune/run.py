"""`gpubench tune`: race the configurations, confirm the winner, keep it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import gpubench
from gpubench.commands.tune.prune import Builds
from gpubench.commands.tune.schedule import Races, entrants, visits_of
from gpubench.commands.tune.where import Condition
from gpubench.engine.executor import Executor
from gpubench.engine.session import Outcome, Watcher, default_place, run
from gpubench.errors import UsageError
from gpubench.model import Config, Point, PointKey, Space, Status, Variant
from gpubench.options import OPTIONS, read_sweep
from gpubench.plan.descriptor import described_by
from gpubench.plan.ranges import parse_fraction
from gpubench.plan.registry import choose, variants
from gpubench.plan.schedule import Schedule
from gpubench.plan.sweep import Sweep
from gpubench.plan.tuned import Winner
from gpubench.results.result_file import ResultFile, tiles_in
from gpubench.results.row import Row

WITHIN = "1%"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is tuned: a sweep without tiles, and what is said about them."""

    sweep: Sweep
    where: str | None
    within: float

    def space(self, variant: Variant) -> Space:
        """The variant's space, as far as `--where` leaves it. Raises UsageError without tiles."""
        if variant.tiles is None:
            raise UsageError(f"{variant.name} has no tile to choose")
        if self.where is None:
            return variant.tiles
        fulfils = Condition(self.where, variant.tiles.axes, variant.name)
        own = variant.tiles.constraint

        def constraint(config: Config) -> str | None:
            return (own(config) if own else None) or (None if fulfils(config) else "not --where")

        return replace(variant.tiles, constraint=constraint)


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What came of it."""

    race: Outcome
    endings: dict[PointKey, str]
    """Why each race ended, under its points' key without a tile."""

    confirmed: Outcome | None
    """None: the race was interrupted, or nothing was timed."""

    winners: list[Winner]


def read_settings(given: Mapping[str, Any]) -> Settings:
    """The options of a sweep, `where` and `within`. Raises UsageError."""
    options = {name: value for name, value in given.items() if value is not None}
    within = options.pop("within", WITHIN)
    where = options.pop("where", None)
    sweep = read_sweep(options)
    if not sweep.variants:
        raise UsageError("name a variant, such as shared_tile; 'gpubench variants' lists them")
    fraction = parse_fraction(within, "--within", low=0.0001, high=0.5)
    own = {"within": str(within)} | ({"where": where} if where else {})
    return Settings(
        sweep=replace(sweep, options={**sweep.options, **own}), where=where, within=fraction
    )


def tune(
    settings: Settings,
    executor: Executor,
    watcher: Watcher,
    *,
    output: Path | None,
    resume: bool = False,
    force: bool = False,
) -> Tuned:
    """Race, and confirm in fresh processes; into `output` and `confirmed_path(output)`.

    Raises UsageError for what cannot be tuned, before anything is measured.
    """
    sweep, device = settings.sweep, executor.device
    tuned = choose(sweep.op, device.backend, sweep.variants, sweep.kernels)
    spaces = {variant: settings.space(variant) for variant in tuned}
    tiles: dict[Variant, frozenset[Config]] = {}
    for variant, space in spaces.items():
        with described_by(variant.path):
            raced = list(entrants(space, sweep.seed)[0])
            if resume and output:
                raced += map(space.read, tiles_in(output, variant.name))
        if not raced:
            raise UsageError(f"--where: no configuration of {variant.name} fulfils it")
        tiles[variant] = frozenset(raced)
    file = ResultFile(output, resume=resume, overwrite=force) if output else None
    again = ResultFile(confirmed_path(output), overwrite=force) if output else None
    if again and again.path.exists() and not force:
        raise UsageError(f"--output: {again.path} exists; --force overwrites it")
    texts = dict.fromkeys(str(tile) for raced in tiles.values() for tile in raced)
    schedules: list[Races] = []

    def schedule(points: list[Point]) -> Schedule:
        schedules.append(
            Races(
                points,
                spaces,
                builds,
                within=settings.within,
                budget_s=sweep.timing.budget_s,
                seed=sweep.seed,
                refuse=lambda point: point.variant.why_not(
                    point.tile, point.problem, device.compute_capability
                ),
            )
        )
        return schedules[0]

    with Builds(device) as builds:
        race = run(
            replace(sweep, tiles=tuple(texts), timing=visits_of(sweep.timing)),
            executor,
            watcher,
            file,
            wanted=lambda point: point.tile in tiles[point.variant],
            schedule=schedule,
        )
    endings = {of.key: why for of, why in schedules[0].endings.items()}
    if race.interrupted or not race.timed:
        return Tuned(race=race, endings=endings, confirmed=None, winners=[])
    executor.next_round()
    chosen = [pick for group in groups(race.rows) for pick in picks(group, spaces)]
    confirmed = _confirm(settings, tuned, chosen, executor, watcher, again)
    winners = [
        winner
        for of_race in races(race.rows)
        if (winner := _winner(of_race, confirmed.rows, settings.within, spaces))
    ]
    return Tuned(race=race, endings=endings, confirmed=confirmed, winners=winners)


def default_path(sweep: Sweep, device: str) -> Path:
    """`results/<utc time>-<device>-<op>-tune.csv`."""
    return default_place(device, f"{sweep.op}-tune.csv")


def confirmed_path(path: Path) -> Path:
    """`NAME.confirmed.csv` for `NAME.csv`."""
    return path.with_name(f"{path.name.removesuffix('.csv')}.confirmed.csv")


def races(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each race: of a variant and problem."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        found.setdefault((row.problem_key, row.variant), []).append(row)
    return list(found.values())


def groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Of each race what is left, the fastest first: not shown to be slower than the best."""
    left = ([row for row in race if row.status == Status.OK] for race in races(rows))
    return [sorted(group, key=lambda row: row.median_us or 0.0) for group in left if group]


def picks(group: Sequence[Row], spaces: Mapping[Variant, Space]) -> list[Row]:
    """The fastest of a group, and the simplest if that is another."""
    space = next(space for variant, space in spaces.items() if variant.name == group[0].variant)

    def elaborate(row: Row) -> int:
        config = space.read(row.tile)
        return sum(list(axis).index(config[name]) for name, axis in space.axes.items())

    simplest = min(group, key=elaborate)
    return [group[0], *([simplest] if simplest is not group[0] else [])]


def _confirm(
    settings: Settings,
    chosen_from: Sequence[Variant],
    chosen: Sequence[Row],
    executor: Executor,
    watcher: Watcher,
    file: ResultFile | None,
) -> Outcome:
    """Measure what was chosen beside its library, as `gpubench sweep` with these options would."""
    sweep = settings.sweep
    baselines = {variant.baseline for variant in chosen_from} - {""}
    libraries = [
        library.name
        for library in variants()
        if (library.op, library.backend) == (sweep.op, executor.device.backend)
        and baselines & {library.name, library.tunes}
        and set(library.dtypes) & set(sweep.dtypes)
    ]
    options = {name: text for name, text in sweep.options.items() if name in OPTIONS} | {
        "variants": ",".join(dict.fromkeys((*(row.variant for row in chosen), *libraries))),
        "tiles": ",".join(dict.fromkeys(row.tile for row in chosen)),
        "sizes": ",".join(dict.fromkeys(row.size for row in chosen)),
    }
    options.pop("budget", None)
    keys = {row.key for row in chosen}
    return run(
        read_sweep(options),
        executor,
        watcher,
        file,
        wanted=lambda point: (
            point.key in keys
            or (point.variant.name in libraries and point.problem.dtype in point.variant.dtypes)
        ),
    )


def _winner(
    race: Sequence[Row],
    confirmed: Sequence[Row],
    within: float,
    spaces: Mapping[Variant, Space],
) -> Winner | None:
    """The faster of what was confirmed; None where neither was timed."""
    found = groups(race)
    if not found:
        return None
    (group,) = found
    chosen = picks(group, spaces)
    keys = {row.key for row in chosen}
    timed = [row for row in confirmed if row.key in keys and row.median_us]
    if not timed:
        return None
    best = min(timed, key=lambda row: row.median_us or 0.0)
    return Winner(
        device=best.device or "",
        op=best.op,
        variant=best.variant,
        dtype=best.compute_mode,
        m=best.m,
        n=best.n,
        k=best.k,
        tile=best.tile,
        simplest=chosen[-1].tile,
        group=len(group),
        configurations=len(race),
        within=within,
        median_us=best.median_us or 0.0,
        percent_of_blas=best.percent_of_blas,
        source_hash=best.source_hash or "",
        gpubench=gpubench.__version__,
        tuned_utc=datetime.now(UTC).isoformat(timespec="seconds"),
    )
