"""`gpubench tune`: races configurations, and confirms the winner in new processes."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import gpubench
from gpubench.commands.tune.schedule import Racing, SkipReason, entrants, visits_of
from gpubench.engine.pool import Pool, Watcher
from gpubench.engine.prepare import Job, prepare
from gpubench.engine.run import Outcome, run
from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.model import Config, Device, Space, Status, Variant
from gpubench.options import OPTIONS, read_sweep
from gpubench.plan.python_file import described_by
from gpubench.plan.ranges import parse_fraction, require_ending
from gpubench.plan.registry import choose, variants
from gpubench.plan.schedule import InRounds
from gpubench.plan.sweep import Sweep
from gpubench.plan.tuned import Winner, keep_winners, read_winners
from gpubench.results.result_file import ResultFile, partial_of
from gpubench.results.row import Row
from gpubench.stats.race import MIN_VISITS

WITHIN = "1%"

ENDING = "tune.csv"  # end of the default file's name


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of `gpubench tune`."""

    sweep: Sweep  # a sweep without tiles
    racing: Racing


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The result of `gpubench tune` for all races."""

    race: Outcome
    confirmed: Outcome | None  # None if the race was interrupted, or if nothing was timed
    winners: list[Winner]  # the confirmed winners of the races that were decided

    @property
    def undecided(self) -> bool:
        """Whether some race ended before its configurations could be judged."""
        return any(map(is_undecided, races(self.race.rows)))


def read_settings(values: Mapping[str, Any], *, needs_variant: bool = True) -> Settings:
    """Read the options of a sweep, `where` and `within`. Raises UsageError for invalid options."""
    options = {name: value for name, value in values.items() if value is not None}
    within = options.pop("within", WITHIN)
    where = options.pop("where", None)
    sweep = read_sweep(options)
    if needs_variant and not sweep.variants:
        raise UsageError("name a variant, such as shared_tile; 'gpubench variants' lists them")
    fraction = parse_fraction(within, "--within", low=0.0001, high=0.5)
    own = {"within": str(within)} | ({"where": str(where)} if where else {})
    return Settings(
        sweep=replace(sweep, options={**sweep.options, **own}),
        racing=Racing(
            where=where, within=fraction, overlap=any(each.overlap for each in sweep.launches)
        ),
    )


def check_files(winners: Path, output: Path) -> None:
    """Raise UsageError if the winners cannot be written to `winners`.

    The race must not also write to this file, and the file must hold nothing but winners.
    """
    require_ending("--winners", winners, ".toml")
    names = {"--output": output, "the confirmation": confirmed_path(output)}
    names |= {f"the partial file of {name}": partial_of(path) for name, path in names.items()}
    for name, path in names.items():
        if os.path.realpath(winners) == os.path.realpath(path):
            raise UsageError(f"--winners: {winners} is the file of {name}; name another file")
    if os.path.lexists(winners):
        if winners.is_symlink() or not winners.is_file():
            raise UsageError(f"--winners: {winners} is not a regular file; name another file")
        read_winners(winners, "--winners")


def race_job(settings: Settings, device: Device) -> Job:
    """Return the job of all races. Raises UsageError if a variant cannot be tuned."""
    sweep, racing = settings.sweep, settings.racing
    tiles: dict[Variant, frozenset[Config]] = {}
    for variant in choose(sweep.op, device.backend, sweep.variants, sweep.kernels):
        with described_by(variant.path):
            tiles[variant] = frozenset(entrants(racing.space(variant), sweep.seed)[0])
        if not tiles[variant]:
            raise UsageError(f"--where: no configuration of {variant.name} fulfils this condition")
    texts = dict.fromkeys(str(tile) for raced in tiles.values() for tile in raced)
    return prepare(
        replace(sweep, tiles=tuple(texts), timing=visits_of(sweep.timing)),
        device,
        keep=lambda point: point.tile in tiles[point.variant],
        strategy=racing,
    )


def tune(
    settings: Settings,
    pool: Pool,
    watcher: Watcher | None = None,
    *,
    output: Path | None,
    winners: Path | None = None,
    resume: bool = False,
    force: bool = False,
) -> Tuned:
    """Race the configurations, and confirm the fastest configurations in new processes.

    The race is written to `output`, the confirmation to `confirmed_path(output)`, and the winners
    to `winners`. The measurements of both sweeps are kept until the winners are written, so that
    `resume` can continue either sweep. Raises UsageError if a variant cannot be tuned, before
    anything is measured, and if the winners cannot be written.
    """
    job = race_job(settings, pool.device)
    files = result_files(output, resume=resume, force=force) if output else []
    race_file, confirmation_file = files or (None, None)
    race = run(job, pool, watcher, race_file)
    if race.interrupted:
        return Tuned(race=race, confirmed=None, winners=[])
    confirmed: Outcome | None = None
    chosen: list[Winner] = []
    if race.timed:
        pool.renew()
        raced = races(race.rows)
        spaces = {variant.name: settings.racing.space(variant) for variant in job.hashes}
        picked = [picks(rows, spaces[rows[0].variant]) for rows in raced]
        confirmation = _confirmation(job, settings.sweep, [*chain.from_iterable(picked)])
        confirmed = run(confirmation, pool, watcher, confirmation_file)
        if confirmed.interrupted:
            return Tuned(race=race, confirmed=confirmed, winners=[])
        for rows, of_race in zip(raced, picked, strict=True):
            if winner := _winner(rows, of_race, confirmed.rows, settings.racing.within):
                chosen.append(winner)
    if winners and chosen:
        try:
            keep_winners(winners, chosen)
        except UsageError as error:
            raise UsageError(
                f"{error}; afterwards, --resume {output} writes the winners"
            ) from error
    for file in files:
        file.remove_partial()
    return Tuned(race=race, confirmed=confirmed, winners=chosen)


def result_files(output: Path, *, resume: bool, force: bool) -> list[ResultFile]:
    """Return the files of the race and of the confirmation.

    Raises UsageError if the confirmation would overwrite a file.
    """
    again = confirmed_path(output)
    goes_on = resume and partial_of(again).exists()
    files = [
        ResultFile(output, resume=resume, overwrite=force),
        ResultFile(again, resume=goes_on, overwrite=force),
    ]
    for file in files:
        file.keeps_partial, file.continued_by = True, output
    if not goes_on:
        files[1].claim()
    return files


def confirmed_path(path: Path) -> Path:
    """Return the path of the confirmation, which is `NAME.confirmed.csv` for `NAME.csv`."""
    return path.with_name(f"{path.name.removesuffix('.csv')}.confirmed.csv")


def races(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each race. A race has one variant and one problem."""
    return list(grouped(rows, attrgetter("problem_key", "variant")).values())


def group_of(race: Sequence[Row]) -> list[Row]:
    """Return the rows of a race that are not shown to be slower than the best, sorted by time."""
    left = (row for row in race if row.status == Status.OK)
    return sorted(left, key=lambda row: row.median_us or 0.0)


def is_undecided(race: Sequence[Row]) -> bool:
    """Return whether a race ended before all its remaining configurations could be judged."""
    group = group_of(race)
    if len(group) < 2:  # noqa: PLR2004 # no configuration was compared with another one
        return any(row.reason == SkipReason.BUDGET_ENDED for row in race)
    return any((row.rounds or 0) < MIN_VISITS for row in group)


def picks(race: Sequence[Row], space: Space) -> list[Row]:
    """Return the fastest configuration of a race's group, and the simplest if the two differ.

    If the group was visited too rarely to be judged, return only the fastest configuration.
    """
    group = group_of(race)
    if is_undecided(group):
        return group[:1]

    def elaborate(row: Row) -> int:
        config = space.read(row.tile)
        return sum(list(axis).index(config[name]) for name, axis in space.axes.items())

    simplest = min(group, key=elaborate, default=None)
    return group[:1] + [row for row in group[1:] if row is simplest]


def libraries_beside(kernels: Iterable[Variant], sweep: Sweep) -> list[Variant]:
    """Return the libraries that kernels are compared with, including libraries with tuned calls."""
    baselines = {(kernel.backend, kernel.baseline) for kernel in kernels if kernel.baseline}
    return [
        library
        for library in variants()
        if library.op == sweep.op
        and baselines & {(library.backend, name) for name in (library.name, library.tunes)}
        and set(library.dtypes) & set(sweep.dtypes)
    ]


def _confirmation(race: Job, sweep: Sweep, chosen: Sequence[Row]) -> Job:
    """Return the job that measures the chosen rows and their library as `gpubench sweep` does."""
    libraries = libraries_beside(race.hashes, sweep)
    names = [*(row.variant for row in chosen), *(library.name for library in libraries)]
    sizes = tuple(dict.fromkeys(row.numbers for row in chosen))
    sweep = replace(
        sweep,
        variants=tuple(dict.fromkeys(names)),
        tiles=tuple(dict.fromkeys(row.tile for row in chosen)),
        sizes=sizes,
        problems=tuple(problem for problem in sweep.problems if problem.size in sizes),
        timing=replace(sweep.timing, budget_s=None),
    )
    options = {name: text for name, text in sweep.options.items() if name in OPTIONS} | {
        "variants": ",".join(sweep.variants),
        "tiles": ",".join(sweep.tiles),
    }
    if not sweep.problems:
        options["sizes"] = ",".join(dict.fromkeys(row.size for row in chosen))
    options.pop("budget", None)
    keys = {row.key for row in chosen}
    return prepare(
        replace(sweep, options=options),
        race.device,
        keep=lambda point: (
            point.key in keys
            or (point.variant in libraries and point.problem.dtype in point.variant.dtypes)
        ),
        strategy=InRounds(whole_problems=True),
    )


def _winner(
    race: Sequence[Row], chosen: Sequence[Row], confirmed: Sequence[Row], within: float
) -> Winner | None:
    """Return the fastest confirmed row, or None if the race is undecided or no row has a time."""
    keys = {row.key for row in chosen}
    timed = [row for row in confirmed if row.key in keys and row.median_us]
    if is_undecided(race) or not timed:
        return None
    best = min(timed, key=lambda row: row.median_us or 0.0)
    limit_us = (1 + within) * (best.median_us or 0.0)
    near = {row.key for row in timed if (row.median_us or 0.0) <= limit_us}
    return Winner(
        device=best.device or "",
        dtype=best.compute_mode,
        **{name: getattr(best, name) for name in ("op", "variant", "layout", *"mnk", "tile")},
        extents=best.extents,
        simplest=chosen[-1].tile if chosen[-1].key in near else best.tile,
        group=len(group_of(race)),
        configurations=len(race),
        within=within,
        median_us=best.median_us or 0.0,
        percent_of_blas=best.percent_of_blas,
        source_hash=best.source_hash or "",
        gpubench=gpubench.__version__,
        tuned_utc=datetime.now(UTC).isoformat(timespec="seconds"),
    )
