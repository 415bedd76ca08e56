"""Defines a kernel's configuration, and the space of configurations that a variant can take."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, product
from typing import Any

Value = int | str
"""Type of a parameter's value, which is a number or a text such as `2x1`."""

Names = tuple[str, ...]

ConfigParts = tuple[tuple[tuple[str, Value], ...], Names, Names]
"""Arguments of `Config` as plain data. They are the parameters with their values, the names of the
block's extents, and the names of the thread tile's extents."""

MARKS = {"stages": "s", "splits": "k"}
"""Maps each parameter that is written as a letter and a number, such as `/s3` or `/k4`, to its
letter. A parameter whose value is 1 is not written."""

BLOCK = ("BM", "BN", "BK")
"""Names of a block's extents if no `Space` names these extents. A single extent is named `edge`."""

THREAD = ("TM", "TN")  # names of the two numbers after the first slash

NO_PARAMETERS = "-"
"""Text for the configuration of a kernel that has no tile parameters."""

_NUMBER = r"0*[1-9]\d{0,8}"
_TEXT = re.compile(
    rf"(?P<block>{_NUMBER}(x{_NUMBER}){{0,2}})(/(?P<thread>{_NUMBER}x{_NUMBER}))?"
    rf"(/s(?P<stages>{_NUMBER}))?(/k(?P<splits>{_NUMBER}))?"
    r"(?P<named>(/[a-z][a-z0-9_]{0,19}=[a-z0-9_]{1,20})*)",
    re.ASCII,
)

MAX_LISTED = 3
"""Maximum number of values that are printed in full. A longer list is printed as a range where
possible."""


class Config(Mapping[str, Any]):
    """Holds a kernel's parameters in order. `config["BM"]` is an int or a text.

    `str` returns the text that users write: `128x128x8/8x8/s3/cluster=2x1` is a block of 128×128
    elements of C in steps of 8 along K, 8×8 elements per thread, three stages, and one more
    parameter. `block` names the numbers before the first slash, and `thread` names the two numbers
    after this slash. `Config()` has no parameters and prints as `-`.
    """

    __slots__ = ("_block", "_thread", "_values")

    def __init__(
        self, values: Iterable[tuple[str, Value]] = (), block: Names = (), thread: Names = ()
    ) -> None:
        self._values, self._block, self._thread = dict(values), block, thread

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __bool__(self) -> bool:
        return True  # a configuration without parameters is true, unlike None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and tuple(self.items()) == tuple(other.items())

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __str__(self) -> str:
        numbers = (
            "x".join(str(self[name]) for name in names if name in self)
            for names in (self._block, self._thread)
        )
        marks = (f"{mark}{self[name]}" for name, mark in MARKS.items() if self.get(name, 1) != 1)
        placed = {*self._block, *self._thread, *MARKS}
        named = (f"{name}={value}" for name, value in self.items() if name not in placed)
        return "/".join(filter(None, (*numbers, *marks, *named))) or NO_PARAMETERS

    def __repr__(self) -> str:
        return f"Config({self})"

    @property
    def parts(self) -> ConfigParts:
        """The arguments with which `Config` makes an equal configuration in any process."""
        return tuple(self.items()), self._block, self._thread

    def numbers(self, *names: str) -> tuple[int, ...]:
        """Return the values of the named parameters, as in `m, n = config.numbers("BM", "BN")`."""
        return tuple(self[name] for name in names)

    @property
    def arguments(self) -> str:
        """The parameters' values as C++ template arguments, in order. `2x1` gives two arguments."""
        values = (re.sub(r"(?<=\d)x(?=\d)", ", ", str(value)) for value in self.values())
        return ", ".join(values)

    @classmethod
    def parse(cls, text: str, block: Names = (), thread: Names = THREAD) -> Config:
        """Parse a text that `str(config)` wrote. Raise ValueError for any other text.

        `block` and `thread` are the names of the numbers in the text. If the text does not have one
        block extent for each name in `block`, the extents get the usual names (`BLOCK`).
        """
        if text == NO_PARAMETERS:
            return cls()
        match = _TEXT.fullmatch(text)
        if not match:
            raise ValueError(f"'{text}' is not a tile; write 16, 128x128x8/8x8/s3 or 16/name=value")
        numbers = match["block"].split("x")
        if len(block) != len(numbers):
            block = BLOCK[: len(numbers)] if len(numbers) > 1 else ("edge",)
        pairs: list[tuple[str, str]] = list(zip(block, numbers, strict=True))
        if match["thread"]:
            pairs += zip(thread, match["thread"].split("x"), strict=True)
        pairs += ((name, match[name]) for name in MARKS if match[name])
        for part in match["named"].split("/")[1:]:
            name, _, value = part.partition("=")
            pairs.append((name, value))
        values = {name: int(value) if value.isdecimal() else value for name, value in pairs}
        if len(values) < len(pairs):
            raise ValueError(f"'{text}' states a parameter twice")
        return cls(values.items(), block, thread)


@dataclass(frozen=True, kw_only=True, eq=False)
class Space:
    """The configurations that a variant can take.

    A configuration is computed only when the space is iterated.

    `Space()` is the space of a kernel without tile parameters. This space has one configuration,
    which is written `-`.
    """

    axes: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    """The values of each parameter, as a range or a tuple. The parameters are in the order of the
    template's parameters."""

    block: Names = ()
    """Names of the one to three parameters that are written first, such as `128x128x8`."""

    thread: Names = ()
    """Names of the two parameters that are written after the block, such as `/8x8`. The parameters
    `stages` and `splits` follow as `/s3` and `/k4`. All further parameters are written with their
    names, such as `/cluster=2x1`."""

    default: tuple[str, ...] = (NO_PARAMETERS,)
    """Texts of the tiles that are swept when the user names no tiles."""

    constraint: Callable[[Config], str | None] | None = None
    """Takes a configuration, and returns why it is not legal, or None if it is legal."""

    outside: str = ""
    """Message about a value that is not on its axis. If this text is empty, the message lists the
    values of the axis."""

    def __post_init__(self) -> None:
        named = {*self.block, *self.thread} <= self.axes.keys()
        for place in (0, -1):
            values = [(name, axis[place]) for name, axis in self.axes.items() if axis]
            config = Config(values, self.block, self.thread)
            if not named or len(config) < len(self.axes) or config != self._parsed(str(config)):
                raise ValueError(
                    f"'{config}' cannot be read as {', '.join(self.axes)}: block names one to "
                    "three axes, thread names two axes or none; other names and texts are "
                    "lower-case"
                )

    def __iter__(self) -> Iterator[Config]:
        return self._legal(self.axes)

    def sample(self, count: int, seed: int) -> tuple[Config, ...]:
        """Return up to `count` different legal configurations, drawn at random.

        Every legal configuration is equally likely. Only the drawn combinations are checked.
        """
        combinations = math.prod(map(len, self.axes.values()))
        rng = random.Random(seed)  # noqa: S311 # a choice, not a secret
        swapped: dict[int, int] = {}  # the swaps of a shuffle of all combinations, as far as needed
        drawn: list[Config] = []
        for place in range(combinations):
            if len(drawn) == count:
                break
            number = rng.randrange(place, combinations)
            index = swapped.get(number, number)
            swapped[number] = swapped.pop(place, place)
            values = []
            for name, axis in self.axes.items():
                index, step = divmod(index, len(axis))
                values.append((name, axis[step]))
            config = Config(values, self.block, self.thread)
            if self._together(config) is None:
                drawn.append(config)
        return tuple(drawn)

    def read(self, text: str) -> Config:
        """Return the configuration that a user's text describes. Raise ValueError for other texts.

        Missing parameters come from the first default or legal configuration that agrees with the
        text. If no configuration agrees, the parameters stay missing, and `why_not` returns the
        reason. A missing `/s` or `/k` is 1.
        """
        config = self._parsed(text)
        if not set(self.block) <= config.keys() < self.axes.keys():
            return config  # no parameter is missing, or the text has another form
        narrowed = {
            name: [value for value in values if value == config.get(name, value)]
            for name, values in self.axes.items()
        }
        candidates = chain(self.defaults, self._legal(narrowed))
        return next((whole for whole in candidates if config.items() <= whole.items()), config)

    @property
    def defaults(self) -> tuple[Config, ...]:
        """The configurations that are swept when the user names no tiles."""
        return tuple(map(self._parsed, self.default))

    def why_not(self, config: Config) -> str | None:
        """Return why a configuration is not legal, or None if it is legal."""
        if not self.axes and len(config):
            return f"has no tile parameters, so it takes '{NO_PARAMETERS}', not {config}"
        if not set(self.block) <= config.keys() <= self.axes.keys():
            numbers = "x".join(self.block) if len(self.block) > 1 else f"a single {self.block[0]}"
            return f"takes {numbers}, such as {self.default[0]}, not {config}"
        for name, values in self.axes.items():
            if config.get(name, values[0]) not in values:
                return self.outside or f"takes {name} {_listed(values, ' or ')}, not {config[name]}"
        whole = ((name, config.get(name, values[0])) for name, values in self.axes.items())
        return self._together(Config(whole, self.block, self.thread))

    @property
    def summary(self) -> str:
        """A text that lists the values of each axis."""
        listed = {name: _listed(values, ", ") for name, values in self.axes.items()}
        return "; ".join(f"{name} {axis}".removeprefix("edge ") for name, axis in listed.items())

    def _legal(self, axes: Mapping[str, Sequence[Value]]) -> Iterator[Config]:
        for values in product(*axes.values()):
            config = Config(zip(axes, values, strict=True), self.block, self.thread)
            if self._together(config) is None:
                yield config

    def _together(self, config: Config) -> str | None:
        return self.constraint(config) if self.constraint else None

    def _parsed(self, text: str) -> Config:
        """Parse a text, and return its parameters in the order of the axes.

        If only `/s` and `/k` are missing, both are 1.
        """
        config = Config.parse(text, self.block, self.thread or THREAD)
        missing = self.axes.keys() - config.keys()
        values = {**config, **dict.fromkeys(missing, 1)} if missing <= MARKS.keys() else config
        if values.keys() - self.axes.keys():
            return config
        ordered = ((name, values[name]) for name in self.axes if name in values)
        return Config(ordered, self.block, self.thread)


def edges(
    low: int, high: int, *, because: str, default: Sequence[int] = (1, 2, 4, 8, 16, 32)
) -> Space:
    """Return a space in which each tile is a single number, an edge from `low` to `high`.

    `because` is the reason for the limits.
    """
    return Space(
        axes={"edge": range(low, high + 1)},
        block=("edge",),
        default=tuple(str(edge) for edge in default if low <= edge <= high) or (str(low),),
        outside=f"takes edges {low} to {high}: {because}",
    )


def _listed(values: Sequence[Value], separator: str) -> str:
    """Write numbers in steps as `1..8` or `8..256:8`, powers as `32..1024:x2`, others in full."""
    first, last = values[0], values[-1]
    numbers = [value for value in values if isinstance(value, int)]
    if len(numbers) == len(values) > MAX_LISTED:
        steps = {after - before for before, after in pairwise(numbers)}
        if len(steps) == 1 and (step := steps.pop()) > 0:
            return f"{first}..{last}" + (f":{step}" if step > 1 else "")
        if all(after == 2 * before for before, after in pairwise(numbers)):
            return f"{first}..{last}:x2"
    return separator.join(map(str, values))
