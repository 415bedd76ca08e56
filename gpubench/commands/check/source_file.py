"""Describes the functions of a CUDA source for `gpubench check FILE.cu`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpubench.errors import UsageError
from gpubench.model import Variant
from gpubench.plan.descriptor import load
from gpubench.plan.from_source.description import describe_file, described_by_default
from gpubench.plan.from_source.files import source_text
from gpubench.plan.python_file import is_name

SUFFIXES = (".cu", ".cuh")


@dataclass(frozen=True, kw_only=True)
class Described:
    """A function of a source: its variant, or why it cannot be checked."""

    function: str
    variant: Variant | None = None
    note: str = ""
    """What is a guess, or why there is no variant."""


def described(source: Path, op: str, folder: Path) -> Iterator[Described]:
    """Describe the functions that launch kernels, or else the kernels, in an empty folder.

    Raises UsageError for a source that cannot be read or has no kernel.
    """
    try:
        functions = described_by_default(source_text(source))
    except UsageError as error:
        raise UsageError(_without_flag(error)) from error
    if not functions:
        raise UsageError(f"{source} defines no kernel: no __global__ function")
    for function in functions:
        name = function.rpartition("::")[2].lower()
        path = folder / f"{name if is_name(name) else 'kernel'}.py"
        try:
            description = describe_file(source, path.stem, op, function, home=str(folder))
            if description.asked:
                note = f"its parameters {', '.join(description.asked)} are not known"
                yield Described(function=function, note=note)
                continue
            path.write_text(description.text, encoding="utf-8")
            note = "grid and block are guesses from its indices" * ("grid" in description.guesses)
            yield Described(function=function, variant=load(path, op), note=note)
        except UsageError as error:
            yield Described(function=function, note=_without_flag(error))


def _without_flag(error: UsageError) -> str:
    """Return a message of `new-kernel` without its flag."""
    return re.sub("^--(from|kernel): ", "", str(error))
