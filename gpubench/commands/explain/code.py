"""Compiles instances on all CPUs, and keeps the figures in a cache.

A process compiles the instances of one source as one program, and disassembles them together,
because each run of the disassembler takes a third of a second. The figures are kept in the user's
cache, in a file for each source, architecture and version of the tools.
"""

import multiprocessing
import os
import re
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import gpubench
from gpubench.backends.cuda import compile as compiler
from gpubench.backends.cuda import nvcc
from gpubench.backends.cuda.compile import Compiled
from gpubench.backends.cuda.headers import toolkit_options
from gpubench.cache import cache_file, keep_value, kept
from gpubench.commands.explain import sass
from gpubench.commands.explain.sass import (
    InnerLoop,
    inner_loop,
    max_threads,
    run_disassembler,
    sections,
)
from gpubench.errors import CompileError, GpubenchError, install_command
from gpubench.hardware.host import cpu_threads
from gpubench.model import Resources
from gpubench.process.descendants import end_with_parent

MAX_TOGETHER = 24  # maximum number of instances in a program; with more, some CPUs have no work


@dataclass(frozen=True, kw_only=True)
class Program:
    """Instances from one source, which are compiled together for one architecture."""

    source: Path
    source_hash: str
    architecture: str  # with the suffix that the kernel needs: `sm_90a`
    options: tuple[str, ...]  # the kernel's own compile options
    instances: tuple[tuple[str, str], ...]  # the expression and the element type of each instance


@dataclass(frozen=True, kw_only=True)
class Code:
    """The result of compiling an instance, or the error if the instance does not compile."""

    error: str = ""
    resources: Resources | None = None
    note: str = ""  # which compiler took NVRTC's place, or which headers were replaced
    max_threads: int | None = None  # from `__launch_bounds__`; None if unlimited or unknown
    is_disassembled: bool = False  # false if no disassembler lists the architecture's code
    loop: InnerLoop | None = None  # None if no loop with multiply-adds was disassembled


Codes = dict[tuple[str, str], Code]  # the code of each instance, by expression and element type


@cache
def disassembler_version() -> str:
    """Return nvdisasm's version, such as `13.1.80`, or an empty text if nvdisasm is missing."""
    text = run_disassembler("--version")
    match = re.search(r"\bV(\d[\d.]*)", text or "")
    return match[1] if match else "unknown" if text else ""


def missing_disassembler() -> str:
    """Return a line on what is unknown without nvdisasm, or an empty text if it is installed."""
    if disassembler_version():
        return ""
    install = install_command("sass")
    return f"nvdisasm is missing, so inner loops and launch bounds are not shown: {install}"


def compile_programs(
    programs: Sequence[Program], on_compiled: Callable[[int], None]
) -> dict[Program, Codes]:
    """Compile the programs, and return the code of each instance.

    `on_compiled` receives the number of instances that are compiled so far.

    Raises GpubenchError if a compiling process is lost.
    """
    codes = {program: _read_kept(program) for program in programs}
    done = sum(instance in codes[program] for program in programs for instance in program.instances)
    on_compiled(done)
    parts: dict[Program, Program] = {}
    for program in programs:
        missing = [each for each in program.instances if each not in codes[program]]
        for start in range(0, len(missing), MAX_TOGETHER):
            instances = tuple(missing[start : start + MAX_TOGETHER])
            parts[replace(program, instances=instances)] = program
    ordered = sorted(parts, key=lambda part: len(part.instances), reverse=True)
    with closing(_compile_all(ordered)) as compiled:
        for part, figures in compiled:
            program = parts[part]
            codes[program] |= figures
            keep_value(_kept_file(program), list(codes[program].items()))
            done += len(part.instances)
            on_compiled(done)
    return codes


def _compile_all(programs: Sequence[Program]) -> Generator[tuple[Program, Codes]]:
    """Compile the programs in several processes, and yield each program's code when it is ready."""
    started = _pool(min(cpu_threads(), len(programs)))
    if started is None:
        yield from ((program, compile_program(program)) for program in programs)
        return
    with started as pool:
        try:
            # The started processes inherit the blocked signal, so only this process ends them at
            # Ctrl-C. Another thread of this process may still receive the signal.
            pressed: list[int] = []
            handler = signal.signal(signal.SIGINT, lambda number, _frame: pressed.append(number))
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                futures = {pool.submit(compile_program, program): program for program in programs}
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                signal.signal(signal.SIGINT, handler)
            if pressed:
                signal.raise_signal(signal.SIGINT)
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise GpubenchError(
                "a process that compiles was lost, perhaps because memory ran out; what was "
                "compiled is kept, so the same command continues from there"
            ) from None
        except BaseException:
            # Ctrl-C does not wait for the running compilations, which may take a quarter of a
            # minute.
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _pool(processes: int) -> ProcessPoolExecutor | None:
    """Return a pool of processes that compile.

    Return None if a single process is enough, or if /dev/shm is not writable.
    """
    if processes <= 1:
        return None
    # Each process starts a new interpreter, because the parent's threads would not survive a fork.
    context = multiprocessing.get_context("spawn")
    try:
        return ProcessPoolExecutor(processes, context, end_with_parent, (os.getpid(),))
    except OSError:
        return None


def compile_program(program: Program) -> Codes:
    """Compile the instances of a program together, or one by one if an instance fails."""
    expressions = tuple(dict.fromkeys(expression for expression, _ in program.instances))
    source, architecture, options = program.source, program.architecture, program.options
    errors: dict[str, str] = {}
    compiled: dict[str, Compiled] = {}
    try:
        together = compiler.compile_together(source, expressions, architecture, options)
        compiled = dict(zip(expressions, together, strict=True))
    except CompileError:
        for expression in expressions:
            try:
                compiled[expression] = compiler.compile_instance(
                    source, expression, architecture, options
                )
            except CompileError as error:
                errors[expression] = str(error)
    listed = {cubin: sections(cubin) for cubin in {each.cubin for each in compiled.values()}}
    return {
        (expression, dtype): _code(compiled[expression], listed, dtype)
        if expression in compiled
        else Code(error=errors[expression])
        for expression, dtype in program.instances
    }


def _code(compiled: Compiled, listed: Mapping[bytes, Mapping[str, str]], dtype: str) -> Code:
    listing = listed[compiled.cubin].get(f".text.{compiled.symbol}", "")
    return Code(
        resources=compiled.resources,
        note=compiled.note,
        max_threads=max_threads(listed[compiled.cubin].get(f".nv.info.{compiled.symbol}", "")),
        is_disassembled=bool(listing),
        loop=inner_loop(listing, dtype),
    )


def _kept_file(program: Program) -> Path:
    """Return the program's file in the cache.

    The file's name changes with everything that the figures depend on.
    """
    return cache_file(
        "build",
        program.source_hash,
        program.architecture,
        program.options,
        compiler.version(),
        _nvcc_version(),
        toolkit_options(),
        disassembler_version(),
        gpubench.__version__,
        Path(sass.__file__).read_bytes(),
    )


def _nvcc_version() -> str:
    """Return nvcc's version, or an empty text if nvcc cannot run."""
    with suppress(CompileError):
        return nvcc.version()
    return ""


def _read_kept(program: Program) -> Codes:
    """Return the figures from the cache, or an empty dictionary if the cache has no intact file.

    Figures that were made without a disassembler are valid only while no disassembler is installed.
    Errors are not read, because the compiler that was missing may have been installed.
    """
    items = kept(_kept_file(program), list[tuple[tuple[str, str], Code]]) or []
    complete = not disassembler_version()
    usable = ((key, code) for key, code in items if not code.error)
    return {key: code for key, code in usable if complete or code.is_disassembled}
