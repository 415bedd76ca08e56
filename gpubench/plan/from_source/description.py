"""`gpubench new-kernel --from FILE.cu`: writes the description of an existing kernel.

The description has the facts that the source shows. Its comments name the facts that are missing.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from gpubench.errors import UsageError
from gpubench.model import CORE_DTYPES, OPERATIONS, PRECISIONS, Config
from gpubench.model.config import BLOCK, MARKS, THREAD
from gpubench.model.signature import Parameter, array_index
from gpubench.model.sources import read_source
from gpubench.plan.from_source.files import expanded, needed, neighbours, root_of, source_text
from gpubench.plan.from_source.launch import Dimensions, edge_of_block, read_launch
from gpubench.plan.from_source.meaning import UNKNOWN, meanings, reads_output
from gpubench.plan.from_source.source import Function, calls, code, functions, last, reachable
from gpubench.text import clean, shown, unknown

GUESSES = dict.fromkeys(("BM", "BN"), 64) | dict.fromkeys(("BK", "TM", "TN"), 8)
GUESSES |= {"num_threads": 256, "stages": 2, "splits": 1}
"""Values that are assumed for template parameters, by name, if the source has no values. Parameters
with other names get `EDGE`."""

OTHER_NAMES = {f"block_size_{each}": f"B{each.upper()}" for each in "mnk"}
OTHER_NAMES |= {"thread_size_y": "TM", "thread_size_x": "TN"}

LONGEST = 20  # maximum number of characters of an axis's name; longer names lose their middle
EDGE = 32  # a guess for the edge of a block of two dimensions
THREADS = 256  # a guess for the number of threads of a block of one dimension
NO_PRECISION = "no precision of gpubench has operands of"
MAX_THREADS = 1024  # maximum number of threads of a block
ARRAYS = 3  # number of arrays of a product
MAX_ALIASES = 8  # maximum number of aliases of a type that are followed
MAX_NEIGHBOURS = 100  # maximum number of other sources that are searched for a kernel's launch
MAX_NEIGHBOUR_BYTES = 2**18  # maximum size of each of these sources

ALIASES = {
    **dict.fromkeys(("half", "half_t"), "__half"),
    **dict.fromkeys(("nv_bfloat16", "bf16", "bfloat16_t"), "__nv_bfloat16"),
    **dict.fromkeys(("int8_t", "char"), "signed char"),
    "int32_t": "int",
}
"""Other names of element types, with the names that `PRECISIONS` has."""

_VECTOR = re.compile(r"(?<=[a-z6])[24]$")  # the end of a name such as `float4`
_OWN_HALF = re.compile(r"\b(?:cute|cutlass)::half_t\b")
_LIBRARIES = {"cublas": re.compile(r"\bcublas\w+\("), "cuda": re.compile(r"\bcu[A-Z]\w+\(")}
_NO_PRODUCT = re.compile(r"\b(__)?(exp2?|rsqrt|tanh)f?\s*\(|/\s*\w*(?:sum|norm)\w*\b")
_HALF_ACCUMULATOR = re.compile(
    r"\bmma_in_float16\b|F16F16F16|UniversalFMA<T|accumulator\s*,[^<>;]*\b(?:(?:__)?half|T)\s*>"
)
_WIDER = re.compile(r"\bfloat\b|\bdouble\b|float2?\b(?!\s*\*)|mma")
_WAITS = re.compile(
    r"\bcuda(DeviceSynchronize|StreamSynchronize|EventSynchronize|Memcpy|Malloc|Free)\b"
)
_PRODUCT = re.compile(r"([MNK]|\d+)(\*([MNK]|\d+))*")


@dataclass(frozen=True, kw_only=True)
class Description:
    """A description, and the facts that its source does not show."""

    text: str
    asked: list[str]  # parameters whose meaning is not known
    guesses: list[str]  # fields of the description that are guesses
    hint: str = ""  # the reason to think that the function is no product


@dataclass(frozen=True, kw_only=True)
class _Read:
    """Facts about a function that were read from its source."""

    function: Function
    others: list[str]  # names of the other functions that could be described
    arguments: list[Parameter]
    column_major: tuple[str, ...]
    element: str  # the C++ type that stands for a template's type
    reads_output: bool
    launch: Dimensions
    options: list[str]  # include folders, and files and libraries to link
    text: str
    body: str  # source of the function and of all functions that it calls


def describe_file(
    source: Path, name: str, op: str, entry: str, *, home: str,
    column_major: tuple[str, ...] | None = None, squares_only: bool = False,
) -> Description:  # fmt: skip
    """Describe a source's function for the folder `home`.

    The variant is called `name`. The function is called `entry`, or else `name`. If the source has
    no such function, the first host function that launches kernels is described, or else the first
    kernel. `column_major` and `squares_only` are results of a trial run of the function. Raises
    UsageError for a source without a kernel, and for a function that cannot be described.
    """
    read = _read(source, name, op, entry, home)
    function = read.function
    instance, tile, space, guessed_axes = _tiles(function, read.element)
    kind, field = ("CudaVariant", "kernel") if function.is_kernel else ("HostVariant", "entry")
    file = os.path.relpath(os.path.realpath(source), home)
    asked = [each for each in read.arguments if each.value == UNKNOWN]
    dtypes, guessed_types = _dtypes(read, op)
    launch, guesses = _launch(read, tile, op) if function.is_kernel else ([], [])
    lines = [
        f'idea="what {name} teaches, in a line",',
        f"file={json.dumps(file, ensure_ascii=False)},",
        f'{field}="{instance}",',
    ]
    if read.others:
        lines.append(f"# --kernel selects another: {', '.join(read.others)}.")
    number = "Write =1 for a constant, or =M, =lda, =M*N for what it is."
    for is_pointer, advice in ((True, "Write =A or which array it is, or =null."), (False, number)):
        if names := [each.name for each in asked if each.is_pointer == is_pointer]:
            lines.append(f"# Not known: {', '.join(names)}. {advice}")
    scalar = re.compile(r"\bScalar\b")
    texts = [f"{scalar.sub(read.element or 'Scalar', each.cpp)} {each.name}"
             + f"={each.value}" * (each.value != each.name)
             + ", " * (each is not read.arguments[-1])
             for each in read.arguments]  # fmt: skip
    rows = ("".join(texts[start : start + 4]) for start in range(0, len(texts), 4))
    lines += ["signature=(", *(f"    {json.dumps(row, ensure_ascii=False)}" for row in rows)]
    lines += ["),", dtypes]
    if read.reads_output:
        lines.append("reads_output=True,  # it reads C even where beta is 0: C holds zeros")
    why = "so its results are right" if column_major else "its indices say so"
    if column_major := read.column_major if column_major is None else column_major:
        lines.append(f"column_major={_listed(column_major)},  # {why}")
    if squares_only:
        equal = "problem.m == problem.n" + (" == problem.k" if OPERATIONS[op].has_k else "")
        lines.append(f'refuse=lambda _, problem: None if {equal} else "takes squares only",')
    if read.options:
        lines.append(f"compile_options={_listed(read.options)},")
    if not function.is_kernel and (waiting := _WAITS.search(function.body)):
        lines.append(f"waits=True,  # it calls {waiting[0]}")
    lines = [f"    {line}" for line in (*lines, *space, *launch)]
    head = f"from gpubench.model import {kind}{', Space' * bool(space)}\n\nVARIANT = {kind}("
    no_product = _NO_PRODUCT.search(read.body) if OPERATIONS[op].is_product else None
    hint = f"it has {' '.join(no_product[0].split())}: a softmax or a norm?" if no_product else ""
    return Description(
        text="\n".join([head, *lines, ")\n"]), asked=[each.name for each in asked],
        guesses=[*guesses, *guessed_axes, *guessed_types], hint=hint,
    )  # fmt: skip


def _read(source: Path, name: str, op: str, entry: str, home: str) -> _Read:
    """Return the facts about a source's function. Raises UsageError as `describe_file` does."""
    written = source_text(source)  # with its macros
    folders, linked, options = needed(source)
    own, included, _ = expanded(source, folders)
    try:
        defined = list(functions(own))
        everything = sorted(
            (*functions(included), *defined),
            key=lambda each: (not each.is_kernel, -len(each.template)),
        )  # if two templates have the same name, C++ calls the more specialized template
        by_name = {last(each.name): each for each in everything}
        entry = last(entry) or (name if name in by_name else "")
        if entry and entry not in by_name:
            raise UsageError(f"--kernel: {unknown('function', entry, by_name)}")
        if not (chosen := [by_name[entry]] if entry else _candidates(defined)):
            raise UsageError(f"--from: {source} defines no kernel: no __global__ function")
        function = chosen[0]
        if not re.fullmatch(r"(\w+::)*[A-Za-z_]\w*", function.name, re.ASCII):
            raise UsageError(
                f"--from: {source}: '{shown(function.name)}' cannot name a kernel; "
                "use ASCII letters, digits and _"
            )
        kernels = {last(each.name): each for each in everything if each.is_kernel}
        arguments, column_major = meanings(function, kernels, op)
    except ValueError as error:
        raise UsageError(f"--from: {source}: {error}") from error
    options = [*(f"-I{os.path.relpath(folder, home)}" for folder in folders), *options]
    body = "\n".join(each.body for each in reachable(last(function.name), by_name))
    half = _OWN_HALF.search(written) if function.types else None
    launch = Dimensions()
    if function.is_kernel:
        callers = [*everything, *_in_neighbours(function, source)]
        launch = read_launch(function, callers, arguments, _axes(function), included + own)
        passed = [[launch.arguments.get(each.name, "")] for each in arguments]
        template = (replace(each, value=launch.template.get(each.name, each.value))
                    for each in function.template)  # fmt: skip
        function = replace(function, template=tuple(template))
    else:
        call = re.compile(rf"\b{last(function.name)}\s*(?:<[^;{{}}]*?>\s*)?(?=\()")
        lists = [*calls(call, written.replace("\\\n", ""))]
        passed = [[each[at] for each in lists if each[at : at + 1] and each[at].isdecimal()]
                 for at in range(len(arguments))]  # fmt: skip
        options += [os.path.relpath(path, home) for path in linked]
        options += [f"-l{each}" for each, call in _LIBRARIES.items() if call.search(body)]
    arguments = [
        replace(each, value=next(filter(_PRODUCT.fullmatch, values), UNKNOWN))
        if each.value == UNKNOWN and not each.is_pointer else each
        for each, values in zip(arguments, passed, strict=True)
    ]  # fmt: skip
    return _Read(
        function=function, arguments=arguments, column_major=column_major, options=options,
        others=[clean(each.name) for each in _candidates(defined) if each.name != function.name],
        element=half[0] if half else "", reads_output=reads_output(function, kernels),
        launch=launch, text=included + own + written, body=body,
    )  # fmt: skip


def described_by_default(text: str) -> list[str]:
    """Return the names of the host functions that launch kernels, or else of the kernels."""
    candidates = _candidates([*functions(text)])
    return [each.name for each in candidates if each.is_kernel == candidates[0].is_kernel]


def _candidates(defined: Sequence[Function]) -> list[Function]:
    """Return the host functions that launch kernels on arrays, and then the kernels.

    Functions with fewer than three arrays are last, because they fill, convert or copy arrays.
    """
    arrays = {each: len(re.findall(r"[\w>]\s*\*(?!\s*\*)", each.signature)) for each in defined}
    launchers = [
        each
        for each in defined
        if each.launches_kernels and not each.is_kernel and each.name != "main" and arrays[each] > 1
        and not re.search(r"\(|\bargc\b|\bchar\s*\*\*", each.signature)
    ]  # fmt: skip
    kernels = [each for each in defined if each.is_kernel]
    return sorted((*launchers, *kernels), key=lambda each: (arrays[each] < ARRAYS, each.is_kernel))


def _in_neighbours(kernel: Function, source: Path) -> Iterator[Function]:
    """Yield the functions of other sources in the repository that may launch the kernel."""
    name = last(kernel.name)
    call, own = rf"\b{name}\s*<", rf"\b__global__\b[^;{{}}]*\b{name}\s*\("
    source = Path(os.path.realpath(source))
    folders = [each for each in neighbours(source) if each.is_relative_to(root_of(source))]
    paths = sorted(path for folder in folders for path in folder.glob("*.cu"))
    for path in paths[:MAX_NEIGHBOURS]:
        if path != source and path.stat().st_size < MAX_NEIGHBOUR_BYTES:
            text = read_source(path)
            if "<<<" in text and re.search(call, text) and not re.search(own, text):
                with suppress(ValueError):  # a kernel that cannot be read
                    yield from functions(expanded(path, needed(path)[0])[0])


def _axes(function: Function) -> dict[str, str]:
    """Return the axis of each template parameter, by the parameter's name.

    An axis is in lower case, except for the tile's axes such as `BM`. A parameter with the value 0
    has no axis.
    """
    axes = {}
    for each in function.template:
        if each.name not in function.types and each.type_name != "bool" and each.value != "0":
            name = each.name.lower()
            short = name if len(name) <= LONGEST else f"{name[:9]}_{name[9 - LONGEST + 1 :]}"
            of_tile = each.name if each.name in {*BLOCK, *THREAD} else OTHER_NAMES.get(name)
            axes[each.name] = of_tile or short
    return axes


def _listed(texts: Iterable[str], one: str = "({},)") -> str:
    """Return texts as a tuple in Python's syntax, where a text of digits becomes a number.

    `one` is the form of a single text.
    """
    listed = [each if each.isdecimal() else json.dumps(each, ensure_ascii=False) for each in texts]
    return one.format(listed[0]) if len(listed) == 1 else f"({', '.join(listed)})"


def _dtypes(read: _Read, op: str) -> tuple[str, list[str]]:
    """Return the line that states `dtypes`, and `["dtypes"]` if the dtypes are a guess.

    If the element's type is a template parameter, the dtypes come from the explicit instances,
    or else are the default dtypes.
    """
    pointers = reversed([each for each in read.arguments if each.is_pointer])
    kinds = {array_index(each, op): _resolved(each.type_name, read.text) for each in pointers}
    operand, result = kinds.get(0, ""), kinds.get(len(OPERATIONS[op].arrays) - 1, "")
    types = [operand or result]
    if "Scalar" in {operand, result}:
        instance = rf"\b{last(read.function.name)}\s*<\s*([\w:]+)"
        types = [*re.findall(instance, code(read.text)), *read.function.types[:1]]  # or an alias
        types = [_resolved(each, read.text) for each in types]
        result = ""
    if dtypes := dict.fromkeys(
        filter(None, (_precision(each, result, read.body) for each in types))
    ):
        return f"dtypes={_listed(dtypes)},", []
    if "Scalar" in kinds.values():
        return f"# dtypes: a template over the element takes {', '.join(CORE_DTYPES)}.", []
    why = "the type of the elements is not known"
    if operand and result and operand != result:
        why = f"{NO_PRECISION} {shown(operand)} and {shown(result)} as C"
        usual = {PRECISIONS[each.result].cpp for each in PRECISIONS.values() if each.cpp == operand}
        why += f", but {' or '.join(sorted(usual))}" if usual else ""
    return f'dtypes=("float32",),  # a guess: {why}', ["dtypes"]


def _precision(operand: str, result: str, body: str) -> str:
    """Return the precision whose operands and results have these C++ types, or an empty text.

    float16 becomes `float16_sum16` if tensor cores or plain code sum in float16.
    """
    result = result or operand
    names = {(each.cpp, PRECISIONS.get(each.result, each).cpp): name
             for name, each in reversed(PRECISIONS.items())}  # fmt: skip
    name = names.get((operand, result), "")
    if name == "float16" and (_HALF_ACCUMULATOR.search(body) or not _WIDER.search(body)):
        return "float16_sum16"
    return "tf32" if name == "float32" and re.search("(?i)tf32", body) else name


def _resolved(cpp: str, text: str) -> str:
    """Return the element type of a C++ type, a vector or an alias, as a precision names it."""
    for _ in range(MAX_ALIASES):
        cpp = _VECTOR.sub("", last(cpp))
        cpp = ALIASES.get(cpp, cpp)
        alias = re.search(
            rf"\btypedef\s+(?:const\s+)?([\w:]+(?: char)?)\s+{re.escape(cpp)}\s*;"
            rf"|\busing\s+{re.escape(cpp)}\s*=\s*([\w:]+)\s*;", text
        )  # fmt: skip
        if not alias:
            break
        cpp = alias[1] or alias[2]
    return cpp


def dtype_of(cpp: str) -> str | None:
    """Return the name of the precision of a C++ type, or None."""
    names = (name for name, each in PRECISIONS.items() if each.cpp == _resolved(cpp, ""))
    return next(names, None)


def _tiles(function: Function, element: str) -> tuple[str, Config, list[str], list[str]]:
    """Return the function's instance, its tile, the lines of its space, and the guessed fields.

    The instance is a text such as `sgemm<{BM}, {BN}>`. The tile is the tile of the first launch. A
    kernel has no space if no template parameter can be a number of the block.
    """
    axes, numbers, guesses, arguments = _axes(function), dict[str, int](), list[str](), []
    for each in function.template:
        is_number = re.fullmatch("0|[1-9][0-9]{0,8}", each.value)
        if axis := axes.get(each.name, ""):
            numbers[axis] = int(each.value) if is_number else GUESSES.get(axis, EDGE)
            guesses += [] if is_number else [axis]
            arguments.append(f"{{{axis}}}")
        elif each.name in function.types:
            arguments.append(element or "{scalar}")
        else:
            arguments.append(each.value if each.value != each.name else "false")
    instance = f"{function.name}<{', '.join(arguments)}>" if arguments else function.name
    block = [axis for axis in BLOCK if axis in numbers]
    block = block or [axis for axis in numbers if axis not in {*THREAD, *MARKS}][:1]
    if not block:
        return instance.format(**numbers, scalar="{scalar}"), Config(), [], []
    thread = THREAD if {*THREAD} <= numbers.keys() else ()
    tile = Config(numbers.items(), tuple(block), thread)
    lines = ["# Which values may each parameter have? --tiles chooses among them."]
    lines += [f"# These values are guesses: {', '.join(guesses)}."] if guesses else []
    lines += ["tiles=Space(", "    axes={"]
    lines += [f'        "{axis}": ({tile[axis]},),' for axis in tile]
    lines += ["    },", f"    block={_listed(block)},"]
    lines += [f"    thread={_listed(thread)},"] if thread else []
    return instance, tile, [*lines, f'    default=("{tile}",),', "),"], ["tiles"][: len(guesses)]


def _launch(read: _Read, tile: Config, op: str) -> tuple[list[str], list[str]]:
    """Return the description's lines about the launch, and the fields that are guesses.

    The lines follow from the source's own launch, or else from the kernel's indices.
    """
    launch = read.launch
    if launch.grid and launch.block:
        grid, block, guesses = launch.grid, launch.block, list[str]()
        lines = [f"# Read from the launch in {shown(launch.caller)}."]
    else:
        guesses = ["grid", "block"]
        grid, block = _guessed(read, tile, op)
        own = f" The source launches <<<{launch.config}>>>." if launch.config else ""
        lines = [f"# Guesses from the kernel's indices: check these two lines.{own}"]
    lines.append(f"grid={_listed(grid, '{}')},  # blocks in x and y; / rounds up")
    lines.append(f"block={_listed(block, '{}')},  # threads")
    if launch.shared == UNKNOWN:
        guesses.append("shared_bytes")
        lines.append("# The launch passes shared_bytes that could not be read.")
    elif launch.shared:
        lines.append(f"shared_bytes={_listed([launch.shared], '{}')},")
    return lines, guesses


def _guessed(read: _Read, tile: Config, op: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the grid and the block that the kernel's indices suggest."""
    kernel, first = read.function, next(iter(tile), "")
    has_y, has_rows = (re.search(rf"\b{index}Idx\s*\.\s*y\b", kernel.body)
                       for index in ("thread", "block"))  # fmt: skip
    x, y = ("BN", "BM") if {"BM", "BN"} <= tile.keys() else (first or str(EDGE),) * 2
    edges = [edge_of_block(kernel, axis, read.text) or MAX_THREADS for axis in "xy"]
    if not first and has_y and prod(edges) <= MAX_THREADS:
        x, y = map(str, edges)
    block = ("BN/TN", "BM/TM") if {*THREAD, "BM", "BN"} <= tile.keys() else (x, y)
    if not has_rows and "BM" not in tile:
        threads = first or str(EDGE**2 if has_y else THREADS)
        elements = "*".join(OPERATIONS[op].output.dimensions)
        return (f"{elements}/{threads}",), block if has_y else (threads,)
    return (f"N/{x}", f"M/{y}"), block if has_y else (f"{block[0]}*({block[1]})",)
