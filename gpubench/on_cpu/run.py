"""Runs CUDA kernels on the CPU under a sanitizer: g++ compiles the same source.

`shim/cuda.h` is CUDA C++ for g++, and `shim/runtime.cpp` runs the blocks. A program is the source
of one variant with all instances that its cases launch.
"""

import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from threading import Lock

import numpy as np

from gpubench.cache import cache_file, made_once
from gpubench.engine.judge.verify import poison
from gpubench.errors import CompileError, UsageError
from gpubench.model import ITEM_BYTES, Config, CudaVariant, Gpu, Launch, Problem
from gpubench.model.signature import LAUNCH, TENSOR_MAP, array_index, number
from gpubench.model.sources import encoded_source, read_source
from gpubench.process.child import run_program, start_program
from gpubench.text import clean

SHIM = Path(__file__).parent / "shim"

ONE_MULTIPROCESSOR = Gpu(multiprocessors=1, threads_per_multiprocessor=2048)
"""The smallest GPU that a launch can be fitted to, so that every block repeats its loop."""

ONE_AT_A_TIME = Lock()
"""Held while the runtime is compiled, as programs in several threads share the runtime."""

RUNTIME_OPTIONS = ("-O2", "-g", "-fno-tree-loop-distribute-patterns")
"""Options for the runtime, in which a loop must not become a call of memcpy, which is watched."""

LONGEST_ERROR = 400
"""Maximum number of characters of an error from g++."""

FILE_BYTES = 2**26
"""Maximum size of a file that a program writes, which includes what its kernel prints."""

LIMITS = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: FILE_BYTES}

STALLED_S = 60
"""Time limit of a launch, in seconds. A program without progress for that time hangs."""

EXTERN_C = re.compile(
    r'\bextern\s*"C"(?=(?:\s*__launch_bounds__\s*\([^()]*\)|[^{;()])*\b__global__\b)'
)
"""`extern "C"` of a kernel, which has internal linkage here."""

DYNAMIC_SHARED = re.compile(r"\bextern\s+__shared__\s+([^;\[\]]+?)\s*\b(\w+)\s*\[\s*\]\s*;")


class Sanitizer(Enum):
    """The options of g++ for a sanitizer."""

    # AddressSanitizer includes what -fsanitize=object-size checks.
    ADDRESS = (
        "-fsanitize=address,undefined", "-fno-sanitize=object-size", "-fno-sanitize-recover=all",
    )  # fmt: skip
    THREAD = ("-fsanitize=thread",)

    @property
    def environment(self) -> dict[str, str]:
        """Its options: end at the first finding, check far beyond operands, limit memory.

        A kernel may use half of the machine's memory.
        """
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory = f"hard_rss_limit_mb={memory_bytes // 2 >> 20}"
        if self is Sanitizer.THREAD:
            options = "halt_on_error=1:exitcode=1:report_signal_unsafe=0"
            return {"TSAN_OPTIONS": f"{options}:{memory}"}
        options = "redzone=2048:detect_leaks=0:detect_stack_use_after_return=0"
        return {"ASAN_OPTIONS": f"{options}:{memory}", "UBSAN_OPTIONS": "print_stacktrace=0"}


class KernelFaultError(Exception):
    """A sanitizer or the runtime stopped a kernel."""

    def __init__(self, report: str, launches: int = 0) -> None:
        super().__init__(report)
        self.report = report
        self.launches = launches
        """Number of launches, including the one that was stopped."""

        self.case: Case | None = None
        """The case that was stopped."""

    @property
    def finding(self) -> str:
        """The check and its finding: `AddressSanitizer: heap-buffer-overflow on …`, `fault: …`."""
        names = "AddressSanitizer|ThreadSanitizer|runtime error|fault"
        match = re.search(f"({names}): .*", self.report)
        return clean(match[0]) if match else "unknown"

    @property
    def lines(self) -> list[tuple[str, int]]:
        """The lines of CUDA sources that the report names, in the order of the report."""
        return [
            (clean(Path(file).name), int(line))
            for file, line in re.findall(r"([^\s:()]+\.cu):(\d+)", self.report)
        ]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A variant at one tile and problem."""

    variant: CudaVariant
    tile: Config
    problem: Problem
    gpu: Gpu | None = ONE_MULTIPROCESSOR
    """The GPU that the launch is fitted to. None: it is fitted to none."""

    inputs: tuple[np.ndarray, ...] = field(default=(), compare=False)
    """The operands; empty for the result of `operands`."""

    @property
    def label(self) -> str:
        """`shared_tile 16 at 17x3x35 float32`, and the layout if a matrix is column-major."""
        layout = f" {self.problem.layout}" if self.problem.column_major else ""
        problem = f"{self.problem.size} {self.problem.dtype}{layout}"
        return f"{self.variant.name} {self.tile} at {problem}"

    @property
    def launch(self) -> Launch:
        """The variant's launch on the GPU."""
        if self.gpu is None:
            return self.variant.launch(self.tile, self.problem)
        return self.variant.launch_on(self.gpu, self.tile, self.problem)

    @property
    def instances(self) -> list[str]:
        """The template instances of its launches, in order."""
        return [
            self.variant.instance(self.tile, self.problem.dtype, launch.kernel)
            for launch in self.launch.sequence
        ]


def run_on_cpu(
    cases: Sequence[Case], sanitizer: Sanitizer, folder: Path, text: str | None = None
) -> list[np.ndarray]:
    """Run cases of one variant and return their outputs. Raises KernelFaultError for a finding.

    `text` replaces the source on disk. The directory must be empty or new.
    """
    (variant,) = {case.variant for case in cases}
    folder.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(name for case in cases for name in case.instances))
    unit = translation_unit(variant.source, text, names)
    program = build(unit, variant.source.parent, folder, sanitizer.value, sanitizer.value)
    inputs, outputs = folder / "inputs", folder / "outputs"
    with inputs.open("wb") as file:
        file.write(words(len(cases)))
        file.writelines(encoded(case, names) for case in cases)
    try:
        execute([str(program), str(inputs), str(outputs)], sanitizer)
    except KernelFaultError as fault:
        launched = [case for case in cases for _ in case.launch.sequence]
        fault.case = launched[max(0, fault.launches - 1)]
        raise
    return _decoded(outputs.read_bytes(), cases)


def translation_unit(source: Path, text: str | None, instances: Sequence[str]) -> str:
    """Return the header, the unchanged source of the kernel, and the instances.

    `extern __shared__ T name[];` becomes a pointer, and a kernel's `extern "C"` is left out: macros
    cannot do that.
    """
    if text is None:
        text = read_source(source)
    text = EXTERN_C.sub("", text)
    text = DYNAMIC_SHARED.sub(r"DYNAMIC_SHARED(\1, \2);", text)
    table = "".join(f'  {{"{name}", call<{name}>}},\n' for name in instances)
    return (
        f'#include "cuda.h"\n#line 1 "{source}"\n{text}\n#line 1 "instances"\n'
        f"namespace on_cpu {{\nconst Instance instances[] = {{\n{table}}};\n}}\n"
    )


def runtime_object(folder: Path, name: str = "runtime") -> Path:
    """Return a source of the shim, compiled without a sanitizer and shared by a directory.

    The object file is kept in the user's cache, because g++ takes two seconds for it.
    """
    path = folder / f"{name}.o"
    with ONE_AT_A_TIME:
        if path.exists():
            return path
        sources = [(SHIM / file).read_bytes() for file in (f"{name}.cpp", "runtime.h")]
        facts = (sources, RUNTIME_OPTIONS, gxx("--version"))

        def compiled() -> bytes:
            gxx(*RUNTIME_OPTIONS, "-c", str(SHIM / f"{name}.cpp"), "-o", str(path))
            return path.read_bytes()

        path.write_bytes(made_once(cache_file("check", *facts), bytes, compiled))
    return path


def build(
    unit: str, beside: Path, folder: Path, options: Iterable[str], link: Iterable[str]
) -> Path:
    """Compile a translation unit with further options, and link it with others.

    Raises what `gxx` raises.
    """
    kernel, program = folder / "kernel.o", folder / "program"
    # Kernels load floats as float4. nvcc does not use strict aliasing, so g++ must not either.
    gxx("-Og", "-g1", "-w", "-fno-strict-aliasing", "-fno-omit-frame-pointer", *options,
        f"-I{SHIM}", "-iquote", str(beside), "-c", "-x", "c++", "-", "-o", str(kernel),
        text=unit)  # fmt: skip
    runtime = runtime_object(folder.parent)
    gxx(*link, f"-Wl,-T,{SHIM / 'shared.ld'}", str(kernel), str(runtime), "-o", str(program))
    return program


def gxx(*arguments: str, text: str = "") -> str:
    """Compile or link, and return what g++ prints.

    Raises UsageError without g++, and CompileError with its first error.
    """
    compiler = shutil.which("g++")
    if not compiler:
        raise UsageError(
            "g++ is missing, which compiles kernels for the CPU; Debian: apt install g++"
        )
    done = run_program([compiler, "-std=c++20", *arguments], encoded_source(text))
    if done.returncode:
        said = done.stderr.decode(errors="replace")  # it quotes the source, in any encoding
        errors = re.findall(r"^.*(?:error|undefined reference).*$", said, re.MULTILINE)
        raise CompileError(f"g++: {clean(next(iter(errors), said)[:LONGEST_ERROR])}")
    return done.stdout.decode(errors="replace")


def execute(command: Sequence[str], sanitizer: Sanitizer | None = None) -> None:
    """Run a program to its end. Raises KernelFaultError with its report if that is not a good one.

    It runs again without randomized addresses where ThreadSanitizer does not work with them.
    """
    code, lines = _run(command, sanitizer)
    if any("unexpected memory mapping" in line for line in lines):
        # ThreadSanitizer of g++ 12 requires a kernel that randomizes at most 28 bits of addresses.
        if not shutil.which("setarch"):
            raise UsageError(
                "ThreadSanitizer does not work with this kernel's address space randomization; "
                "install setarch (util-linux), or set vm.mmap_rnd_bits=28"
            )
        code, lines = _run(["setarch", "-R", *command], sanitizer)
    if code != 0:
        # The report starts with the name of the last case, without the cases that succeeded.
        running = [line for line in lines if line.startswith("running ")]
        details = (line for line in lines if line not in running)
        raise KernelFaultError("\n".join([*running[-1:], *details]), len(running))


def _run(command: Sequence[str], sanitizer: Sanitizer | None) -> tuple[int, list[str]]:
    """Run a program with limits: return its exit code and the lines of its stderr.

    A program that starts no launch within `STALLED_S` is killed, and the last line says so.
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
                    process.wait(STALLED_S)
                except subprocess.TimeoutExpired:
                    before, size = size, os.fstat(report.fileno()).st_size
                    hung = size == before
        finally:
            process.terminate()
            code = process.wait()
        report.seek(0)
        lines = report.read().decode(errors="replace").splitlines()
    if hung:
        lines.append(f"fault: hung: no progress within {STALLED_S} s; killed")
    elif code < 0:
        lines.append(f"fault: crashed: {signal.strsignal(-code)} (signal {-code})")
    return code, lines


def operands(problem: Problem) -> tuple[np.ndarray, ...]:
    """Return inputs of small integers other than 0.

    Sums of their products are exact in any order, so results are compared for equality.
    """
    rng = np.random.default_rng(problem.m * 1_000_003 + problem.n * 1009 + problem.k)
    choice = np.array([-3, -2, -1, 1, 2, 3], dtype=problem.precision.element)
    return tuple(rng.choice(choice, size=shape) for shape in problem.input_shapes)


NULL_POINTER = -1
"""The index of a null pointer, which runtime.cpp knows."""


def words(*values: int) -> bytes:
    """Return numbers in the form of `number` in runtime.cpp."""
    return np.array(values, dtype=np.int64).tobytes()


def encoded(case: Case, names: Sequence[str]) -> bytes:
    """Return a case in the form of `run_case` in runtime.cpp: buffers, then launches on them."""
    problem, launch = case.problem, case.launch
    inputs = case.inputs or operands(problem)
    output = np.empty(problem.output_shape, dtype=problem.precision.result)
    poison(output, reads_output=case.variant.reads_output)
    workspace = [np.full(launch.workspace_bytes, 0xFF, np.uint8)] if launch.workspace_bytes else []
    buffers = [*inputs, output, *workspace]
    parts = [words(len(inputs), len(buffers))]
    for buffer, by_columns in zip(buffers, (*problem.by_columns, False), strict=False):
        parts += [words(buffer.nbytes), buffer.tobytes("F" if by_columns else "C")]
    return b"".join(parts) + encoded_launches(case, names, lambda _step: ())


def encoded_launches(
    case: Case, names: Sequence[str], blocks: Callable[[Launch], Sequence[tuple[int, int, int]]]
) -> bytes:
    """Return the launches of a case. `blocks` chooses blocks of a launch; none means all."""
    launch = case.launch
    parts = [words(len(launch.sequence))]
    for step, name in zip(launch.sequence, case.instances, strict=True):
        arrays, numbers = _arguments(case, step, workspace=bool(launch.workspace_bytes))
        parts.append(words(names.index(name), *step.dimensions, step.shared_bytes))
        parts.append(words(len(arrays), *arrays, len(numbers), *numbers))
        parts.append(words(len(step.tensor_maps)))
        for box in step.tensor_maps:
            place = (box.array, box.offset_bytes, *box.shape, *box.box)
            parts.append(words(*place, ITEM_BYTES[case.problem.dtype]))
        chosen = blocks(step)
        parts.append(words(len(chosen), *(index for block in chosen for index in block)))
    return b"".join(parts)


def _arguments(case: Case, launch: Launch, *, workspace: bool) -> tuple[list[int], list[int]]:
    """Return the indices of the buffers and the numbers that a launch's kernel takes, in order."""
    arrays, numbers, int_arguments = [], [], iter(launch.int_arguments)
    for parameter in case.variant.parameters(launch, workspace=workspace):
        if parameter.is_pointer:
            index = array_index(parameter, case.problem.op)
            arrays.append(NULL_POINTER if index is None else index)
        elif parameter.type_name != TENSOR_MAP:
            from_launch = parameter.value == LAUNCH
            value = next(int_arguments) if from_launch else number(parameter, case.problem)
            if value != int(value):
                raise UsageError(f"{case.variant.path}: only whole numbers are run on the CPU")
            numbers.append(int(value))
    return arrays, numbers


def _decoded(data: bytes, cases: Sequence[Case]) -> list[np.ndarray]:
    """Return the outputs. Raises KernelFaultError for operands that are not what they were."""
    outputs, start = [], 0
    for case in cases:
        problem = case.problem
        kinds = [problem.precision.element] * len(problem.input_shapes)
        kinds.append(problem.precision.result)
        arrays = []
        for kind, shape, by_columns in zip(kinds, problem.shapes, problem.by_columns, strict=True):
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
        raise KernelFaultError("fault: the program wrote another number of elements")
    return outputs
