"""A sweep over a problem of another project, which `--op` names by its path."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from gpubench.backends import find_devices
from gpubench.errors import UsageError
from gpubench.model import OPERATIONS, Launches, Size
from gpubench.plan.foreign_process import ForeignProcess
from gpubench.plan.problems import ListedProblem
from gpubench.plan.ranges import parse_sizes
from gpubench.text import shown

MAX_AT_ONCE = 8  # number of references that run at once


def is_problem(text: str) -> bool:
    """Whether the value of `--op` is the path of a problem, and not the name of an operation."""
    return bool(text) and text not in OPERATIONS and ("/" in text or os.path.exists(text))  # noqa: PTH110 # Path.exists raises for a long name


def at_once() -> int:
    """Return the number of references that run at once. Each has its process, and its threads."""
    return max(1, min(MAX_AT_ONCE, (os.cpu_count() or 1) // 2))


def prepare_ahead(
    problems: Sequence[tuple[Path, Sequence[Path]]], options: Mapping[str, Any]
) -> None:
    """Run the references of problems, and compile their solutions, at once.

    `of_problem` would run one after the other. A fault is found again there, and reported.
    """
    from gpubench.foreign import folder, forms, process

    def prepare(path: Path, solutions: Sequence[Path], own: ForeignProcess) -> None:
        with suppress(UsageError):
            for form, file in forms.find(path):
                home = folder.prepared(form, file, numbers, solutions, device, own)
                if device != "cpu":
                    folder.compile_ahead(home, solutions, device, own)

    device = find_devices(options.get("device") or "auto")[0][0].backend
    numbers = _numbers(parse_sizes(options["sizes"]) if options.get("sizes") else ())
    with ThreadPoolExecutor(max(1, len(problems))) as pool, ExitStack() as ends:
        processes = [ends.enter_context(process.own_process()) for _ in problems]
        paths, solutions = zip(*problems, strict=True)
        list(pool.map(prepare, paths, solutions, processes))  # an interruption ends the processes


def _numbers(sizes: Sequence[Size]) -> list[int]:
    return [size[0] for size in sizes]


def of_problem(fields: Mapping[str, Any], solutions: Sequence[Path] | None) -> dict[str, Any]:
    """Return the fields of a sweep over a problem. Raises UsageError."""
    from gpubench.foreign import folder, forms
    from gpubench.plan.operations import operation_named

    text = fields["op"]
    if "kernels" in fields:
        raise UsageError("--kernels: the problem that --op names has its own folder of kernels")
    problems = forms.find(Path(text))
    if len(problems) != 1:
        which = ", ".join(str(path) for _, path in problems[:3])
        number = f"{len(problems)} problems, such as {which}: name one" if which else "no problem"
        raise UsageError(f"--op: {shown(text)} has {number}")
    form, path = problems[0]
    device = find_devices(fields.get("device", "auto"))[0][0].backend
    beside = forms.solutions(form, path) if solutions is None else solutions
    numbers = _numbers(parse_sizes(fields["sizes"]) if "sizes" in fields else ())
    home = folder.prepared(form, path, numbers, beside, device)
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
