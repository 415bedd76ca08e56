"""The rows that were saved under a name, by the point that they are of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpubench.results.row import Row
from gpubench.view.tables import best_of, title

Saved = tuple[str, Row]
"""When a row was saved, and the row."""

Histories = dict[str, dict[str, list[Saved]]]
"""By a problem's title and by variant and tile: a point's rows, the oldest first."""


def histories(timed: Sequence[Saved], last: int) -> Histories:
    """The points to show: of each problem and variant, the tile that is fastest in the newest."""
    groups: dict[tuple[str, str], list[Saved]] = {}
    for saved in timed:
        groups.setdefault((title(saved[1]), saved[1].variant), []).append(saved)
    found: Histories = {}
    for (heading, variant), of_variant in groups.items():
        newest = of_variant[-1][0]
        best = best_of(row for saved_when, row in of_variant if saved_when == newest)
        history = [saved for saved in of_variant if saved[1].tile == best.tile][-last:]
        found.setdefault(heading, {})[f"{variant} {best.tile}".strip()] = history
    return found


def when(path: Path) -> str:
    """When a file was saved: `2026-11-22 04:25:49.123456`, UTC."""
    day, _, time = path.stem.partition("T")
    return f"{day[:4]}-{day[4:6]}-{day[6:]} {time[:2]}:{time[2:4]}:{time[4:-1]}"
