"""Describes the functions of a CUDA source for `gpubench check FILE.cu`."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpubench.commands.check.structures import function_on_arrays
from gpubench.errors import UsageError
from gpubench.model import CudaVariant, HostVariant, Variant
from gpubench.model.signature import parameters, why_incomplete
from gpubench.plan.description_text import NO_PRECISION, Description
from gpubench.plan.descriptor import load
from gpubench.plan.from_source.description import describe_file, described_by_default
from gpubench.plan.from_source.files import source_text
from gpubench.plan.other_guesses import alternatives
from gpubench.plan.python_file import is_name

SUFFIXES = (".cu", ".cuh")

ONLY_RESULT = ("C",)
"""Layout in which only the result is column-major. A source that seems to have this layout probably
exchanges the indices of its store, so the result is checked as row-major."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """A function of a source. It has a variant, or a note on why it cannot be checked."""

    function: str
    variant: Variant | None = None
    note: str = ""
    """The parts of the description that are guesses, or the reason why there is no variant."""

    remedy: str = ""
    """What the user can do if there is no variant. Empty: describe the function."""

    others: Iterable["Described"] = ()
    """The function with other guesses. Each description replaces the file of the description before
    it, so check a variant before you take the next."""


def described(source: Path, op: str, folder: Path) -> Iterator[Described]:
    """Yield each function that launches kernels. Without such a function, yield each kernel.

    `folder` must be empty: the descriptions are written into it.

    Raises UsageError for a source that cannot be read or has no kernel.
    """
    try:
        text = source_text(source)
        functions = described_by_default(text)
    except UsageError as error:
        raise UsageError(_without_flag(error)) from error
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from error
    if not functions:
        raise UsageError(f"{source} defines no kernel: no __global__ function")
    for number, function in enumerate(functions):
        if function in functions[number + 1 :]:
            note = "another function of the source has the same name, and is checked instead"
            yield Described(function=function, note=note)
            continue
        name = function.rpartition("::")[2].lower()
        path = folder / f"{name if is_name(name) else 'kernel'}.py"
        try:
            describe = partial(describe_file, source, path.stem, op, function, home=str(folder))
            description = describe()
            on_arrays = folder / f"on_arrays_{number}.cu"
            if description.asked and (
                written := function_on_arrays(source, text, function, on_arrays)
            ):
                wrapper, launcher = written
                describe = partial(describe_file, wrapper, path.stem, op, launcher)
                describe = partial(describe, home=str(folder))
                description = describe()
            if description.asked:
                yield _not_described(function, description)
                continue
            if mixed := re.search(f"{NO_PRECISION}.*", description.text):
                yield Described(function=function, note=mixed[0])
                continue
            variant = _loaded(description, path, op)
            if variant.column_major == ONLY_RESULT:
                description = describe(column_major=())
                variant = _loaded(description, path, op)
            if why := why_incomplete(getattr(variant, "signature", ""), op):
                yield Described(function=function, note=why)
                continue
            others = _others(alternatives(description, describe), path, op, function)
            note = _note(description, variant)
            yield Described(function=function, variant=variant, note=note, others=others)
        except UsageError as error:
            yield Described(function=function, note=_without_flag(error))


def _not_described(function: str, description: Description) -> Described:
    """Return a function with parameters whose meaning is not known, and what to do."""
    if objects := ", ".join(description.objects):
        return Described(
            function=function,
            note=f"an object cannot be passed by value: {objects}",
            remedy=f"add a function of pointers and numbers that launches {function}",
        )
    names = ", ".join(description.asked)
    note = f"the meaning of these parameters is not known: {names}"
    return Described(function=function, note=note)


def _loaded(description: Description, path: Path, op: str) -> Variant:
    path.write_text(description.text, encoding="utf-8")
    return load(path, op)


def _others(
    descriptions: Iterable[tuple[Description, str]], path: Path, op: str, function: str
) -> Iterator[Described]:
    """Yield the function with other guesses."""
    for description, what in descriptions:
        variant = _loaded(description, path, op)
        lines = (f"only right if {what}, so it is checked in this way", _note(description, variant))
        note = "\n".join(filter(None, lines))
        yield Described(function=function, variant=variant, note=note)


def _note(description: Description, variant: Variant) -> str:
    """Return a text on the guesses in a description and on its layout, or an empty text."""
    is_guess = "grid" in description.guesses
    notes = ["grid and block are guesses from the kernel's indices"] if is_guess else []
    if "tiles" in description.guesses and variant.tiles:
        tile = variant.tiles.defaults[0]
        notes.append(f"the values of the template's parameters are guesses: {tile}")
    values = (guess for guess in description.guesses if " = " in guess)
    notes += [f"a guess, because the source sets it when it runs: {value}" for value in values]
    if isinstance(variant, CudaVariant | HostVariant):
        named = [each for each in parameters(variant.signature) if each.name in {*"mnkMNK"}]
        others = [f"{each.name} is {each.value}" for each in named if each.name != each.value]
        notes += [f"extents, according to the kernel's indices: {', '.join(others)}"] * bool(others)
    if description.hint:
        notes.append(f"it may not be a matrix product: {description.hint}")
    if variant.column_major:
        names = ", ".join(variant.column_major)
        notes.append(f"column-major, according to the kernel's indices: {names}")
    return "\n".join(notes)


def _without_flag(error: UsageError) -> str:
    """Return the error's message without the flag of `new-kernel` at its beginning."""
    return re.sub("^--(from|kernel): ", "", str(error))
