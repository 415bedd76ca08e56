"""Writes the description of a function of another source, which `descriptor.py` reads.

The description has the facts that the source shows. Its comments name the facts that are missing.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpubench.errors import UsageError
from gpubench.model import CORE_DTYPES, OPERATIONS, PRECISIONS, Config
from gpubench.model.signature import FORMATS, Parameter
from gpubench.text import shown

UNKNOWN = "?"
"""A parameter's value, or the bytes of shared memory, if the source does not show them."""

NO_PRECISION = "gpubench has no precision with operands of"
PER_LINE = 4  # maximum number of parameters in a line of a signature of several lines
MAX_LINE = 90  # maximum number of characters of a signature of one line

_SCALAR = re.compile(r"\bScalar\b")
_SURROGATE = re.compile(r"[\ud800-\udfff]")  # a byte that is not UTF-8
_ADVICE = {
    (True, False): "Write =A or which array it is, or =null.",
    (False, False): "Write =1 for a constant, or =M, =lda, =M*N for what it is.",
    (False, True): "An object cannot be passed: write a function without it that calls this one.",
}
"""What to write for a parameter that is not known, by whether it is a pointer, and an object."""


_PYTHON = '''import runpy
from pathlib import Path

from gpubench.model import CallVariant

FILE = Path(__file__).parent / {file}


def build(_tile, _dtype):
    """Return the function of the file."""
    return runpy.run_path(str(FILE))["{entry}"]


VARIANT = CallVariant(
    idea="{idea}",
    file={file},
    runs_on="{backend}",
    build=build,
{fields})
'''
"""Description of a Python function."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """A description, and the facts that its source does not show."""

    text: str
    asked: list[str]  # parameters whose meaning is not known
    guesses: list[str]  # fields that are guesses, and a guess of a launch, such as `T = 16`
    hint: str = ""  # the reason to think that the function is no product
    objects: tuple[str, ...] = ()  # unknown parameters that cannot be passed by value
    function: str = ""  # name of the function
    others: tuple[str, ...] = ()  # names of the other functions that could be described
    dtypes: tuple[str, ...] = ()
    column_major: tuple[str, ...] = ()
    squares_only: bool = False  # whether the description refuses extents that differ


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A kernel's launch, as expressions of a description. A part is empty if it is not known."""

    caller: str = ""
    config: str = ""  # text of the launch between <<< and >>>
    grid: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    shared: str = ""  # bytes of dynamic shared memory, or `UNKNOWN`
    guess: str = ""  # a value that the program gets when it runs, such as `T = 16`
    is_guess: bool = False  # whether grid and block follow from the kernel's indices


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts about a function that were read from its source."""

    name: str  # name of the variant
    op: str
    file: str  # path of the source from the description's folder
    instance: str  # the function with its template's arguments, such as `sgemm<{BM}, {BN}>`
    others: list[str]  # names of the other functions that could be described
    arguments: list[Parameter]
    element: str  # the C++ type that stands for a template's type
    elements: tuple[str, str]  # C++ types of the first operand and of the result
    is_template: bool  # whether an array has elements of the template's type
    dtypes: tuple[str, ...]  # empty if the elements show no dtype
    reads_output: bool
    column_major: tuple[str, ...]
    options: list[str]  # include folders, and files and libraries to link
    waits: str  # the CUDA function by which the function waits
    tile: Config
    guessed_axes: list[str]
    launch: Launch | None  # None for a host function
    hint: str  # see `Description`
    is_proved: bool = False  # whether results were right in this layout
    squares_only: bool = False


def description_of(facts: Facts) -> Description:
    """Return the description of a function."""
    kind, name = ("CudaVariant", "kernel") if facts.launch else ("HostVariant", "entry")
    asked = [each for each in facts.arguments if each.value == UNKNOWN]
    space = [*_space(facts)]
    lines = [
        f'idea="what {facts.name} teaches, in a line",',
        f"file={_quoted(facts.file)},",
        f'{name}="{facts.instance}",',
        *_signature(facts, asked),
        *_details(facts),
        *space,
        *(_launch(facts.launch) if facts.launch else ()),
    ]
    head = f"from gpubench.model import {kind}{', Space' * bool(space)}\n\nVARIANT = {kind}("
    return Description(
        text="\n".join((head, *(f"    {line}" for line in lines), ")\n")),
        asked=[each.name for each in asked], guesses=_guesses(facts), hint=facts.hint,
        objects=tuple(each.name for each in asked if _is_object(each)),
        function=facts.instance.partition("<")[0], others=tuple(facts.others), dtypes=facts.dtypes,
        column_major=facts.column_major, squares_only=facts.squares_only,
    )  # fmt: skip


def _guesses(facts: Facts) -> list[str]:
    """Return the fields of the description, and the value of its launch, that are guesses."""
    launch = facts.launch or Launch()
    guesses = {
        "grid": launch.is_guess,
        "block": launch.is_guess,
        launch.guess: bool(launch.guess),
        "shared_bytes": launch.shared == UNKNOWN,
        "tiles": facts.guessed_axes,
        "dtypes": not (facts.dtypes or facts.is_template),
    }
    return [field for field, is_guess in guesses.items() if is_guess]


def _signature(facts: Facts, asked: list[Parameter]) -> Iterator[str]:
    """Yield the lines of the signature. Comments name the parameters that are not known."""
    if facts.others:
        yield f"# --kernel selects another: {', '.join(facts.others)}."
    for (is_pointer, is_object), advice in _ADVICE.items():
        kind = [each for each in asked if each.is_pointer == is_pointer]
        if names := [each.name for each in kind if _is_object(each) == is_object]:
            yield f"# Not known: {', '.join(names)}. {advice}"
    texts = [_declaration(each, facts.element) for each in facts.arguments]
    rows = [", ".join(texts)]
    if len(rows[0]) > MAX_LINE:
        rows = [", ".join(texts[at : at + PER_LINE]) for at in range(0, len(texts), PER_LINE)]
    yield "signature=("
    yield from (f"    {_quoted(row)}" for row in (*(f"{row}, " for row in rows[:-1]), *rows[-1:]))
    yield "),"


def _is_object(parameter: Parameter) -> bool:
    """Whether a parameter is passed by value, and its type is no number."""
    return not parameter.is_pointer and parameter.type_name not in {*FORMATS, "Scalar"}


def _declaration(parameter: Parameter, element: str) -> str:
    """Return a parameter as a signature states it: `size_t pitch=lda`."""
    declared = f"{_SCALAR.sub(element or 'Scalar', parameter.cpp)} {parameter.name}"
    is_named = parameter.value.casefold() == parameter.name.casefold()
    return declared if is_named else f"{declared}={parameter.value}"


def _details(facts: Facts) -> Iterator[str]:
    """Yield the lines on types, layout, compilation and waiting."""
    if facts.dtypes:
        yield f"dtypes={_listed(facts.dtypes)},"
    elif facts.is_template:
        yield f"# dtypes: a template over the element takes {', '.join(CORE_DTYPES)}."
    else:
        yield f'dtypes=("float32",),  # a guess: {_doubt(*facts.elements)}'
    if facts.reads_output:
        yield "reads_output=True,  # it reads C even where beta is 0: C holds zeros"
    if facts.column_major:
        why = "so its results are right" if facts.is_proved else "its indices say so"
        yield f"column_major={_listed(facts.column_major)},  # {why}"
    if facts.squares_only:
        equal = "problem.m == problem.n" + " == problem.k" * OPERATIONS[facts.op].has_k
        yield f'refuse=lambda _, problem: None if {equal} else "takes squares only",'
    if facts.options:
        yield f"compile_options={_listed(facts.options)},"
    if facts.waits:
        yield f"waits=True,  # it calls {facts.waits}"


def _doubt(operand: str, result: str) -> str:
    """Return why elements of these C++ types show no dtype."""
    if not (operand and result and operand != result):
        return "the type of the elements is not known"
    usual = {PRECISIONS[each.result].cpp for each in PRECISIONS.values() if each.cpp == operand}
    but = f", only with a C of {' or '.join(sorted(usual))}" if usual else ""
    return f"{NO_PRECISION} {shown(operand)} and a C of {shown(result)}{but}"


def _space(facts: Facts) -> Iterator[str]:
    """Yield the lines of the tiles, if the function has any."""
    values, block, thread = facts.tile.parts
    if not values:
        return
    yield "# Which values may each parameter have? --tiles chooses among them."
    if facts.guessed_axes:
        yield f"# These values are guesses: {', '.join(facts.guessed_axes)}."
    yield from ("tiles=Space(", "    axes={")
    yield from (f'        "{axis}": ({value},),' for axis, value in values)
    yield from ("    },", f"    block={_listed(block)},")
    if thread:
        yield f"    thread={_listed(thread)},"
    yield from (f'    default=("{facts.tile}",),', "),")


def _launch(launch: Launch) -> Iterator[str]:
    """Yield the lines of a launch that was read or guessed."""
    if launch.is_guess:
        own = f" The source launches <<<{launch.config}>>>." if launch.config else ""
        yield f"# Guesses from the kernel's indices: check these two lines.{own}"
    else:
        yield f"# Read from the launch in {shown(launch.caller)}."
        if launch.guess:
            yield f"# The source sets a value when it runs. A guess: {launch.guess}."
    yield f"grid={_listed(launch.grid, '{}')},  # blocks in x and y; / rounds up"
    yield f"block={_listed(launch.block, '{}')},  # threads"
    if launch.shared == UNKNOWN:
        yield "# The launch passes shared_bytes that could not be read."
    elif launch.shared:
        yield f"shared_bytes={_listed([launch.shared], '{}')},"


def python_description(file: str, entry: str, idea: str, backend: str, **fields: object) -> str:
    """Return the description of a Python function. Empty fields are left out."""
    text = "".join(f"    {name}={value!r},\n" for name, value in fields.items() if value)
    text = text.replace("'", '"')
    return _PYTHON.format(file=_quoted(file), entry=entry, idea=idea, backend=backend, fields=text)


def _quoted(text: str) -> str:
    """Return a text as Python writes it in double quotes.

    Raises UsageError for a path that is not UTF-8, which no description can contain.
    """
    if _SURROGATE.search(text):
        raise UsageError(f"--from: {shown(text)} is not UTF-8: rename the file or its folder")
    return json.dumps(text, ensure_ascii=False)


def _listed(texts: Iterable[str], single: str = "({},)") -> str:
    """Return texts as a Python tuple, with numbers for digits. `single` is the form of one text."""
    listed = [each if each.isdecimal() else _quoted(each) for each in texts]
    return single.format(listed[0]) if len(listed) == 1 else f"({', '.join(listed)})"
