"""Run kernels with clusters on the CPU. `ptx/emulator.cpp` emulates their PTX.

Each case computes C from small whole numbers, whose sums are exact in any order, and compares every
element. It also computes C from random numbers in several schedules, and compares all bits.
"""

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpubench.model import PRECISIONS, Config, CudaVariant, Gpu, Launch, Problem
from gpubench.on_cpu.run import gxx

SMALL_GPU = Gpu(multiprocessors=4, threads_per_multiprocessor=2048)
"""A GPU so small that persistent blocks compute several tiles each."""

INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)
DYNAMIC = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?([\w ]+?) (\w+)\[\];")
STATIC = re.compile(r"__shared__ ([\w<>:, ]+?) (\w+)((?:\[[^\]]+\])*);")


def flattened(source: Path, inserted: set[Path]) -> str:
    """Return a source in which each include is replaced by its file, once."""
    if source in inserted:
        return ""
    inserted.add(source)
    text = source.read_text(encoding="utf-8").replace("#pragma once\n", "")
    return INCLUDE.sub(lambda name: flattened((source.parent / name[1]).resolve(), inserted), text)


def pieces(text: str, separator: str) -> Iterator[str]:
    """Yield the pieces of a text, split at a character outside of strings and brackets."""
    depth, quoted, start = 0, False, 0
    for i, character in enumerate(text):
        if character == '"' and text[i - 1] != "\\":
            quoted = not quoted
        elif not quoted and character == separator and depth == 0:
            yield text[start:i]
            start = i + 1
        elif not quoted:
            depth += (character in "([{") - (character in ")]}")
    yield text[start:]


def emulated(text: str) -> str:
    """Return CUDA C++ in which PTX and shared arrays use `emulator.h`."""
    text = re.sub(r"(?m)//.*$", "", text)
    done = ""
    while (start := text.find("asm volatile(")) >= 0:
        inside = start + len("asm volatile(")
        statement = next(pieces(text[inside:], ")"))
        end = inside + len(statement)
        one_line = statement.replace("\\\n", " ")  # statements in macros
        template, *sections = pieces(one_line, ":")
        operands = [
            re.sub(r'^\s*"([=+]?)[^"]*"', direction, operand)
            for section in sections[:2]
            for operand in pieces(section, ",")
            if operand.strip()
        ]
        done += f"{text[:start]}emulated::ptx({template}, {{{', '.join(operands)}}})"
        text = text[end + 1 :]
    text = done + text
    text = re.sub(r'"(\+?)[dfhlnr]"(?=\()', direction, text)  # operands in arguments of macros
    text = DYNAMIC.sub(r"auto* const \2 = emulated::dynamic_shared<\1>();", text)
    names: dict[str, int] = {}

    def static(match: re.Match[str]) -> str:
        number = names.setdefault(match[2], len(names))
        return f"auto& {match[2]} = emulated::static_shared<{match[1]}{match[3]}>({number});"

    return STATIC.sub(static, text)


def direction(constraint: re.Match[str]) -> str:
    """Return the name of the emulator's function for an operand with this constraint."""
    return "emulated::out" if constraint[1] else "emulated::in"


def planted(source: str, faults: Sequence[tuple[str, str]]) -> str:
    """Return a source with faults, of which the program plants one when it runs.

    A fault is a text and its replacement. A text that ends with a semicolon is a statement, any
    other text is an expression.
    """
    for number, (text, instead) in enumerate(faults, 1):
        assert source.count(text) == 1, text
        chosen = f"(emulated::planted == {number} ? {instead} : {text})"
        if text.endswith(";"):
            chosen = f"if (emulated::planted == {number}) {{ {instead} }} else {{ {text} }}"
        source = source.replace(text, chosen)
    return source


def step(
    variant: CudaVariant, tile: Config, problem: Problem, first: Launch, launch: Launch
) -> str:
    """Return a launch of a sequence in C++. The first launch of the sequence has the workspace."""
    scalar = problem.precision.cpp
    boxes = ", ".join(
        f"{{{m.array}, {m.offset_bytes}, {m.shape[0]}, {m.shape[1]}, {m.pitch or m.shape[1]}, "
        f"{m.box[0]}, {m.box[1]}, {m.precision(problem).item_bytes}, {m.swizzle_bytes}, {m.batch}}}"
        for m in launch.tensor_maps
    )
    grid, blocks = (*launch.grid, 1, 1), launch.cluster[0] if launch.cluster else 1
    numbers = (grid[0], grid[1], blocks, launch.threads_per_block, launch.shared_bytes)
    with_workspace = first.workspace_bytes > 0 and launch.takes_workspace
    operands = [
        f"static_cast<const {PRECISIONS[each.dtype].cpp if each.dtype else scalar}*>(operands[{i}])"
        for i, each in enumerate(problem.operation.inputs)
    ]
    arguments = [*operands, "C"]
    if with_workspace:
        arguments.append("workspace")
    arguments += [*map(str, problem.further), "M", "N", "K"]
    arguments += [
        *map(str, launch.int_arguments),
        *(f"maps[{i}]" for i in range(len(launch.tensor_maps))),
    ]
    return (
        f"{{{', '.join(map(str, numbers))}, {{{boxes}}}, "
        f"[](const std::vector<const void*>& operands, {scalar}* C, {scalar}* workspace, "
        f"int M, int N, int K, const CUtensorMap* maps) "
        f"{{ {variant.instance(tile, problem.dtype, launch.kernel)}({', '.join(arguments)}); }}}}"
    )


def program(
    variant: CudaVariant,
    cases: Sequence[tuple[Config, Problem]],
    faults: Sequence[tuple[str, str]] = (),
) -> str:
    """Return a program that checks the cases, which all have the same dtype.

    Its two optional arguments are the number of a fault, from 1, and of the only case, from 0.
    """
    text = emulated(planted(flattened(variant.source, set()), faults))
    precision = cases[0][1].precision
    scalar, result = precision.cpp, RESULTS.get(precision.name, precision.cpp)
    # For random numbers, right results are sums in float64, which have rounding errors too.
    has_better = not (precision.result_roundoff or precision.is_integer or precision.bits == 64)
    tolerance = precision.tolerance if has_better else 0
    lines = []
    for number, (tile, problem) in enumerate(cases):
        launch = variant.launch_on(SMALL_GPU, tile, problem)
        arrays = problem.operation.arrays
        steps = ", ".join(step(variant, tile, problem, launch, each) for each in launch.sequence)
        along_k = int("B" in problem.column_major)
        has_groups, is_scaled = (int(name in arrays) for name in ("offsets", "a_scales"))
        products = problem.further[0] if has_groups else problem.batch
        after = "bias" in arrays, "relu" in problem.op, "residual" in arrays
        lines.append(
            f"  if (only < 0 || only == {number}) "
            f'check<{scalar}, {result}>({{"{tile} {problem.size}", '
            f"{products}, {problem.m}, {problem.n}, {problem.k}, {along_k}, {has_groups}, "
            f"{is_scaled}, "
            f"{launch.workspace_bytes}, {{{steps}}}, {tolerance}, "
            f"{int(precision.in_blas != '')}, {', '.join(str(int(each)) for each in after)}}});"
        )
    words = "emulated::planted = count > 2 ? std::atoi(words[1]) : 0;"
    only = "const int only = count > 2 ? std::atoi(words[2]) : -1;"
    body = "\n".join([f"  {words}", f"  {only}", *lines])
    main = f"int main(int count, char** words) {{\n{body}\n}}\n"
    return f'#include "emulator.h"\n{text}\n#include "check.h"\n{main}'


RESULTS = {"int8": "int", "float8_e4m3": "__nv_bfloat16"}
"""Types of results that differ from the type of the operands, by precision."""

OPTIONS = ("-w", "-Og", "-fno-strict-aliasing")

PTX = Path(__file__).parent / "ptx"


def compile_emulator(folder: Path) -> None:
    """Compile `emulator.h` and `emulator.cpp` into a directory, for all programs in it."""
    gxx(*OPTIONS, "-x", "c++-header", str(PTX / "emulator.h"), "-o", str(folder / "emulator.h.gch"))
    text = (PTX / "emulator.cpp").read_text(encoding="utf-8")
    # The source comes from stdin, so that g++ finds the compiled header, not the header in PTX.
    source = ("-Winvalid-pch", f"-I{folder}", "-x", "c++", "-")
    gxx(*OPTIONS, "-c", *source, "-o", str(folder / "emulator.o"), text=text)


def compile_program(text: str, binary: Path) -> None:
    """Compile a program in the directory of the compiled emulator."""
    source = binary.with_suffix(".cpp")
    source.write_text(text, encoding="utf-8")
    emulator = str(binary.parent / "emulator.o")
    gxx(
        *OPTIONS,
        "-Winvalid-pch",
        f"-I{binary.parent}",
        f"-I{PTX}",
        str(source),
        emulator,
        "-o",
        str(binary),
    )


def run(binary: Path, *numbers: int) -> Iterator[str]:
    """Run a program, and yield the lines that it prints."""
    command = [str(binary), *map(str, numbers)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    yield from done.stdout.splitlines()
    if done.returncode not in (0, 1):
        yield f"fault: the program ended with {done.returncode}"
