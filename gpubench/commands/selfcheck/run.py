"""What `gpubench selfcheck` does: times a handful of kernels twice, and judges the differences."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from gpubench.commands.selfcheck.gaps import Gap, judge_gaps, launch_gaps, odd_ones
from gpubench.commands.selfcheck.measure import selfcheck_rows
from gpubench.errors import DeviceUnavailableError
from gpubench.view.progress import progress
from gpubench.view.tables import console, number, table


def run_selfcheck(device: str) -> int:
    """`gpubench selfcheck`: 0 if this machine's figures can be trusted, else 1."""
    try:
        with progress() as watcher:
            rows = selfcheck_rows(device, watcher)
    except DeviceUnavailableError as error:
        raise DeviceUnavailableError(f"selfcheck compares two timers of a GPU: {error}") from error
    gaps = launch_gaps((one.label, one.timer, one.median_us) for one in rows if one.median_us)
    screen = console()
    screen.print(gap_table(gaps))
    verdict = judge_gaps(gaps)
    screen.print(f"\n{verdict.sentence}", markup=False, soft_wrap=True)
    return 0 if verdict.trusted else 1


def gap_table(gaps: Sequence[Gap]) -> Table:
    """Both timers' microseconds and the launch gap, shortest kernel first."""
    odd = odd_ones(gaps)
    grid = table("kernel", "events, µs", "CUPTI, µs", "launch gap, µs", left={"kernel"})
    for gap in gaps:
        grid.add_row(
            gap.label,
            number(gap.events_us, 2),
            number(gap.cupti_us, 2),
            Text(f"{gap.gap_us:.2f}{' !' if gap in odd else '  '}", style="red" * (gap in odd)),
        )
    return grid
