"""Runs CUDA kernels on the CPU under a sanitizer: g++ compiles the same source.

`shim/cuda.h` is CUDA C++ for g++, and `shim/runtime.cpp` runs the blocks. A program is the source
of one variant with all instances that its cases launch.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from threading import Lock

import numpy as np

from gpubench.engine.verify import poison
from gpubench.errors import CompileError, UsageError
from gpubench.model import Config, CudaVariant, Gpu, Launch, Problem
from gpubench.model.signature import LAUNCH, TENSOR_MAP, array_index, number

SHIM = Path(__file__).parent / "shim"

ONE_MULTIPROCESSOR = Gpu(multiprocessors=1, threads_per_multiprocessor=2048)
"""The smallest GPU that a launch can be fitted to. A grid that follows the device is then smaller
than the problem, so every block repeats its loop."""

ONE_AT_A_TIME = Lock()
"""Held while the runtime is compiled, which programs in several threads share."""

LONGEST_ERROR = 400
"""Maximum number of characters of an error from g++."""

LONGEST_S = 300
"""Time limit of a program, in seconds. After it, the program hangs."""

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
        """Its options: end at the first finding, and check far beyond the end of an operand."""
        if self is Sanitizer.THREAD:
            return {"TSAN_OPTIONS": "halt_on_error=1:exitcode=1:report_signal_unsafe=0"}
        return {
            "ASAN_OPTIONS": "redzone=2048:detect_leaks=0:detect_stack_use_after_return=0",
            "UBSAN_OPTIONS": "print_stacktrace=0",
        }


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
        return match[0] if match else "unknown"

    @property
    def lines(self) -> list[tuple[str, int]]:
        """The lines of CUDA sources that the report names, in the order of the report."""
        return [
            (Path(file).name, int(line))
            for file, line in re.findall(r"([^\s:()]+\.cu):(\d+)", self.report)
        ]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A variant at one tile and problem."""

    variant: CudaVariant
    tile: Config
    problem: Problem
    gpu: Gpu = ONE_MULTIPROCESSOR
    inputs: tuple[np.ndarray, ...] = field(default=(), compare=False)
    """The operands; empty for the result of `operands`."""

    @property
    def label(self) -> str:
        """`shared_tile 16 at 17x3x35 float32`."""
        return f"{self.variant.name} {self.tile} at {self.problem.size} {self.problem.dtype}"

    @property
    def launch(self) -> Launch:
        """The variant's launch on the GPU."""
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
    program = _program(unit, variant.source.parent, sanitizer, folder)
    inputs, outputs = folder / "inputs", folder / "outputs"
    with inputs.open("wb") as file:
        file.write(_words(len(cases)))
        file.writelines(_encoded(case, names) for case in cases)
    try:
        execute([str(program), str(inputs), str(outputs)], sanitizer)
    except KernelFaultError as fault:
        launched = [case for case in cases for _ in case.launch.sequence]
        fault.case = launched[max(0, fault.launches - 1)]
        raise
    return _decoded(outputs.read_bytes(), cases)


def translation_unit(source: Path, text: str | None, instances: Sequence[str]) -> str:
    """Return the header, the unchanged source of the kernel, and the instances.

    Only dynamic shared memory cannot be expressed by macros. `extern __shared__ T name[];` becomes
    a pointer.
    """
    text = text if text is not None else source.read_text(encoding="utf-8")
    text = DYNAMIC_SHARED.sub(r"DYNAMIC_SHARED(\1, \2);", text)
    table = "".join(f'  {{"{name}", call<{name}>}},\n' for name in instances)
    return (
        f'#include "cuda.h"\n#line 1 "{source}"\n{text}\n#line 1 "instances"\n'
        f"namespace on_cpu {{\nconst Instance instances[] = {{\n{table}}};\n}}\n"
    )


def _runtime(folder: Path) -> Path:
    """Return the runtime, compiled once for all programs of a directory, without a sanitizer."""
    path = folder / "runtime.o"
    with ONE_AT_A_TIME:
        if not path.exists():
            # -fno-tree-loop-distribute-patterns: a loop over bytes must not become a call of
            # memcpy, which the sanitizers watch.
            gxx("-O2", "-g", "-fno-tree-loop-distribute-patterns", "-Wall", "-Wextra",
                      "-Werror", "-c", str(SHIM / "runtime.cpp"), "-o", str(path))  # fmt: skip
    return path


def _program(text: str, beside: Path, sanitizer: Sanitizer, folder: Path) -> Path:
    kernel, program = folder / "kernel.o", folder / "program"
    # Kernels load floats as float4. nvcc does not use strict aliasing, so g++ must not either.
    gxx("-Og", "-g1", "-w", "-fno-strict-aliasing", "-fno-omit-frame-pointer",
              *sanitizer.value, f"-I{SHIM}", "-iquote", str(beside), "-c", "-x", "c++", "-",
              "-o", str(kernel), text=text)  # fmt: skip
    gxx(*sanitizer.value, f"-Wl,-T,{SHIM / 'shared.ld'}", str(kernel),
              str(_runtime(folder.parent)), "-o", str(program))  # fmt: skip
    return program


def gxx(*arguments: str, text: str = "") -> None:
    """Compile or link. Raises UsageError without g++, and CompileError with its first error."""
    compiler = shutil.which("g++")
    if not compiler:
        raise UsageError(
            "g++ is missing, which compiles kernels for the CPU; Debian: apt install g++"
        )
    done = subprocess.run(  # noqa: S603 # arguments of ours
        [compiler, "-std=c++20", *arguments],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        errors = re.findall(r"^.*(?:error|undefined reference).*$", done.stderr, re.MULTILINE)
        raise CompileError(f"g++: {next(iter(errors), done.stderr[:LONGEST_ERROR])}")


def execute(command: Sequence[str], sanitizer: Sanitizer) -> None:
    """Run a program to its end. Raises KernelFaultError with its report if that is not a good one.

    Where ThreadSanitizer cannot live with how the kernel of the machine randomises addresses, it
    runs again without that.
    """
    environment = {**os.environ, **sanitizer.environment}

    def run(*prefix: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 # a program built above
            [*prefix, *command], env=environment, capture_output=True, text=True,
            errors="replace", check=False, timeout=LONGEST_S,
        )  # fmt: skip

    done = run()
    if "unexpected memory mapping" in done.stderr:
        # ThreadSanitizer of g++ 12 requires a kernel that randomizes at most 28 bits of addresses.
        if not shutil.which("setarch"):
            raise UsageError(
                "ThreadSanitizer does not work with this kernel's address space randomization; "
                "install setarch (util-linux), or set vm.mmap_rnd_bits=28"
            )
        done = run("setarch", "-R")
    if done.returncode != 0:
        # The report starts with the name of the last case, without the cases that succeeded.
        lines = done.stderr.splitlines()
        running = [line for line in lines if line.startswith("running ")]
        rest = (line for line in lines if line not in running)
        raise KernelFaultError("\n".join([*running[-1:], *rest]), len(running))


def operands(problem: Problem) -> tuple[np.ndarray, ...]:
    """Return inputs of small integers other than 0.

    Sums of their products are exact in every dtype and in any order. Results are therefore compared
    for equality, and every missing term shows.
    """
    rng = np.random.default_rng(problem.m * 1_000_003 + problem.n * 1009 + problem.k)
    choice = np.array([-3, -2, -1, 1, 2, 3], dtype=problem.dtype)
    return tuple(rng.choice(choice, size=shape) for shape in problem.input_shapes)


def _words(*values: int) -> bytes:
    return np.array(values, dtype=np.int64).tobytes()


def _encoded(case: Case, names: Sequence[str]) -> bytes:
    """Return a case in the form of `run_case` in runtime.cpp: buffers, then launches on them."""
    problem, launch = case.problem, case.launch
    inputs = case.inputs or operands(problem)
    output = np.empty(problem.output_shape, dtype=problem.dtype)
    poison(output, reads_output=case.variant.reads_output)
    workspace = [np.full(launch.workspace_bytes, 0xFF, np.uint8)] if launch.workspace_bytes else []
    buffers = [*inputs, output, *workspace]
    parts = [_words(len(inputs), len(buffers))]
    for buffer, by_columns in zip(buffers, (*problem.by_columns, False), strict=False):
        parts += [_words(buffer.nbytes), buffer.tobytes("F" if by_columns else "C")]
    parts.append(_words(len(launch.sequence)))
    for step, name in zip(launch.sequence, case.instances, strict=True):
        arrays, numbers = _arguments(case, step, workspace=bool(workspace))
        parts.append(_words(names.index(name), *step.dimensions, step.shared_bytes))
        parts.append(_words(len(arrays), *arrays, len(numbers), *numbers))
        parts.append(_words(len(step.tensor_maps)))
        for box in step.tensor_maps:
            place = (box.array, box.offset_bytes, *box.shape, *box.box)
            parts.append(_words(*place, output.itemsize))
    return b"".join(parts)


def _arguments(case: Case, launch: Launch, *, workspace: bool) -> tuple[list[int], list[int]]:
    """Return the indices of the buffers and the numbers that a launch's kernel takes, in order."""
    arrays, numbers, int_arguments = [], [], iter(launch.int_arguments)
    for parameter in case.variant.parameters(launch, workspace=workspace):
        if parameter.is_pointer:
            index = array_index(parameter, case.problem.op)
            if index is None:
                raise UsageError(f"{case.variant.path}: {parameter} is no array of the problem")
            arrays.append(index)
        elif parameter.type_name != TENSOR_MAP:
            from_launch = parameter.value == LAUNCH
            value = next(int_arguments) if from_launch else number(parameter, case.problem)
            if value != int(value):
                raise UsageError(f"{case.variant.path}: only whole numbers are run on the CPU")
            numbers.append(int(value))
    return arrays, numbers


def _decoded(data: bytes, cases: Sequence[Case]) -> list[np.ndarray]:
    outputs, start = [], 0
    for case in cases:
        dtype, shape = np.dtype(case.problem.dtype), case.problem.output_shape
        count = int(np.prod(shape))
        outputs.append(np.frombuffer(data, dtype, count, start).reshape(shape))
        start += count * dtype.itemsize
    if start != len(data):
        raise KernelFaultError("fault: the program wrote another number of elements")
    return outputs
