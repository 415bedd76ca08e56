"""How well do times repeat? Compares two sweeps of one build point by point.

    gpubench sweep --sizes 256,1024,2048 --tiles 1..32 --rounds 3 -o first.csv
    gpubench sweep --sizes 256,1024,2048 --tiles 1..32 --rounds 3 -o second.csv
    python benchmarks/repeatability.py first.csv second.csv

Prints the median difference, the percentage of points of 10 µs or more that differ by less than
1 %, and the points that differ most. Exits 1 if the median is over 0.3 % or the percentage under
99.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from gpubench.row import Row, read

LONG_US = 10.0
SMALL = 0.01
MAX_MEDIAN = 0.003
MIN_CLOSE = 0.99


def differences(first: Path, second: Path) -> list[tuple[float, Row]]:
    """(|difference| relative to the first, its row) of every point that both files timed."""
    again = {row.key: row for row in read(second)}
    return [
        (abs(again[row.key].median_us - row.median_us) / row.median_us, row)
        for row in read(first)
        if row.median_us and row.key in again and again[row.key].median_us
    ]


def main(first: str, second: str) -> int:
    compared = differences(Path(first), Path(second))
    median = statistics.median(difference for difference, _ in compared)
    long = [difference for difference, row in compared if row.median_us >= LONG_US]
    close = sum(difference < SMALL for difference in long) / len(long)
    print(f"{len(compared)} points; median difference {100 * median:.3f} %")
    print(f"{len(long)} points from {LONG_US:g} µs on; {100 * close:.1f} % differ by less than 1 %")
    print("\nlargest differences:")
    for difference, row in sorted(compared, key=lambda pair: -pair[0])[:10]:
        print(f"  {100 * difference:6.2f} %  {row.label}  {row.median_us:.2f} µs")
    return 0 if median <= MAX_MEDIAN and close >= MIN_CLOSE else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
