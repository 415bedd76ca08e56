"""The options of `gpubench diff`, declared once for the command line and the Python function."""

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from gpubench import options as option
from gpubench.plan.ranges import format_of

AB_PAIRS = 26  # default number of pairs of sweeps that `gpubench ab` measures on a GPU
BISECT_PAIRS = 10  # default number of pairs that `gpubench bisect` measures
AB_CPU_PAIRS = 72
"""Default number of pairs of sweeps on a CPU. While other programs run, most sweeps have no
undisturbed sample (results/decisions/ab_shortest.md)."""


class Format(StrEnum):
    """Format of a written comparison."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    JUNIT = "junit"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for comparing two sides, and for showing the result."""

    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT", help="Smallest relative difference that matters. Default: 2%."
        ),
    ] = None
    allow: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="For build files: how much worse a column may get, such as spill_bytes=64.",
        ),
    ] = None
    weights: Annotated[
        Path | None,
        option.files(
            "List of problems, as --sizes takes it, whose weighted total is also judged. A change "
            "of the total by more than a quarter of --threshold matters."
        ),
    ] = None
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Exit 3 if a point is ambiguous or missing, or if the machine shifted."
        ),
    ] = False
    ignore_device: Annotated[
        bool, typer.Option("--ignore-device", help="Compare even if GPU, driver or CUDA differ.")
    ] = False
    only: option.Only = None
    exclude: option.Exclude = None
    format: Annotated[
        Format | None,
        typer.Option(
            metavar=f"[{'|'.join(Format)}]",
            help="Format of the comparison. Default: the format that the name of --output has "
            "(.txt, .md, .json or .xml), or else text.",
        ),
    ] = None
    output: Annotated[
        Path | None, option.output_file("File to write, such as diff.md. The terminal shows text.")
    ] = None
    force: option.Force = False
    full: Annotated[
        bool, typer.Option("--full", help="List every point that is ambiguous, missing or faster.")
    ] = False

    @property
    def chosen_format(self) -> Format:
        """The format of the output: `--format`, or else the format that the file's name has."""
        return self.format or format_of(self.output, Format)


_DECLARED = inspect.signature(Options, eval_str=True).parameters

Command = TypeVar("Command", bound=Callable[..., object])


def diff_options(command: Command, *, names: Collection[str] = tuple(_DECLARED)) -> Command:
    """Replace the parameter `options` of a function by the named options."""
    return option.with_parameters(command, [_DECLARED[name] for name in names])
