"""`gpubench new-kernel --from FILE.cu`: describes a function of an existing source."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import isqrt, prod
from pathlib import Path

from gpubench.errors import UsageError
from gpubench.files import files_in
from gpubench.model import OPERATIONS, PRECISIONS, Config
from gpubench.model.config import BLOCK, MARKS, THREAD
from gpubench.model.precision import element_of_cpp
from gpubench.model.signature import Parameter, array_index
from gpubench.model.sources import read_source
from gpubench.plan.description_text import UNKNOWN, Description, Facts, description_of
from gpubench.plan.from_source.files import expanded, needed, neighbours, root_of, source_text
from gpubench.plan.from_source.launch import (
    bound_of_block,
    edge_of_block,
    elements_per_thread,
    is_alone,
    is_crossed,
    read_launch,
)
from gpubench.plan.from_source.meaning import meanings, reads_output
from gpubench.plan.from_source.source import Function, calls, code, functions, last, reachable
from gpubench.plan.other_guesses import EXTENTS, GRID, WARPS
from gpubench.text import clean, shown, unknown

GUESSES = dict.fromkeys(("BM", "BN"), 64) | dict.fromkeys(("BK", "TM", "TN", "tm", "tn"), 8)
GUESSES |= {"num_threads": 256, "stages": 2, "splits": 1}
"""Values that are assumed for template parameters, by name, if the source has no values. Parameters
with other names get `EDGE`."""

OTHER_NAMES = {f"block_size_{each}": f"B{each.upper()}" for each in "mnk"}
OTHER_NAMES |= {"thread_size_y": "TM", "thread_size_x": "TN"}

LONGEST = 20  # maximum number of characters of an axis's name; longer names lose their middle
EDGE = 32  # a guess for the edge of a block of two dimensions
THREADS = 256  # a guess for the number of threads of a block of one dimension
MAX_THREADS = 1024  # maximum number of threads of a block
ARRAYS = 3  # number of arrays of a product
MAX_ALIASES = 8  # maximum number of aliases of a type that are followed
MAX_NEIGHBOURS = 100  # maximum number of other sources that are searched for a kernel's launch
MAX_NEIGHBOUR_BYTES = 2**18  # maximum size of each of these sources

_OWN_HALF = re.compile(r"\b(?:cute|cutlass)::half_t\b")
_LIBRARIES = {"cublas": re.compile(r"\bcublas\w+\("), "cuda": re.compile(r"\bcu[A-Z]\w+\(")}
_NO_PRODUCT = re.compile(r"\b(__)?(exp2?|rsqrt|tanh)f?\s*\(|/\s*\w*(?:sum|norm)\w*\b")
_HALF_ACCUMULATOR = re.compile(
    r"\bmma_in_float16\b|F16F16F16|UniversalFMA<T|accumulator\s*,[^<>;]*\b(?:(?:__)?half|T)\s*>"
)
_WIDER = re.compile(r"\bfloat\b|\bdouble\b|float2?\b(?!\s*\*)|mma")
_WAITS = re.compile(
    r"\b(cuda(DeviceSynchronize|StreamSynchronize|EventSynchronize|Memcpy|Malloc|Free)"
    r"|CUTE_CHECK_LAST)\b"  # a macro of CUTLASS's header, which waits
)
_PRODUCT = re.compile(r"([MNK]|\d+)(\*([MNK]|\d+))*")


def describe_file(
    source: Path, name: str, op: str, entry: str, *, home: str,
    column_major: tuple[str, ...] | None = None, squares_only: bool = False,
    exchanged: Collection[str] = (),
) -> Description:  # fmt: skip
    """Describe a source's function for the folder `home`.

    The variant is called `name`. The function is called `entry`, or else `name`. If the source has
    no such function, the first host function that launches kernels is described, or else the first
    kernel. `column_major` and `squares_only` are results of a trial run of the function.
    `exchanged` may have `GRID`, `WARPS` and `EXTENTS`. Raises UsageError for a source without a
    kernel, and for a function that cannot be described.
    """
    facts = replace(_facts(source, name, op, entry, home, exchanged), squares_only=squares_only)
    if column_major is not None:
        facts = replace(facts, column_major=column_major, is_proved=True)
    return description_of(facts)


def _facts(
    source: Path, name: str, op: str, entry: str, home: str, exchanged: Collection[str]
) -> Facts:
    """Return the facts about a source's function. Raises UsageError as `describe_file` does."""
    written = source_text(source)  # with its macros
    folders, linked, options = needed(source)
    own, included, _ = expanded(source, folders)
    text = included + own + written
    try:
        defined = list(functions(own))
        everything = sorted(
            (*functions(included), *defined),
            key=lambda each: (not each.is_kernel, -len(each.template)),
        )  # if two templates have the same name, C++ calls the more specialized template
        by_name = {last(each.name): each for each in everything}
        entry = entry or (name if name in by_name else "")
        named = by_name | {each.name: each for each in everything}
        function = _chosen(source, defined, named, entry if entry in named else last(entry))
        by_name |= {last(function.name): function}
        kernels = {last(each.name): each for each in everything if each.is_kernel}
        arguments, column_major = meanings(function, kernels, op, exchanged=EXTENTS in exchanged)
    except ValueError as error:
        raise UsageError(f"--from: {source}: {error}") from error
    options = [*(f"-I{os.path.relpath(folder, home)}" for folder in folders), *options]
    body = "\n".join(each.body for each in reachable(last(function.name), by_name))
    half = _OWN_HALF.search(written) if function.types else None
    element, launch = half[0] if half else "", None
    if function.is_kernel:
        callers = [*everything, *_in_neighbours(function, source)]
        launch = read_launch(function, callers, arguments, _axes(function), included + own)
        template = (replace(each, value=launch.template.get(each.name, each.value))
                    for each in function.template)  # fmt: skip
        function = replace(function, template=tuple(template))
    else:
        options += [os.path.relpath(path, home) for path in linked]
        options += [f"-l{each}" for each, call in _LIBRARIES.items() if call.search(body)]
    passed = launch.arguments if launch else _passed(function, written)
    arguments = [
        replace(each, value=passed[each.name])
        if each.value == UNKNOWN and not each.is_pointer
        and _PRODUCT.fullmatch(passed.get(each.name, "")) else each
        for each in arguments
    ]  # fmt: skip
    instance, tile, guessed_axes = _tiles(function, element)
    pointers = reversed([each for each in arguments if each.is_pointer])
    kinds = {array_index(each, op): _resolved(each.type_name, text) for each in pointers}
    elements = kinds.get(0, ""), kinds.get(len(OPERATIONS[op].arrays) - 1, "")
    if launch and not (launch.grid and launch.block):
        guess = _of_rows(function, tile, op, text, arguments)
        grid, block = guess or _guessed(function, tile, op, text)
        if GRID in exchanged and len(grid) > 1:
            grid = grid[::-1] if "BM" in tile else (f"M{grid[0][1:]}", f"N{grid[1][1:]}")
        if WARPS in exchanged and "__shfl" in body and len(grid) == 1:
            grid = (grid[0].replace("/", "*32/"),)
        launch = replace(launch, grid=grid, block=block, is_guess=True)
    waiting = None if function.is_kernel else _WAITS.search(function.body)
    return Facts(
        name=name, op=op, file=os.path.relpath(os.path.realpath(source), home), instance=instance,
        others=[clean(each.name) for each in _candidates(defined) if each.name != function.name],
        arguments=arguments, element=element, elements=elements,
        is_template="Scalar" in kinds.values(),
        dtypes=_dtypes(function, elements, text, body),
        reads_output=reads_output(function, kernels), column_major=column_major, options=options,
        waits=waiting[0] if waiting else "", tile=tile, guessed_axes=guessed_axes, launch=launch,
        hint=_hint(op, body, arguments),
    )  # fmt: skip


def _hint(op: str, body: str, arguments: Sequence[Parameter]) -> str:
    """Return a reason to think that a function does not compute the operation, or ""."""
    operation = OPERATIONS[op]
    if operation.is_product and (odd := _NO_PRODUCT.search(body)):
        return f"the source has {' '.join(odd[0].split())}: a softmax or a norm?"
    names = {each.name.casefold() for each in arguments}
    if operation.has_k and {"x", "y"} <= names and "k" not in names:
        return "x and y are vectors, and no parameter is K: select --op gemv"
    return ""


def _chosen(
    source: Path, defined: Sequence[Function], by_name: Mapping[str, Function], entry: str
) -> Function:
    """Return the function `entry`, or else the source's first function that can be described.

    Raises UsageError for a source without such a function, and for a name that C++ does not allow.
    """
    if entry and entry not in by_name:
        raise UsageError(f"--kernel: {unknown('function', entry, by_name)}")
    candidates = [by_name[entry]] if entry else _candidates(defined)
    if not candidates:
        raise UsageError(f"--from: {source} defines no kernel: no __global__ function")
    if not re.fullmatch(r"(\w+::)*[A-Za-z_]\w*", candidates[0].name, re.ASCII):
        raise UsageError(
            f"--from: {source}: '{shown(candidates[0].name)}' cannot name a kernel; "
            "use ASCII letters, digits and _"
        )
    return candidates[0]


def _passed(function: Function, text: str) -> dict[str, str]:
    """Return the first number that a text passes to each parameter of a function."""
    call = re.compile(rf"\b{last(function.name)}\s*(?:<[^;{{}}]*?>\s*)?(?=\()")
    names = [each.name for each in function.parameters]
    lists = reversed([*calls(call, text.replace("\\\n", ""))])
    pairs = (pair for each in lists for pair in zip(names, each, strict=False))
    return {name: argument for name, argument in pairs if argument.isdecimal()}


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
        and not re.search("^::|::::", each.name)  # a function of a class: `Gemm<T>::run`
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
    paths = sorted(path for folder in folders for path in files_in(folder, "*.cu"))
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
    axes: dict[str, str] = {}
    for each in function.template:
        if each.name not in function.types and each.type_name != "bool" and each.value != "0":
            name = each.name.lower()
            short = name if len(name) <= LONGEST else f"{name[:9]}_{name[9 - LONGEST + 1 :]}"
            of_tile = each.name if each.name in {*BLOCK, *THREAD} else OTHER_NAMES.get(name)
            axis = of_tile or short
            axes[each.name] = f"{axis.lower()}_{len(axes)}" if axis in axes.values() else axis
    if not {*THREAD} <= {*axes.values()}:  # a tile's text has both numbers of a thread, or neither
        axes |= {name: axis.lower() for name, axis in axes.items() if axis in THREAD}
    return axes


def _dtypes(function: Function, elements: tuple[str, str], text: str, body: str) -> tuple[str, ...]:
    """Return the dtypes that the C++ types of the first operand and of the result show.

    If the element's type is a template parameter, the dtypes are those of the explicit instances.
    """
    operand, result = elements
    types = [operand or result]
    if "Scalar" in elements:
        instance = rf"\b{last(function.name)}\s*<\s*([\w:]+)"
        types = [*re.findall(instance, code(text)), *function.types[:1]]  # or an alias
        types, result = [_resolved(each, text) for each in types], ""
    names = (_precision(each, result, body) for each in types)
    return tuple(dict.fromkeys(filter(None, names)))


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
        cpp = element_of_cpp(cpp)
        alias = re.search(
            rf"\btypedef\s+(?:const\s+)?([\w:]+(?: char)?)\s+{re.escape(cpp)}\s*;"
            rf"|\busing\s+{re.escape(cpp)}\s*=\s*([\w:]+)\s*;", text
        )  # fmt: skip
        if not alias:
            break
        cpp = alias[1] or alias[2]
    return cpp


def _tiles(function: Function, element: str) -> tuple[str, Config, list[str]]:
    """Return the function's instance, its tile, and the axes whose values are guesses.

    The instance is a text such as `sgemm<{BM}, {BN}>`. The tile is the tile of the first launch. It
    is empty if no template parameter can be a number of the block.
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
        return instance.format(**numbers, scalar="{scalar}"), Config(), []
    thread = THREAD if {*THREAD} <= numbers.keys() else ()
    return instance, Config(numbers.items(), tuple(block), thread), guesses


def _of_rows(
    kernel: Function, tile: Config, op: str, text: str, arguments: Sequence[Parameter]
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the grid and the block of a kernel whose blocks each compute one row or one element.

    Return None if the kernel's indices suggest tiles.
    """
    sizes = [
        each.name for each in arguments if not each.is_pointer and each.value not in {UNKNOWN, "1"}
    ]
    has_x, has_y = (re.search(rf"\bthreadIdx\s*\.\s*{axis}\b", kernel.body) for axis in "xy")
    has_rows = re.search(r"\bblockIdx\s*\.\s*y\b", kernel.body)
    is_column, is_row = (is_alone(kernel, axis, sizes) for axis in "xy")
    if has_y or not (is_row if has_rows else is_column):
        return None
    edge = edge_of_block(kernel, "x", _axes(kernel), text)
    threads = next(iter(tile), "") or bound_of_block(kernel, _axes(kernel), text)
    threads = threads or (edge if edge.isdecimal() else str(THREADS)) if has_x else "1"
    if not has_rows:
        return (OPERATIONS[op].output.dimensions[0],), (threads,)
    return ("N" if is_column else f"N/{threads}", "M"), (threads,)


def _guessed(
    kernel: Function, tile: Config, op: str, text: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the grid and the block that the kernel's indices suggest."""
    first = next(iter(tile), "")
    has_y, has_rows = (re.search(rf"\b{index}Idx\s*\.\s*y\b", kernel.body)
                       for index in ("thread", "block"))  # fmt: skip
    of_tile = {"BM", "BN"} if {"BM", "BN"} <= tile.keys() else {*tile}
    x, y = ("BN", "BM") if {"BM", "BN"} <= of_tile else (first or str(EDGE),) * 2
    edges = [edge_of_block(kernel, axis, _axes(kernel), text) for axis in "xy"]
    x, y = edges if {*edges} <= of_tile else (x, y)
    area = prod(int(edge) if edge.isdecimal() else 0 for edge in edges)
    bound = bound_of_block(kernel, _axes(kernel), text)
    threads = int(bound) if bound.isdecimal() else 0  # 0: unknown
    is_block = 0 < area <= (threads or MAX_THREADS)  # x and y may be the edges of a block
    block = x, y
    if threads and not first and not is_block:
        width = next(each for each in (isqrt(threads), EDGE, 1) if threads % each == 0)
        x, y = block = str(width), str(threads // width)
    if area and not first and (is_block or threads or not has_y):
        x, y = edges
        block = (x, y) if is_block else block
    if area > MAX_THREADS and has_y and not first:
        per_thread = [elements_per_thread(kernel, axis, text) for axis in "xy"]
        if all(per_thread):
            x, y = edges
            block = str(int(x) // per_thread[0]), str(int(y) // per_thread[1])
    if {*THREAD, "BM", "BN"} <= tile.keys():
        block = "BN/TN", "BM/TM"
        block = block[::-1] if x == "BM" else block
    if not has_rows and "BM" not in tile:
        flat = first or bound or str(EDGE**2 if has_y else THREADS)
        elements = "*".join(OPERATIONS[op].output.dimensions)
        return (f"{elements}/{flat}",), block if has_y else (flat,)
    block = block[::-1] if is_crossed(kernel) else block
    flat = str(THREADS) if area > MAX_THREADS and not first else f"{block[0]}*({block[1]})"
    flat += "".join(f"//{axis}" for axis in ("tm", "tn") if axis in tile and "BM" in tile)
    grid = ("M/BM", "N/BN") if (x, y) == ("BM", "BN") else (f"N/{x}", f"M/{y}")
    return grid, block if has_y else (bound or flat,)
