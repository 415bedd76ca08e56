"""Loads host functions from a shared library, and calls them. Host functions launch kernels.

In a library that nvcc makes, `host_calls.cpp` puts calls without a stream into the timed stream,
and records calls of the CUDA runtime. A prebuilt `.so` is loaded unchanged.
"""

import ctypes
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpubench.backends.c_function import as_number, load_library
from gpubench.backends.cuda.driver import kernel_arguments
from gpubench.backends.cuda.nvcc import ENTRY, compile_library, demangled, without_parameters
from gpubench.errors import CompileError, LaunchError
from gpubench.model import Config, HostVariant, Problem
from gpubench.results.provenance import hash_of
from gpubench.temporary import temporary_folder

MAX_NAME = 80  # maximum number of characters of a kernel's name that is noted in full


class HostFunction:
    """A loaded host function. A call enqueues kernels in the constructor's `stream`."""

    def __init__(
        self, variant: HostVariant, tile: Config | None, dtype: str, architecture: str, stream: int
    ) -> None:
        self._parameters, self._stream = variant.parameters(), stream
        content = compile_library(variant, tile, dtype, architecture)
        self.code_hash = hash_of(content)
        library = _loaded(content, variant.source)
        self._is_wrapped = hasattr(library, ENTRY)
        name = ENTRY if self._is_wrapped else variant.function(tile, dtype)
        try:
            self._function = library[name]
        except AttributeError as error:
            raise CompileError(
                f"{variant.source.name} has no C function '{name}': declare it extern \"C\""
            ) from error
        self._library = library
        if self._is_wrapped:
            library.gpubench_use(ctypes.c_void_p(stream))
            library.gpubench_recorded.restype = ctypes.c_char_p
            library.gpubench_error_name.restype = ctypes.c_char_p

    def __call__(self, *arguments: Any) -> None:
        """Call the function. Raises LaunchError if the CUDA runtime reports an error."""
        status = self._function(*arguments)
        if status and self._is_wrapped:
            name = self._library.gpubench_error_name(status).decode()
            raise LaunchError(f"the CUDA runtime reports {name} after the call")

    def bind(self, problem: Problem, addresses: Sequence[int]) -> Callable[[], None]:
        """Return a function that calls the host function on the arrays at these addresses."""
        values = kernel_arguments(self._parameters, problem)((*addresses, self._stream))
        if self._is_wrapped:
            pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))

            def call(_alive: object = values) -> None:
                self(pointers)

            return call
        scalar = problem.precision.cpp
        typed = [
            value if isinstance(value, ctypes.c_void_p) else as_number(value, name)
            for value, name in zip(
                values,
                (scalar if p.type_name == "Scalar" else p.type_name for p in self._parameters),
                strict=True,
            )
        ]
        return lambda: self(*typed)

    def watch(self, call: Callable[[], None]) -> str:
        """Call the function once, and return a note on its launches and its other CUDA calls."""
        if not self._is_wrapped:
            call()
            return ""
        self._library.gpubench_record()
        try:
            call()
        finally:
            recorded = self._library.gpubench_recorded().decode()
        return note(recorded.splitlines())


def note(recorded: Sequence[str]) -> str:
    """Return a row's note on the recorded calls of the CUDA runtime."""
    parted = [line.partition("launch ") for line in recorded]
    launches, others = (
        [f"{name}{f' ({count} times)' if count > 1 else ''}" for name, count in counts.items()]
        for counts in (
            Counter(_short(kernel_name(symbol)) for _, is_launch, symbol in parted if is_launch),
            Counter(call for call, is_launch, _ in parted if not is_launch),
        )
    )
    parts = [f"launches {', '.join(launches) or 'no kernel of its file'}"]
    parts += [f"calls {', '.join(others)}"] if others else []
    return f"each call {' and '.join(parts)}"


def _short(name: str) -> str:
    """Return the name without its template arguments if they are long, as in CUTLASS."""
    return name if len(name) <= MAX_NAME else f"{name.partition('<')[0]}<…>"


def kernel_name(symbol: str) -> str:
    """Return the name of a kernel in C++, without its parameters."""
    name = demangled(symbol)
    if name.startswith("_ZN"):  # only nvcc can read its template arguments, as in CUTLASS
        name = demangled(f"{symbol.partition('I')[0]}E")
    return without_parameters(name)


def _loaded(content: bytes, source: Path) -> ctypes.CDLL:
    """Load a shared library. Raises CompileError if the system's loader refuses it."""
    if source.suffix == ".so":
        return load_library(source)
    with temporary_folder() as folder:
        path = folder / "host.so"
        path.write_bytes(content)
        return load_library(path, source.name)
