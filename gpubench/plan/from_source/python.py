"""`gpubench new-kernel --from FILE.py`: describes a Python function on arrays, or of a GPU."""

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from gpubench.errors import UsageError
from gpubench.model import OPERATIONS
from gpubench.text import shown, unknown

_KERNEL = re.compile(r"(triton|gluon|cuda|numba\.cuda)\.(jit|autotune|heuristics)\b")
"""Decorators of functions that only a launch can call."""

ON_GPU = ("triton", "cupy", "numba.cuda")  # packages whose functions compute on a GPU
TENSORS = {"torch": "torch", "triton": "torch", "jax": "jax.numpy"}
LIBRARIES = ("torch", "triton", "jax", "numba")

_TEXT = '''import runpy
from pathlib import Path

from gpubench.model import CallVariant

FILE = Path(__file__).parent / {file}


def build(_tile, _dtype):
    """Return the function of the file."""
    return runpy.run_path(str(FILE))["{entry}"]


VARIANT = CallVariant(
    idea="{idea}",
    file={file},
    runs_on="{backend}",
    build=build,
{fields}    dtypes={dtypes},
    baseline="{baseline}",
)
'''


def describe_python(
    source: Path, op: str, entry: str, *, home: str, idea: str, backend: str = "",
    dtypes: tuple[str, ...] = ("float32",), baseline: str = "",
) -> str:  # fmt: skip
    """Return the description of a function for the folder `home`.

    The function is called `entry`. Without `entry`, it is the first function of the operation's
    arrays. Without a `backend`, what the file imports decides it. Raises UsageError for a file
    without such a function.
    """
    try:
        tree = ast.parse(source.read_bytes())
        defined = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
        kernels = [name for name, each in defined.items() if _is_kernel(each)]
    except (RecursionError, MemoryError) as error:
        raise UsageError(f"--from: {source} cannot be read: it is nested too deeply") from error
    except (OSError, SyntaxError, ValueError) as error:
        number = getattr(error, "lineno", None)  # of an error in the syntax
        line = f", line {number}" if number else ""
        what = getattr(error, "strerror", None) or getattr(error, "msg", error)
        raise UsageError(f"--from: {source}{line} cannot be read: {what}") from error
    count = len(OPERATIONS[op].arrays)
    names = [name for name, each in defined.items() if name not in kernels and _takes(each, count)]
    if entry and entry not in defined:
        raise UsageError(f"--kernel: {unknown('function', entry, defined)}")
    if entry in kernels or not (entry or names):
        *inputs, output = OPERATIONS[op].arrays
        arrays = f"({', '.join(inputs)}, {output}), or of ({', '.join(inputs)}) that returns it"
        launches = f" that launches {', '.join(map(shown, kernels))}" if kernels else ""
        raise UsageError(f"--from: {source} has no function of {arrays},{launches or ' to call'}")
    entry = entry or names[0]
    imported = set(_imported(tree))
    on_gpu = backend == "cuda" if backend else not imported.isdisjoint(ON_GPU)
    fields = "    returns=True,\n" if _takes(defined[entry], count, exactly=count - 1) else ""
    if tensors := next((TENSORS[name] for name in TENSORS if name in imported), ""):
        fields += f'    tensors="{tensors}",\n'
    if libraries := tuple(name for name in LIBRARIES if name in imported):
        fields += f"    libraries={_quoted(libraries)},\n"
    return _TEXT.format(
        file=json.dumps(os.path.relpath(os.path.realpath(source), home), ensure_ascii=False),
        entry=entry,
        idea=idea,
        backend=backend or ("cuda" if on_gpu else "cpu"),
        fields=fields,
        dtypes=_quoted(dtypes),
        baseline=baseline or ("cublas" if on_gpu else "cpu_blas_parallel"),
    )


def _quoted(names: tuple[str, ...]) -> str:
    return repr(names).replace("'", '"')


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any(_KERNEL.match(ast.unparse(each)) for each in function.decorator_list)


def _takes(function: ast.FunctionDef, count: int, exactly: int = 0) -> bool:
    """Whether a function takes this many arrays, or one less if it returns a value.

    With `exactly`, whether it takes that many.
    """
    parameters = function.args
    required = len(parameters.posonlyargs) + len(parameters.args) - len(parameters.defaults)
    if exactly:
        return required == exactly
    returns = any(isinstance(each, ast.Return) and each.value for each in ast.walk(function))
    return required == count or (required == count - 1 and returns)


def _imported(tree: ast.AST) -> Iterator[str]:
    """Yield the packages that a file imports, and `numba.cuda`."""
    for node in ast.walk(tree):
        modules = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        for module in modules:
            yield module.partition(".")[0]
            yield ".".join(module.split(".")[:2])
