"""Writes docs/csv.md from the columns of `gpubench.results.row.Row`; `--check` exits 1 if stale.

`python docs/make_csv_page.py`; any Python from 3.11 on will do, it needs no package.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # the columns beside this page, not installed

from gpubench.results.row import COLUMNS

PAGE = Path(__file__).with_name("csv.md")

HEAD = """\
<!-- Written by docs/make_csv_page.py from gpubench/results/row.py; change the columns there. -->

# The CSV

One row a point: a variant with a tile, at a size, in a dtype. UTF-8, comma separated, a header
line, these columns in this order. Units stand in the names. Numbers are written in full precision.
A value that is missing or does not apply is an empty field, never 0. `text` may hold commas and is
then quoted. It is one line without control characters. A text that begins with `=`, `+`, `-` or `@`
has an apostrophe before it, so that no spreadsheet takes it for a formula; gpubench removes it when
it reads the file.

The columns of the group *key* identify a point: no two rows of a file agree in all of them. Only
rows whose `status` is `ok` have times and rates.

While a sweep runs, its measurements are in `NAME.csv.partial`: a JSON line each, one a point *and
round*, with the time of every sample, on disk before the next one is made. The rows are built from
them at the end, every rate from the merged time. `--samples FILE` keeps the JSON lines:
`pandas.read_json(FILE, lines=True)` reads them, behind a first line with the sweep's settings.

`gpubench.read_csv("NAME.csv")` gives a pandas frame with the types below, and says which line and
column does not fit if one does not. It reads a file that pandas or a spreadsheet has rewritten too:
columns in any order, `1024.0` for 1024, Windows line ends, a byte order mark, semicolons or tabs
for commas (the decimal sign is a point). The key, `status`, `median_us` and `round_medians_us` must
be there: a file without one of them was written by another version, and is refused by its name.
"""

GROUPS = {
    "key": "What was measured",
    "outcome": "How it ended",
    "time": "How long a launch takes",
    "rates": "What follows from the time",
    "why": "What explains it",
    "clocks": "What state the GPU was in",
    "host": "What state the host was in",
    "context": "On what, and when",
}
"""Headings; a group that is not here is headed by its own name."""

TYPES = {"str": "text", "int": "integer", "float": "number"}


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for group, columns in groupby(COLUMNS, key=lambda column: column.metadata["group"]):
        lines = [f"## {group}: {GROUPS[group]}" if group in GROUPS else f"## {group}", ""]
        lines += ["| column | type | meaning |", "| --- | --- | --- |"]
        for column in columns:
            kind = TYPES[str(column.type).removesuffix(" | None")]
            meaning = column.metadata["meaning"].replace("|", r"\|")
            lines.append(f"| `{column.name}` | {kind} | {meaning} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def main() -> int:
    """Write the page, or compare it with what is there."""
    arguments = sys.argv[1:]
    if arguments == ["--check"]:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page():
            return 0
        sys.stderr.write(f"{PAGE} is stale: run python docs/make_csv_page.py\n")
        return 1
    if arguments:
        sys.stderr.write("usage: make_csv_page.py [--check]\n")
        return 2
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
