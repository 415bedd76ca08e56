"""Describes the kernel of a file that has no description, for `gpubench judge FILE:FUNCTION`."""

import re
from dataclasses import replace
from pathlib import Path

from gpubench.cache import cache_file, keep
from gpubench.errors import UsageError
from gpubench.plan.descriptor import NAME_RULE, is_name
from gpubench.plan.from_source.description import dtype_of
from gpubench.plan.from_source.files import describe_file
from gpubench.plan.registry import of_op
from gpubench.plan.sweep import Sweep
from gpubench.text import shown

SUFFIXES = frozenset({".cu", ".py", ".so"})

_DECLARATION = re.compile(r"(?:\w+\s+)?(\w+)\s*\(([^()]*)\)")

_LIBRARY = '''"""A C function of a library."""

from gpubench.model import HostVariant

VARIANT = HostVariant(
    idea={idea!r}, file={file!r}, entry={entry!r}, signature={signature!r}, dtypes={dtypes!r},
    baseline={baseline!r},
)
'''
_FUNCTION = '''"""A Python function."""

import runpy

from gpubench.model import CallVariant


def build(_tile, _dtype):
    """Return the function."""
    return runpy.run_path({file!r})[{entry!r}]


VARIANT = CallVariant(
    idea={idea!r}, file={file!r}, runs_on={backend!r}, baseline={baseline!r}, dtypes={dtypes!r},
    build=build,
)
'''


def with_description(names: list[str], sweep: Sweep, backend: str) -> tuple[list[str], Sweep]:
    """Return the names of the kernels, and the sweep with the folder of a file's description.

    The description lies in the user's cache. Raises UsageError for a file that cannot be described,
    and for one beside other kernels.
    """
    if not any(Path(name.partition(":")[0]).suffix in SUFFIXES for name in names):
        return names, sweep
    if sweep.kernels or len(names) > 1:
        raise UsageError("judge a file alone, without --kernels and other kernels")
    file, _, entry = names[0].partition(":")
    source = Path(file).absolute()
    name = source.stem.removeprefix("lib" * (source.suffix == ".so")).lower().replace("-", "_")
    if not source.is_file():
        raise UsageError(f"{shown(file)}: no such file")
    if not is_name(name):
        raise UsageError(
            f"{shown(file)}: '{shown(name)}' cannot name a kernel, which is {NAME_RULE}"
        )
    ours = of_op(sweep.op)
    name = f"my_{name}" if name in ours else name
    blas = next(v.baseline for v in ours.values() if v.backend == backend and v.baseline)
    facts = {"file": str(source), "entry": entry, "dtypes": tuple(sweep.dtypes)}
    facts |= {"idea": f"from {source.name}", "backend": backend, "baseline": blas}
    folder = cache_file("judged", sweep.op, facts)
    path = folder / sweep.op / f"{name}.py"
    if source.suffix == ".cu":
        content = _of_source(source, path, sweep.op, entry)
    elif source.suffix == ".so":
        content = _LIBRARY.format(**facts | _declared(file, entry))
    elif not entry:
        raise UsageError(
            f"{shown(file)}: name its function, {source.name}:FUNCTION; a file with a description "
            "is judged by --kernels DIR"
        )
    elif not _names(source, entry):
        raise UsageError(f"{shown(file)}: has no function {shown(entry)}")
    else:
        content = _FUNCTION.format(**facts)
    if not keep(path, content.encode()):
        raise UsageError(f"{folder}: the user's cache cannot be written; use --kernels DIR")
    return [name], replace(sweep, kernels=folder)


def _names(source: Path, entry: str) -> bool:
    """Return whether a Python file has a name, or may import it. The file is not run."""
    text = source.read_text(encoding="utf-8", errors="replace")
    return bool(re.search(rf"\b{re.escape(entry)}\b|\bimport\s+\*", text))


def _of_source(source: Path, path: Path, op: str, entry: str) -> str:
    """Describe a function of a CUDA source. Raise UsageError if the source does not say enough."""
    name = path.stem
    content, asked = describe_file(source, name, op, entry, home=str(path.parent))
    if asked or "guess" in content.lower():
        lacking = f"what {', '.join(asked)} mean" if asked else "how its kernel is launched"
        raise UsageError(
            f"{source}: the source does not say {lacking}: write a description by 'gpubench "
            f"new-kernel {name} --from {source.name} --dir own', and judge {name} --kernels own"
        )
    return content


def _declared(file: str, entry: str) -> dict[str, object]:
    """Return name, signature and dtype of a C function by its declaration. Raise UsageError."""
    declaration = _DECLARATION.fullmatch(entry.strip())
    types = re.findall(r"(\w+)\s*\*", declaration[2]) if declaration else []
    dtype = dtype_of(types[-1]) if types else None
    if declaration is None or dtype is None:
        raise UsageError(
            f"{shown(file)}: declare its function, such as "
            "'libmine.so:run(int M, int N, int K, const float* A, const float* B, float* C)'"
        )
    return {"entry": declaration[1], "signature": declaration[2], "dtypes": (dtype,)}
