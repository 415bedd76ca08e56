"""gpubench as a library: the commands' work without a terminal."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from gpubench import row as table
from gpubench.measure.result_file import ResultFile
from gpubench.measure.session import Watcher, run
from gpubench.measure.tuned import keep_winners, with_tuned_tiles
from gpubench.measure.worker import Worker
from gpubench.options import read_sweep, sweep_options

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@sweep_options
def sweep(*, config: str | Path | None = None, **options: Any) -> pd.DataFrame:
    """Measure like `gpubench sweep`; the frame holds the CSV's columns, one row a point.

    The arguments are the command's options. Lists may be given as on the command line (`"1..32"`)
    or as Python lists. A file is written only if `output` names one. `kernels` is a directory of
    your own variants, whose files are run. Raises UsageError for what the command would refuse,
    and DeviceUnavailableError for a device that is not there.
    """
    settings = read_sweep(options, Path(config) if config else None)
    file = ResultFile(settings.output, samples=settings.samples) if settings.output else None
    with Worker(settings.device, settings.timer) as worker:
        settings, wanted, notes = with_tuned_tiles(settings, worker.device)
        for note in notes:
            warnings.warn(note, stacklevel=2)
        outcome = run(settings, worker, Watcher(), file, wanted=wanted)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return table.frame(outcome.rows)


@partial(sweep_options, without=("tiles", "samples", "state"))
def tune(
    *,
    where: str | None = None,
    within: str | float | None = None,
    winners: str | Path | None = None,
    **options: Any,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tune like `gpubench tune`; two frames of the CSV's columns, a row a point.

    The first has all configurations: those with status `ok` are the group that was not shown to be
    slower than the best. The second has the winner and the simplest of each group, confirmed in
    fresh processes beside the library. Files are written only if `output` names one; winners are
    kept only in a TOML that `winners` names. Raises UsageError for what the command would refuse,
    and DeviceUnavailableError for a device that is not there.
    """
    from gpubench.commands.tune.run import read_settings
    from gpubench.commands.tune.run import tune as race_and_confirm

    settings = read_settings({"where": where, "within": within, **options})
    sweep = settings.sweep
    with Worker(sweep.device, sweep.timer) as worker:
        tuned = race_and_confirm(settings, worker, Watcher(), output=sweep.output)
    if tuned.race.interrupted or (tuned.confirmed and tuned.confirmed.interrupted):
        raise KeyboardInterrupt
    if winners:
        keep_winners(Path(winners), tuned.winners)
    confirmed = tuned.confirmed.rows if tuned.confirmed else []
    return table.frame(tuned.race.rows), table.frame(confirmed)


def read_csv(path: str | Path) -> pd.DataFrame:
    """The frame of a results file. Raises UsageError naming what does not fit."""
    return table.frame(table.read(Path(path)))


def plot(
    frame: pd.DataFrame,
    kind: str = "auto",
    *,
    theme: str = "light",
    bandwidth_gbytes_per_s: float | None = None,
) -> Figure:
    """Draw like `gpubench plot`: a matplotlib figure, which a notebook shows.

    `kind` is auto, tiles, sizes, blas, roofline, speedup; `theme` light, dark or both (grey on no
    page). Frames of several GPUs or versions, concatenated, overlay. `bandwidth_gbytes_per_s` is
    the measured copy bandwidth for the roofline, where the frame does not have it. Raises
    UsageError for a frame without the CSV's columns, or without what the kind needs.
    """
    from gpubench.view.pictures.kinds import draw
    from gpubench.view.pictures.series import sources

    rows = table.rows(frame)
    return draw(sources([(Path(), rows)], bandwidth_gbytes_per_s), kind, theme=theme)
