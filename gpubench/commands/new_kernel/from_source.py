"""`gpubench new-kernel --from FILE.cu`: writes the description of a kernel that exists.

The description holds what the source says. Comments in it name what the source does not say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gpubench.errors import UsageError
from gpubench.model import CORE_DTYPES, OPERATIONS, PRECISIONS, Config
from gpubench.model.config import BLOCK, MARKS, THREAD
from gpubench.model.expression import parse
from gpubench.model.signature import (
    Parameter,
    array_index,
    parameters,
    position_after,
    split,
    why_unknown,
)
from gpubench.text import shown

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
"""Values of template parameters with these names, if the source has none. Other parameters: 32."""

CONSTANTS = {"alpha": "1", "beta": "0", "batch": "1", "batch_count": "1"}
"""Values of parameters with these names, so that C = alpha·A·B + beta·C is A·B."""

EDGE, THREADS = 32, 256
"""Edge of a block of two dimensions, and threads of a block of one, if the source has no number."""

LONGEST = 2000
"""Maximum number of characters of a template's parameters."""

_SKIPPED = re.compile(
    r'//[^\n]*|/\*|R"([^()\\\s"]{0,16})\(|"(?:\\.|[^"\\\n])*+"?|\'\\?"\'', re.DOTALL
)
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_SPECIFIERS = ('extern "C"', 'extern"C"', "static", "inline", "constexpr")
_ATTRIBUTE = re.compile(r"\s*(static\b|inline\b|void\b|(__\w+__)\s*(?=\())")
_FUNCTION = re.compile(r"\s*([^\s();{}]+)\s*(?=\()")
_NAME = re.compile(r"[A-Za-z_]\w*")
_MACRO = re.compile(r"#\s*ifndef\s+(\w+)\s*#\s*define\s+\1\s+(\d+)")
_ASSIGNED = re.compile(r"\b(\w+)\s*=([^;=]*)")
_BLOCK_INDEX = re.compile(r"\bblockIdx\s*\.\s*([xyz])")
_COMPARED = re.compile(r"\b(\w+)\s*(?:<|>=)\s*(\w+)\b")


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel that a source defines."""

    name: str
    signature: str
    """The text between the parentheses."""

    template: tuple[Parameter, ...]
    """The template's parameters. Empty: a plain function."""

    threads: str
    """The first argument of `__launch_bounds__`, or an empty text."""

    body: str

    def uses(self, index: str) -> bool:
        """Whether the body reads an index such as `threadIdx.y`."""
        return re.search(rf"\b{index[:-2]}\s*\.\s*{index[-1]}\b", self.body) is not None


def kernels(text: str) -> Iterator[Kernel]:
    """Yield the kernels that a CUDA C++ source defines, in order. Linear in the text's length."""
    code = _code(text)
    before, *parts = re.split(r"\b__global__\b", code)
    for part in parts:
        (template, threads), before = _heading(before[-LONGEST:]), part
        at = 0
        while attribute := _ATTRIBUTE.match(part, at):
            at = attribute.end()
            if attribute[2]:
                inside, at = _enclosed(part, at)
                threads = split(inside)[0] if "launch" in attribute[2] else threads
        if name := _FUNCTION.match(part, at):
            signature, at = _enclosed(part, name.end())
            opening = part.find("{", at)
            if opening >= 0 and ";" not in part[at:opening]:  # else it is only declared
                body = part[opening : position_after(part, opening, "{}")]
                yield Kernel(
                    name=name[1],
                    signature=signature,
                    template=template,
                    threads=threads,
                    body=body,
                )


def _code(text: str) -> str:
    """Return the source without comments and without the contents of texts."""
    parts: list[str] = []
    at = 0
    while skipped := _SKIPPED.search(text, at):
        parts += (text[at : skipped.start()], '"C"' if skipped[0] == '"C"' else " ")
        closing = (
            "*/" if skipped[0] == "/*" else f'){skipped[1]}"' if skipped[1] is not None else ""
        )
        end = text.find(closing, skipped.end())
        at = end + len(closing) if end >= 0 else len(text)
    return "".join((*parts, text[at:]))


def _enclosed(text: str, at: int) -> tuple[str, int]:
    """Return the text in the parentheses that begin at `at`, and the position after them."""
    opening = text.index("(", at)
    end = position_after(text, opening, "()")
    return text[opening + 1 : end - 1], end


def _heading(before: str) -> tuple[tuple[Parameter, ...], str]:
    """Return the template's parameters and the launch bounds that stand before a kernel."""
    text, threads = " ".join(before.split()), ""
    while True:
        if specifier := next(filter(text.endswith, _SPECIFIERS), ""):
            text = text.removesuffix(specifier).rstrip()
        elif text.endswith(")") and text[: text.rfind("(")].endswith("__launch_bounds__"):
            text, _, bounds = text.rpartition("__launch_bounds__")
            text, threads = text.rstrip(), split(bounds[1:-1])[0]
        else:
            break
    opening = len(text) - position_after(text[::-1], 0, "><")
    if not text.endswith(">") or not text[:opening].rstrip().endswith("template"):
        return (), threads
    return parameters(text[opening + 1 : -1]), threads


def described(text: str, name: str, op: str, file: str) -> tuple[str, list[str]]:
    """Return the description of a kernel as the variant `name`, and the parameters to fill in.

    If the source has several kernels, it is the kernel called `name`, or else the first kernel.
    `file` is the source's path as the description writes it. Raises UsageError for a source without
    a kernel, and for a kernel that cannot be described.
    """
    try:
        defined = {kernel.name: kernel for kernel in kernels(text)}
        if not defined:
            raise UsageError(f"--from: {file} defines no kernel: no __global__ function")
        kernel = defined.get(name) or next(iter(defined.values()))
        if not _NAME.fullmatch(kernel.name) or not kernel.name.isascii():
            raise UsageError(
                f"--from: {file}: '{shown(kernel.name)}' cannot name a kernel; "
                "use ASCII letters, digits and _"
            )
        signature = parameters(kernel.signature)
    except ValueError as error:
        raise UsageError(f"--from: {file}: {error}") from error
    types = [
        parameter.name
        for parameter in kernel.template
        if parameter.type_name in {"typename", "class"}
    ]
    arguments = [_argument(parameter, op, types) for parameter in signature]
    asked = [parameter.name for parameter in arguments if why_unknown(parameter, op)]
    macros = dict(_MACRO.findall(_code(text)))
    values = {
        _axis_name(parameter.name): parameter.value
        for parameter in kernel.template
        if parameter.name not in types and parameter.type_name != "bool"
    }
    values |= {_axis_name(macro): number for macro, number in macros.items()}
    tile, space = _space(values)
    lines = [
        f'"""{name}: what it does, in a line."""\n',
        f"from gpubench.model import CudaVariant{', Space' * bool(space)}\n",
        "VARIANT = CudaVariant(",
        f'    idea="what {name} teaches, in a line",',
        f"    file={json.dumps(file, ensure_ascii=False)},",
        f'    kernel="{_instance(kernel, types, tile)}",',
    ]
    if other_kernels := [other for other in defined if other != kernel.name]:
        lines.append(
            f"    # The source also has these kernels: {', '.join(map(shown, other_kernels))}."
        )
    if asked:
        lines.append(
            f"    # Not known: {', '.join(asked)}. Write =1 for a constant, or =A, =M, =lda, =M*N "
            "for what it is."
        )
    lines += ["    signature=(", *_signature(arguments), "    ),", *_dtypes(arguments, op)]
    if any(parameter.name == "beta" for parameter in arguments):
        lines.append("    reads_output=True,  # it reads C even where beta is 0: C holds zeros")
    if macros:
        options = "".join(f'"-D{macro}={{{_axis_name(macro)}}}", ' for macro in macros)
        lines.append(f"    compile_options=({options.strip()}),")
    lines += [*space, *_launch(kernel, tile, op, text), ")\n"]
    return "\n".join(lines), asked


def _argument(parameter: Parameter, op: str, types: list[str]) -> Parameter:
    """Return the parameter with the value that its name means, or with `?`."""
    cpp = parameter.cpp
    for name in types:
        cpp = re.sub(rf"\b{name}\b", "Scalar", cpp)
    value = CONSTANTS.get(parameter.name.casefold(), parameter.value)
    argument = replace(parameter, cpp=cpp, value=parameter.value if parameter.is_pointer else value)
    return replace(argument, value="?") if why_unknown(argument, op) else argument


def _instance(kernel: Kernel, types: list[str], tile: Config) -> str:
    """Return the kernel's name with its template arguments: `sgemm<{BM}, {BN}>`."""
    names = (
        "scalar" if parameter.name in types else _axis_name(parameter.name)
        for parameter in kernel.template
    )
    fixed = {_axis_name(parameter.name): _constant(parameter) for parameter in kernel.template}
    arguments = [f"{{{name}}}" if name in {"scalar", *tile} else fixed[name] for name in names]
    return f"{kernel.name}<{', '.join(arguments)}>" if arguments else kernel.name


def _axis_name(name: str) -> str:
    """Return a parameter's name as an axis: lower case, except in the block and the thread tile."""
    return name if name in {*BLOCK, *THREAD} else name.lower()[:20]


def _constant(parameter: Parameter) -> str:
    """Return a template argument that the tile does not choose."""
    if parameter.type_name == "bool":
        return parameter.value if parameter.value != parameter.name else "false"
    return str(_number(parameter.name, parameter.value))


def _number(name: str, value: str) -> int:
    """Return the value that the source gives a template parameter, or a guess."""
    is_number = re.fullmatch("[1-9][0-9]{0,8}", value)
    return int(value) if is_number else GUESSES.get(_axis_name(name), EDGE)


def _signature(arguments: list[Parameter]) -> Iterator[str]:
    """Yield lines of text with four parameters each."""
    texts = [
        f"{parameter.cpp} {parameter.name}"
        + (f"={parameter.value}" if parameter.value != parameter.name else "")
        for parameter in arguments
    ]
    for start in range(0, len(texts), 4):
        end = ", " if start + 4 < len(texts) else ""
        line = ", ".join(texts[start : start + 4]) + end
        yield f"        {json.dumps(line, ensure_ascii=False)}"


def _dtypes(arguments: list[Parameter], op: str) -> Iterator[str]:
    """Yield the dtype of the output's type. A template over the type takes the default dtypes."""
    output = len(OPERATIONS[op].arrays) - 1
    kinds = [
        parameter.type_name
        for parameter in arguments
        if parameter.is_pointer and array_index(parameter, op) == output
    ]
    kind = next(iter(kinds), "")
    kind = {"half": "__half", "nv_bfloat16": "__nv_bfloat16"}.get(kind, kind)
    names = tuple(name for name, precision in PRECISIONS.items() if precision.cpp == kind)
    if "Scalar" in kinds:
        yield f"    # dtypes: a template over the element takes {', '.join(CORE_DTYPES)}."
    elif names:
        yield f'    dtypes=("{names[0]}",),'
    else:
        yield '    dtypes=("float32",),  # a guess: the type of the output is not known'


def _space(values: Mapping[str, str]) -> tuple[Config, list[str]]:
    """Return the tile of the values in the source, or of guesses, and the lines of its space.

    A kernel without parameters that a tile can begin with has no space.
    """
    numbers = {name: _number(name, value) for name, value in values.items()}
    block = tuple(name for name in BLOCK if name in numbers)
    block = block or tuple(name for name in numbers if name not in {*THREAD, *MARKS})[:1]
    if not block:
        return Config(), []
    thread = THREAD if set(THREAD) <= set(numbers) else ()
    tile = Config(numbers.items(), block, thread)
    guesses = [name for name, value in values.items() if value != str(numbers[name])]
    lines = ["    # Which values may each parameter have? --tiles chooses among them."]
    lines += [f"    # These values are guesses: {', '.join(guesses)}."] * bool(guesses)
    lines += [
        "    tiles=Space(",
        "        axes={",
        *(f'            "{name}": ({tile[name]},),' for name in tile),
        "        },",
    ]
    comma = "," * (len(block) == 1)
    lines.append(f"        block=({', '.join(map(json.dumps, block))}{comma}),")
    lines += [f"        thread=({', '.join(map(json.dumps, thread))}),"] * bool(thread)
    return tile, [*lines, f'        default=("{tile}",),', "    ),"]


def _launch(kernel: Kernel, tile: Config, op: str, text: str) -> Iterator[str]:
    """Yield the grid and the block, with comments on what was read and what was not."""
    first = next(iter(tile), "")
    rows, columns = ("BM", "BN") if {"BM", "BN"} <= tile.keys() else (first or EDGE,) * 2
    covered = _covered(kernel, op)
    is_2d = kernel.uses("blockIdx.y") or "BM" in tile
    has_y = kernel.uses("threadIdx.y")
    threads = _expression(kernel.threads, tile)
    elements = {"gemm": "M*N", "gemv": "M"}.get(op, "N")
    if is_2d:
        extents = covered.get("x", "N"), covered.get("y", "M")
        parts = [f'"{extent}/{rows if extent == "M" else columns}"' for extent in extents]
        grid = f"({', '.join(parts)})"
    else:
        threads = threads or first or str(EDGE**2 if has_y else THREADS)
        divisor = threads if threads.isalnum() else f"({threads})"
        grid = f'"{covered.get("x", elements)}/{divisor}"'
    if has_y:
        edges = ('"BN/TN"', '"BM/TM"') if {*THREAD, "BM", "BN"} <= tile.keys() else None
        block = f"({', '.join(edges or [json.dumps(first) if first else str(EDGE)] * 2)})"
    else:
        threads = threads or (f"{first}*{first}" if first else str(EDGE**2))
        block = threads if threads.isdecimal() else f'"{threads}"'
    used = [index for index in ("blockIdx.y", "threadIdx.y") if kernel.uses(index)]
    sentences = [f"the kernel uses {' and '.join(used) or 'neither blockIdx.y nor threadIdx.y'}."]
    sentences += [f"x covers {covered['x']}."] if "x" in covered else []
    sentences += [f"The launch bounds are {shown(kernel.threads)} threads."] * bool(kernel.threads)
    yield f"    # Read: {' '.join(sentences)}"
    yield "    # Not read: how many elements of the result a block computes. Check these two lines."
    for remark in _unread(kernel, text):
        yield f"    # Not read: {remark}"
    yield f"    grid={grid},  # blocks in x and y; / rounds up"
    yield f"    block={block},  # threads"


def _unread(kernel: Kernel, text: str) -> Iterator[str]:
    """Yield remarks on what the source may say elsewhere."""
    if files := list(dict.fromkeys(map(shown, _INCLUDED.findall(text))))[:5]:
        yield f"the included files {', '.join(files)}."
    code = _code(text)
    if not kernel.uses("threadIdx.y") and re.search(r"\bthreadIdx\s*\.\s*y\b", code):
        yield "which functions the kernel calls; threadIdx.y occurs elsewhere in the source."
    launch = re.search(
        rf"\b{re.escape(kernel.name)}\b\s*+(?:<[^;<>]{{0,200}}>)?\s*+<<<([^;]{{0,300}}?)>>>", code
    )
    if launch:
        yield f"the source's own launch, <<<{' '.join(launch[1].split())}>>>."


def _covered(kernel: Kernel, op: str) -> dict[str, str]:
    """Return which extent each dimension of the grid covers, as far as bounds checks tell.

    `row = blockIdx.y * 32 + …; if (row >= M)` says that y covers M.
    """
    extents = {
        parameter.name: parameter.value.upper()
        for parameter in parameters(kernel.signature)
        if parameter.value.upper() in {"M", "N"}
    }
    indices = {
        name: set(_BLOCK_INDEX.findall(value)) for name, value in _ASSIGNED.findall(kernel.body)
    }
    covered = {
        next(iter(indices[name])): extents[extent]
        for name, extent in _COMPARED.findall(kernel.body)
        if extent in extents and len(indices.get(name, ())) == 1
    }
    is_matrix = len(OPERATIONS[op].output(1, 1, 1)) > 1
    return covered if len(set(covered.values())) == 1 + is_matrix else {}


def _expression(text: str, tile: Config) -> str:
    """Return an expression of C++ as `grid` and `block` take it, or an empty text if it is none."""
    names = {*map(_axis_name, _NAME.findall(text))}
    if not names <= tile.keys() or not re.fullmatch(r"[\w\s()*/+-]+", text, re.ASCII):
        return ""
    text = _NAME.sub(lambda name: _axis_name(name[0]), text).replace("/", "//")
    try:
        parse(text)
    except (SyntaxError, ValueError):
        return ""
    return " ".join(text.split())
