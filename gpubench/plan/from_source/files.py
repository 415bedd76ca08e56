"""A CUDA source to describe: its text with all macros expanded, and the files that it needs."""

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from gpubench.backends.c_function import c_functions, is_library
from gpubench.errors import UsageError
from gpubench.files import files_in
from gpubench.model.signature import split
from gpubench.model.sources import (
    encoded_source,
    included_names,
    includes_of,
    read_source,
    whole_source,
)
from gpubench.process.child import run_program
from gpubench.temporary import TEMPORARY, temporary_folder
from gpubench.text import shown

MAX_LISTED = 5  # maximum number of sources that a message lists
MAX_FILES = 50_000  # maximum number of files of a repository that are searched for headers
MAX_PARENTS = 6  # maximum number of parent folders that are searched for a source's repository
MAX_INCLUDED_BYTES = 2**20  # beyond this size, only the headers beside the source are read

SUFFIXES = (".cu", ".cpp", ".cc")  # suffixes of sources

_PASSED = re.compile(r">>>\s*\(([^;{}]*)\)\s*;")
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if(?:n?def)?\b(.*)", re.MULTILINE)
_VALUE = r"((?:[^\n/\\]|/(?![/*]))+)(?:/[/*].*)?"  # of a macro in one line; without a comment
_DEFINED = re.compile(rf"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+{_VALUE}$", re.MULTILINE)

_OF_CUDA = re.compile(r"(cu|nv|mma|cooperative_|device_|driver_|math_|sm_|vector_)\w*\.h")
"""Pattern of the names of the CUDA toolkit's headers. CUTLASS also has an `mma.h`."""

_OPTIONS = {
    "-std=c++20": re.compile(r"concept\s+\w+\s*="),
    "--expt-relaxed-constexpr": re.compile(r"std::bit_cast\b"),
    "--extended-lambda": re.compile(r"\](?<!\]\])\s*(?:__host__\s*)?__device__\b"),
}
"""Options of nvcc, with the pattern of the code that needs each option. A pattern that begins with
a plain text is fast."""

_DEVICE_DECLARED = re.compile(r"\b__device__\b[^;{}()]*\([^;{}()]*\)\s*;")
"""Pattern of a function of the GPU that a header declares. A linked source defines the function."""

_LINE_MARKER = re.compile(r'^# \d+ "(.*?)"[^\n]*\n?', re.MULTILINE)


def source_text(source: Path) -> str:
    """Return the text of a CUDA source. Raise UsageError if it cannot be read."""
    try:
        if not is_library(source):
            return source.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"--from: {source} is not text in UTF-8") from error
    except OSError as error:
        near = source if source.is_dir() else source.parent
        files = files_in(near, "*.cu*", "*/*.cu*")[:MAX_LISTED]
        listed = ", ".join(shown(str(path)) for path in files)
        why = f"{error.strerror}{'; these sources exist: ' * bool(listed)}{listed}"
        raise UsageError(f"--from: {source} cannot be read: {why}") from error
    names = [*map(shown, c_functions(source))]
    defines = f" and defines {', '.join(names[:MAX_LISTED])}" if names else ""
    raise UsageError(
        f"--from: {source} is a library, which has no signatures{defines}; state a signature: "
        "gpubench "
        f"judge '{source}:{[*names, 'FUNCTION'][0]}(int M, int N, int K, const float* A, "
        "const float* B, float* C)'"
    )


def expanded(source: Path, folders: Sequence[Path]) -> tuple[str, str, str]:
    """Return a source's own text, the included text, and the two texts in their original order.

    Macros are expanded if g++ is installed and succeeds, except the arguments of launches.
    """
    files = whole_source(source, folders)
    if sum(file.stat().st_size for file in files) > MAX_INCLUDED_BYTES:
        folders, files = (), whole_source(source)
    pieces = [(file == files[0], read_source(file)) for file in (*files[1:], files[0])]
    if compiler := shutil.which("g++"):
        names = {name for _, text in pieces for name in included_names(text)}
        with temporary_folder(f".{TEMPORARY}") as empty:  # hidden from `neighbours`
            for name in sorted(names, key=len, reverse=True):  # thread/thread.cuh precedes thread
                path = empty / name
                if not Path(name).is_absolute() and ".." not in path.parts and not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.touch()
            main = empty / ".main" / source.name
            main.parent.mkdir()
            main.write_bytes(encoded_source(_with_constants(pieces[-1][1])))
            done = run_program(
                [compiler, "-E", "-w", "-x", "c++", "-std=c++17", "-nostdinc", "-D__CUDACC__",
                 "-D__CUDA_ARCH__=900", "-iquote", str(files[0].parent),
                 *(f"-I{folder}" for folder in (*folders, empty)), str(main)],
            )  # fmt: skip
        if not done.returncode:
            _, *marked = _LINE_MARKER.split(done.stdout.decode(errors="surrogateescape"))
            named = zip(marked[::2], marked[1::2], strict=True)
            pieces = [(name == str(main), text) for name, text in named]
    own, included = ([text for is_own, text in pieces if is_own == each] for each in (True, False))
    return "".join(own), "".join(included), "".join(text for _, text in pieces)


def _with_constants(text: str) -> str:
    """Replace macros that a launch passes to its kernel, such as `#define N 1024`, by constants.

    Thus the launch keeps the names of extents. Macros of conditional code are not replaced.
    """
    lists = (split(arguments) for arguments in _PASSED.findall(text))
    passed = {name for each in lists for name in each if name.isidentifier()}
    passed -= {*re.findall(r"\w+", " ".join(_CONDITION.findall(text)))}
    return _DEFINED.sub(
        lambda line: f"constexpr int {line[1]} = {line[2]};" if line[1] in passed else line[0], text
    )


def needed(source: Path) -> tuple[list[Path], list[Path], list[str]]:
    """Return the include folders that a source needs, the files to link with it, and options.

    A header that is not beside the file that includes it is searched in neighbouring folders, then
    in the repository. A source with the name of an included header, such as `utils.cu` for
    `utils.hpp`, must be linked.
    """
    source = Path(os.path.realpath(source))
    near, folders, count = neighbours(source), dict[Path, None](), -1
    while len(folders) > count:
        files, count = whole_source(source, tuple(folders)), len(folders)
        homes = {file.parent for file in files}
        for name in sorted({name for file in files for _, name in includes_of(file)}):
            if not any((home / name).is_file() for home in (*homes, *folders)):
                candidates = [each for each in near if (each / name).is_file()]
                folders |= dict.fromkeys((candidates or _homes_in_repository(source, name))[:1])
    linked = dict.fromkeys(each for header in files[1:] for each in _linked(header, source, files))
    texts = list(map(read_source, files))
    options = [option for option, form in _OPTIONS.items() if any(map(form.search, texts))]
    options += ["-rdc=true"] * (bool(linked) and any(map(_DEVICE_DECLARED.search, texts[1:])))
    return list(folders), list(linked), options


def _linked(header: Path, source: Path, included: Sequence[Path]) -> list[Path]:
    """Return the source with the name of a header in a list, unless another source includes it."""
    stems = {file.with_suffix("") for file in included if file.suffix in SUFFIXES}
    paths = (folder / f"{header.stem}{suffix}" for folder in (header.parent, source.parent)
             for suffix in SUFFIXES)  # fmt: skip
    return [each for each in paths if each.is_file() and each.with_suffix("") not in stems][:1]


def neighbours(source: Path) -> list[Path]:
    """Return the folders near a source: its folder, two parents, and their subfolders.

    If the source lies in a repository, only folders of the repository are returned.
    """
    near: list[Path] = []
    for base in source.parents[:3]:
        near.append(base)
        with suppress(OSError):  # a folder that cannot be read
            near += sorted(path for path in base.iterdir() if path.is_dir() and path.name[0] != ".")
    root = root_of(source)
    return [each for each in near if each.is_relative_to(root) or not (root / ".git").exists()]


def root_of(source: Path) -> Path:
    """Return the folder of the repository of a source, or else the folder of the source."""
    roots = (each for each in source.parents[:MAX_PARENTS] if (each / ".git").exists())
    return next(roots, source.parent)


def _homes_in_repository(source: Path, name: str) -> list[Path]:
    """Return the folders in a source's repository that contain a header of this name."""
    if "." not in name or _OF_CUDA.fullmatch(name) or Path("/usr/include", name).exists():
        return []  # it is a header of the system
    parts = Path(name).parts
    paths = _headers(root_of(source)).get(parts[-1], ())
    return [path.parents[len(parts) - 1] for path in paths if path.parts[-len(parts) :] == parts]


@cache
def _headers(root: Path) -> dict[str, list[Path]]:
    """Return the headers of a repository by name; headers with short paths come first."""
    paths: dict[str, list[Path]] = {}
    count = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(each for each in folders if each[0] != ".")
        for file in files:
            if file.endswith((".h", ".hpp", ".cuh")):
                paths.setdefault(file, []).append(Path(folder, file))
        count += len(files)
        if count > MAX_FILES:
            break
    return {name: sorted(each, key=lambda path: len(path.parts)) for name, each in paths.items()}
