"""Checks that results have equal bits in all runs, with any number of rows, and with all tiles."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import RenderableType

from gpubench.engine.pool import LocalPool, Pool
from gpubench.engine.prepare import Job
from gpubench.engine.worker import Worker
from gpubench.errors import ChildLostError
from gpubench.grouping import grouped
from gpubench.model import Point, Status
from gpubench.results.row import Row
from gpubench.view.tables import say, table

ROWS = (1, 7, 64, 1024)  # results with these numbers of rows are compared by their first rows
RUNS = 3  # number of launches on the same operands in each process
PROCESSES = 2


@dataclass(kw_only=True)
class Reproducibility:
    """The bits of a kernel's results at a problem, on operands of one seed."""

    row: Row
    results: set[str] = field(default_factory=set)
    """Digests of whole results of launches on equal operands."""

    first_rows: dict[int, set[str]] = field(default_factory=dict)
    """Maps a number of rows to the digests of the first row of results that have this number of
    rows."""

    refused: dict[int, str] = field(default_factory=dict)
    """Maps a number of rows to the reason why there is no result with this number of rows."""

    @property
    def has_equal_runs(self) -> bool:
        """Whether all launches returned the same bits."""
        return len(self.results) == 1

    @property
    def is_batch_invariant(self) -> bool:
        """Whether the first row has the same bits for every number of rows."""
        return len(set().union(*self.first_rows.values())) == 1

    def at(self, rows: int) -> str:
        """Compare the first row of a result with `rows` rows to the first row of the usual result.

        Return `same`, `other`, or why there is no result with `rows` rows, or no usual result.
        """
        if reason := self.refused.get(rows) or self.refused.get(self.row.m):
            return reason
        return "same" if self.first_rows[rows] == self.first_rows[self.row.m] else "other"


def compare_bits(job: Job, pool: Pool, rows: Sequence[Row]) -> list[Reproducibility]:
    """Launch each point with right results several times, and compare the bits of the results."""
    if not isinstance(pool, LocalPool) or not isinstance(worker := pool.executor, Worker):
        say("bits are not compared, which needs one device: leave out --on", err=True)
        return []
    points = [(job.point_of(row.key), row) for row in rows if row.status == Status.OK]
    compared = [(point, Reproducibility(row=row)) for point, row in points if point is not None]
    for _ in range(PROCESSES):
        pool.renew()
        for point, bits in compared:
            _add_bits(bits, point, worker, job.sweep.seed)
    return [bits for _, bits in compared]


def _add_bits(bits: Reproducibility, point: Point, worker: Worker, seed: int) -> None:
    """Launch a point `RUNS` times for each number of rows, and add the bits of the results."""
    own = point.problem.m
    for rows in dict.fromkeys((own, *(ROWS if point.problem.operation.is_by_rows else ()))):
        problem = replace(point.problem, m=rows)
        if point.variant.why_not(point.tile, problem, worker.device.compute_capability):
            bits.refused[rows] = "refused"
            continue
        try:
            digests = worker.row_digests(point, rows, seed, RUNS)
        except ChildLostError:
            bits.refused[rows] = "failed"
            continue
        bits.first_rows.setdefault(rows, set()).update(of_row for of_row, _ in digests)
        if rows == own:
            bits.results.update(of_all for _, of_all in digests)


def as_table(results: Sequence[Reproducibility]) -> RenderableType:
    """Return a table with a line per point.

    A line states whether the bits are equal in all runs, for each number of rows, and for all tiles
    of the kernel.
    """
    texts, rows = ("kernel", "size", "precision"), (f"M = {number}" for number in ROWS)
    grid = table(*texts, f"{RUNS * PROCESSES} runs", *rows, "tiles", left=texts)
    tiles = _equal_tiles(results)
    for each in results:
        names = each.row.kernel, each.row.size, each.row.compute_mode
        runs = "same" if each.has_equal_runs else f"{len(each.results)} results"
        measured = {*each.first_rows, *each.refused}
        of_rows = (each.at(number) if number in measured else "" for number in ROWS)
        grid.add_row(*names, runs, *of_rows, tiles[id(each)])
    return grid


def _equal_tiles(all_results: Sequence[Reproducibility]) -> dict[int, str]:
    """Return for each point whether all tiles of its kernel give the same bits."""
    texts: dict[int, str] = {}
    for tiles in grouped(
        all_results, lambda each: (each.row.variant, each.row.problem_key)
    ).values():
        results = set().union(*(each.results for each in tiles))
        text = "" if len(tiles) == 1 else "same" if len(results) == 1 else f"{len(results)} results"
        texts |= {id(each): text for each in tiles}
    return texts


def as_members(results: Sequence[Reproducibility]) -> list[dict[str, Any]]:
    """Return a JSON object for each point."""
    tiles = _equal_tiles(results)
    return [
        {
            **each.row.key._asdict(),
            "equal_runs": each.has_equal_runs,
            "batch_invariant": each.is_batch_invariant,
            "rows": {str(rows): each.at(rows) for rows in (*each.first_rows, *each.refused)},
            "tiles": tiles[id(each)],
        }
        for each in results
    ]
