"""Compiles a template instance of a source for an architecture, without a device.

NVRTC compiles the instance, through cuda-bindings. nvcc compiles sources that NVRTC cannot compile,
and sources whose descriptions name nvcc. NVRTC and nvcc need no GPU.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import gpubench
from gpubench.backends.cuda import nvcc
from gpubench.backends.cuda.headers import HEADERS, stood_in, toolkit_options
from gpubench.cache import cache_file, made_once
from gpubench.errors import CompileError, first_line, install_command
from gpubench.model import Resources
from gpubench.model.sources import (
    encoded_source,
    include_folders,
    included_names,
    read_source,
    whole_source,
)

OPTIONS = ("--std=c++17", "--ptxas-options=-v", "--no-cache", "--device-as-default-execution-space")
"""Options of every kernel. `--no-cache` is needed because NVRTC's own cache returns cubins without
ptxas' report of registers. `--device-as-default-execution-space` is needed because NVRTC 13.0
treats a lambda with `auto` parameters as a host function, even in a kernel."""

NVCC = "--compiler=nvcc"
"""The option with which a description selects nvcc. This option is always the first option, and is
not passed to a compiler."""

HOST_CODE = re.compile(r"<<\s*<|^[ \t]*#[ \t]*include", re.MULTILINE)
"""Pattern of the parts of a source that NVRTC may not support: launches and headers. In a source
without such parts, nvcc would find the same errors as NVRTC."""


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A kernel that was compiled for one architecture."""

    cubin: bytes
    symbol: str  # the instance's mangled name in the cubin
    resources: Resources

    note: str = ""
    """The compiler that was used instead of NVRTC, or the headers that were replaced. Empty if
    neither applies."""

    seconds: float = field(default=0.0, compare=False)
    """Wall time of the compilation. Instances that are compiled together have the same time."""


PACKAGE = Path(gpubench.__file__).resolve().parent


def compile_instance(
    source: Path, expression: str, architecture: str, options: tuple[str, ...] = ()
) -> Compiled:
    """Compile the instance `expression` of a CUDA C++ file for an architecture such as `sm_90a`.

    `options` are further options of the compiler. A user's source that NVRTC cannot compile is
    compiled by nvcc, if nvcc is installed. The user's cache keeps the result, under a key that
    depends on everything that affects the result. Raises CompileError with the compiler's first
    error.
    """
    if NVCC in options:
        return _by_nvcc(source, expression, architecture, options[1:])
    text = read_source(source)
    try:
        options_of_nvrtc = (*OPTIONS, *options, *toolkit_options())
        return made_once(
            _file(source, options, (expression, architecture, *options_of_nvrtc, version())),
            Compiled,
            lambda: _compile(text, source, (expression,), architecture, options_of_nvrtc)[0],
        )
    except CompileError as error:
        is_ours = PACKAGE in source.resolve().parents
        if is_ours or nvcc.find() is None or not HOST_CODE.search(text):
            raise
        why = str(error).partition("error: ")[2] or str(error)
        compiled = _by_nvcc(source, expression, architecture, options)
        return replace(compiled, note=f"compiled by {nvcc.version()}, because NVRTC reports: {why}")


def _by_nvcc(
    source: Path, expression: str, architecture: str, options: tuple[str, ...]
) -> Compiled:
    """Compile an instance by nvcc, and return it. Raises CompileError."""
    version_of_nvcc = nvcc.version()

    def compile_it() -> Compiled:
        started = perf_counter()
        try:
            cubin, symbol, log = nvcc.compile_kernel(source, expression, architecture, options)
        except CompileError as error:
            raise CompileError(f"{named(expression)} for {architecture}: {error}") from error
        return Compiled(
            cubin=cubin,
            symbol=symbol,
            resources=parse_resources(log, symbol),
            note=f"compiled by {version_of_nvcc}",
            seconds=perf_counter() - started,
        )

    facts = (expression, architecture, *options, version_of_nvcc)
    return made_once(_file(source, options, facts), Compiled, compile_it)


def _file(source: Path, options: tuple[str, ...], further: tuple[str, ...]) -> Path:
    """Return the path of the file that keeps an instance in the user's cache.

    The file's name also depends on the files that the source includes, and on the texts that
    replace headers.
    """
    texts = [*map(read_source, whole_source(source, include_folders(options)))]
    included = {name for text in texts for name in included_names(text)}
    replaced = [HEADERS[name] for name in sorted(included & HEADERS.keys())]
    return cache_file("cubin", *texts, *replaced, *nvcc.stand_ins(texts), *further)


def compile_together(
    source: Path, expressions: Sequence[str], architecture: str, options: tuple[str, ...] = ()
) -> tuple[Compiled, ...]:
    """Compile several instances of a file as one program, which is faster than many programs.

    The instances share one cubin. Nothing is kept in the user's cache. Raises CompileError with the
    compiler's first error if an instance does not compile.
    """
    if NVCC in options:
        raise CompileError("nvcc compiles one instance at a time")
    options = (*OPTIONS, *options, *toolkit_options())
    return _compile(read_source(source), source, expressions, architecture, options)


def version() -> str:
    """Return `NVRTC` and its version. Raises CompileError if NVRTC cannot be loaded."""
    return "NVRTC {}.{}".format(*nvrtc_version())


def named(expression: str) -> str:
    """Return the kernel's name from an expression that may cast the kernel to another type."""
    cast = re.fullmatch(r"static_cast<.*?\)>\((.*)\)", expression)
    return cast[1] if cast else expression


@cache
def nvrtc_version() -> tuple[int, int]:
    """Return NVRTC's version. Raises CompileError if NVRTC cannot be loaded."""
    nvrtc = _nvrtc()
    _, major, minor = nvrtc.nvrtcVersion()
    return major, minor


@cache
def architectures() -> tuple[str, ...]:
    """Return NVRTC's architectures, oldest first. Raises CompileError if NVRTC is missing."""
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
            f"{install_command('cuda13')}, or the extra test to compile without a GPU"
        ) from error
    return nvrtc


def _compile(
    text: str, source: Path, expressions: Sequence[str], architecture: str, options: tuple[str, ...]
) -> tuple[Compiled, ...]:
    nvrtc = _nvrtc()
    # NVRTC gets the absolute path, because it looks for a file's includes in the file's folder.
    name = os.path.realpath(source).encode()
    headers = [header.encode() for header in HEADERS]
    contents = [content.encode() for content in HEADERS.values()]
    program = _checked(
        nvrtc.nvrtcCreateProgram(encoded_source(text), name, len(headers), contents, headers)
    )
    started = perf_counter()
    try:
        for expression in expressions:
            _checked(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        encoded = [option.encode() for option in (f"--gpu-architecture={architecture}", *options)]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        log = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(
            errors="replace"
        )
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            names = ", ".join(map(named, expressions))
            raise CompileError(f"{names} for {architecture}: {nvcc.first_error(log)}")
        cubin = _text(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
        symbols = [
            _checked(nvrtc.nvrtcGetLoweredName(program, expression.encode())).decode()
            for expression in expressions
        ]
        folders = include_folders(set(options) - set(toolkit_options()))
        replaced = ", ".join(stood_in(whole_source(source, folders)))
        note = f"NVRTC read gpubench's replacements of {replaced}" if replaced else ""
        return tuple(
            Compiled(
                cubin=cubin,
                symbol=symbol,
                resources=parse_resources(log, symbol),
                note=note,
                seconds=perf_counter() - started,
            )
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


def parse_resources(log: str, symbol: str = "") -> Resources:
    """Return a kernel's resources from ptxas' report (`--ptxas-options=-v`).

    `symbol` selects the kernel, because the log also has reports on the source's kernels that are
    not templates. Raises CompileError if there is no report.
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
