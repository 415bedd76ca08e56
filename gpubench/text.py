"""Formats numbers, cleans and shortens texts, and suggests names for misspelled names."""

import difflib
import re
from collections.abc import Iterable

SHOWN = 60
"""Maximum number of characters of a user's text that a message repeats."""

ALIKE = 0.6
"""Two names are similar if their `difflib` ratio is at least this value. Similar names may be
misspellings."""

MAX_KNOWN = 24
"""Maximum number of known names that a message lists."""

_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufffe\uffff]"
)
"""Matches control characters, line ends, marks that change the direction of writing, lone
surrogates, and characters that XML does not allow."""


def clean(text: str) -> str:
    """Return the text as one line that any terminal, spreadsheet or picture can show.

    Line ends and tabs become blanks. Characters that would move a terminal's cursor or change the
    direction of writing become question marks.
    """
    if text.isprintable():
        return text
    return _UNPRINTABLE.sub(lambda match: " " if match[0].isspace() else "?", text)


def clean_lines(text: str) -> str:
    """Apply `clean` to each line of a text."""
    return "\n".join(map(clean, text.split("\n")))


def shown(text: str) -> str:
    """Return a user's text in the form in which errors quote texts: as one short line."""
    return text.encode("unicode_escape").decode()[:SHOWN]


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
    """Return a message about an unknown name, with a similar known name or with all known names.

    An example is `unknown variant 'shard_tile'; did you mean 'shared_tile'?`.
    """
    names = [*dict.fromkeys(map(shown, names))]  # names may come from a file
    name = shown(name)
    near = did_you_mean(name, names)
    hint = near or f"known: {', '.join(names[:MAX_KNOWN])}"
    more = "" if near or len(names) <= MAX_KNOWN else f" and {len(names) - MAX_KNOWN} more"
    return f"unknown {kind} '{name}'; {hint}{more}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `did you mean 'shared_tile'?` if one of `names` is similar to a name, or else ''."""

    def likeness(other: str) -> float:
        return difflib.SequenceMatcher(None, other, name).ratio()

    near = max(names, key=likeness, default="")  # the first, if names are equally similar
    return f"did you mean '{near}'?" if near and likeness(near) >= ALIKE else ""


def counted(count: int, noun: str) -> str:
    """Return a number followed by a noun, such as `1 point` or `2,048 points`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def digits(value: float, count: int = 3) -> str:
    """Return a number with `count` significant digits, such as `1.31`.

    Large numbers are rounded to whole numbers, such as `1,310`.
    """
    return f"{value:.{count}g}" if value < 10**count - 0.5 else f"{value:,.0f}"
