"""Result files in the forms that other programs read."""

import json
from collections.abc import Callable, Sequence

import gpubench
from gpubench.model import Status
from gpubench.results.row import Row, encode, objects

JSON_FORMAT = 2
"""Version of the form. It increases when a column is removed or changes its meaning."""

USUAL = {"", "row-major", "uniform", "cold", "burst", "kernel", "events", "host"}
"""Values of the key that need not be part of a name."""


def _dumped(value: object) -> bytes:
    return f"{json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)}\n".encode()


def as_json(rows: Sequence[Row]) -> bytes:
    """Return the rows as objects of their columns."""
    document = {"format": JSON_FORMAT, "gpubench": gpubench.__version__, "rows": objects(rows)}
    return _dumped(document)


def as_benchmarks(rows: Sequence[Row]) -> bytes:
    """Return the times for the tool `customSmallerIsBetter` of github-action-benchmark."""
    return _dumped(
        [
            {
                "name": _name(row),
                "unit": "µs",
                "value": row.median_us,
                **({"range": f"± {100 * half:.1f} %"} if (half := row.half_interval) else {}),
                "extra": f"{row.device}, {row.rounds} rounds, gpubench {row.gpubench}",
            }
            for row in rows
            if row.status == Status.OK
        ]
    )


def _name(row: Row) -> str:
    """Name a point by all of its key that is not usual, so that no other point has the name."""
    key = (row.compute_mode, row.layout, row.operands, row.cache, row.state, row.scope, row.timer)
    special = (text for text in key if text not in {*USUAL, row.dtype})
    return ", ".join([f"{row.op} {row.label}", *special])


FORMATS: dict[str, Callable[[Sequence[Row]], bytes]] = {
    "csv": encode,
    "json": as_json,
    "github-action-benchmark": as_benchmarks,
}
"""The function that writes each value of `--to`."""
