"""Compiles host functions by nvcc, and kernels from files that NVRTC cannot compile.

nvcc needs g++, and no GPU. nvcc is part of the CUDA toolkit, or of the wheels of the extra `nvcc`.
"""

import ctypes
import ctypes.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gpubench.backends.cuda.headers import header_folders
from gpubench.cache import cache_file, made_once
from gpubench.errors import CompileError, install_command
from gpubench.model import PRECISIONS, Config, HostVariant
from gpubench.model.sources import encoded_source, included_names, read_source
from gpubench.process.child import run_with_folder
from gpubench.temporary import temporary_folder

MAX_COMPILE_S = 900
"""Time limit of a compilation. Large templates, such as the templates of CUTLASS, take minutes."""

MARKER = "gpubench_entry"

STAND_INS = Path(__file__).with_name("stand_ins")
"""Folder with replacements of PyTorch's headers, which sources of PyTorch extensions include."""

_ERROR = r"\b(?:error|fatal)\s*(?:#[\w-]+\s*)?:|undefined reference|cannot find"

CALLS = Path(__file__).with_name("host_calls.cpp")

WRAPPED = tuple(
    name
    for names in re.findall(r"^WRAP\w*\((\w+),|__wrap_(cuda\w+)", read_source(CALLS), re.MULTILINE)
    for name in filter(None, names)
)
"""The functions of the CUDA runtime that `host_calls.cpp` replaces."""

SHARED = (
    "-shared",
    "-Xcompiler=-fPIC,-fno-gnu-unique",
    "-Xlinker=-Bsymbolic," + ",".join(f"--wrap={name}" for name in WRAPPED),
)
"""Options of a shared library. The symbols of the library stay private, because two libraries may
define the same template."""

ENTRY = "gpubench_call"  # name of the library's function that calls the host function


@cache
def find(program: str = "nvcc") -> str | None:
    """Find a CUDA program in installed wheels, CUDA_HOME or PATH. Return its path, or None."""
    try:
        from cuda.pathfinder import find_nvidia_binary_utility

        path = find_nvidia_binary_utility(program)
    except ImportError:  # an old cuda-bindings
        path = None
    return path or shutil.which(program)


@cache
def version() -> str:
    """Return `nvcc` and its version. Raises CompileError if nvcc cannot run."""
    text, _ = run(("--version",))
    number = re.search(r"V(\d+\.\d+)", text)
    return f"nvcc {number[1] if number else ''}".strip()


def run(arguments: Sequence[str | Path]) -> tuple[str, str]:
    """Run nvcc, and return its output and its messages.

    Raises CompileError if nvcc or g++ is missing. If nvcc fails, the message is nvcc's first error.
    """
    nvcc = find()
    if nvcc is None:
        raise CompileError(
            f"nvcc is not available; {install_command('nvcc')}, or set CUDA_HOME to your toolkit"
        )
    if not shutil.which("g++") and not any(str(part).startswith("-ccbin") for part in arguments):
        raise CompileError("nvcc needs g++, which is not installed: install a C++ compiler")
    try:
        ended = run_with_folder((nvcc, *arguments), limit_s=MAX_COMPILE_S)
    except subprocess.TimeoutExpired as error:
        raise CompileError(f"nvcc did not end within {MAX_COMPILE_S} s") from error
    out, err = (text.decode(errors="replace") for text in (ended.stdout, ended.stderr))
    if ended.returncode:
        raise CompileError(first_error(err + out))
    return out, err


def first_error(log: str) -> str:
    """Return the line with the first error from the log of a compiler or linker."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(_ERROR, line) and "collect2" not in line]
    return next(iter(errors or lines), "the compiler failed without a message")


def base_options(options: Sequence[str]) -> tuple[str, ...]:
    """Return the user's options, and the options that gpubench adds.

    The added options name include folders, and C++17 if the user's options name no standard. The
    wheels of cuBLAS and CCCL may be in other folders than nvcc, and have another version. So the
    folders of the wheels are searched after nvcc's own folders.
    """
    has_standard = any(re.match("--?std", option) for option in options)
    folders = (f"-isystem={folder}" for folder in (*header_folders("cublas", "cccl"), STAND_INS))
    linked = [
        part
        for option in options
        for part in (_LINKED[option]() if option in _LINKED else (option,))
    ]
    return (*linked, *(() if has_standard else ("-std=c++17",)), *folders)


def _cublas() -> tuple[str, ...]:
    """Return options that link cuBLAS. The wheels lack `libcublas.so`, which `-lcublas` needs."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("cublas").abs_path
    except (ImportError, RuntimeError):
        path = None
    if not path:
        return ("-lcublas",)
    folder, name = os.path.split(path)
    return f"-L{folder}", f"-l:{name}", f"-Xlinker=-rpath={folder}"


def _driver() -> tuple[str, ...]:
    """Return the option that links the CUDA driver, or no option if the driver is not installed.

    The process that loads the compiled library has already loaded the driver.
    """
    name = ctypes.util.find_library("cuda")
    return (f"-l:{name}",) if name else ()


_LINKED = {"-lcublas": _cublas, "-lcuda": _driver}
"""Maps each option that links a CUDA library to a function. The function returns the options to use
in place of that option."""


def stand_ins(texts: Iterable[str]) -> list[str]:
    """Return the texts that replace headers of PyTorch which sources with these texts include."""
    names = {name for text in texts for name in included_names(text)}
    files = [STAND_INS / name for name in sorted(names)]
    return [read_source(file) for file in files if file.is_file()]


def code_for(architecture: str) -> str:
    """Return nvcc's option for an architecture. nvcc 13.5 treats `-arch=sm_90a` as sm_90."""
    return f"-gencode=arch={architecture.replace('sm', 'compute')},code={architecture}"


def compile_kernel(
    source: Path, expression: str, architecture: str, options: Sequence[str]
) -> tuple[bytes, str, str]:
    """Compile a file to a cubin.

    Return the cubin, the symbol of the kernel `expression`, and ptxas' log.

    nvcc compiles a text that includes the file and adds a kernel template with `expression` as
    template argument. The instance of the template also instantiates the kernel, and the symbol of
    the instance contains the kernel's name. Raises CompileError.
    """
    text = (
        f'#include "{source.resolve()}"\n'
        f"template <auto* Entry> __global__ void {MARKER}() {{}}\n"
        f"template __global__ void {MARKER}<{expression}>();\n"
    )
    with temporary_folder() as folder:
        file, cubin = folder / "kernel.cu", folder / "kernel.cubin"
        file.write_bytes(encoded_source(text))
        target = ("-cubin", code_for(architecture), "-Xptxas=-v", "-o", cubin, file)
        _, log = run((*base_options(options), *target))
        return cubin.read_bytes(), entry_symbol(log, expression), log


def wrapper(variant: HostVariant, tile: Config | None, dtype: str) -> str:
    """Return C++ code that includes a variant's source and calls the function of the source.

    The code gets an array of pointers. Each pointer points to an argument, as for cuLaunchKernel.
    The function of the user may be a template, overloaded, static or in a namespace. The generated
    function returns the last error of the CUDA runtime.
    """
    scalar = PRECISIONS[dtype].cpp
    types = [
        re.sub(r"\bScalar\b", scalar, parameter.cpp).rstrip("&")
        for parameter in variant.parameters()
    ]
    arguments = ", ".join(f"*({kind} *)arguments[{index}]" for index, kind in enumerate(types))
    return (
        f'#include "{os.path.realpath(variant.source)}"\n'
        f'extern "C" int {ENTRY}(void **arguments) {{\n'
        f"  {variant.function(tile, dtype)}({arguments});\n"
        "  return cudaGetLastError();\n}\n"
    )


def compile_library(
    variant: HostVariant, tile: Config | None, dtype: str, architecture: str
) -> bytes:
    """Return the shared library of a variant's function. The library is kept in the user's cache.

    From compute capability 9.0 on, the library is compiled for architecture-specific instructions.
    Raises CompileError.
    """
    if variant.source.suffix == ".so":
        return variant.source.read_bytes()
    if int(architecture.removeprefix("sm_")) >= 90:  # noqa: PLR2004 # compute capability 9.0
        architecture += "a"
    text = wrapper(variant, tile, dtype)
    options = variant.options(tile, dtype)
    files = [*map(read_source, (*variant.sources[1:], CALLS))]

    def compile_it() -> bytes:
        with temporary_folder() as folder:
            file, output = folder / "host.cu", folder / "host.so"
            file.write_bytes(encoded_source(text))
            target = (code_for(architecture), *SHARED, "-o", output, file, CALLS)
            try:
                run((*target, *base_options(options)))
            except CompileError as error:
                function = variant.function(tile, dtype)
                raise CompileError(f"{function} for {architecture}: {error}") from error
            return output.read_bytes()

    facts = (*files, *stand_ins(files), text, *options, code_for(architecture), version())
    return made_once(cache_file("cubin", *facts), bytes, compile_it)


def entry_symbol(log: str, expression: str) -> str:
    """Return the symbol of the kernel that `MARKER` names, or raise CompileError."""
    symbols: list[str] = re.findall(r"Compiling entry function '(\w+)'", log)
    marker = next((symbol for symbol in symbols if MARKER in symbol), "")
    named = demangled(marker).partition("<&")[2].removesuffix(">()")
    if named.startswith("(") and not named.startswith("(anonymous"):
        named = named[1:-1]
    matching = [
        symbol
        for symbol in symbols
        if symbol != marker
        and (named in {demangled(symbol), symbol} or named.startswith(f"{symbol}(")
             or f"L{symbol}E" in marker)
    ]  # fmt: skip
    if len(matching) != 1:
        what = f"{len(matching)} kernels" if matching else "no kernel"
        raise CompileError(f"{expression}: nvcc compiled {what} of the name '{named}'")
    return matching[0]


def demangled(symbol: str) -> str:
    """Return the C++ name of a mangled symbol. Other symbols are returned unchanged."""
    try:
        library, status = ctypes.CDLL("libstdc++.so.6"), ctypes.c_int()
    except OSError as error:
        raise CompileError("nvcc needs g++ and its library libstdc++.so.6") from error
    demangle: Any = library["__cxa_demangle"]
    demangle.restype = ctypes.c_void_p
    text = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if status.value or not text:
        return symbol
    name = ctypes.string_at(text).decode(errors="replace")
    library.free(ctypes.c_void_p(text))
    return name


def without_parameters(name: str) -> str:
    """Return the name of a kernel in C++ without its parameters and without casts of constants."""
    name = name.replace("(anonymous namespace)::", "")
    name = re.sub(r"\((int|unsigned int|unsigned long|bool)\)", "", name)
    return name.partition("(")[0].removeprefix("void ")
