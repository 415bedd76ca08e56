"""A CUDA C++ file and the files it includes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
_FOLDER = re.compile(r"(?:-I|--include-path=)(.+)")


def include_folders(options: Iterable[str]) -> tuple[Path, ...]:
    """The include folders among a compiler's options."""
    return tuple(Path(match[1]) for match in map(_FOLDER.fullmatch, options) if match)


def whole_source(path: Path, folders: Sequence[Path] = ()) -> tuple[Path, ...]:
    """The file, then every file that it includes, directly or through another, once.

    A name in quotes is looked for beside the file that includes it, then in `folders`, as others
    are; what is not there is left to the compiler.
    """
    found: dict[Path, None] = {}
    waiting = [path.resolve()]
    while waiting:
        file = waiting.pop(0)
        if file not in found and file.is_file():
            found[file] = None
            for quote, name in _INCLUDE.findall(file.read_text(encoding="utf-8")):
                beside = (file.parent,) if quote == '"' else ()
                waiting += [(folder / name).resolve() for folder in (*beside, *folders)]
    return tuple(found)
