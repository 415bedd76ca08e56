"""Plans a sweep over a problem of another project. `--op` is the path of the problem."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from gpubench.backends import first_device
from gpubench.errors import UsageError
from gpubench.hardware.host import cpu_threads
from gpubench.model import OPERATIONS, Launches
from gpubench.plan.problems import ListedProblem
from gpubench.plan.ranges import parse_integers
from gpubench.text import shown

WORKLOAD_NUMBERS = "the workloads of a problem are numbers such as 1, 2..5 or 1,4"

MAX_AT_ONCE = 8  # maximum number of references that run at the same time


def is_problem(text: str) -> bool:
    """Whether the value of `--op` is the path of a problem, and not the name of an operation."""
    return bool(text) and text not in OPERATIONS and ("/" in text or os.path.exists(text))  # noqa: PTH110 # Path.exists raises for a long name


def at_once(options: Mapping[str, Any]) -> int:
    """Return the number of references that run at the same time.

    Each reference runs in its own process, with its own threads. With a GPU, the process spends
    most of the time on the import of torch, in a single thread.
    """
    threads = 2 if _device(options) == "cpu" else 1
    return max(1, min(MAX_AT_ONCE, cpu_threads() // threads))


def prepare_ahead(
    problems: Sequence[tuple[Path, Sequence[Path]]], options: Mapping[str, Any]
) -> dict[Path, Path]:
    """Run the references of problems in parallel, and return the folders of their kernels.

    Without this call, `of_problem` runs the references one after the other. A failure is ignored
    here, because `of_problem` repeats and reports it. The processes of the references answer
    further requests, until `process.end` is called.
    """
    from gpubench.foreign import folder, forms, process

    folders, device, numbers = dict[Path, Path](), _device(options), _chosen(options)

    def prepare(path: Path, solutions: Sequence[Path]) -> None:
        with suppress(UsageError, ValueError):  # ValueError: the path has not one problem
            ((form, file),) = forms.find(path)
            own = process.keep(file)
            own.begin(file)
            folders[path] = folder.prepared(form, file, numbers, solutions, device, own).path

    with ThreadPoolExecutor(max(1, len(problems))) as pool:
        try:
            list(pool.map(prepare, *zip(*problems, strict=True)))
        except BaseException:
            process.end()  # the threads then get an error, and end
            raise
    return folders


class Compilations:
    """Compiles the CUDA C++ of solutions while other problems are judged.

    The compilation of a solution takes a minute. An error is ignored here, because the process that
    measures the solution reports it.
    """

    def __init__(
        self, problems: Sequence[tuple[Path, Sequence[Path]]], options: Mapping[str, Any]
    ) -> None:
        """Begin to compile the solutions of the problems."""
        from gpubench.foreign import folder, process
        from gpubench.plan.foreign_process import ForeignProcess

        device, numbers = _device(options), _chosen(options)
        compiled = [each for each in problems if device != "cpu" and folder.is_compiled(each[1])]
        self._pool = ThreadPoolExecutor(max(1, len(compiled)))
        self._processes = ExitStack()
        self._running = dict[Path, Future[None]]()

        def compile_and_end(path: Path, solutions: Sequence[Path], own: ForeignProcess) -> None:
            try:
                folder.compile_ahead(path, numbers, solutions, device, own)
            finally:
                own.end()  # a solution's code must not run while other solutions are measured

        for path, solutions in compiled:
            own = ForeignProcess(process.__name__)
            self._processes.callback(own.end)
            self._running[path] = self._pool.submit(compile_and_end, path, solutions, own)

    def wait_for(self, path: Path) -> None:
        """Wait until the solutions of a problem are compiled."""
        if running := self._running.get(path):
            running.result()

    def end(self) -> None:
        """End the processes, even if some solutions are not compiled yet."""
        self._processes.close()
        self._pool.shutdown()


def _device(options: Mapping[str, Any]) -> str:
    return first_device(options.get("device") or "auto").backend


def _chosen(options: Mapping[str, Any]) -> list[int]:
    text = options.get("sizes")
    return [*parse_integers(text, "--sizes", WORKLOAD_NUMBERS)] if text else []


def of_problem(fields: Mapping[str, Any], solutions: Sequence[Path] | None) -> dict[str, Any]:
    """Return the fields of a sweep over a problem. Raises UsageError for an invalid problem."""
    from gpubench.foreign import folder, forms
    from gpubench.plan.operations import operation_named

    text = fields["op"]
    if "kernels" in fields:
        raise UsageError("--kernels: leave out --kernels: a problem has its own folder of kernels")
    problems = forms.find(Path(text))
    if len(problems) != 1:
        which = ", ".join(str(path) for _, path in problems[:3])
        number = (
            f"{len(problems)} problems, such as {which}: name one of them"
            if which
            else "no problem"
        )
        raise UsageError(f"--op: {shown(text)} has {number}")
    form, path = problems[0]
    beside = forms.solutions(form, path) if solutions is None else solutions
    home = folder.prepared(form, path, _chosen(fields), beside, _device(fields))
    op = operation_named(home.op, home.path)
    operation = OPERATIONS[op]
    listed = tuple(
        ListedProblem(name=f"{number}: {each.name}"[:60], further=(number,), dtype=operation.dtype)
        for number, each in enumerate(operation.listed, 1)
        if each.name
    )
    made = {"op": op, "kernels": home.path, "problems": listed, "dtypes": (operation.dtype,)}
    if "launches" not in fields and any(each.waits for each in home.facts.values()):
        made["launches"] = (Launches.WAITED,)
    return made | {"sizes": tuple(each.size for each in listed)}
