"""Words the messages of msgspec about invalid values plainly."""

import re

import msgspec

NOT_BLANK = r"\S"  # pattern of a text that is not blank

_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}
"""The name of each of msgspec's types in a message."""

_BOUNDS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}
_EXPECTED = re.compile(
    r"Expected `(?P<types>[\w| ]+)`(?: (?P<bound>[<>]=?) (?P<limit>\S+)| (?P<more>.+?))?"
    r"(?:, got `(?P<type>\w+)`)?"
)
_WORDS = (
    (re.compile(r"Object contains unknown field `(.*)`"), r"unknown key '\1'"),
    (re.compile(r"Object missing required field `(.*)`"), r"the key '\1' is missing"),
    (re.compile(r"Invalid enum value '(.*)'"), r"unknown value '\1'"),
)


def reworded(error: Exception) -> str:
    """Return msgspec's message about a value in plain words, after the place of the value.

    For example, "Expected `int` >= 1 - at `$.steps[0].by`" becomes ": steps 1: by: must be a whole
    number of at least 1", which follows the name of the file. Any other error's
    text is returned as it is, after a colon.
    """
    if not isinstance(error, msgspec.ValidationError):
        return f": {error}"
    message = " ".join(str(error).split())
    what, _, path = message.partition(" - at `$")
    parts = re.findall(r"[^.\[\]`]+|\[\d+\]", path)
    places = [f" {int(part[1:-1]) + 1}" if part[0] == "[" else f": {part}" for part in parts]
    for pattern, words in _WORDS:
        what = pattern.sub(words, what)
    if match := _EXPECTED.fullmatch(what):
        names = match["types"].split(" | ")
        if "float" in names and "int" in names:
            names.remove("int")
        what = f"must be {' or '.join(_TYPES.get(name, name) for name in names)}"
        if match["bound"]:
            what += f" {_BOUNDS[match['bound']]} {match['limit']}"
        elif match["more"]:
            more = match["more"].replace("of length >= 1", "that is not empty")
            what += f" {more.replace(f'matching regex {NOT_BLANK!r}', 'that is not blank')}"
        if match["type"]:
            what += f", not {_TYPES.get(match['type'], match['type'])}"
    return "".join([*places, f": {what}"])
