"""How much do figures move by themselves? Two sweeps of one build, compared point by point.

    gpubench sweep --sizes 256,1024,2048 --tiles 1..32 --rounds 3 -o first.csv
    gpubench sweep --sizes 256,1024,2048 --tiles 1..32 --rounds 3 -o second.csv
    python benchmarks/repeatability.py first.csv second.csv

Prints the median difference, the share of points from 10 µs on that differ by less than 1 %, and
the points that differ most. Exits 1 if the median is over 0.3 % or the share under 99 %.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from gpubench.row import Row, read

FROM_US = 10.0
SMALL = 0.01
MEDIAN_BOUND = 0.003
SHARE_BOUND = 0.99


def differences(first: Path, second: Path) -> list[tuple[float, Row]]:
    """(|difference| relative to the first, its row) of every point both files timed."""
    others = {row.key: row for row in read(second)}
    return [
        (abs(others[row.key].median_us - row.median_us) / row.median_us, row)
        for row in read(first)
        if row.median_us and row.key in others and others[row.key].median_us
    ]


def main(first: str, second: str) -> int:
    moved = differences(Path(first), Path(second))
    median = statistics.median(share for share, _ in moved)
    long = [share for share, row in moved if row.median_us >= FROM_US]
    close = sum(share < SMALL for share in long) / len(long)
    print(f"{len(moved)} points; median difference {100 * median:.3f} %")
    print(f"{len(long)} points from {FROM_US:g} µs on; {100 * close:.1f} % differ by less than 1 %")
    print("\nfurthest apart:")
    for share, row in sorted(moved, key=lambda pair: -pair[0])[:10]:
        print(f"  {100 * share:6.2f} %  {row.label}  {row.median_us:.2f} µs")
    return 0 if median <= MEDIAN_BOUND and close >= SHARE_BOUND else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
