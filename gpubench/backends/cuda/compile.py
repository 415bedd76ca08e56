"""The one compile step: from source, template instance, architecture and options to a cubin.

Needs NVRTC (through cuda-bindings), and no GPU.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gpubench.cache import keep, user_cache
from gpubench.errors import CompileError, first_line, install_command
from gpubench.model import Resources
from gpubench.model.sources import include_folders, whole_source
from gpubench.results.output import open_regular

OPTIONS = ("--std=c++17", "--ptxas-options=-v", "--no-cache", "--device-as-default-execution-space")
"""Of every kernel. NVRTC's own cache gives a cubin without ptxas' report of its registers, and
NVRTC 13.0 takes a lambda with `auto` parameters for a host function, even in a kernel."""


HOST_HEADERS = ("algorithm", "assert.h", "cassert", "cmath", "cstdio", "cstdlib", "cublas_v2.h",
    "cuda_runtime.h", "device_launch_parameters.h", "iostream", "math.h", "stdio.h", "stdlib.h",
    "vector")  # fmt: skip
"""What a source for nvcc includes for its host code. NVRTC has none of them, and built in what of
them device code may use; it gets `HOST_HEADER`."""

HOST_HEADER = b"typedef unsigned int uint;\n"


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A kernel for one architecture."""

    cubin: bytes
    symbol: str
    """The instance's mangled name in the cubin."""

    resources: Resources


def compile_instance(
    source: Path, expression: str, architecture: str, options: tuple[str, ...] = ()
) -> Compiled:
    """Compile `expression` of a CUDA C++ file for an architecture such as `sm_90` or `sm_90a`.

    `options` are further options of NVRTC. Kept on disk in the user's cache, keyed by everything
    that decides the outcome. Raises CompileError with the compiler's first error.
    """
    text = source.read_text(encoding="utf-8")
    files = whole_source(source, include_folders(options))[1:]
    included = [path.read_text(encoding="utf-8") for path in files]
    version = ".".join(map(str, nvrtc_version()))
    options = (*OPTIONS, *options)
    key = "\0".join((text, *included, expression, architecture, *options, version))
    cached = user_cache("cubin", f"{hashlib.sha256(key.encode()).hexdigest()}.cubin")
    if compiled := _read_cached(cached):
        return compiled
    compiled = _compile(text, source, expression, architecture, options)
    keep(cached, msgspec.msgpack.encode(compiled))
    return compiled


@cache
def nvrtc_version() -> tuple[int, int]:
    """NVRTC's version. Raises CompileError where NVRTC cannot be loaded."""
    nvrtc = _nvrtc()
    _, major, minor = nvrtc.nvrtcVersion()
    return major, minor


@cache
def architectures() -> tuple[str, ...]:
    """What NVRTC compiles for, oldest first. Raises CompileError where NVRTC cannot be loaded."""
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
    text: str, source: Path, expression: str, architecture: str, options: tuple[str, ...]
) -> Compiled:
    nvrtc = _nvrtc()
    # The whole path: a file's own includes are looked for beside it.
    name = str(source.resolve()).encode()
    headers = [header.encode() for header in HOST_HEADERS]
    program = _checked(
        nvrtc.nvrtcCreateProgram(
            text.encode(), name, len(headers), [HOST_HEADER] * len(headers), headers
        )
    )
    try:
        _checked(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        encoded = [option.encode() for option in (f"--gpu-architecture={architecture}", *options)]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        log = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode()
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"{expression} for {architecture}: {_first_error(log)}")
        symbol = _checked(nvrtc.nvrtcGetLoweredName(program, expression.encode())).decode()
        return Compiled(
            cubin=_text(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
            symbol=symbol,
            resources=parse_resources(log, symbol),
        )
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _checked(returned: tuple[Any, ...]) -> Any:
    """The value of an NVRTC call; CompileError if it failed."""
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
    """Read ptxas' report on one kernel (`--ptxas-options=-v`). Raises CompileError without one.

    A source may have kernels that are no templates, which are compiled, too: `symbol` is the one.
    """
    _, found, of_symbol = log.partition(f"Compiling entry function '{symbol}'")
    if found:
        log = of_symbol.partition("Compiling entry function")[0]
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


def _read_cached(path: Path) -> Compiled | None:
    """What an earlier process compiled; None if there is none, or the file is damaged."""
    try:
        with open_regular(path) as file:
            return msgspec.msgpack.decode(file.read(), type=Compiled)
    except (OSError, msgspec.MsgspecError):
        return None
