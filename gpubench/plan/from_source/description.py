"""`gpubench new-kernel --from FILE.cu`: writes the description of a kernel that exists.

The description holds what the source says. Comments in it name what the source does not say.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpubench.errors import UsageError
from gpubench.model import CORE_DTYPES, OPERATIONS, PRECISIONS, Config
from gpubench.model.config import BLOCK, MARKS, THREAD
from gpubench.model.signature import Parameter, array_index
from gpubench.model.sources import read_source, whole_source
from gpubench.plan.from_source.files import needed, source_text
from gpubench.plan.from_source.launch import Dimensions, expression, read_launch
from gpubench.plan.from_source.meaning import UNKNOWN, meanings, reads_output
from gpubench.plan.from_source.source import Function, code, functions
from gpubench.text import shown, unknown

GUESSES = dict.fromkeys(("BM", "BN"), 64) | dict.fromkeys(("BK", "TM", "TN"), 8)
GUESSES |= {"num_threads": 256, "stages": 2, "splits": 1}
"""Values of template parameters with these names, if the source has none. Other parameters: 32."""

LONGEST = 20  # maximum number of characters of an axis. Longer names lose their middle
EDGE, THREADS = 32, 256  # edge of a block of two dimensions, threads of a block of one: guesses
ALIASES = {"half": "__half"} | dict.fromkeys(("nv_bfloat16", "bf16"), "__nv_bfloat16")
"""Types of elements under another name."""

_WAITS = re.compile(
    r"\bcuda(DeviceSynchronize|StreamSynchronize|EventSynchronize|Memcpy|Malloc|Free)\b"
)
_MACRO = re.compile(r"#\s*ifndef\s+(\w+)\s*#\s*define\s+\1\s+(\d+)")


def describe_file(
    source: Path, name: str, op: str, entry: str, *, home: str
) -> tuple[str, list[str]]:
    """Return a description of a source's function for the folder `home`, and what to fill in.

    The variant is called `name`. The function is called `entry`, or else `name`. Without one it is
    the first host function that launches kernels, or else the first kernel. Raises UsageError for a
    source without a kernel, and for a function that cannot be described.
    """
    text, (folders, linked) = source_text(source), needed(source)
    included = "".join(map(read_source, whole_source(source, folders)[1:]))
    try:
        defined = list(functions(text))
        everything = sorted((*functions(included), *defined), key=lambda each: not each.is_kernel)
        by_name = {_last(each.name): each for each in everything}
        function = _chosen(defined, by_name, entry or name * (name in by_name), source)
        if not re.fullmatch(r"(\w+::)*[A-Za-z_]\w*", function.name, re.ASCII):
            raise UsageError(
                f"--from: {source}: '{shown(function.name)}' cannot name a kernel; "
                "use ASCII letters, digits and _"
            )
        kernels = {_last(each.name): each for each in everything if each.is_kernel}
        arguments, column_major = meanings(function, kernels, op)
    except ValueError as error:
        raise UsageError(f"--from: {source}: {error}") from error
    kind = "CudaVariant" if function.is_kernel else "HostVariant"
    file = os.path.relpath(os.path.realpath(source), home)
    asked = [parameter.name for parameter in arguments if parameter.value == UNKNOWN]
    numbers = dict(_MACRO.findall(code(text))) if function.is_kernel else {}
    axes = {
        parameter.name: _axis_name(parameter.name)
        for parameter in function.template
        if parameter.name not in function.types and parameter.type_name != "bool"
    }
    launch = Dimensions()
    if function.is_kernel:
        launch = read_launch(function, everything, arguments, axes, included + text)
        template = [
            replace(each, value=launch.template.get(each.name, each.value))
            for each in function.template
        ]
        function = replace(function, template=tuple(template))
    values = {axes[each.name]: each.value for each in function.template if each.name in axes}
    values |= {_axis_name(macro): number for macro, number in numbers.items()}
    tile, space = _space(values)
    lines = [
        f"from gpubench.model import {kind}{', Space' * bool(space)}\n",
        f"VARIANT = {kind}(",
        f'    idea="what {name} teaches, in a line",',
        f"    file={json.dumps(file, ensure_ascii=False)},",
        f'    {"kernel" if function.is_kernel else "entry"}="{_instance(function, tile)}",',
    ]
    others = [each.name for each in _candidates(defined) if each.name != function.name]
    if others:
        lines.append(f"    # --kernel selects another: {', '.join(map(shown, others))}.")
    if asked:
        lines.append(
            f"    # Not known: {', '.join(asked)}. Write =1 for a constant, or =A, =M, =lda, =M*N "
            "for what it is."
        )
    lines += ["    signature=(", *_signature(arguments), "    ),"]
    lines += _dtypes(function, arguments, op, text)
    if reads_output(function, kernels, op):
        lines.append("    reads_output=True,  # it reads C even where beta is 0: C holds zeros")
    if column_major:
        lines.append(f"    column_major={_listed(column_major)},  # its indices say so")
    options = [f"-D{macro}={{{_axis_name(macro)}}}" for macro in numbers]
    options += [f"-I{os.path.relpath(folder, home)}" for folder in folders] + [
        os.path.relpath(path, home) for path in linked if not function.is_kernel
    ]
    if options:
        lines.append(f"    compile_options={_listed(options)},")
    if not function.is_kernel and (waiting := _WAITS.search(function.body)):
        lines.append(f"    waits=True,  # it calls {waiting[0]}")
    lines += space
    if launch.grid and launch.block:
        lines += [
            f"    # Read from the launch in {shown(launch.caller)}; / rounds up.",
            f"    grid={_numbers(launch.grid)},  # blocks",
            f"    block={_numbers(launch.block)},  # threads",
        ]
    elif function.is_kernel:
        lines += _launch(function, tile, op, launch.config)
    return "\n".join([*lines, ")\n"]), asked


def described_by_default(text: str) -> list[str]:
    """Return the names of the host functions that launch kernels, or else of the kernels."""
    candidates = _candidates([*functions(text)])
    return [each.name for each in candidates if each.is_kernel == candidates[0].is_kernel]


def _candidates(defined: Sequence[Function]) -> list[Function]:
    """Return the host functions that launch kernels on arrays, and then the kernels."""
    launchers = [
        each
        for each in defined
        if each.launches and not each.is_kernel and each.name != "main" and "*" in each.signature
        and "(" not in each.signature
    ]  # fmt: skip
    return launchers + [each for each in defined if each.is_kernel]


def _chosen(
    defined: Sequence[Function], by_name: Mapping[str, Function], entry: str, source: Path
) -> Function:
    """Return the function to describe. Raises UsageError if there is none."""
    if entry:
        if _last(entry) not in by_name:
            raise UsageError(f"--kernel: {unknown('function', entry, by_name)}")
        return by_name[_last(entry)]
    if not _candidates(defined):
        raise UsageError(f"--from: {source} defines no kernel: no __global__ function")
    return _candidates(defined)[0]


def _last(name: str) -> str:
    """Return a function's name without its namespaces."""
    return name.rpartition("::")[2]


def _listed(texts: Iterable[str]) -> str:
    """Return texts as a tuple of Python has them."""
    quoted = [json.dumps(text, ensure_ascii=False) for text in texts]
    return f"({', '.join(quoted)}{',' * (len(quoted) == 1)})"


def _numbers(texts: Sequence[str]) -> str:
    """Return expressions as a description has them: numbers without quotes."""
    shown_texts = [text if text.isdecimal() else json.dumps(text) for text in texts]
    return f"({', '.join(shown_texts)})" if len(texts) > 1 else shown_texts[0]


def _instance(kernel: Function, tile: Config) -> str:
    """Return the function's name with its template arguments: `sgemm<{BM}, {BN}>`."""
    arguments = []
    for each in kernel.template:
        name = "scalar" if each.name in kernel.types else _axis_name(each.name)
        if name in {"scalar", *tile}:
            arguments.append(f"{{{name}}}")
        elif each.type_name == "bool":
            arguments.append(each.value if each.value != each.name else "false")
        else:
            arguments.append(str(_number(each.name, each.value)))
    return f"{kernel.name}<{', '.join(arguments)}>" if arguments else kernel.name


def _axis_name(name: str) -> str:
    """Return a parameter's name as an axis: lower case, except in the block and the thread tile."""
    if name in {*BLOCK, *THREAD}:
        return name
    name = name.lower()
    return name if len(name) <= LONGEST else f"{name[:9]}_{name[9 - LONGEST + 1 :]}"


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


def _dtypes(function: Function, arguments: list[Parameter], op: str, text: str) -> Iterator[str]:
    """Yield the dtype of the output's type.

    A template over the type takes those of its explicit instances, or else the default dtypes.
    """
    instances = re.findall(rf"\btemplate\s[^;<>]*\b{_last(function.name)}\s*<\s*(\w+)", code(text))
    output = len(OPERATIONS[op].arrays) - 1
    arrays = (each for each in arguments if each.is_pointer and array_index(each, op) == output)
    kind = next((each.type_name for each in arrays), "")
    names = tuple(filter(None, map(dtype_of, instances if kind == "Scalar" else [kind])))
    if names:
        yield f"    dtypes={_listed(dict.fromkeys(names))},"
    elif kind == "Scalar":
        yield f"    # dtypes: a template over the element takes {', '.join(CORE_DTYPES)}."
    else:
        yield '    dtypes=("float32",),  # a guess: the type of the output is not known'


def dtype_of(cpp: str) -> str | None:
    """Return the element type of a type of C++, or None."""
    cpp = ALIASES.get(cpp, cpp)
    return next((name for name, precision in PRECISIONS.items() if precision.cpp == cpp), None)


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


def _launch(kernel: Function, tile: Config, op: str, config: str) -> Iterator[str]:
    """Yield the grid and the block as the kernel's indices suggest them.

    `config` is what the source's own launch says, which could not be read.
    """
    first = next(iter(tile), "")
    rows, columns = ("BM", "BN") if {"BM", "BN"} <= tile.keys() else (first or EDGE,) * 2
    has_y = kernel.uses("threadIdx.y")
    names = {parameter.name: _axis_name(parameter.name) for parameter in kernel.template}
    threads = expression(kernel.threads, names, tile.keys(), {}) or ""
    if kernel.uses("blockIdx.y") or "BM" in tile:
        grid = [f"N/{columns}", f"M/{rows}"]
    else:
        elements = "*".join(OPERATIONS[op].output.dimensions)
        threads = threads or first or str(EDGE**2 if has_y else THREADS)
        divisor = threads if threads.isalnum() else f"({threads})"
        grid = [f"{elements}/{divisor}"]
    if has_y:
        is_tiled = {*THREAD, "BM", "BN"} <= tile.keys()
        block = ["BN/TN", "BM/TM"] if is_tiled else [first or str(EDGE)] * 2
    else:
        block = [threads or (f"{first}*{first}" if first else str(EDGE**2))]
    own = f" The source launches <<<{' '.join(config.split())}>>>." if config else ""
    yield f"    # Guesses from the kernel's indices: check these two lines.{own}"
    yield f"    grid={_numbers(grid)},  # blocks in x and y; / rounds up"
    yield f"    block={_numbers(block)},  # threads"
