"""`gpubench new-kernel --from FILE.py`: describes a Python function on NumPy or GPU arrays."""

import ast
import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from gpubench.errors import UsageError
from gpubench.model import OPERATIONS
from gpubench.plan.description_text import python_description
from gpubench.text import shown, unknown

_KERNEL = re.compile(r"(triton|gluon|cuda|numba\.cuda)\.(jit|autotune|heuristics)\b")
"""Pattern of the decorators of kernels, which Python code must launch."""

ON_GPU = ("triton", "cupy", "numba.cuda")  # packages whose functions compute on a GPU
TENSORS = {"torch": "torch", "triton": "torch", "jax": "jax.numpy"}
LIBRARIES = ("torch", "triton", "jax", "numba")


def describe_python(
    source: Path, op: str, entry: str, *, home: str, idea: str, backend: str = "",
    dtypes: tuple[str, ...] = ("float32",), baseline: str = "",
) -> str:  # fmt: skip
    """Return the description of a function for the folder `home`.

    The function is called `entry`. If `entry` is empty, the first function that can take the
    operation's arrays is described. If `backend` is empty, the file's imports decide the backend.
    Raises UsageError for a file without such a function.
    """
    try:
        tree = ast.parse(source.read_bytes())
        defined = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
        kernels = [each.name for each in defined.values()
                   if any(map(_KERNEL.match, map(ast.unparse, each.decorator_list)))]  # fmt: skip
    except (RecursionError, MemoryError) as error:
        raise UsageError(f"--from: {source} cannot be read: it is nested too deeply") from error
    except (OSError, SyntaxError, ValueError) as error:
        number = getattr(error, "lineno", None)  # a SyntaxError has a line number
        line = f", line {number}" if number else ""
        what = getattr(error, "strerror", None) or getattr(error, "msg", error)
        raise UsageError(f"--from: {source}{line} cannot be read: {what}") from error
    *inputs, output = map(str, OPERATIONS[op].arrays)
    assigned = chain.from_iterable(
        each.targets for each in tree.body if isinstance(each, ast.Assign)
    )
    if not entry and "VARIANT" in (getattr(target, "id", "") for target in assigned):
        raise UsageError(
            f"--from: {source} is a description already: use {source.stem} --kernels "
            f"{source.parent}"
        )
    if entry and entry not in defined:
        raise UsageError(f"--kernel: {unknown('function', entry, defined)}")
    names = [name for name, each in defined.items()
             if name not in kernels and _takes(each, len(inputs) + 1)]  # fmt: skip
    if entry in kernels or not (entry or names):
        arrays = (
            f"({', '.join(inputs)}, {output}), or takes ({', '.join(inputs)}) and returns {output}"
        )
        launches = f", and launches {', '.join(map(shown, kernels))}" if kernels else ""
        raise UsageError(f"--from: {source} has no function that takes {arrays}{launches}")
    entry = entry or names[0]
    imported = _imported(tree)
    on_gpu = backend == "cuda" if backend else not imported.isdisjoint(ON_GPU)
    return python_description(
        file=os.path.relpath(os.path.realpath(source), home), entry=entry, idea=idea,
        backend=backend or ("cuda" if on_gpu else "cpu"),
        returns=_arrays(defined[entry]) == len(inputs),
        tensors=next((TENSORS[name] for name in TENSORS if name in imported), ""),
        libraries=tuple(name for name in LIBRARIES if name in imported),
        dtypes=dtypes, baseline=baseline or ("cublas" if on_gpu else "cpu_blas_parallel"),
    )  # fmt: skip


def _takes(function: ast.FunctionDef, count: int) -> bool:
    """Whether a function takes `count` arrays, or one array less if it returns a value."""
    returns = any(isinstance(each, ast.Return) and each.value for each in _own_nodes(function))
    return _arrays(function) == count or (_arrays(function) == count - 1 and returns)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in a function, without the nodes of functions inside it."""
    waiting = [node]
    for parent in waiting:  # the list grows in the loop
        for each in ast.iter_child_nodes(parent):
            if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield each
                waiting.append(each)


def _arrays(function: ast.FunctionDef) -> int:
    """Return the number of a function's parameters without a default."""
    return len(function.args.posonlyargs + function.args.args) - len(function.args.defaults)


def _imported(tree: ast.AST) -> set[str]:
    """Return the first part, and the first two parts, of each name that a file imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{each.name}" for each in node.names}
    return {".".join(name.split(".")[:count]) for name in names for count in (1, 2)}
