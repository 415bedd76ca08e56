"""A TOML table that says what it expected: whatever does not fit is a UsageError with its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpubench.commands.reproduce.experiments import SELECTABLE, Selection
from gpubench.errors import UsageError
from gpubench.plan.ranges import shown
from gpubench.plan.registry import unknown

MAX_TABLES = 10_000
"""In a list; more are a mistake."""

LARGEST_NUMBER = 1e300
"""Neither infinite nor a whole number that no float can hold."""


class TomlTable:
    """A TOML table being read: a key that nobody asks for is a mistake."""

    def __init__(self, values: object, where: str) -> None:
        if not isinstance(values, dict):
            raise UsageError(f"{where}: is a table in TOML, not {shown(str(values))}")
        self.values: dict[str, Any] = values
        self.where = where
        self._asked: set[str] = set()

    def take(self, name: str, default: object = None) -> Any:
        """The value of a key, or the default."""
        self._asked.add(name)
        return self.values.get(name, default)

    def text(self, name: str, default: str | None = None) -> str:
        """A text; it must not be blank where there is no default."""
        value = self.take(name, default)
        if not isinstance(value, str) or (default is None and not value.strip()):
            raise self.refused(name, "must be a text")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        values = self.take(name, [])
        if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
            raise self.refused(name, "must be a list of texts")
        return tuple(values)

    def labels(self, name: str) -> tuple[str, ...]:
        """A label or a list of them; numbers are the text they print as."""
        value = self.take(name, [])
        labels = value if isinstance(value, list) else [value]
        if any(isinstance(one, bool) or not isinstance(one, str | int) for one in labels):
            raise self.refused(name, "must be a label, such as 16 or '320x640x320', or a list")
        return tuple(map(str, labels))

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number."""
        value = self.take(name, default)
        if not is_number(value):
            raise self.refused(name, "must be a number")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false; false if the key is missing."""
        value = self.take(name, False)
        if not isinstance(value, bool):
            raise self.refused(name, "must be true or false")
        return value

    def choice(self, name: str, known: Sequence[str], default: str | None = None) -> str:
        """One of the texts that are known."""
        value = self.text(name, default)
        if value not in known:
            raise UsageError(f"{self.where}: {unknown(name, value, known)}")
        return value

    def facts(self, name: str) -> dict[str, float | str]:
        """A table of numbers and texts."""
        values = self.take(name, {})
        if not isinstance(values, dict) or not all(map(is_fact, values.values())):
            raise self.refused(name, "must be a table of numbers and texts")
        return values

    def selection(self, name: str) -> Selection:
        """What identifies points: see `SELECTABLE`."""
        values = self.take(name, {})
        if not isinstance(values, dict):
            raise self.refused(name, "must be a table, such as { variant = 'naive' }")
        for key, value in values.items():
            if key not in SELECTABLE:
                raise UsageError(f"{self.where}: {name}: {unknown('key', key, SELECTABLE)}")
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise self.refused(name, f"{key} must be a text or a whole number")
        return {key: str(value) for key, value in values.items()}

    def tables(self, name: str) -> list[TomlTable]:
        """A list of tables."""
        values = self.take(name, [])
        if not isinstance(values, list) or len(values) > MAX_TABLES:
            raise self.refused(name, f"must be a list of tables: [[{name}]]")
        return [
            TomlTable(one, f"{self.where}: {name} {number}") for number, one in enumerate(values, 1)
        ]

    def done(self) -> None:
        """Refuse keys that nobody asked for."""
        for name in self.values:
            if name not in self._asked:
                raise UsageError(f"{self.where}: {unknown('key', name, sorted(self._asked))}")

    def refused(self, name: str, must: str) -> UsageError:
        """The error that says what a key must be, or that it is missing."""
        if name not in self.values:
            return UsageError(f"{self.where}: '{name}' is missing; it {must}")
        return UsageError(f"{self.where}: '{name}' {must}")


def is_number(value: object) -> bool:
    """Whether a value of TOML is a finite number."""
    return (
        not isinstance(value, bool)
        and isinstance(value, int | float)
        and abs(value) < LARGEST_NUMBER  # false for NaN, too
    )


def is_fact(value: object) -> bool:
    """Whether a value can stand in a table of facts: a text or a finite number."""
    return isinstance(value, str) or is_number(value)
