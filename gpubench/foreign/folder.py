"""Writes a folder in the user's cache that states another project's problem as an operation."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpubench.cache import cache_file, keep, keep_value, kept
from gpubench.errors import UsageError
from gpubench.foreign import forms, process
from gpubench.foreign.operation import RECORD, REFERENCE, Record, digest_of
from gpubench.foreign.process import Request
from gpubench.foreign.statement import ALIGNMENT, Facts, Part, Statement, read_text
from gpubench.model import OPERATIONS
from gpubench.plan.foreign_process import ForeignProcess
from gpubench.plan.operations import OPERATION_FILE
from gpubench.plan.scrutiny import function_name
from gpubench.text import unknown

_NOT_OF_NAMES = re.compile(r"[^a-z0-9]+")
MAX_NAME = 50

_OPERATION = """from gpubench.foreign.operation import operation_in

OPERATION = operation_in(__file__)
"""

_VARIANT = """from gpubench.foreign.operation import variant_in

VARIANT = variant_in(__file__, {path!r}, {digest!r})
"""


class Folder(NamedTuple):
    """The folder that contains a problem's operation and its variants."""

    op: str
    path: Path
    """The folder's path for `--kernels`."""

    statement: Statement
    facts: dict[int, Facts]
    """Maps the number of each workload to facts from a run of the reference."""


def prepared(
    form: str,
    file: Path,
    numbers: Sequence[int],
    solutions: Sequence[Path],
    device: str,
    own: ForeignProcess | None = None,
) -> Folder:
    """Write and return the folder of a problem, with the reference and the solutions as variants.

    The reference runs on the workloads with these `numbers`, unless the cache has their facts. The
    reference runs in the process `own` if `own` is not None. Raises UsageError.
    """
    statement = forms.read(form, file)
    listed = range(1, len(statement.workloads) + 1)
    for number in numbers:
        if number not in listed:
            raise UsageError(f"--sizes: {unknown('workload', str(number), map(str, listed))}")
    op = _name(statement.name)
    op = f"{op}_problem" if OPERATIONS.is_ours(op) else op
    named = {_name_of(each): Path(each).absolute() for each in solutions}
    if len(named) < len(solutions):
        raise UsageError("--solution: two files have the same name")
    facts = {number: _facts(statement, number, device, own) for number in numbers or listed}
    digests = {name: digest_of(path) for name, path in named.items()}
    root = cache_file("problems", statement, device, sorted(facts), sorted(digests.items()))
    record = Record(statement, device, _of_own_sizes(facts))
    contents = {RECORD: msgspec.json.encode(record), "operation.py": _OPERATION.encode()}
    contents[f"{REFERENCE}.py"] = _VARIANT.format(path="", digest="").encode()
    for name, path in named.items():
        contents[f"{name}.py"] = _VARIANT.format(path=str(path), digest=digests[name]).encode()
    for name, content in contents.items():
        if not keep(root / op / name, content):
            raise UsageError(f"{root}: the user's cache cannot be written")
    return Folder(op, root, statement, facts)


def functions_in(folder: Path) -> list[str]:
    """Return the names of the functions in a folder that `prepared` has written."""
    paths = (path for path in folder.glob("*/*.py") if path.name != OPERATION_FILE)
    return sorted(function_name(path.parent.name, path.stem) for path in paths)


class _Spec(msgspec.Struct):
    binding: str | None = None


class _Solution(msgspec.Struct):
    spec: _Spec


def is_compiled(solutions: Sequence[Path]) -> bool:
    """Whether one of the solutions contains CUDA C++."""
    return any(map(_has_binding, solutions))


def _has_binding(solution: Path) -> bool:
    with suppress(OSError, ValueError):
        return bool(msgspec.json.decode(read_text(solution), type=_Solution).spec.binding)
    return False


def compile_ahead(
    problem: Path,
    numbers: Sequence[int],
    solutions: Sequence[Path],
    device: str,
    own: ForeignProcess,
) -> None:
    """Compile the CUDA C++ of solutions, and keep the libraries for the processes that measure.

    A failure is ignored here, because the processes that measure the solutions report it.
    """
    with suppress(UsageError, ValueError):  # ValueError: the path has not one problem
        ((form, file),) = forms.find(problem)
        home = prepared(form, file, numbers, solutions, device, own)
        for path in filter(_has_binding, solutions):
            with suppress(UsageError):
                request = Request("load", form, str(file), device, 1, solution=str(path.absolute()))
                function = function_name(home.op, _name_of(path))
                process.ask_for(request, memoryview, own, home.path, function)


def _facts(statement: Statement, number: int, device: str, own: ForeignProcess | None) -> Facts:
    """Return a workload's facts from the user's cache, or else from a run of the reference."""
    digests = [digest_of(Path(each)) for each in (statement.path, *statement.sources)]
    fields = Facts.__struct_fields__, Part.__struct_fields__  # the fields of this version
    name = cache_file("examined", fields, statement, number, device, digests)
    if facts := kept(name, Facts):
        return facts
    request = Request("facts", statement.form, statement.path, device, number)
    asked: Facts = process.ask_for(request, Facts, own)
    keep_value(name, asked)
    return asked


def _of_own_sizes(listed: dict[int, Facts]) -> dict[int, Facts]:
    """Change the facts so that each workload has a different number of input bytes."""
    taken, made = set[int](), dict[int, Facts]()
    for number, facts in sorted(listed.items()):
        size = facts.input_bytes
        while size in taken:
            size += ALIGNMENT
        taken.add(size)
        made[number] = msgspec.structs.replace(facts, input_bytes=size)
    return made


def _name_of(solution: Path) -> str:
    """Return the name of a solution's variant."""
    return _name(solution.stem, "solution")


def _name(text: str, beside: str = "") -> str:
    """Make a valid name of an operation or a variant from the name of a problem or a file."""
    name = _NOT_OF_NAMES.sub("_", text.lower()).strip("_")[:MAX_NAME] or "problem"
    name = name if name[0].isalpha() else f"p_{name}"
    is_taken = name == REFERENCE or (beside and name == "operation")  # names of the folder's files
    return f"{name}_{beside}" if is_taken else name
