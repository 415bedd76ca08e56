"""The options of `gpubench diff`. Loads the standard library alone, for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Format(StrEnum):
    """How a comparison is written."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    JUNIT = "junit"


@dataclass(frozen=True, kw_only=True)
class Options:
    """As `gpubench diff --help` describes them."""

    base: Sequence[Path]
    against: str | None
    new: Sequence[Path]
    threshold: float
    strict: bool
    ignore_device: bool
    only: str | None
    exclude: str | None
    format: Format
    output: Path | None
    rerun: bool
    full: bool
