"""Reads the functions and launches of a CUDA C++ source, in time linear in the text's length."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from gpubench.model.signature import Parameter, parameters, position_after, split

LONGEST = 4000  # maximum number of characters from a template's parameters to a function's body
MAX_LAUNCHES = 200  # maximum number of launches of a function that are read

_SKIPPED = re.compile(
    r"//[^\n]*|/\*[^*]*+(?:\*(?!/)[^*]*+)*+(?:\*/)?"
    r'|R"([^()\\\s"]{0,16})\((?:(?!\)\1").)*+(?:\)\1")?|"(?:\\.|[^"\\\n])*+"?|\'\\?[^\w\n]\'',
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*+", re.MULTILINE)
_ATTRIBUTE = re.compile(r"\b(__\w+__)\s*(?=\()")
_FUNCTION = re.compile(r"(?<![^\s()<>,;{}*&])([^\s()<>,;{}*&]+)\s*(?=\()")
_NAMESPACE = re.compile(r"\b(?:namespace\s*(\w*)|extern\s*\"C\")\s*$")
_LAUNCH = re.compile(
    r"\b(\w+)\s*(?:<((?:[^;{}()]|\([^()]*\)){0,300}?)>\s*)?<<<((?:(?!>>>|<<<)[^;])*+)>>>\s*(?=\()",
    re.DOTALL,
)

BLAS = re.compile(r"\bcublas\w*(?:gemm|gemv)\w*\s*(?=\()", re.IGNORECASE)  # a call of cuBLAS
_CALLS_LAUNCH = re.compile(
    rf"<<<|\bcu(da)?Launch\w*\s*\(|\blaunch_kernel\w*\s*\(|(?i:{BLAS.pattern})"
)
_HALF_SUMS = re.compile(r"mma[\w.]*\.f16\.f16\.f16")


@dataclass(frozen=True, kw_only=True)
class SourceLaunch:
    """A launch of a kernel, as it is written in a function."""

    caller: str
    kernel: str
    template: list[str]
    config: list[str]
    arguments: list[str]
    before: str  # the function's body up to the launch


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function that a source defines."""

    name: str  # the name with its namespaces
    signature: str  # the text between the parentheses
    template: tuple[Parameter, ...]  # the template's parameters; empty for a plain function
    is_kernel: bool
    body: str
    bounds: str = ""  # the arguments of `__launch_bounds__`

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the signature. Raises ValueError if a parameter cannot be read."""
        return parameters(self.signature)

    @property
    def types(self) -> list[str]:
        """The template's parameters that are types."""
        return [each.name for each in self.template if each.type_name in {"typename", "class"}]

    @property
    def launches_kernels(self) -> bool:
        """Whether the body launches a kernel, also through the runtime or a helper."""
        return _CALLS_LAUNCH.search(self.body) is not None

    @property
    def launches(self) -> Iterator[SourceLaunch]:
        """The first `MAX_LAUNCHES` launches in the body."""
        marks = _LAUNCH.finditer(self.body) if "<<<" in self.body else ()
        for mark in islice(marks, MAX_LAUNCHES):
            yield SourceLaunch(
                caller=last(self.name), kernel=mark[1], template=split(mark[2]) if mark[2] else [],
                config=split(mark[3]), arguments=split(enclosed(self.body, mark.end())[0]),
                before=self.body[: mark.start()],
            )  # fmt: skip


def functions(text: str) -> Iterator[Function]:
    """Yield the functions that a CUDA C++ source defines, in order.

    Functions of classes are left out, and functions whose template parameters cannot be read. For
    a kernel whose template parameters cannot be read, ValueError is raised.
    """
    text = _DIRECTIVE.sub(" ", code(text))
    spaces: list[str] = []
    start = after = 0
    for mark in re.finditer(r"[{};]", text):
        if mark.start() < after:
            continue
        heading = text[max(start, mark.start() - LONGEST) : mark.start()]
        if heading.count("(") > heading.count(")"):  # inside launch bounds or a default value
            after = position_after(text, mark.start(), "{}") if mark[0] == "{" else mark.end()
            continue
        start = mark.end()
        if mark[0] == "}":
            spaces = spaces[:-1]
        elif mark[0] == "{" and (space := _NAMESPACE.search(heading)):
            spaces.append(space[1] or "")
        elif mark[0] == "{":
            start = after = position_after(text, mark.start(), "{}")
            if function := _function(" ".join(heading.split()), text[mark.start() : after], spaces):
                yield function


def _function(heading: str, body: str, spaces: list[str]) -> Function | None:
    """Return the function that begins with a heading; None if no function begins with it."""
    template, bounds, is_kernel = "", "", "__global__" in heading
    if opened := re.match(r"template\s*(?=<)", heading):
        template, end = enclosed(heading, opened.end(), "<>")
        heading = heading[end:]
    while attribute := _ATTRIBUTE.search(heading):
        stated, end = enclosed(heading, attribute.end())
        bounds = stated if attribute[1] == "__launch_bounds__" else bounds
        heading = heading[: attribute.start()] + heading[end:]
    name = _FUNCTION.search(heading)
    if not name or "=" in heading[: name.start()]:
        return None
    signature, _ = enclosed(heading, name.end())
    try:
        return Function(
            name="::".join((*filter(None, spaces), name[1])), template=parameters(template),
            signature="" if signature == "void" else signature, is_kernel=is_kernel, body=body,
            bounds=bounds,
        )  # fmt: skip
    except ValueError:  # a template's parameter without a name
        if is_kernel:
            raise
        return None


def reachable(name: str, by_name: Mapping[str, Function]) -> list[Function]:
    """Return a function, and all functions that it names, directly or through other functions."""
    waiting, functions_by_name = [name], dict[str, Function]()
    for each in waiting:  # the list grows in the loop
        if each in by_name and each not in functions_by_name:
            functions_by_name[each] = by_name[each]
            waiting += re.findall(r"\b[A-Za-z_]\w*", by_name[each].body)
    return list(functions_by_name.values())


def calls(called: re.Pattern[str], text: str) -> Iterator[list[str]]:
    """Yield the arguments of each call that the pattern `called` matches."""
    return (split(enclosed(text, mark.end())[0]) for mark in called.finditer(text))


def last(name: str) -> str:
    """Return a function's name without its namespaces."""
    return name.rpartition("::")[2]


def code(text: str) -> str:
    """Return the source without comments and without the contents of string literals.

    A string literal with an instruction that sums in float16 becomes the name `mma_in_float16`.
    """

    def kept(skipped: re.Match[str]) -> str:
        is_sum = skipped[0][0] != "/" and _HALF_SUMS.search(skipped[0])
        return '"C"' if skipped[0] == '"C"' else " mma_in_float16 " if is_sum else " "

    text = _SKIPPED.sub(kept, text)  # the next line joins `<< <`, which Visual Studio writes
    return re.sub(r"<<\s+<(?!<)", "<<<", re.sub(r">>\s+>(?!>)", ">>>", text))


def enclosed(text: str, at: int, brackets: str = "()") -> tuple[str, int]:
    """Return the text in the first brackets from `at` on, and the position after the brackets."""
    opening = text.index(brackets[0], at)
    end = position_after(text, opening, brackets)
    return text[opening + 1 : end - 1].strip(), end
