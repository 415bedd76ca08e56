"""`CounterRow`, the only definition of the columns of the counters beside a sweep's CSV."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpubench.results.columns import Columns, column
from gpubench.results.row import PointRow

_counter = partial(column, "counter")


@dataclass(frozen=True, kw_only=True, slots=True)
class CounterRow(PointRow):
    """A row of the file: the value of one metric in one kernel of a point's call.

    The fields are the columns of the file, in order.
    """

    started_utc: str | None = _counter("started_utc of the point in the CSV of the sweep")
    kernel: int | None = _counter("number of the kernel among the kernels of the call, from 1")
    function: str | None = _counter("name of the kernel, as Nsight Compute reports it")
    metric: str | None = _counter("metric of Nsight Compute")
    unit: str | None = _counter("unit of the value")
    value: float | None = _counter("value of the metric; empty: Nsight Compute has no number")


_FILE = Columns(CounterRow, ("variant", "kernel", "metric", "value"), "counters of a sweep")
encode, read = _FILE.encode, _FILE.read


def counters_path(results: Path) -> Path:
    """Return the path of the counters beside a CSV: `a.counters.csv` for `a.csv` or `a.csv.gz`."""
    name = results.name.removesuffix(".gz").removesuffix(".csv")
    return results.parent / f"{name}.counters.csv"
