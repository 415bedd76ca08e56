"""Makes gpubench a Python library. Its functions do the work of the commands without a terminal."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from gpubench.commands.diff.options import Options
from gpubench.engine.prepare import prepare
from gpubench.engine.run import Outcome, open_pool, run
from gpubench.errors import UsageError
from gpubench.options import read_sweep, sweep_options
from gpubench.plan.selection import selection
from gpubench.plan.tuned import keep_winners
from gpubench.results import row as table
from gpubench.results.result_file import ResultFile

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@partial(sweep_options, for_python=True)
def sweep(
    *, config: str | Path | None = None, on: str | None = None, **options: Any
) -> pd.DataFrame:
    """Measure like `gpubench sweep`, and return a frame with the CSV's columns and a row per point.

    The arguments are the command's options; `config` is a TOML file with further options. Lists are
    Python lists, or text as on the command line (`"1..32"`). A size is a number, or a tuple (M, N,
    K). Percentages are text (`precision="0.5%"`). A file is written only if `output` names it.
    Raises UsageError for arguments that the command would refuse, and DeviceUnavailableError if the
    device does not exist.

    >>> frame = gpubench.sweep(sizes=[256], tiles=[8, 16], device="cpu")
    """
    settings = read_sweep(options, Path(config) if config else None)
    if settings.samples and not settings.output:
        raise UsageError("--samples: add --output, because samples are written with a results file")
    with open_pool(settings, on) as pool:
        file = ResultFile(settings.output, samples=settings.samples) if settings.output else None
        outcome = run(prepare(settings, pool.device), pool, file=file)
    return _frame(outcome)


@partial(sweep_options, for_python=True, without=("tiles", "samples", "state"))
def tune(
    *,
    where: str | None = None,
    within: str | None = None,
    winners: str | Path | None = None,
    on: str | None = None,
    **options: Any,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tune like `gpubench tune`, and return two frames with the CSV's columns and a row per point.

    The first frame has all configurations. Configurations with status `ok` were not shown to be
    slower than the best. The second frame has the winner and the simplest configuration of each
    race, measured again in new processes, together with the library. `within` is a percentage such
    as `"1%"`. A file of results is written only if `output` names it. Winners are written only into
    the TOML file that `winners` names. Raises UsageError for arguments that the command would
    refuse, and DeviceUnavailableError if the device does not exist.

    >>> ranking, validation = gpubench.tune(variants="cpu_tile", sizes=[256], device="cpu")
    """
    from gpubench.commands.tune.run import read_settings
    from gpubench.commands.tune.run import tune as race_and_confirm

    settings = read_settings({"where": where, "within": within, **options})
    with open_pool(settings.sweep, on) as pool:
        tuned = race_and_confirm(settings, pool, output=settings.sweep.output)
    race = _frame(tuned.race)
    confirmed = _frame(tuned.confirmed) if tuned.confirmed else table.frame([])
    if winners:
        keep_winners(Path(winners), tuned.winners)
    return race, confirmed


def _frame(outcome: Outcome) -> pd.DataFrame:
    """Return the rows of an outcome as a frame, and issue the outcome's notes as warnings.

    Raises KeyboardInterrupt if the outcome was interrupted.
    """
    for note in outcome.job.notes:
        warnings.warn(note, stacklevel=3)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return table.frame(outcome.rows)


def read_csv(path: str | Path) -> pd.DataFrame:
    """Return the frame of a results file. Raises UsageError if a column or a value is invalid.

    >>> frame = gpubench.read_csv("results/h200/sweep.csv")
    """
    return table.frame(table.read(Path(path)))


def plot(
    frame: pd.DataFrame,
    kind: str = "auto",
    *,
    bandwidth_gbytes_per_s: float | None = None,
    only: str | None = None,
    exclude: str | None = None,
) -> Figure:
    """Draw like `gpubench plot`, and return a matplotlib figure, which a notebook shows.

    `kind` is auto, tiles, sizes, blas, roofline or bits. If `frame` concatenates frames of several
    GPUs or versions, the plots are overlaid. If the frame has no measured copy bandwidth, the
    roofline uses `bandwidth_gbytes_per_s`. `only` and `exclude` choose rows as on the command line.
    Raises UsageError for a frame without the CSV's columns, or without the rows that the kind
    needs.

    >>> figure = gpubench.plot(frame, "tiles", only="2048")
    """
    from gpubench.view.pictures.kinds import draw
    from gpubench.view.pictures.series import sources

    rows = table.rows(frame)
    chosen = list(filter(selection(rows, only, exclude), rows))
    return draw(sources([(Path(), chosen)], bandwidth_gbytes_per_s), kind)


Sweeps = str | Path | pd.DataFrame | Sequence[str | Path | pd.DataFrame]
"""Type of one side of a comparison: a result file, a frame, or several sweeps of one build."""


def diff(
    base: Sweeps,
    new: Sweeps,
    *,
    threshold: str | None = None,
    only: str | None = None,
    exclude: str | None = None,
    ignore_device: bool = False,
) -> pd.DataFrame:
    """Compare results like `gpubench diff`, and return a frame with a row per point.

    A side is a file, a frame of `sweep` or `read_csv`, or a list of files and frames, which are
    pooled. The options are the command's options. The columns are the point's key, `verdict`,
    `ratio` with its 99 % interval `ratio_low` and `ratio_high`, `base_median_us`, `new_median_us`
    and `reason`. Raises UsageError for results that cannot be compared.

    >>> slower = gpubench.diff("base.csv", "new.csv").query("verdict == 'slower'")
    >>> findings = gpubench.diff(frame, gpubench.sweep(sizes=[256], tiles=[8, 16]))
    """
    from gpubench.commands.diff.run import compared_sides
    from gpubench.commands.diff.sides import make_side, require_own_measurements

    options = Options(threshold=threshold, only=only, exclude=exclude, ignore_device=ignore_device)
    sides = []
    for name, side in (("base", base), ("new", new)):
        sweeps = [side] if isinstance(side, str | Path | pd.DataFrame) else side
        if not sweeps:
            raise UsageError(f"{name}: the list is empty")
        rows_by_file = {}
        for number, sweep in enumerate(sweeps, 1):
            if isinstance(sweep, pd.DataFrame):
                rows_by_file[Path(f"{name} {number}")] = table.rows(sweep)
            else:
                rows_by_file[Path(sweep)] = table.read(Path(sweep))
        sides.append(make_side(rows_by_file))
    require_own_measurements(*sides)
    report = compared_sides(sides[0], sides[1], options)
    times = ("base_median_us", "new_median_us")
    columns = ("verdict", "ratio", "ratio_low", "ratio_high", *times, "reason")
    values = attrgetter(*columns)
    lines = [(*line.key, *values(line.finding)) for line in report.lines]
    return pd.DataFrame(lines, columns=[*table.KEY, *columns]).astype({"verdict": str})
