"""Defines the launch of a kernel, and launches that expressions describe."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpubench.model.config import Config
from gpubench.model.expression import Expression, evaluate
from gpubench.model.problem import Problem
from gpubench.model.tensor_map import TensorMap


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A kernel launch, with its grid in blocks, its block in threads, and dynamic shared memory."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int = 0
    kernel: str = ""
    """The template in the variant's source, or an instance of it with the tile's parameters in
    braces: `naive<{scalar}, {edge}, true>`. Empty means the template with the variant's name."""

    int_arguments: tuple[int, ...] = ()
    """Further int arguments, which the kernel takes after the extents."""

    workspace_bytes: int = 0
    """Number of bytes of device memory to which the kernel gets a pointer, after the output. The
    memory holds garbage at first."""

    tensor_maps: tuple[TensorMap, ...] = ()
    """Tensor maps, which are passed by value after all other arguments, as 128-byte structures."""

    pdl: bool = False
    """Whether the launch is a programmatic dependent launch (compute capability 9.0). The launch
    may then start before the previous launch has ended, so the kernel itself must wait."""

    cluster: tuple[int, int, int] = (1, 1, 1)
    """Extents of a thread block cluster in blocks (compute capability 9.0). The grid's extents are
    multiples of the cluster's extents."""

    next_launches: tuple[Launch, ...] = ()
    """Launches that follow this launch, use the same workspace, and complete the result. All
    launches of a result are timed together."""

    takes_workspace: bool = True
    """Whether the kernel gets the workspace as a pointer, and not only in its tensor maps."""

    note: str = ""
    """What the launch does besides computing, as a text for `notes` in the row."""

    @property
    def sequence(self) -> tuple[Launch, ...]:
        """This launch, followed by its next launches."""
        return (self, *self.next_launches)

    @property
    def main(self) -> Launch:
        """The first launch of the variant's own template.

        Without such a launch, `main` is the first launch of an instance, or else the first launch.
        """
        return min(self.sequence, key=lambda at: (at.kernel != "", "<" not in at.kernel))

    @property
    def blocks(self) -> int:
        """Number of blocks in the grid."""
        return math.prod(self.grid)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The extents x, y and z of the grid and then of the block, as a CUDA launch takes them."""
        return (*(*self.grid, 1, 1)[:3], *(*self.block, 1, 1)[:3])

    @property
    def threads_per_block(self) -> int:
        """Number of threads in a block."""
        return math.prod(self.block)


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """The properties of a GPU that a launch may be fitted to."""

    multiprocessors: int
    threads_per_multiprocessor: int
    """Maximum number of threads that a multiprocessor can hold at the same time."""


@dataclass(frozen=True)
class PlainLaunch:
    """A launch whose grid, block and shared memory are expressions (`model.expression`)."""

    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    shared_bytes: tuple[Expression, ...]

    def __call__(self, tile: Config, problem: Problem) -> Launch:
        """Return the launch. Raise ValueError if one of the expressions has no value."""
        names = {**problem.extents, **tile}
        values: dict[str, tuple[int, ...]] = {}
        for name, expressions in vars(self).items():
            if len(expressions) > 3:  # noqa: PLR2004 # x, y and z
                raise ValueError(f"{name}: more than the three numbers x, y and z")
            try:
                values[name] = tuple(evaluate(expression, names) for expression in expressions)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        (shared_bytes,) = values["shared_bytes"]
        return Launch(grid=values["grid"], block=values["block"], shared_bytes=shared_bytes)
