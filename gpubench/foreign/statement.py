"""The statement of another project's problem, as plain data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

MAX_FILE_BYTES = 2**24
MAX_WORKLOADS = 1000
ALIGNMENT = 256  # alignment of each tensor in the bytes of a launch


class Tolerance(msgspec.Struct, frozen=True):
    """An element is right if |error| ≤ absolute + relative·|right|."""

    absolute: float = 1e-2
    relative: float = 1e-2
    share: float = 1.0
    """Share of the elements that must be right."""

    cap: float | None = None  # the largest error of any element

    def __str__(self) -> str:
        """Write `|error| ≤ 0.01 + 0.01·|right| for 99 % of the elements`."""
        if self.absolute == self.relative == 0:
            return "they are equal"
        parts = [f"|error| ≤ {self.absolute:g} + {self.relative:g}·|right|"]
        parts += [f"for {100 * self.share:g} % of the elements"] if self.share < 1 else []
        parts += [f"and nowhere above {self.cap:g}"] if self.cap is not None else []
        return " ".join(parts)


class Workload(msgspec.Struct, frozen=True):
    """A set of extents and inputs on which a solution is judged."""

    name: str
    tolerance: Tolerance | None = None
    """None if the problem's own check states it when it runs."""


class Statement(msgspec.Struct, frozen=True):
    """A problem."""

    form: str
    path: str  # the file that states it
    name: str
    workloads: tuple[Workload, ...]
    sources: tuple[str, ...] = ()  # further files whose code runs


class Part(msgspec.Struct, frozen=True):
    """A tensor in the bytes of a launch."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str  # as torch names it
    offset: int
    leaf: int
    """The tensor's position among the inputs, or among the reference's results; -1 for neither."""

    output: int = -1
    """Position of the output that takes the place of this input in memory; -1 if there is none."""

    is_read: bool = True  # whether the reference reads this input, if an output takes its place
    is_arranged: bool = False  # whether the values of this input may be moved (`arrange.py`)


class Facts(msgspec.Struct, frozen=True):
    """Facts about a workload that a run of the reference shows."""

    inputs: tuple[Part, ...]
    outputs: tuple[Part, ...]
    input_bytes: int
    output_bytes: int
    flops: int
    tolerances: tuple[Tolerance, ...]  # one for each output
    is_wide: bool = False  # whether the reference runs in float64
    waits: bool = False  # whether the reference waits for the GPU


class Program(Protocol):
    """The code of a problem, in a process that has torch."""

    ENTRY: str  # what a solution's Python file must define, such as `function run`

    def inputs(self, number: int, seed: int) -> Sequence[Any]:
        """Return the arguments of a workload, whose random values a seed determines."""

    def reference(self, arguments: Sequence[Any]) -> Any:
        """Return the result of the arguments. Floating-point values may be float64."""

    def tolerances(self, arguments: Any, result: Sequence[Any], /) -> Sequence[Tolerance]:
        """Return the tolerance of each result, if the statement has none."""

    def solution(self, module: Any) -> Any:
        """Return the function of the same arguments in a solution's module, or None."""


def read_text(path: Path) -> str:
    """Return the text of a file. Raises ValueError or OSError."""
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"the file has more than {MAX_FILE_BYTES:,} bytes")
    return content.decode("utf-8")
