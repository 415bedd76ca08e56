"""Configurations: a kernel's parameters by name, and the combinations a variant can take."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, product
from typing import Any

Value = int | str
"""A parameter's value: a number, or text such as `2x1`."""

Names = tuple[str, ...]

MARKS = {"stages": "s", "splits": "k"}
"""Parameters written with a letter, `/s3` and `/k4`. A value of 1 is left out."""

BLOCK, THREAD = ("BM", "BN", "BK"), ("TM", "TN")
"""Names of the numbers in a text, where no space names them; one number alone is an `edge`."""

_NUMBER = r"0*[1-9]\d{0,8}"
_TEXT = re.compile(
    rf"(?P<block>{_NUMBER}(x{_NUMBER}){{0,2}})(/(?P<thread>{_NUMBER}x{_NUMBER}))?"
    rf"(/s(?P<stages>{_NUMBER}))?(/k(?P<splits>{_NUMBER}))?"
    r"(?P<named>(/[a-z][a-z0-9_]{0,19}=[a-z0-9_]{1,20})*)",
    re.ASCII,
)

FEW = 3
"""So many values are listed one by one; more may be shown as a range."""


class Config(Mapping[str, Any]):
    """A kernel's parameters in order, each an int or a text: `config["BM"]`.

    It prints as users write it. `128x128x8/8x8/s3/cluster=2x1` is a block of 128×128 elements of C
    computed in steps of 8 along K, 8×8 elements a thread, three stages, and one parameter more. The
    names of the numbers in the block and in the thread tile are given by `block` and `thread`.
    """

    __slots__ = ("_block", "_thread", "_values")

    def __init__(
        self, values: Iterable[tuple[str, Value]], block: Names, thread: Names = ()
    ) -> None:
        self._values, self._block, self._thread = dict(values), block, thread

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

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
        return "/".join(filter(None, (*numbers, *marks, *named)))

    def __repr__(self) -> str:
        return f"Config({self})"

    def numbers(self, *names: str) -> tuple[int, ...]:
        """The values of so many parameters: `bm, bn = config.numbers("BM", "BN")`."""
        return tuple(self[name] for name in names)

    @property
    def arguments(self) -> str:
        """The values as template arguments, in order; `2x1` gives two of them."""
        values = (re.sub(r"(?<=\d)x(?=\d)", ", ", str(value)) for value in self.values())
        return ", ".join(values)

    @classmethod
    def parse(cls, text: str, block: Names = (), thread: Names = THREAD) -> Config:
        """Read what `str(config)` wrote; ValueError for anything else.

        `block` and `thread` name the numbers; a block of another length has the usual names.
        """
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
            raise ValueError(f"'{text}' gives a parameter twice")
        return cls(values.items(), block, thread)


@dataclass(frozen=True, kw_only=True, eq=False)
class Space:
    """The configurations a variant can take. Nothing lists them all unless it is iterated."""

    axes: Mapping[str, Sequence[Value]]
    """Each parameter's name and values, a range or a tuple, in the order in which the kernel's
    template takes them."""

    block: Names
    """The parameters written first, `128x128x8`: one to three."""

    thread: Names = ()
    """The two parameters written after the block, `/8x8`. `stages` and `splits` are written `/s3`
    and `/k4`, all others by their names, `/cluster=2x1`."""

    default: tuple[str, ...]
    """What is swept when the user names no tiles, as users write it."""

    constraint: Callable[[Config], str | None] | None = None
    """Why values that their axes have are not legal together, or None if they are."""

    outside: str = ""
    """Why a value is not on its axis, where there is more to say than which values are."""

    def __post_init__(self) -> None:
        for place in (0, -1):
            values = [(name, axis[place]) for name, axis in self.axes.items() if axis]
            config = Config(values, self.block, self.thread)
            if len(config) < len(self.axes) or config != self._parsed(str(config)):
                raise ValueError(
                    f"'{config}' cannot be read as {', '.join(self.axes)}: block names one to "
                    "three axes, thread two or none; other names and texts are lower-case"
                )

    def __iter__(self) -> Iterator[Config]:
        return self._legal(self.axes)

    def count(self) -> int:
        """How many configurations are legal."""
        if self.constraint is None:
            return math.prod(map(len, self.axes.values()))
        return sum(1 for _ in self)

    def sample(self, count: int, seed: int) -> tuple[Config, ...]:
        """So many legal configurations at random, all different; fewer if there are not as many.

        Every legal one is equally likely. Looks at no more combinations than it needs.
        """
        combinations = math.prod(map(len, self.axes.values()))
        rng = random.Random(seed)  # noqa: S311 # a choice, not a secret
        swapped: dict[int, int] = {}  # a shuffle of all combinations, made as far as it is read
        found: list[Config] = []
        for place in range(combinations):
            if len(found) == count:
                break
            drawn = rng.randrange(place, combinations)
            index = swapped.get(drawn, drawn)
            swapped[drawn] = swapped.pop(place, place)
            values = []
            for name, axis in self.axes.items():
                index, step = divmod(index, len(axis))
                values.append((name, axis[step]))
            config = Config(values, self.block, self.thread)
            if self._together(config) is None:
                found.append(config)
        return tuple(found)

    def read(self, text: str) -> Config:
        """The configuration that a user's text means; ValueError if it is not a tile at all.

        Parameters left out are those of the first default, or else of the first legal
        configuration, that has the given ones; if there is none, they stay left out, and `why_not`
        says what is wrong. Where only `/s` and `/k` are left out, they are 1.
        """
        given = self._parsed(text)
        if not set(self.block) <= given.keys() < self.axes.keys():
            return given  # nothing is left out, or it is of another form
        narrowed = {
            name: [value for value in values if value == given.get(name, value)]
            for name, values in self.axes.items()
        }
        candidates = chain(self.defaults, self._legal(narrowed))
        return next((config for config in candidates if given.items() <= config.items()), given)

    @property
    def defaults(self) -> tuple[Config, ...]:
        """What is swept when the user names no tiles."""
        return tuple(map(self._parsed, self.default))

    def why_not(self, config: Config) -> str | None:
        """Why a configuration is not legal, or None if it is."""
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
        """The values of each axis, in words."""
        listed = {name: _listed(values, ", ") for name, values in self.axes.items()}
        return "; ".join(f"{name} {of}".removeprefix("edge ") for name, of in listed.items())

    def _legal(self, axes: Mapping[str, Sequence[Value]]) -> Iterator[Config]:
        for values in product(*axes.values()):
            config = Config(zip(axes, values, strict=True), self.block, self.thread)
            if self._together(config) is None:
                yield config

    def _together(self, config: Config) -> str | None:
        return self.constraint(config) if self.constraint else None

    def _parsed(self, text: str) -> Config:
        """What a text gives, in the order of the axes; `/s` and `/k` of 1 if all else is given."""
        given = Config.parse(text, self.block, self.thread or THREAD)
        left_out = self.axes.keys() - given.keys()
        values = {**given, **dict.fromkeys(left_out, 1)} if left_out <= MARKS.keys() else given
        if values.keys() - self.axes.keys():
            return given
        ordered = ((name, values[name]) for name in self.axes if name in values)
        return Config(ordered, self.block, self.thread)


def edges(low: int, high: int, *, because: str) -> Space:
    """Tiles given by one edge from `low` to `high`; `because` says why not more."""
    return Space(
        axes={"edge": range(low, high + 1)},
        block=("edge",),
        default=tuple(str(edge) for edge in (1, 2, 4, 8, 16, 32) if low <= edge <= high)
        or (str(low),),
        outside=f"takes edges {low} to {high}: {because}",
    )


def _listed(values: Sequence[Value], separator: str) -> str:
    """`1..8` for consecutive numbers, `32..1024:x2` for powers, others one by one."""
    first, last = values[0], values[-1]
    numbers = [value for value in values if isinstance(value, int)]
    if len(numbers) == len(values) > FEW:
        if all(after == before + 1 for before, after in pairwise(numbers)):
            return f"{first}..{last}"
        if all(after == 2 * before for before, after in pairwise(numbers)):
            return f"{first}..{last}:x2"
    return separator.join(map(str, values))
