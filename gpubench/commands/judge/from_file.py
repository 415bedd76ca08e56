"""Describes the function of a file that has no description, for `gpubench judge FILE:FUNCTION`."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gpubench.backends.c_function import is_library
from gpubench.cache import cache_file, keep
from gpubench.errors import UsageError
from gpubench.model.precision import dtype_of_cpp
from gpubench.model.signature import NULL, parameters
from gpubench.plan.from_source.description import describe_file
from gpubench.plan.from_source.python import describe_python
from gpubench.plan.python_file import NAME_RULE, is_name
from gpubench.plan.registry import library_of, of_op
from gpubench.plan.sweep import Sweep
from gpubench.text import shown

_DECLARATION = re.compile(r"(?:\w+\s+)?(\w+)\s*\(([^()]*)\)")
"""Matches the declaration of a C function, such as `void run(int M, …)`. The type may be
missing."""

_LIBRARY = """from gpubench.model import HostVariant

VARIANT = HostVariant(
    idea={idea!r}, file={file!r}, entry={entry!r}, signature={signature!r}, dtypes={dtypes!r},
    runs_on={backend!r}, baseline={baseline!r},
)
"""


def is_file_name(name: str) -> bool:
    """Return whether an argument of judge names a file: `FILE` or `FILE:FUNCTION`."""
    return Path(name.partition(":")[0]).suffix in {".cu", ".py", ".so"}


def described(argument: str, sweep: Sweep, backend: str) -> tuple[str, Sweep]:
    """Return the name of a file's kernel, and the sweep with the folder of a new description.

    The folder is in the user's cache. Raises UsageError for a file that cannot be described.
    """
    name, _, entry = argument.partition(":")
    file = Path(name).absolute()
    if not os.path.isfile(file):  # noqa: PTH113 # Path.is_file raises for a name that is too long
        raise UsageError(f"{shown(name)}: no such file")
    kernel = file.stem.removeprefix("lib" if file.suffix == ".so" else "").lower().replace("-", "_")
    ours = of_op(sweep.op)
    kernel = f"my_{kernel}" if kernel in ours else kernel
    if not is_name(kernel):
        raise UsageError(f"{shown(name)}: '{shown(kernel)}' cannot name a kernel: {NAME_RULE}")
    folder = cache_file("judged", sweep.op, str(file), entry, backend, sweep.dtypes)
    path = folder / sweep.op / f"{kernel}.py"
    baseline = library_of(sweep.op, backend)
    facts: dict[str, object] = {"idea": f"from {file.name}", "file": str(file), "entry": entry}
    facts |= {"backend": backend, "baseline": baseline, "dtypes": tuple(sweep.dtypes)}
    if file.suffix == ".cu":
        content = _of_source(file, path, sweep.op, entry)
    elif file.suffix == ".so":
        content = _LIBRARY.format(**facts | _declared(name, entry))
        if not is_library(file):
            raise UsageError(f"{shown(name)}: this file is not a shared library")
    else:
        with _as_argument():
            content = describe_python(
                file, sweep.op, entry, home=os.path.realpath(path.parent), idea=f"from {file.name}",
                backend=backend, dtypes=tuple(sweep.dtypes), baseline=baseline,
            )  # fmt: skip
    if not keep(path, content.encode()):
        raise UsageError(f"{path}: the user's cache cannot be written; use --kernels DIR")
    return kernel, replace(sweep, kernels=folder)


@contextmanager
def _as_argument() -> Iterator[None]:
    """Name KERNEL in messages in place of a flag of new-kernel."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"KERNEL: {str(error).partition(': ')[2]}") from error


def _of_source(file: Path, path: Path, op: str, entry: str) -> str:
    """Describe a function of a CUDA source. Raise UsageError if the source is ambiguous."""
    with _as_argument():
        description = describe_file(file, path.stem, op, entry, home=str(path.parent))
    if description.asked or description.guesses:
        lacking = "how its kernel is launched"
        if description.asked:
            lacking = f"what {', '.join(description.asked)} mean"
        raise UsageError(
            f"{file}: the source does not say {lacking}; describe the kernel with 'gpubench "
            f"new-kernel {path.stem} --from {file.name} --dir own', then use 'gpubench "
            f"judge {path.stem} --kernels own'"
        )
    return description.text


def _declared(name: str, text: str) -> dict[str, object]:
    """Read the name, the signature and the dtype of a C function from its declaration."""
    declaration = _DECLARATION.fullmatch(text.strip())
    try:
        listed = parameters(declaration[2]) if declaration else ()
    except ValueError as error:
        raise UsageError(f"{shown(name)}: {error}") from error
    arrays = [each.type_name for each in listed if each.is_pointer and each.value != NULL]
    dtype = dtype_of_cpp(arrays[-1]) if arrays else None
    if declaration is None or dtype is None:
        raise UsageError(
            f"{shown(name)}: declare its function, such as "
            "'libmine.so:run(int M, int N, int K, const float* A, const float* B, float* C)'"
        )
    return {"entry": declaration[1], "signature": declaration[2], "dtypes": (dtype,)}
