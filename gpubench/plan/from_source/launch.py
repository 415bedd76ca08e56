"""Reads a kernel's template arguments, grid and block from the launch in its source."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpubench.model.expression import evaluate
from gpubench.model.signature import Parameter, split
from gpubench.plan.from_source.source import Function, code, enclosed

ROUNDS = 8  # maximum depth of constants that are defined by constants
LONGEST = 1000  # maximum number of characters of a constant in which the names have been replaced

_CONSTANT = re.compile(
    r"\bconst(?:expr)?\b[^;=(){}<>]*?\b(\w+)\s*(?:=\s*([^;,{}]{1,120})[;,]|\{([^{};]{1,120})\})"
)
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]{1,120})$", re.MULTILINE)
_CAST = re.compile(
    r"static_cast<[^<>]*>|\((?:unsigned|unsignedint|int|float|double|size_t|uint|long)\)"
)
_SUFFIX = re.compile(r"\b(\d+)(?:\.0?)?[uUlLfF]*\b")
_ROUNDS_UP = re.compile(r"\b(?:\w*ceil_?div\w*|div_?ceil\w*|cdiv|div_?up)(?=\()", re.IGNORECASE)
_CEIL = re.compile(r"\b(?:std::)?ceilf?(?=\()")
_SUM_UP = re.compile(r"\(([\w.*]+)\+\(?([\w.*]+)\)?-1\)/\(?([\w.*]+)\)?")
_UP, _DOWN = "§", "÷"  # stand for divisions that round up and down


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """What a launch says. Empty where it could not be read."""

    caller: str = ""
    config: str = ""  # its text between <<< and >>>
    template: Mapping[str, str] = field(default_factory=dict)  # values of the template's parameters
    grid: tuple[str, ...] = ()
    block: tuple[str, ...] = ()  # expressions, as a description has them


def read_launch(
    kernel: Function,
    callers: Iterable[Function],
    arguments: Sequence[Parameter],
    axes: Mapping[str, str],
    text: str,
) -> Dimensions:
    """Return what the first launch of a kernel in its source says.

    `arguments` are the kernel's parameters with what they get, and `axes` the names of the
    template's parameters in a tile. `text` is the source.
    """
    name = kernel.name.rpartition("::")[2]
    launches = ((each, launch) for each in callers for launch in each.launches)
    found = next((pair for pair in launches if pair[1].kernel == name), None)
    if found is None:
        return Dimensions()
    caller, launch = found
    plain = code(text)
    names = dict(_DEFINED.findall(plain)) | _constants(plain) | _constants(launch.before)
    template: dict[str, str] = {}
    symbols: dict[str, str] = {}
    for parameter, given in zip(kernel.template, split(launch.template), strict=False):
        value = _number(_resolved(given, names))
        if given in {"true", "false"}:
            template[parameter.name] = given
        elif parameter.name in axes and value is not None:
            template[parameter.name] = str(value)
            symbols[given] = axes[parameter.name]
    for given, argument in zip(launch.arguments, arguments, strict=False):
        if argument.value.upper() in {"M", "N", "K"}:
            symbols[given] = argument.value.upper()
    known = {*symbols.values()}
    names = {name: value for name, value in names.items() if name not in known} | symbols
    of_grid, of_block, *_ = *split(launch.config), ""
    block = _dimensions(of_block, launch.before, names, known, {})
    parts = dict(zip("xyz", block, strict=False))
    grid = _dimensions(of_grid, launch.before, names, known, parts)
    return Dimensions(
        caller=caller.name, config=launch.config, template=template, grid=grid, block=block
    )


def _constants(text: str) -> dict[str, str]:
    """Return the constants that a text defines, with their values as texts."""
    return {name: value or braced for name, value, braced in _CONSTANT.findall(text)}


def _resolved(text: str, names: Mapping[str, str]) -> str:
    """Return an expression with its names replaced by their values, and those of their values."""
    text = _SUFFIX.sub(r"\1", text)
    for _ in range(ROUNDS):
        before = text
        text = re.sub(r"[A-Za-z_]\w*", lambda name: _value(name[0], names), text)
        if text == before or len(text) > LONGEST:
            break
        text = _SUFFIX.sub(r"\1", text)
    return text


def _value(name: str, names: Mapping[str, str]) -> str:
    value = names.get(name, name).strip()
    return value if re.fullmatch(r"\w*", value) else f"({value})"


def _number(text: str) -> int | None:
    try:
        return evaluate(text.replace("/", "//"), {})
    except ValueError:
        return None


def _dimensions(
    text: str, before: str, names: Mapping[str, str], known: Iterable[str], block: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the parts of a `dim3`, or of the number, that a launch names; () if one is unknown.

    `before` is the code before the launch, which may make the `dim3`.
    """
    made, members = re.match(r"\s*dim3\s*[({]", text), {}
    if variable := re.fullmatch(r"\s*(\w+)\s*", text):
        name = variable[1]
        members = dict(re.findall(rf"\b{name}\.([xyz])\s*=([^;=]+);", before))
        made = re.search(rf"\bdim3\b[^;]*?\b{name}\s*(?:=\s*dim3\s*)?[({{]", before)
    if members:
        text = ", ".join(members.get(axis, "1") for axis in "xyz")
    elif made:
        opening = made.end() - 1
        text, _ = enclosed(made.string, opening, "()" if made[0].endswith("(") else "{}")
    parts = [expression(part, names, known, block) for part in split(text)]
    while len(parts) > 1 and parts[-1] == "1":
        parts.pop()
    return tuple(part for part in parts if part) if all(parts) else ()


def _of_block(part: re.Match[str], block: Mapping[str, str]) -> str:
    value = block.get(part[1], part[0]).replace("//", _DOWN)
    return value if value.isalnum() else f"({value})"


def expression(
    text: str, names: Mapping[str, str], known: Iterable[str], block: Mapping[str, str]
) -> str | None:
    """Return a part of a grid or a block as an expression of a description, or None."""
    text = _CAST.sub("", "".join(text.split()))
    text = re.sub(r"\b\w+\.([xyz])\b", lambda part: _of_block(part, block), text)
    text = re.sub(r"(?<!\w)\((\w+)\)", r"\1", _SUFFIX.sub(r"\1", text))
    while called := _ROUNDS_UP.search(text):
        inside, end = enclosed(text, called.end())
        values = split(inside)
        if len(values) != 2:  # noqa: PLR2004 # a divided by b
            return None
        text = f"{text[: called.start()]}(({values[0]}){_UP}({values[1]})){text[end:]}"
    while called := _CEIL.search(text):
        inside, end = enclosed(text, called.end())
        text = f"{text[: called.start()]}({inside.replace('/', _UP)}){text[end:]}"
    text = _SUM_UP.sub(
        lambda found: f"({found[1]}{_UP}{found[3]})" if found[2] == found[3] else found[0], text
    )
    text = "".join(_resolved(text, names).split())
    text = text.replace("/", _DOWN).replace(_UP, "/").replace(_DOWN, "//")
    text = re.sub(r"(?<!\w)\((\w+)\)", r"\1", text)
    text = re.sub(r"\((\([^()]*\))\)", r"\1", text)
    if text.startswith("(") and enclosed(text, 0)[1] == len(text):
        text = text[1:-1]
    if not re.fullmatch(r"[\w()*/+-]+", text, re.ASCII):
        return None
    try:
        evaluate(text, dict.fromkeys(known, 4096))
    except ValueError:
        return None
    value = _number(text)
    return text if value is None else str(value)
