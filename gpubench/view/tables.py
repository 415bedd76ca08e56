"""Makes tables for the terminal, Markdown and CSV, and the console that prints tables."""

import io
import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import IO

from rich import box
from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from gpubench.text import clean_lines

PIPED_WIDTH = 160  # width of tables that are not printed to a terminal, in characters

FOLDED_WIDTH, FOLDED_TILE = 18, 40
"""Maximum widths of a column of text and of a column of tiles in a wide table. Columns are folded
to these widths before the table is split."""

Cell = str | int | float | Text | None


@dataclass(kw_only=True, eq=False)
class Table:
    """A table that Rich prints, and that can be written as Markdown or CSV."""

    headings: Sequence[str]
    left: Collection[str] | None = ()
    """Headings of the columns of text, which are left-aligned. If `left` is None, all columns hold
    text. All other columns hold figures."""

    lines: list[tuple[Cell, ...]] = field(default_factory=list)

    def add_row(self, *cells: Cell) -> None:
        """Append a line with these cells to the table."""
        self.lines.append(cells)

    def _grid(
        self, columns: Sequence[int], widths: Sequence[int], max_width: int
    ) -> rich_table.Table:
        """Return a table of Rich with these columns.

        Figures and names of variants are not folded. If the columns fit into `max_width`, text is
        folded only between words.
        """
        spare = max_width - sum(widths[index] + 2 for index in columns) + 2
        text_widths = self._text_widths(columns, widths, spare) if spare >= 0 else {}
        grid = rich_table.Table(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            show_edge=False,
            padding=(0, 1, 0, 0),
            show_header=any(self.headings[index] for index in columns),
        )
        for index in columns:
            name = self.headings[index]
            justify: JustifyMethod = "left" if self._is_text(name) else "right"
            heading = name if self._is_text(name) else _broken(name)
            fixed = not self._is_text(name) or name == "variant"
            kept = widths[index] if name.endswith(_TILE) else None
            grid.add_column(
                heading,
                justify=justify,
                overflow="fold",
                no_wrap=fixed,
                min_width=kept,
                width=text_widths.get(index),
            )
        for line in self.lines:
            cells = (line[index] for index in columns)
            grid.add_row(
                *(cell if isinstance(cell, Text) else Text(_plain(cell)) for cell in cells)
            )
        return grid

    def _text_widths(
        self, columns: Sequence[int], widths: Sequence[int], spare: int
    ) -> dict[int, int]:
        """Return the widths of the columns of text, which share the spare width evenly."""
        needs = dict[int, int]()
        for index in columns:
            if self._is_text(self.headings[index]):
                cells = (self.headings[index], *(_plain(line[index]) for line in self.lines))
                longest = max(cell_len(part) for text in cells for part in text.split("\n"))
                needs[index] = max(0, longest - widths[index])
        text_widths = dict[int, int]()
        for shares, (index, need) in zip(
            range(len(needs), 0, -1), sorted(needs.items(), key=itemgetter(1)), strict=True
        ):
            added = min(need, spare // shares)
            text_widths[index] = widths[index] + added
            spare -= added
        return text_widths

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table. A table that is too wide is split, so no figure is cut."""
        widths = self._widths()
        for place, columns in enumerate(self._split(options.max_width, widths)):
            if place:
                yield Text()
            yield self._grid(columns, widths, options.max_width)

    def _widths(self) -> list[int]:
        """Return the minimum width of each column, which its widest figure or word needs."""
        widths = [
            max(
                cell_len(word)
                for text in (*_broken(name).split("\n"), *map(_plain, cells))
                for word in (text.split(" ") if self._is_text(name) else [text])
            )
            for name, *cells in zip(self.headings, *self.lines, strict=True)
        ]
        for index, name in enumerate(self.headings[1:], 1):
            if self._is_text(name):
                limit = FOLDED_TILE if name.endswith(_TILE) else FOLDED_WIDTH
                widths[index] = min(widths[index], limit)
        return widths

    def _split(self, width: int, widths: Sequence[int]) -> list[list[int]]:
        """Divide the columns into tables of at most this width, each with all columns of text."""
        texts = [index for index, name in enumerate(self.headings) if self._is_text(name)]
        room = width - sum(2 + widths[index] for index in texts)
        tables: list[list[int]] = [[]]
        for index in range(len(widths)):
            if index not in texts:
                used = sum(widths[at] + 2 for at in (*tables[-1], index)) - 2
                if used > room and tables[-1]:
                    tables.append([])
                tables[-1].append(index)
        return [sorted(texts + columns) for columns in tables]

    def markdown(self) -> list[str]:
        """Return the lines of the table in Markdown."""
        lines = [[escaped(_plain(cell).strip()) for cell in line] for line in self.lines]
        rule = ["---" if self._is_text(name) else "---:" for name in self.headings]
        rows = (map(escaped, self.headings), rule, *lines)
        return [f"| {' | '.join(row)} |" for row in rows]

    def _is_text(self, heading: str) -> bool:
        return self.left is None or heading in self.left


def _plain(cell: Cell) -> str:
    return "" if cell is None else str(cell)


def _broken(heading: str) -> str:
    """Break the heading of a column of figures into lines, so that the column is narrow."""
    if "__" in heading:  # a metric of Nsight Compute
        return _PART_OF_METRIC.sub(r"\g<0>\n", heading).replace(", ", "\n")
    return _BREAK.sub("\n", heading, count=1)


def table(*headings: str, left: Collection[str] | None = ()) -> Table:
    """Return an empty table. `left` has the headings of the columns of text, or is None for all."""
    return Table(headings=headings, left=left)


def markdown(parts: Iterable[RenderableType]) -> str:
    """Return the texts and tables as Markdown."""
    lines: list[str] = []
    for part in parts:
        if isinstance(part, Table):
            lines += ["", *part.markdown()]
        elif isinstance(part, Text):
            text = escaped(part.plain.strip())
            lines += ["", f"**{text}**" if part.style == "bold" else text]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).strip()


def escaped(text: str) -> str:
    """Escape a text. Markdown then shows the text unchanged as one line, even in a table's cell."""
    line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return _MENTION.sub(r"\g<0>&#8203;", _MARKDOWN.sub(r"\\\g<0>", line))


_MARKDOWN = re.compile(r"[\\`*{}\[\]|~#]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")
"""Matches characters that have a meaning in Markdown. An underscore within a word has no
meaning."""

_MENTION = re.compile(r"[@#](?=\w)")
"""Matches a character by which GitHub would mention a user or link an issue, even after a
backslash. A space without width after the character prevents this."""


_TILE = "tile"  # end of the headings of tiles, such as `best tile`

_BREAK = re.compile(r"(?<=^% of) |(?<=^×) ")
"""Matches the space at which a heading such as `% of peak` is broken into two lines."""

_PART_OF_METRIC = re.compile(r"\S{8,16}[_.](?=[\w.]{4})")
"""Matches a part of a metric such as `sm__cycles_elapsed.max`. A line may end after the part."""


class _Console(Console):
    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render a text without control characters. Names in files may contain such characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=clean_lines(segment.text))


def console(file: IO[str] | None = None, *, stderr: bool = False) -> Console:
    """Return a Rich console that prints to stdout, stderr or a file.

    If the output is not a terminal, the console uses no colour and wide tables, and does not wrap
    text.
    """
    # Text is shown as it is: a `[k]` in an idea or a `:cd:` in a file name is not markup.
    screen = _Console(
        file=file,
        stderr=stderr,
        force_terminal=None if file is None else False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = PIPED_WIDTH
        screen.soft_wrap = True
    return screen


def plain(parts: Iterable[RenderableType]) -> str:
    """Return the texts and tables as plain text for a file, without colours."""
    text = io.StringIO()
    console(text).print(*parts, sep="\n")
    return text.getvalue().rstrip("\n")


def say(text: str, style: str = "", *, err: bool = False) -> None:
    """Print a line without wrapping it, so that a path or a command can be copied."""
    console(stderr=err).print(Text(text, style=style), soft_wrap=True)
