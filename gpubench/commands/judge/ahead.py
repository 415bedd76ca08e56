"""Prepares several problems of a folder at the same time, before they are judged."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from gpubench.backends import backends, first_device
from gpubench.commands.judge.own_kernels import OwnKernels
from gpubench.engine.child.supervisor import end_ahead, start_ahead
from gpubench.foreign import process
from gpubench.foreign.folder import functions_in
from gpubench.foreign.sweep import Compilations, at_once, prepare_ahead
from gpubench.plan.sweep import Sweep


class Ahead:
    """Runs references, compiles solutions, and starts the children that measure.

    Groups of problems are prepared together while nothing is timed, because importing torch takes
    seconds in each process. Solutions that compile for a minute are compiled while other problems
    are measured.
    """

    def __init__(
        self, problems: Sequence[tuple[Path, Sequence[Path]]], options: Mapping[str, Any]
    ) -> None:
        self._problems, self._options = problems, options
        self._size = min(len(problems), at_once(options))
        self._compilations = Compilations(problems if self._size > 1 else (), options)
        self._folders = dict[Path, Path]()  # folders of kernels whose children are not started yet
        self._own_kernels: OwnKernels | None = None
        device = first_device(options.get("device") or "auto")
        if self._size > 1 and device.backend != "cpu":
            name = f"{device.backend}:{device.index}"
            self._own_kernels = OwnKernels(name, device.backend)
        self.prepared = 0  # number of prepared problems

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._own_kernels:
            self._own_kernels.end()
        self._compilations.end()
        self._end_group()

    def prepare(self, number: int) -> None:
        """Prepare the problem with this number, and the rest of its group. Raises UsageError."""
        path, _ = self._problems[number]
        if self._size < 2:  # noqa: PLR2004 # a single problem has no group
            self.prepared = number + 1
        elif number >= self.prepared:
            self._end_group()
            self.prepared = min(number + self._size, len(self._problems))
            self._folders = prepare_ahead(self._problems[number : self.prepared], self._options)
        self._compilations.wait_for(path)

    def start_children(self, sweep: Sweep, rounds: int) -> None:
        """Start the children of each prepared problem, before any problem is measured."""
        if self._folders:
            name, timer = sweep.device, sweep.timer
            backend = first_device(name).backend
            if self._own_kernels:
                self._own_kernels.wait()
            # On a CPU, torch in many children at once could fill the memory.
            folders = () if backends()[backend].host_arrays else self._folders.values()
            functions = {folder: functions_in(folder) for folder in folders}
            start_ahead(name, timer, functions, backend, rounds)
            self._folders.clear()

    def _end_group(self) -> None:
        process.end()
        end_ahead()
