"""Defines the types of another project's problem as plain data."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from gpubench.rewording import reworded

MAX_FILE_BYTES = 2**24
MAX_WORKLOADS = 1000
ALIGNMENT = 256  # alignment of each tensor in the bytes of a launch

Line = TypeVar("Line")


class Tolerance(msgspec.Struct, frozen=True):
    """The limits of the errors in a result.

    An element is right if |error| ≤ absolute + relative·|right|.
    """

    absolute: float = 1e-2
    relative: float = 1e-2
    share: float = 1.0
    """Fraction of the elements that must be right."""

    cap: float | None = None  # maximum error of any element

    def __str__(self) -> str:
        """Return a text such as `|error| ≤ 0.01 + 0.01·|right| for 99 % of the elements`."""
        are_equal = self.absolute == self.relative == 0
        limit = f"|error| ≤ {self.absolute:g} + {self.relative:g}·|right|"
        parts = ["they are equal" if are_equal else limit]
        parts += [f"for {100 * self.share:g} % of the elements"] if self.share < 1 else []
        parts += [f"and nowhere above {self.cap:g}"] if self.cap is not None else []
        return " ".join(parts)


class Workload(msgspec.Struct, frozen=True):
    """A set of extents and inputs on which a solution is judged."""

    name: str
    tolerance: Tolerance | None = None
    """The tolerance of the results. None if only a run of the problem's own check shows this
    tolerance."""


class Statement(msgspec.Struct, frozen=True):
    """A problem of another project, with its workloads."""

    form: str
    path: str  # the problem's file
    name: str
    workloads: tuple[Workload, ...]
    sources: tuple[str, ...] = ()  # further files with code or inputs of the problem


class Part(msgspec.Struct, frozen=True):
    """The place and the type of a tensor in the bytes of a launch."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str  # name of the element type in torch
    offset: int
    leaf: int
    """The tensor's index among the inputs, or among the results that the reference returns. The
    index is -1 for a result that the reference does not return."""

    output: int = -1
    """Index of the output that has the memory of this input. The index is -1 if no output has this
    memory."""

    is_read: bool = True  # whether the reference reads this input, if an output has its memory
    is_arranged: bool = False  # whether the values of this input may be moved (`arrange.py`)


class Facts(msgspec.Struct, frozen=True):
    """Facts about a workload, from a run of the reference."""

    inputs: tuple[Part, ...]
    outputs: tuple[Part, ...]
    input_bytes: int
    output_bytes: int
    flops: int
    tolerances: tuple[Tolerance, ...]  # one for each output
    is_wide: bool = False  # whether the reference's float64 results are the right results
    waits: bool = False  # whether the reference waits for the GPU


class Program(Protocol):
    """Interface to the code of a problem, in a process that has torch."""

    ENTRY: str  # the name that a solution's Python file must define, such as `function run`

    @property
    def other_types(self) -> Collection[str] | None:
        """Element types that a solution's result may have beside the reference's type.

        None if the problem's own check accepts every type.
        """

    def inputs(self, number: int, seed: int) -> Sequence[Any]:
        """Return the arguments of a workload, with random values that depend on the seed."""

    def reference(self, arguments: Sequence[Any]) -> Any:
        """Return the result for the arguments, whose floating-point values may be float64."""

    def tolerances(self, arguments: Any, result: Sequence[Any], /) -> Sequence[Tolerance]:
        """Return the tolerance of each result, for a problem whose statement has no tolerances."""

    def solution(self, module: Any) -> Any:
        """Return the function in a module that takes the reference's arguments, or None."""


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises ValueError for a file that is too large or is not UTF-8, and OSError for a file that
    cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"the file has more than {MAX_FILE_BYTES:,} bytes")
    return content.decode("utf-8-sig")  # Windows may write a byte order mark


def read_lines(path: Path, kind: type[Line], key: str = "") -> list[Line]:
    """Return the objects of type `kind` that the lines of a file of JSON contain.

    If `key` is not empty, each line has the object in the field `key`. Raises ValueError, which
    names the file and the line, or OSError.
    """
    lines = [each for each in enumerate(read_text(path).split("\n"), 1) if each[1].strip()]
    made = list[Line]()
    for number, line in lines[:MAX_WORKLOADS]:
        try:
            fields = msgspec.json.decode(line, type=dict[str, Any])
            made.append(msgspec.convert(fields.get(key) if key else fields, kind))
        except (ValueError, msgspec.MsgspecError) as error:
            raise ValueError(f"{path.name}, line {number}{reworded(error)}") from error
    return made
