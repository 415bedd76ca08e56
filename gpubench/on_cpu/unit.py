"""Makes a translation unit for g++ from a CUDA source with any host code.

The unit leaves out host functions that no kernel needs, `main`, and headers that g++ does not find.
A launch `kernel<<<grid, block>>>(…)` becomes C++. Lines keep their numbers.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpubench.model.signature import position_after
from gpubench.model.sources import read_source

SHIM = Path(__file__).parent / "shim"

EXTERN_C = re.compile(
    r'\bextern\s*"C"(?=(?:\s*__launch_bounds__\s*\([^()]*\)|[^{;()])*\b__global__\b)'
)
"""Pattern of the `extern "C"` before a kernel. The text is removed, because kernels in the unit
have internal linkage."""

DYNAMIC_SHARED = re.compile(
    r"\bextern\s+__shared__\s+([^;\[\]]+?)\s*\b(\w+)\s*\[\s*\]((?:\s*\[[^\[\];]+\])*)\s*;"
)

MISSING_HEADER = "gpubench: missing header "
"""Start of the note that g++ prints for a header that it does not find."""

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")', re.MULTILINE)
_NO_CODE = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|R"([^()\\\s"]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*+"?|\'\\?[^\n]\''
    r"|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*+",
    re.DOTALL | re.MULTILINE,
)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n\\]|\\.|\\\n)*+)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_ENTERED = re.compile(r"\bnamespace\b[^=;(]*$|\bextern\s*$")
_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?=\()")
_ATTRIBUTE = re.compile(r"\b(__\w+__|alignas)\s*\(")
_DEVICE = re.compile(r"\b__(?:global|device)__\b")
_OF_DEVICE = re.compile(r"\b(?:threadIdx|blockIdx|blockDim|gridDim)\b")
_OPENING, _CLOSING = re.compile(r"<<\s*<"), re.compile(r">>\s*>")
"""Patterns of `<<<` and `>>>`. Visual Studio writes a space inside these marks."""

_STATIC = re.compile(r"\bstatic\b(?!\s+constexpr)")
"""Pattern of `static` before a variable in a host function. The keyword becomes `static
thread_local`, because shared.ld would take a plain static variable for a shared array."""

_STATEMENT = re.compile(r"[^;{}]*+[;{}]|[^;{}]++")
_DECLARATION = re.compile(r"(?!\s*template)[^;{}()=]+\([^;{}]*\)\s*;")
"""Pattern of a function that is declared, but not defined or instantiated."""

_ON_TENSORS = re.compile(r"^[\w \t]+\([^(){};]*\btorch::[^(){};]*\)\s*;", re.MULTILINE)
"""Pattern of a declared function that takes PyTorch's tensors, which need no PyTorch then."""

_BARRIER = re.compile(
    r"(?:\bextern\s+)?(?:\b__device__\s+)?\bvoid\s+__sync(?:threads|warp)[ \t]*"
    r"\(\s*(?:void\s*)?\)[ \t]*;"
)
"""Pattern of a declaration of `__syncthreads` or `__syncwarp`, which is for editors. `cuda.h`
declares the function with another parameter, so a call would be ambiguous."""

_CAST_OF_KERNEL = re.compile(
    r"(?<=cudaLaunchKernel\()\s*(?:\(\s*(?:const\s+)?void\s*\*\s*\)"
    r"|(?:reinterpret|static)_cast\s*<\s*(?:const\s+)?void\s*\*\s*>)"
)
"""Pattern of the cast before the kernel that `cudaLaunchKernel` takes."""

_LAUNCHED = re.compile(r"[A-Za-z_][\w:]*\s*\Z")


@dataclass(frozen=True)
class _Function:
    """A function that a source defines outside a class."""

    name: str
    start: int
    end: int
    is_device: bool


def translation_unit(
    source: Path,
    text: str | None,
    instances: Sequence[str],
    entry: str = "",
    folders: Sequence[Path] = (),
) -> str:
    """Return the text of a unit, which has the source for g++ and a table of the instances.

    `text` replaces the source on disk and all of its own headers. Functions of `text` that neither
    the instances nor `entry` need are left out. `entry` is a host function whose launches are run,
    or a text with the names of functions that other sources call. Such a source has no instances.
    `folders` have the source's headers. The text of kernels changes only where macros cannot help:
    `extern __shared__ T name[];` becomes a pointer, and `extern "C"` is removed.
    """
    is_whole = text is not None and bool(instances or entry)
    entry_names = " ".join((entry, *instances)) if is_whole else entry
    reader = _Reader(entry_names, folders, is_whole)
    adapted = reader.adapted(read_source(source) if text is None else text, source)
    hoisted = "".join(
        f"#if __has_include(<{name}>)\n#include <{name}>\n#else\n"
        f'#pragma message "{MISSING_HEADER}{name}"\n#endif\n'
        for name in reader.headers
    )
    unit = f'{hoisted}#include "cuda.h"\n#line 1 "{source}"\n{adapted}\n'
    if not instances:
        return unit
    table = "".join(f'  {{"{name}", call<{name}>}},\n' for name in instances)
    start = '#line 1 "instances"\nnamespace on_cpu {\nconst Instance instances[] = {\n'
    return f"{unit}{start}{table}}};\n}}\n"


@dataclass(frozen=True)
class _Reader:
    """Reads a source and the files that it includes."""

    entry_names: str  # names of the functions that are needed, apart from functions of the GPU
    folders: Sequence[Path]
    is_whole: bool  # whether the text has all functions, so that those not needed are left out
    headers: dict[str, None] = field(default_factory=dict)
    """Names of the system's headers, in order. The unit includes these headers before the macros of
    `cuda.h`."""

    inserted: set[Path] = field(default_factory=set)

    def adapted(self, text: str, path: Path) -> str:
        """Return the text of a file, changed for g++.

        A file with code for the GPU is inserted where it is first included.
        """
        self.inserted.add(path.resolve())
        plain = masked(text)
        functions = list(_functions(plain))
        of_device = [] if self.is_whole else [each for each in functions if each.is_device]
        kept = _needed(text, plain, functions, of_device, self.entry_names)
        cuts = [(each.start, each.end, "") for each in functions if each not in kept]
        for each in functions:
            if each in kept and not each.is_device:
                cuts += _host_code(text, plain, each)
                casts = _CAST_OF_KERNEL.finditer(plain, each.start, each.end)
                cuts += [(*match.span(), "") for match in casts]
                body = plain.index("{", each.start)
                kept_values = _STATIC.finditer(plain, body, each.end)
                cuts += [(*match.span(), "static thread_local") for match in kept_values]
        for match in DYNAMIC_SHARED.finditer(text):
            inside = any(each.start <= match.start() < each.end for each in functions)
            macro = "DYNAMIC_SHARED" if inside else "FILE_DYNAMIC_SHARED"
            cuts.append((*match.span(), f"{macro}({match[1]}{match[3]}, {match[2]});"))
        cuts += [(*match.span(), "") for match in EXTERN_C.finditer(text)]
        cuts += [(*match.span(), "") for match in _ON_TENSORS.finditer(plain)]
        cuts += [(*match.span(), "") for match in _BARRIER.finditer(plain)]
        comments = [each.span() for each in _NO_CODE.finditer(text) if each[0].startswith("/*")]
        for match in _INCLUDE.finditer(text):
            if any(start < match.start() < end for start, end in comments):
                continue
            new = self._included(match, path)
            if new is not None:
                cuts.append((*match.span(), new))
        return _replaced(text, cuts)

    def _included(self, include: re.Match[str], path: Path) -> str | None:
        """Return the text that replaces an include, or None if g++ finds the file itself.

        A file beside a header is included by its absolute path, because the header's text may have
        been inserted into another file.
        """
        name, beside = include[1] or include[2], (path.parent,) if include[2] else ()
        files = (folder / name for folder in (*beside, *self.folders))
        file = next(filter(Path.is_file, files), None)
        if file is None:
            if (SHIM / name).is_file():
                return None
            self.headers[name] = None
            return ""
        if not _is_cuda(file):
            return f'#include "{file.absolute()}"'
        if file.resolve() in self.inserted:
            return ""
        line = include.string.count("\n", 0, include.end()) + 2
        return f'#line 1 "{file}"\n{self.adapted(read_source(file), file)}\n#line {line} "{path}"'


def _is_cuda(file: Path) -> bool:
    """Whether a file has CUDA code that must be changed for g++."""
    return re.search(r"<<\s*<|\bextern\s+__shared__|\b__global__\b", read_source(file)) is not None


def _replaced(text: str, cuts: Sequence[tuple[int, int, str]]) -> str:
    """Return the text with each cut (start, end, new text) replaced.

    If the new text has fewer lines than the old text, line ends are appended.
    """
    parts, at = [], 0
    for start, end, new in sorted(cuts):
        if start < at:  # inside a function that is left out
            continue
        lines = text.count("\n", start, end)
        padding = "" if "#line" in new else "\n" * max(0, lines - new.count("\n"))
        parts += [text[at:start], new, padding]
        at = end
    return "".join((*parts, text[at:]))


def masked(text: str) -> str:
    """Replace comments, literals and directives in a text by spaces. Line ends stay."""
    return _NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _functions(plain: str) -> Iterator[_Function]:
    """Yield the functions that a masked text defines outside classes."""
    start = after = 0
    for mark in re.finditer(r"[{};]", plain):
        if mark.start() < after:
            continue
        heading, begin, start = plain[start : mark.start()], start, mark.end()
        if mark[0] == "{" and not _ENTERED.search(heading):
            start = after = position_after(plain, mark.start(), "{}")
            if name := _function_name(heading):
                begin += len(heading) - len(heading.lstrip())
                yield _Function(name, begin, after, _DEVICE.search(heading) is not None)


def _function_name(heading: str) -> str:
    """Return the name of the function that begins with a heading, or an empty text."""
    heading = heading.strip()
    if template := re.match(r"template\s*(?=<)", heading):
        heading = heading[position_after(heading, template.end(), "<>") :]
    while attribute := _ATTRIBUTE.search(heading):
        end = position_after(heading, attribute.end() - 1, "()")
        heading = heading[: attribute.start()] + heading[end:]
    name = _NAME.search(heading)
    if not name or re.search(r"=|\b(?:struct|class|union|enum)\b", heading[: name.start()]):
        return ""
    return name[1]


def _needed(
    text: str,
    plain: str,
    functions: Sequence[_Function],
    of_device: Sequence[_Function],
    entry_names: str,
) -> set[_Function]:
    """Return the functions that a unit needs.

    These are the functions `of_device`, and each function that `entry_names`, code outside
    functions, another needed function, or a macro of these names.
    """
    macros = {macro[1]: macro[2] for macro in _MACRO.finditer(text)}
    outside = _replaced(plain, [(each.start, each.end, ";") for each in functions])
    waiting = [
        "".join(x for x in _STATEMENT.findall(outside) if not _DECLARATION.fullmatch(x)),
        entry_names,
        *(plain[each.start : each.end] for each in of_device),
    ]
    kept = set(of_device)
    words: set[str] = set()
    while waiting:
        words |= set(_WORD.findall(waiting.pop()))
        waiting += [macros.pop(name) for name in words & macros.keys()]
        named = {each for each in functions if each.name in words and each.name != "main"} - kept
        kept |= named
        waiting += [text[each.start : each.end] for each in named]
    return kept


def _host_code(text: str, plain: str, function: _Function) -> Iterator[tuple[int, int, str]]:
    """Yield the start, the end and the new text of each part of a host function that changes.

    Launches in the function become C++. Names such as `gridDim` are macros for kernels. In a host
    function, such names are the function's own variables, which get another name.
    """
    after = function.start
    for start, end, new in _launches(text, plain, function):
        yield from _own_names(plain, after, start)
        yield start, end, _OF_DEVICE.sub(r"\g<0>_of_host", new)
        after = end
    yield from _own_names(plain, after, function.end)


def _own_names(plain: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    for name in _OF_DEVICE.finditer(plain, start, end):
        yield *name.span(), f"{name[0]}_of_host"


def _launches(text: str, plain: str, function: _Function) -> Iterator[tuple[int, int, str]]:
    """Yield the start, the end and the new text of each launch in a function."""
    for mark in _OPENING.finditer(plain, function.start, function.end):
        closing = _CLOSING.search(plain, mark.end(), function.end)
        opening = plain.find("(", closing.end()) if closing else -1
        before = plain[function.start : mark.start()].rstrip()
        if not closing or opening < 0:
            return
        if before.endswith(">"):
            before = before[: len(before) - position_after(before[::-1], 0, "><")]
        if name := _LAUNCHED.search(before):
            start = function.start + name.start()
            end = position_after(plain, opening, "()")
            configuration = text[mark.end() : closing.start()]
            kernel = text[start : mark.start()].strip()
            call = f"{kernel}{text[opening:end]}"
            yield start, end, f"::on_cpu::Configured({configuration}) << [&] {{ {call}; }}"
