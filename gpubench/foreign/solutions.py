"""Loads a solution from `solution.json`, a Python file, or a description of gpubench."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from gpubench.backends.cuda import nvcc
from gpubench.cache import cache_file, keep_value, kept
from gpubench.errors import CompileError, DoesNotFitError
from gpubench.foreign import values
from gpubench.foreign.statement import Program, read_text
from gpubench.model import CallVariant
from gpubench.rewording import reworded
from gpubench.temporary import temporary_until_exit

Function = Callable[..., Any]

MAX_LISTED = 8  # number of names that a message lists


class Source(msgspec.Struct):
    """A source file that is part of a solution."""

    path: str
    content: str


class Options(msgspec.Struct):
    """Options for the compilers and the linker."""

    cflags: list[str] = []
    cuda_cflags: list[str] = []
    ld_flags: list[str] = []


class Spec(msgspec.Struct):
    """Build settings and entry point of a solution."""

    entry_point: str
    languages: list[str] = []
    language: str = ""
    destination_passing_style: bool = True
    binding: str | None = None
    compile_options: Options | None = None


class Solution(msgspec.Struct):
    """The content of `solution.json`."""

    name: str
    spec: Spec
    sources: list[Source]


def load(program: Program, path: Path, dtype: str) -> tuple[Function, bool]:
    """Return a solution's function, and whether it takes the results as its last arguments.

    Raises CompileError, which names the fault and its place, or DoesNotFitError if the solution
    needs something that this machine lacks.
    """
    if path.suffix == ".json":
        try:
            return _of_json(msgspec.json.decode(read_text(path), type=Solution))
        except (CompileError, ValueError) as error:
            raise CompileError(f"{path.name}{reworded(error)}") from error
    module = values.module_of(path, "submission")
    described = getattr(module, "VARIANT", None)
    if isinstance(described, CallVariant):
        return _described(described, dtype), not described.returns
    function = program.solution(module)
    if not callable(function):
        raise CompileError(f"{path.name}: {_lacks(program.ENTRY, module)}")
    return function, False


def _lacks(entry: str, module: Any) -> str:
    """Return a message that a module lacks `entry`. The message lists the names that it defines."""
    items = vars(module).items()
    own = (name for name, each in items if getattr(each, "__module__", "") == module.__name__)
    has = ", ".join(islice(own, MAX_LISTED)) or "nothing"
    return f"the {entry} is missing; the file defines {has}"


def _described(variant: CallVariant, dtype: str) -> Function:
    """Return the function that a description builds, so that it takes tensors as arguments."""
    function = variant.build(variant.tiles.defaults[0] if variant.tiles else None, dtype)
    if variant.tensors == "torch" or variant.backend == "cuda":
        return function
    return lambda *tensors: function(*(each.numpy() for each in tensors))


def _of_json(solution: Solution) -> tuple[Function, bool]:
    spec = solution.spec
    file, _, entry = spec.entry_point.partition("::")
    paths = [source.path for source in solution.sources]
    at = f"entry_point '{spec.entry_point}'"
    if not entry or file not in paths:
        listed = ", ".join(paths[:MAX_LISTED]) or "none"
        raise CompileError(f"{at} is not FILE::FUNCTION of one of its sources: {listed}")
    folder = temporary_until_exit()
    for source in solution.sources:
        target = folder / source.path
        if not target.resolve().is_relative_to(folder.resolve()):
            raise CompileError(f"{source.path} lies outside the solution")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.content)
    if file.endswith(".py"):
        sys.path.insert(0, str(folder))
        module = values.module_of(folder / file, Path(file).stem)
    elif spec.binding == "torch":
        compiler = nvcc.find()
        if compiler is None or values.device().type == "cpu":
            lacking = "nvcc, which is missing" if compiler is None else "a GPU"
            raise DoesNotFitError(f"the solution's CUDA C++ needs {lacking}")
        os.environ.setdefault("CUDA_HOME", str(Path(compiler).parents[1]))
        module = _compiled(solution, folder)
    else:
        binding = spec.binding or ", ".join(spec.languages) or spec.language
        raise DoesNotFitError(f"sources of C++ are built with the binding torch, not {binding}")
    function = getattr(module, entry, None)
    if not callable(function):
        raise CompileError(f"{at}: {_lacks(f'function {entry}', module)}")
    return function, spec.destination_passing_style


def _compiled(solution: Solution, folder: Path) -> Any:
    """Return the module of a solution's CUDA C++.

    A cache keeps the module, because compiling takes a minute.
    """
    import torch
    from torch.utils import cpp_extension

    if not cpp_extension.is_ninja_available():
        raise DoesNotFitError("the solution's CUDA C++ needs ninja, which is missing")
    device = torch.cuda.get_device_capability()
    python = sys.implementation.cache_tag  # a module of another Python cannot be imported
    file = cache_file("extensions", solution, torch.__version__, python, nvcc.version(), device)
    name = f"solution_{file.name[:16]}"
    if library := kept(file, bytes):
        (folder / f"{name}.so").write_bytes(library)
        sys.path.insert(0, str(folder))
        return import_module(name)
    suffixes = {".cu", ".cpp", ".cc", ".c"}
    options = solution.spec.compile_options or Options()
    build = folder / "build"
    build.mkdir()
    sources = [folder / source.path for source in solution.sources]
    try:
        module = cpp_extension.load(
            name=name,
            sources=[str(each) for each in sources if each.suffix in suffixes],
            extra_cflags=options.cflags,
            extra_cuda_cflags=options.cuda_cflags,
            extra_ldflags=options.ld_flags,
            extra_include_paths=[str(folder)],
            build_directory=str(build),
        )
    except RuntimeError as error:  # the first line of the message has the compiler's command
        lines = str(error).splitlines()
        why = next((line for line in lines if "error:" in line), lines[0])
        raise CompileError(why.replace(f"{folder}/", "")) from error
    keep_value(file, Path(module.__file__).read_bytes())
    return module
