"""The rows saved under a name, by point."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpubench.grouping import grouped
from gpubench.results.row import Row
from gpubench.view.row_tables import best_of, title

TO_SECONDS = len("2026-11-22 04:25:49")

DIGITS = 8
"""Number of shown digits of a commit or a hash."""

Saved = tuple[str, Row]
"""The time at which a row was saved, and the row."""

Histories = dict[str, dict[str, list[Saved]]]
"""The rows of each point, the oldest first: by a problem's title, and by variant and tile."""


def histories(timed: Sequence[Saved], last: int) -> Histories:
    """Return, for each problem and variant, the tile that is fastest in the newest result."""

    def point(saved: Saved) -> tuple[str, str]:
        unnamed = replace(saved[1], problem=None)  # a list gives the same problem a name
        return title(unnamed), saved[1].variant

    groups = grouped(timed, point)
    points: Histories = {}
    for (heading, _), saves in sorted(groups.items(), key=lambda item: item[1][-1][1].problem_key):
        newest = saves[-1][0]
        best = best_of(row for time, row in saves if time == newest)
        history = [saved for saved in saves if saved[1].tile == best.tile][-last:]
        points.setdefault(heading, {})[best.kernel] = history
    return points


def saved_time(path: Path) -> str:
    """Return when a file was saved: `2026-11-22 04:25:49.123456`, UTC."""
    day, _, time = path.stem.partition("T")
    return f"{day[:4]}-{day[4:6]}-{day[6:]} {time[:2]}:{time[2:4]}:{time[4:-1]}"


def distinct(times: Sequence[str], *lengths: int) -> list[str]:
    """Return the times cut to the first of these lengths at which all differ, or in full."""
    cuts = ([time[:length] for time in times] for length in lengths)
    return next((cut for cut in cuts if len(set(cut)) == len(set(times))), list(times))
