"""Runs CUDA kernels on the CPU under a sanitizer. g++ compiles the same source.

`shim/cuda.h` defines CUDA C++ for g++, and `shim/runtime.cpp` runs the blocks. A program consists
of the source of one variant and all instances that the cases launch.
"""

import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from threading import Lock

import numpy as np

from gpubench.cache import cache_file, made_once
from gpubench.errors import CompileError, UsageError
from gpubench.grouping import grouped
from gpubench.model import HostVariant
from gpubench.model.sources import encoded_source, include_folders, linked_sources, read_source
from gpubench.on_cpu.case import Case, encoded, operands, words
from gpubench.on_cpu.fault import HUNG, KILLED, KernelFaultError
from gpubench.on_cpu.unit import MISSING_HEADER, SHIM, translation_unit
from gpubench.process.child import run_program, run_with_folder, start_program
from gpubench.text import clean

ONE_AT_A_TIME = Lock()
"""Lock that is held while the runtime is compiled, because threads share its object file."""

RUNTIME_OPTIONS = ("-O2", "-g", "-fno-tree-loop-distribute-patterns")
"""Options for the runtime. g++ must not replace the runtime's loops by memcpy, which sanitizers
intercept."""

COMPILED = (
    "-Og",
    "-g1",
    "-w",
    "-fno-strict-aliasing",
    "-fno-omit-frame-pointer",
    "-fdata-sections",
)
"""Options for a kernel. Kernels load floats as float4, so g++ must not assume strict aliasing,
which nvcc does not assume either. shared.ld finds the shared arrays by their section names."""

PASSED = re.compile(r"-[DIU].*|--include-path=.*")
"""Pattern of a kernel's compile options that are passed to g++, too."""

LONGEST_ERROR = 400
"""Maximum number of characters of an error from g++."""

FILE_BYTES = 2**26
"""Maximum number of bytes of a file that a program writes. The limit also applies to the file that
receives the program's output."""

LIMITS = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: FILE_BYTES}

STALLED_S = 60
"""Time limit of a launch. A program that makes no progress for this time counts as hung."""


class Sanitizer(Enum):
    """The options of g++ for a sanitizer."""

    # AddressSanitizer includes the checks of -fsanitize=object-size.
    ADDRESS = (
        "-fsanitize=address,undefined", "-fno-sanitize=object-size", "-fno-sanitize-recover=all",
    )  # fmt: skip
    THREAD = ("-fsanitize=thread",)
    NONE = ("-O2", "-march=native")
    ZEROED = ("-ftrivial-auto-var-init=zero",)  # variables without a value are 0; since g++ 12

    @property
    def environment(self) -> dict[str, str]:
        """The sanitizer's options, as environment variables.

        The program ends at the first finding. Accesses far beyond an operand are found too. A
        kernel may use at most half of the machine's memory.
        """
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory = f"hard_rss_limit_mb={memory_bytes // 2 >> 20}"
        if self in {Sanitizer.NONE, Sanitizer.ZEROED}:
            return {}
        if self is Sanitizer.THREAD:
            options = "halt_on_error=1:exitcode=1:report_signal_unsafe=0"
            return {"TSAN_OPTIONS": f"{options}:{memory}"}
        options = "redzone=2048:detect_leaks=0:detect_stack_use_after_return=0"
        return {"ASAN_OPTIONS": f"{options}:{memory}", "UBSAN_OPTIONS": "print_stacktrace=0"}


def run_on_cpu(
    cases: Sequence[Case],
    sanitizer: Sanitizer,
    folder: Path,
    text: str | None = None,
    stalled_s: float = STALLED_S,
) -> list[np.ndarray]:
    """Run cases of one variant and return their outputs. Raises KernelFaultError for a finding.

    `text` replaces the source on disk. `folder` is empty or new, or has a program of the same
    variant from an earlier call, which then runs again. A launch without progress for `stalled_s`
    is a finding.
    """
    outputs: dict[int, np.ndarray] = {}
    by_options = grouped(
        enumerate(cases), lambda pair: pair[1].variant.options(pair[1].tile, pair[1].problem.dtype)
    )
    for number, (options, group) in enumerate(by_options.items()):
        indices, alike = zip(*group, strict=True)
        home = folder / str(number) if number else folder
        run = _run_alike(alike, options, sanitizer, home, text, stalled_s)
        outputs |= zip(indices, run, strict=True)
    return [outputs[index] for index in range(len(cases))]


def _run_alike(
    cases: Sequence[Case],
    options: Sequence[str],
    sanitizer: Sanitizer,
    folder: Path,
    text: str | None,
    stalled_s: float,
) -> list[np.ndarray]:
    """Run cases that have the same compile options by one program.

    The program runs once for each part of the cases whose arrays fit into a file (`FILE_BYTES`).
    """
    (variant,) = {case.variant for case in cases}
    folder.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(name for case in cases for name in case.instances))
    program = folder / "program"
    if not program.exists():
        entry = names[0] if isinstance(variant, HostVariant) else ""
        unit = translation_unit(variant.source, text, names, entry, include_folders(options))
        build(unit, variant.source, folder, sanitizer.value, sanitizer.value, options)
    inputs, outputs = folder / "inputs", folder / "outputs"
    results: list[np.ndarray] = []
    for part in _parts(cases):
        with inputs.open("wb") as file:
            file.write(words(len(part)))
            file.writelines(encoded(case, names) for case in part)
        try:
            execute([str(program), str(inputs), str(outputs)], sanitizer, stalled_s)
        except KernelFaultError as fault:
            launched = [case for case in part for _ in case.launch.sequence]
            fault.case = launched[max(0, fault.launches - 1)]
            raise
        results += _decoded(outputs.read_bytes(), part)
    return results


def _parts(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Divide cases into parts whose arrays fit into a file of `FILE_BYTES`."""
    part: list[Case] = []
    part_bytes = 0
    for case in cases:
        if part and part_bytes + case.problem.bytes > FILE_BYTES:
            yield part
            part, part_bytes = [], 0
        part.append(case)
        part_bytes += case.problem.bytes
    yield part


def runtime_object(folder: Path, name: str = "runtime") -> Path:
    """Compile a source of the shim without a sanitizer, and return the object file.

    All programs of a folder share the file. The user's cache keeps the file, because g++ takes two
    seconds.
    """
    path = folder / f"{name}.o"
    with ONE_AT_A_TIME:
        if path.exists():
            return path
        sources = [path.read_bytes() for path in sorted(SHIM.glob("*.*"))]
        facts = (name, sources, RUNTIME_OPTIONS, gxx("--version"))

        def compiled() -> bytes:
            gxx(*RUNTIME_OPTIONS, "-c", str(SHIM / f"{name}.cpp"), "-o", str(path))
            return path.read_bytes()

        path.write_bytes(made_once(cache_file("check", *facts), bytes, compiled))
    return path


def build(
    unit: str,
    source: Path,
    folder: Path,
    flags: Sequence[str],
    link: Sequence[str],
    options: Sequence[str] = (),
) -> Path:
    """Compile the translation unit of a source, link it with the runtime, and return the program.

    `options` are the compile options of a variant, which may name further sources to link. `flags`
    and `link` are options of g++. Raises UsageError for a missing source, and the exceptions of
    `gxx`.
    """
    program, linked = folder / "program", linked_sources(options)
    if missing := [path for path in linked if not path.is_file()]:
        raise UsageError(f"compile_options: {missing[0]} is not a file")
    flags = (*COMPILED, *flags, *filter(PASSED.fullmatch, options), f"-I{SHIM}")
    flags = (*flags, "-DON_CPU_LINKED") if linked else flags
    objects: list[str] = []
    for path in (source, *linked):
        if path != source:
            others = (read_source(each) for each in linked if each != path)
            called = "\n".join((_undefined(objects), *others))
            unit = translation_unit(path, None, (), called, include_folders(options))
        objects.append(str(folder / f"{len(objects)}.kernel.o"))
        gxx(*flags, "-iquote", str(path.parent), "-c", "-x", "c++", "-", "-o", objects[-1],
            text=unit)  # fmt: skip
    runtime = runtime_object(folder.parent)
    gxx(*link, f"-Wl,-T,{SHIM / 'shared.ld'}", *objects, str(runtime), "-o", str(program))
    return program


def _undefined(objects: Iterable[str]) -> str:
    """Return the names that object files use and do not define."""
    return run_program(["nm", "-uC", *objects]).stdout.decode(errors="replace")


def gxx(*arguments: str, text: str = "") -> str:
    """Compile or link by g++, and return what g++ prints.

    Raises UsageError if g++ is missing, and CompileError with the first error of g++.
    """
    compiler = shutil.which("g++")
    if not compiler:
        raise UsageError("g++ is missing: it compiles kernels for the CPU; Debian: apt install g++")
    command = [compiler, "-std=c++20", "-fmax-errors=1", *arguments]
    done = run_with_folder(command, encoded_source(text))
    if done.returncode:
        said = done.stderr.decode(errors="replace")  # the text may quote a source in any encoding
        if undefined := re.search(r"undefined reference to [`'‘]([^'’]*)", said):
            raise CompileError(
                f"no source defines {clean(undefined[1])}; name the source in compile_options, "
                'such as "../utils.cu"'
            )
        errors = re.findall(r"^.*(?:rror:|cannot find).*$", said, re.MULTILINE)
        error = next(iter(errors), said)
        missing = dict.fromkeys(re.findall(f"{MISSING_HEADER}([^’'\"\n]+)", said))
        why = f" (headers that g++ does not find: {', '.join(missing)})" if missing else ""
        if " Error: " in error:  # the assembler's, not the compiler's
            why = " (inline PTX, which g++ does not assemble)"
        raise CompileError(f"g++: {clean(error[:LONGEST_ERROR])}{clean(why)}")
    return done.stdout.decode(errors="replace")


def execute(
    command: Sequence[str], sanitizer: Sanitizer | None = None, stalled_s: float = STALLED_S
) -> None:
    """Run a program to its end. Raises KernelFaultError if the program fails.

    If ThreadSanitizer does not work with this system's randomized addresses, the program runs again
    without randomized addresses.
    """
    code, lines = _run(command, sanitizer, stalled_s)
    if any("unexpected memory mapping" in line for line in lines):
        # ThreadSanitizer of g++ 12 requires that Linux randomizes at most 28 bits of addresses.
        if not shutil.which("setarch"):
            raise UsageError(
                "ThreadSanitizer does not work with Linux's address space randomization here; "
                "install setarch (util-linux), or set vm.mmap_rnd_bits=28"
            )
        code, lines = _run(["setarch", "-R", *command], sanitizer, stalled_s)
    if code != 0:
        # The report starts with the name of the last case, without the cases that succeeded.
        running = [line for line in lines if line.startswith("running ")]
        details = (line for line in lines if line not in running)
        raise KernelFaultError("\n".join([*running[-1:], *details]), len(running))


def _run(
    command: Sequence[str], sanitizer: Sanitizer | None, stalled_s: float
) -> tuple[int, list[str]]:
    """Run a program with limits. Return the exit code and the lines of stderr.

    A program that prints nothing for `stalled_s` is killed, and the last line states that. The
    runtime prints a line before each launch.
    """
    environment = {**os.environ, **(sanitizer.environment if sanitizer else {})}
    with tempfile.TemporaryFile() as report:
        process = start_program(
            command, LIMITS, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=report,
            env=environment, process_group=0,
        )  # fmt: skip
        hung, size = False, 0
        try:
            while process.poll() is None and not hung:
                try:
                    process.wait(stalled_s)
                except subprocess.TimeoutExpired:
                    before, size = size, os.fstat(report.fileno()).st_size
                    hung = size == before
        finally:
            process.terminate()
            code = process.wait()
        report.seek(0)
        lines = report.read().decode(errors="replace").splitlines()
    if hung:
        lines.append(f"{HUNG}: no progress within {stalled_s:g} s; killed")
    elif code == -signal.SIGKILL:
        lines.append(f"{KILLED} by the system, probably because memory was full")
    elif code < 0:
        lines.append(f"fault: crashed: {signal.strsignal(-code)} (signal {-code})")
    return code, lines


def _decoded(data: bytes, cases: Sequence[Case]) -> list[np.ndarray]:
    """Read the outputs of the cases from the file that the program wrote.

    Raises KernelFaultError if a kernel changed operands, or if the file has a wrong length.
    """
    outputs, start = [], 0
    for case in cases:
        problem = case.problem
        arrays = []
        for kind, shape, by_columns in zip(
            problem.types, problem.shapes, problem.by_columns, strict=True
        ):
            dtype = np.dtype(kind)
            count = int(np.prod(shape))
            if start + count * dtype.itemsize > len(data):
                raise KernelFaultError("fault: the kernel ended its process")
            flat = np.frombuffer(data, dtype, count, start)
            arrays.append(flat.reshape(shape, order="F" if by_columns else "C"))
            start += count * dtype.itemsize
        *after, output = arrays
        before = case.inputs or operands(problem)
        for name, old, new in zip(problem.operation.arrays, before, after, strict=False):
            if old.tobytes() != new.tobytes():
                fault = KernelFaultError(f"fault: the kernel overwrites its operand {name}")
                fault.case = case
                raise fault
        outputs.append(output)
    if start != len(data):
        raise KernelFaultError("fault: the program wrote a wrong number of elements")
    return outputs
