"""gpubench as a library: the commands' work without a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from gpubench import row as table
from gpubench.measure.executor import Executor
from gpubench.measure.result_file import ResultFile
from gpubench.measure.session import run
from gpubench.measure.worker import Worker
from gpubench.model import Point
from gpubench.plan.config import read_sweep
from gpubench.row import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Items = str | Iterable[str] | Iterable[int]


class Silent:
    """A watcher that shows nothing."""

    def planned(self, executor: Executor, points: int, rounds: int) -> None:
        """Nothing."""

    def compiled(self, built: int) -> None:
        """Nothing."""

    def measuring(self, point: Point, round_number: int, left_s: float) -> None:
        """Nothing."""

    def measured(self, one: Row) -> None:
        """Nothing."""


def sweep(
    *,
    sizes: Items | None = None,
    tiles: Items | None = None,
    variants: Items | None = None,
    dtypes: Items | None = None,
    op: str | None = None,
    device: str | None = None,
    kernels: str | Path | None = None,
    output: str | Path | None = None,
    seed: int | None = None,
    operands: str | None = None,
    rounds: int | None = None,
    precision: float | None = None,
    cache: str | None = None,
    scope: str | None = None,
    timer: str | None = None,
    budget: float | None = None,
    launch_limit: float | None = None,
    point_limit: float | None = None,
    config: str | Path | None = None,
) -> pd.DataFrame:
    """Measure like `gpubench sweep`; the frame holds the CSV's columns, one row a point.

    Lists may be given as on the command line (`"1..32"`) or as Python lists. A file is written only
    if `output` names one. `kernels` is a folder of your own variants, whose files are run. Raises
    UsageError for what the command would refuse, and DeviceUnavailableError for a device that is
    not there.
    """
    asked = read_sweep(
        {
            "sizes": _listed(sizes),
            "tiles": _listed(tiles),
            "variants": _listed(variants),
            "dtypes": _listed(dtypes),
            "op": op,
            "device": device,
            "kernels": kernels,
            "seed": seed,
            "operands": operands,
            "rounds": rounds,
            "precision": precision,
            "cache": cache,
            "scope": scope,
            "timer": timer,
            "budget": budget,
            "launch_limit": launch_limit,
            "point_limit": point_limit,
        },
        Path(config) if config else None,
    )
    file = ResultFile(Path(output)) if output else None
    with Worker(asked.device, asked.timer) as worker:
        outcome = run(asked, worker, Silent(), file)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return table.frame(outcome.rows)


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
    the measured copy bandwidth for the roofline, where the frame does not say. Raises UsageError
    for a frame without the CSV's columns, or without what the kind needs.
    """
    from gpubench.view.pictures.kinds import draw
    from gpubench.view.pictures.series import sources

    rows = table.rows(frame)
    return draw(sources([(Path(), rows)], bandwidth_gbytes_per_s), kind, theme=theme)


def _listed(items: Items | None) -> str | None:
    if items is None or isinstance(items, str):
        return items
    return ",".join(map(str, items))
