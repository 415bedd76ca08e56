"""Compiles a template instance of a source for an architecture, with NVRTC: the `Compiler` of CUDA.

This is the only compile step. It needs cuda-bindings and NVRTC, and no GPU.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gpubench.backends import Compiled
from gpubench.cache import keep_value, kept, user_cache
from gpubench.errors import CompileError, first_line, install_command
from gpubench.model import Resources
from gpubench.model.sources import encoded_source, include_folders, read_source, whole_source

OPTIONS = ("--std=c++17", "--ptxas-options=-v", "--no-cache", "--device-as-default-execution-space")
"""Options of every kernel. `--no-cache`: a cubin from NVRTC's own cache comes without ptxas' report
of registers. `--device-as-default-execution-space`: NVRTC 13.0 treats a lambda with `auto`
parameters as a host function, even in a kernel."""

HOST_HEADERS = ("algorithm", "assert.h", "cassert", "cmath", "cstdio", "cstdlib", "cublas_v2.h",
    "cuda_runtime.h", "device_launch_parameters.h", "iostream", "math.h", "stdio.h", "stdlib.h",
    "vector")  # fmt: skip
"""Headers that a source for nvcc includes for its host code. NVRTC lacks them, and has what device
code may use of them built in. Each is replaced by `HOST_HEADER`."""

HOST_HEADER = b"typedef unsigned int uint;\n"


def compile_instance(
    source: Path, expression: str, architecture: str, options: tuple[str, ...] = ()
) -> Compiled:
    """Compile `expression` of a CUDA C++ file for an architecture such as `sm_90` or `sm_90a`.

    `options` are further options of NVRTC. The result is kept in the user's cache, under a key of
    everything that affects it. Raises CompileError with the compiler's first error.
    """
    text = read_source(source)
    files = whole_source(source, include_folders(options))[1:]
    included = [read_source(path) for path in files]
    options = (*OPTIONS, *options)
    number = ".".join(map(str, nvrtc_version()))
    key = "\0".join((text, *included, expression, architecture, *options, number))
    cached = user_cache("cubin", f"{hashlib.sha256(encoded_source(key)).hexdigest()}.cubin")
    if compiled := kept(cached, Compiled):
        return compiled
    (compiled,) = _compile(text, source, (expression,), architecture, options)
    keep_value(cached, compiled)
    return compiled


def compile_together(
    source: Path, expressions: Sequence[str], architecture: str, options: tuple[str, ...] = ()
) -> tuple[Compiled, ...]:
    """Compile several instances of a file as one program, which takes less time than one by one.

    The instances share one cubin. Nothing is kept in the user's cache. Raises CompileError with the
    compiler's first error if one of them does not compile.
    """
    return _compile(read_source(source), source, expressions, architecture, (*OPTIONS, *options))


def version() -> str:
    """Return `NVRTC` and its version. Raises CompileError if NVRTC cannot be loaded."""
    return "NVRTC {}.{}".format(*nvrtc_version())


@cache
def nvrtc_version() -> tuple[int, int]:
    """Return NVRTC's version. Raises CompileError if NVRTC cannot be loaded."""
    nvrtc = _nvrtc()
    _, major, minor = nvrtc.nvrtcVersion()
    return major, minor


@cache
def architectures() -> tuple[str, ...]:
    """Return the architectures that NVRTC compiles for, the oldest first.

    Raises CompileError if NVRTC cannot be loaded.
    """
    numbers = _checked(_nvrtc().nvrtcGetSupportedArchs())
    return tuple(f"sm_{number}" for number in sorted(numbers))


@cache
def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise CompileError(
            f"NVRTC is not available ({first_line(error)}); "
            f"{install_command('cuda13')}, or [test] to compile without a GPU"
        ) from error
    return nvrtc


def _compile(
    text: str,
    source: Path,
    expressions: Sequence[str],
    architecture: str,
    options: tuple[str, ...],
) -> tuple[Compiled, ...]:
    nvrtc = _nvrtc()
    # The absolute path, because NVRTC looks for a file's own includes beside it.
    name = os.path.realpath(source).encode()
    headers = [header.encode() for header in HOST_HEADERS]
    program = _checked(
        nvrtc.nvrtcCreateProgram(
            encoded_source(text), name, len(headers), [HOST_HEADER] * len(headers), headers
        )
    )
    try:
        for expression in expressions:
            _checked(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        encoded = [option.encode() for option in (f"--gpu-architecture={architecture}", *options)]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        log = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(
            errors="replace"
        )
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            names = ", ".join(expressions)
            raise CompileError(f"{names} for {architecture}: {_first_error(log)}")
        cubin = _text(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
        symbols = [
            _checked(nvrtc.nvrtcGetLoweredName(program, expression.encode())).decode()
            for expression in expressions
        ]
        return tuple(
            Compiled(cubin=cubin, symbol=symbol, resources=parse_resources(log, symbol))
            for symbol in symbols
        )
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _checked(returned: tuple[Any, ...]) -> Any:
    """Return the value of an NVRTC call. Raises CompileError if the call failed."""
    result, *values = returned
    if int(result) != 0:
        raise CompileError(f"NVRTC: {result.name}")
    return values[0] if values else None


def _text(program: Any, size: Any, get: Any) -> bytes:
    buffer = b" " * int(_checked(size(program)))
    _checked(get(program, buffer))
    return buffer


def _first_error(log: str) -> str:
    errors = [line for line in log.splitlines() if "error" in line]
    return errors[0].strip() if errors else log.strip().partition("\n")[0]


def parse_resources(log: str, symbol: str = "") -> Resources:
    """Read ptxas' report on one kernel (`--ptxas-options=-v`); without one, raise CompileError.

    `symbol` selects the kernel, because kernels that are not templates are always compiled too.
    """
    _, heading, report = log.partition(f"Compiling entry function '{symbol}'")
    if heading:
        log = report.partition("Compiling entry function")[0]
    if "Used " not in log:
        raise CompileError("the compiler did not report the kernel's registers")

    def number(pattern: str) -> int:
        match = re.search(pattern, log)
        return int(match[1]) if match else 0

    return Resources(
        registers=number(r"Used (\d+) registers"),
        local_bytes=number(r"(\d+) bytes stack frame"),
        spill_bytes=number(r"(\d+) bytes spill stores"),
        shared_bytes=number(r"(\d+) bytes smem"),
    )
