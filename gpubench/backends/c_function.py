"""Finds C functions of shared libraries, and calls them with the arguments of a signature."""

import ctypes
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from gpubench.errors import CompileError
from gpubench.model import HostVariant, Problem
from gpubench.model.signature import FORMATS, NULL, STREAM, Parameter, array_index, number, packed
from gpubench.process.child import run_program

C_TYPES: dict[str, Any] = {
    "b": ctypes.c_byte,
    "i": ctypes.c_int,
    "I": ctypes.c_uint,
    "q": ctypes.c_longlong,
    "Q": ctypes.c_ulonglong,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
}
"""Maps codes of number types in `FORMATS` to types of ctypes. A C function takes such numbers by
value."""

_ELF = b"\x7fELF"  # first bytes of a shared library


class CFunction:
    """A C function on the CPU, which takes NumPy arrays in the order of a signature."""

    def __init__(self, variant: HostVariant, dtype: str) -> None:
        self._parameters = variant.parameters()
        self._library, source = load_library(variant.source), variant.source.name
        try:
            self._function = self._library[variant.function(None, dtype)]
        except AttributeError as error:
            raise CompileError(f"{source} has no C function '{variant.entry}'") from error
        self._function.restype = None
        if any(each.type_name == STREAM for each in self._parameters):
            raise CompileError(f"{source}: a function for the CPU cannot take a {STREAM}")

    def __call__(self, problem: Problem, *arrays: Any) -> None:
        """Call the function on the arrays of a problem."""
        self.bind(problem)(*arrays)

    def bind(self, problem: Problem) -> Callable[..., None]:
        """Return a function of inputs and output that also passes the extents of a problem."""
        slots = [_slot(each, problem) for each in self._parameters]
        return partial(_call, self._function, slots)


def _call(function: Any, slots: list[Any], *arrays: Any) -> None:
    function(*(arrays[x].ctypes.data_as(ctypes.c_void_p) if type(x) is int else x for x in slots))


def _slot(parameter: Parameter, problem: Problem) -> Any:
    """Return the index of a parameter's array, or else the argument itself as a ctypes object."""
    if parameter.value == NULL:
        return ctypes.c_void_p(None)
    index = array_index(parameter, problem.op) if parameter.is_pointer else None
    if index is not None:
        return index
    scalar = problem.precision.cpp
    content = packed(parameter, number(parameter, problem), scalar)
    name = scalar if parameter.type_name == "Scalar" else parameter.type_name
    value = as_number(content, name)
    return ctypes.pointer(value) if parameter.is_pointer else value


def as_number(content: Any, name: str) -> Any:
    """Return a number as a ctypes object. Raises CompileError for a type that only CUDA has."""
    kind = C_TYPES.get(FORMATS[name])
    if kind is None:
        raise CompileError(f"a C function cannot take a {name} by value")
    return kind.from_buffer_copy(content)


def load_library(path: Path, name: str = "") -> ctypes.CDLL:
    """Load a shared library. Raises CompileError if the system's loader refuses it.

    The error message shows `name`, the name of the library's source. If there is no source, the
    message shows the name of the library.
    """
    # ctypes would resolve all symbols at once, which fails if a function of the file needs a
    # library that is not installed.
    system: Any = ctypes.CDLL(None)
    system.dlopen.restype, system.dlerror.restype = ctypes.c_void_p, ctypes.c_char_p
    handle = system.dlopen(str(path.resolve()).encode(), os.RTLD_LAZY | os.RTLD_LOCAL)
    if not handle:
        why = system.dlerror().decode(errors="replace")
        raise CompileError(f"{name or path.name} cannot be loaded: {why}")
    return ctypes.CDLL(str(path), handle=handle)


def is_library(file: Path) -> bool:
    """Return whether a file is a shared library. Raises OSError if the file cannot be read."""
    with file.open("rb") as content:
        return content.read(len(_ELF)) == _ELF


def c_functions(library: Path) -> list[str]:
    """Return the names of the C functions that a library defines. Empty if `nm` is missing."""
    if not (nm := shutil.which("nm")):
        return []
    lines = run_program([nm, "-D", "--defined-only", str(library)]).stdout.split(b"\n")
    names = (line.split(b" T ")[1].decode() for line in lines if b" T " in line)
    return [name for name in names if not name.startswith("_")]  # C++ names begin with _Z
