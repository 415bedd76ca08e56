"""`gpubench new-kernel --from FILE.cu`: the description of a kernel that exists already.

What the source says is written down; what it leaves open is asked in comments.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gpubench.errors import UsageError
from gpubench.model import CORE_DTYPES, OPERATIONS, PRECISIONS, Config
from gpubench.model.config import BLOCK, MARKS, THREAD
from gpubench.model.signature import Parameter, array_index, parameters, split, why_unknown

GUESSES = {
    "BM": 64,
    "BN": 64,
    "BK": 8,
    "TM": 8,
    "TN": 8,
    "num_threads": 256,
    "stages": 2,
    "splits": 1,
}
"""Values of a template's parameters of these names, where the source has none; 32 of others."""


CONSTANTS = {"alpha": "1", "beta": "0", "batch": "1", "batch_count": "1"}
"""What parameters of these names are given, where C = alpha·A·B + beta·C is A·B."""

LONGEST = 2000
"""Characters of a template's parameters."""

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TEMPLATE = re.compile(r'template\s*<([^{};]*)>\s*(extern\s*"C"\s*)?(static\s+|inline\s+)*$')
_ATTRIBUTE = re.compile(r"\s*(static\b|inline\b|void\b|(__\w+__)\s*(?=\())")
_NAME = re.compile(r"[A-Za-z_]\w*")
_MACRO = re.compile(r"#\s*ifndef\s+(\w+)\s*#\s*define\s+\1\s+(\d+)")


@dataclass(frozen=True, kw_only=True)
class Found:
    """A kernel in a source."""

    name: str
    parameters: tuple[Parameter, ...]
    template: tuple[Parameter, ...]
    """Of its template; empty: it is a plain function."""

    threads: str
    """The first argument of `__launch_bounds__`, or nothing."""


def kernels(text: str) -> Iterator[Found]:
    """The kernels that a CUDA C++ source defines, in order."""
    text = _COMMENTS.sub(" ", text)
    for mark in re.finditer(r"\b__global__\b", text):
        rest, threads = text[mark.end() :], ""
        while attribute := _ATTRIBUTE.match(rest):
            rest = rest[attribute.end() :]
            if attribute[2]:
                inside, rest = _enclosed(rest)
                threads = split(inside)[0] if "launch" in attribute[2] else threads
        name = re.match(r"\s*(\w+)\s*(?=\()", rest)
        template = _TEMPLATE.search(text[max(mark.start() - LONGEST, 0) : mark.start()])
        if name:
            yield Found(
                name=name[1],
                parameters=parameters(_enclosed(rest[name.end() :])[0]),
                template=parameters(template[1]) if template else (),
                threads=threads,
            )


def _enclosed(text: str) -> tuple[str, str]:
    """What stands in the parentheses that a text begins with, and what follows."""
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:position], text[position + 1 :]
    return text[1:], ""


def described(text: str, name: str, op: str, file: str) -> tuple[str, list[str]]:
    """The description of a source's kernel as the variant `name`, and what it asks.

    Of several kernels the one that is called so, or else the first. `file` is the source as the
    description names it. Raises UsageError for a source without a kernel.
    """
    try:
        found = {kernel.name: kernel for kernel in kernels(text)}
    except ValueError as error:
        raise UsageError(f"--from: {file}: {error}") from error
    if not found:
        raise UsageError(f"--from: {file} defines no kernel: no __global__ function")
    kernel = found.get(name) or next(iter(found.values()))
    types = [one.name for one in kernel.template if one.type_name in {"typename", "class"}]
    given = [_given(one, op, types) for one in kernel.parameters]
    asked = [one.name for one in given if why_unknown(one, op)]
    values = {_axis_name(one.name): one.value for one in kernel.template if one.name not in types}
    macros = dict(_MACRO.findall(_COMMENTS.sub(" ", text)))
    values |= {_axis_name(macro): number for macro, number in macros.items()}
    lines = [
        f'"""{name}: what it does, in a line."""\n',
        "from gpubench.model import CudaVariant, Launch, Space\n",
        "VARIANT = CudaVariant(",
        f'    idea="what {name} teaches, in a line",',
        f"    file={json.dumps(file)},",
        f'    kernel="{_instance(kernel, types)}",',
    ]
    if others := [other for other in found if other != kernel.name]:
        lines.append(f"    # The source has these, too: {', '.join(others)}.")
    if asked:
        lines.append(
            f"    # What are {', '.join(asked)}? Write =1 for a constant, or =A, =M, =lda, =M*N "
            "for what it is."
        )
    lines += ["    signature=(", *_signature(given), "    ),", *_dtypes(given, op)]
    if any(one.name == "beta" for one in given):
        lines.append("    reads_output=True,  # it reads C even where beta is 0: C holds zeros")
    if macros:
        options = "".join(f'"-D{macro}={{{_axis_name(macro)}}}", ' for macro in macros)
        lines.append(f"    compile_options=({options.strip()}),")
    tile, space = _space(values)
    lines += [*space, *_launch(kernel, tile), ")\n"]
    return "\n".join(lines), asked


def _given(parameter: Parameter, op: str, types: list[str]) -> Parameter:
    """The parameter with what it is given, as far as its name tells; `?` where it does not."""
    cpp = parameter.cpp
    for name in types:
        cpp = re.sub(rf"\b{name}\b", "Scalar", cpp)
    value = CONSTANTS.get(parameter.name.casefold(), parameter.value)
    known = replace(parameter, cpp=cpp, value=parameter.value if parameter.is_pointer else value)
    return replace(known, value="?") if why_unknown(known, op) else known


def _instance(kernel: Found, types: list[str]) -> str:
    """`sgemm<{BM}, {BN}>`."""
    names = ("scalar" if one.name in types else _axis_name(one.name) for one in kernel.template)
    arguments = [f"{{{name}}}" for name in names]
    return f"{kernel.name}<{', '.join(arguments)}>" if arguments else kernel.name


def _axis_name(name: str) -> str:
    """Upper case for the numbers that a tile begins with, lower case for what it names."""
    return name if name in {"BM", "BN", "BK", "TM", "TN"} else name.lower()[:20]


def _signature(given: list[Parameter]) -> Iterator[str]:
    """Lines of text, some parameters each."""
    texts = [
        f"{one.cpp} {one.name}" + (f"={one.value}" if one.value != one.name else "")
        for one in given
    ]
    for start in range(0, len(texts), 4):
        end = ", " if start + 4 < len(texts) else ""
        yield f"        {json.dumps(', '.join(texts[start : start + 4]) + end)}"


def _dtypes(given: list[Parameter], op: str) -> Iterator[str]:
    """What the output's type tells; nothing for a template over the type, which takes all."""
    output = len(OPERATIONS[op].arrays) - 1
    kinds = [one.type_name for one in given if one.is_pointer and array_index(one, op) == output]
    kind = next(iter(kinds), "")
    kind = {"half": "__half", "nv_bfloat16": "__nv_bfloat16"}.get(kind, kind)
    names = tuple(name for name, precision in PRECISIONS.items() if precision.cpp == kind)
    if "Scalar" in kinds:
        yield f"    # dtypes: a template over the element takes {', '.join(CORE_DTYPES)}."
    elif names:
        yield f'    dtypes=("{names[0]}",),'
    else:
        yield '    dtypes=("float32",),  # Which?'


def _space(values: Mapping[str, str]) -> tuple[Config, list[str]]:
    """The tile with the values that the source names, or guesses, and the lines of its space."""
    numbers = {
        name: int(value) if re.fullmatch("[1-9][0-9]{0,8}", value) else GUESSES.get(name, 32)
        for name, value in values.items()
    }
    block = tuple(name for name in BLOCK if name in numbers)
    block = block or tuple(name for name in numbers if name not in {*THREAD, *MARKS})[:1]
    lines = []
    if not block:
        lines.append("    # The kernel has no such number to choose: a label, its block's edge.")
        numbers, block = {"edge": 32, **numbers}, ("edge",)
    thread = THREAD if set(THREAD) <= set(numbers) else ()
    tile = Config(numbers.items(), block, thread)
    lines += [
        "    # Which values may each parameter have? --tiles chooses among them.",
        "    tiles=Space(",
    ]
    lines += [
        "        axes={",
        *(f'            "{name}": ({tile[name]},),' for name in tile),
        "        },",
    ]
    comma = "," * (len(block) == 1)
    lines.append(f"        block=({', '.join(map(json.dumps, block))}{comma}),")
    lines += [f"        thread=({', '.join(map(json.dumps, thread))}),"] * bool(thread)
    return tile, [*lines, f'        default=("{tile}",),', "    ),"]


def _launch(kernel: Found, tile: Config) -> Iterator[str]:
    """Blocks that cover C, and the threads that the source's launch bounds name."""
    edge = next(iter(tile))
    rows, columns = ("BM", "BN") if {"BM", "BN"} <= tile.keys() else (edge, edge)
    threads = f'tile["{edge}"] ** 2'
    question = "How many threads has it?"
    if bounds := _as_python(kernel.threads, tile):
        threads, question = bounds, "Its threads are those of the launch bounds."
    yield f"    # Which rows and columns of C does a block compute? {question}"
    yield "    launch=lambda tile, problem: Launch("
    yield f'        grid=(-(-problem.n // tile["{columns}"]), -(-problem.m // tile["{rows}"])),'
    yield f"        block=({threads},),"
    yield "    ),"


def _as_python(expression: str, tile: Config) -> str:
    """An expression of C++ in the tile's parameters; empty if it is none, or has other names."""
    names = {*map(_axis_name, _NAME.findall(expression))}
    if not names <= tile.keys() or not re.fullmatch(r"[\w\s()*/+-]+", expression, re.ASCII):
        return ""
    text = _NAME.sub(lambda name: f'tile["{_axis_name(name[0])}"]', expression).replace("/", "//")
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return ""
    return text
