"""Puts the rows of several CSVs into one: `python benchmarks/join.py WHOLE.csv PART.csv ...`."""

import sys
from pathlib import Path

from gpubench.results.row import read, write

if __name__ == "__main__":
    whole, *parts = map(Path, sys.argv[1:])
    write([row for part in parts for row in read(part)], whole)
