"""Reads a CUDA C++ file, and finds the files that this file includes."""

import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from io import StringIO
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
_FOLDER = re.compile(r"(?:-I|--include-path=)(.+)")
_LINKED = re.compile(r"[^-].*\.(?:cu|cpp|cc)")


def include_folders(options: Iterable[str]) -> tuple[Path, ...]:
    """Return the include folders that a compiler's options name."""
    return tuple(Path(match[1]) for match in map(_FOLDER.fullmatch, options) if match)


def linked_sources(options: Iterable[str]) -> tuple[Path, ...]:
    """Return the further sources that a compiler's options name."""
    return tuple(map(Path, filter(_LINKED.fullmatch, options)))


def read_source(path: Path) -> str:
    """Return a source's text. Bytes that are not UTF-8 are kept as surrogates.

    A byte order mark, which NVRTC and g++ refuse in the middle of a text, is left out.
    """
    return path.read_text(encoding="utf-8-sig", errors="surrogateescape")


def encoded_source(text: str) -> bytes:
    """Encode a text that `read_source` returned, and return the bytes."""
    return text.encode(errors="surrogateescape")


def included_names(text: str) -> set[str]:
    """Return the names of the files that a source's text includes."""
    return {name for _, name in _includes(text)}


def _includes(text: str) -> list[tuple[str, str]]:
    """Return the opening mark (`"` or `<`) and the name of each file that a text includes."""
    lines = [line for line in text.split("\n") if "include" in line]  # faster for sources of 10 MB
    return _INCLUDE.findall("\n".join(lines))


def includes_of(file: Path) -> list[tuple[str, str]]:
    """Return the opening mark (`"` or `<`) and the name of each file that a file includes."""
    return _includes_at(file, file.stat().st_mtime_ns)


@lru_cache(4096)
def _includes_at(file: Path, _changed_ns: int) -> list[tuple[str, str]]:
    return _includes(read_source(file))


def flattened(path: Path, folders: Sequence[Path] = (), inserted: set[Path] | None = None) -> str:
    """Return a file's text, in which each included file replaces its first include directive."""
    inserted = {_real(path)} if inserted is None else inserted
    lines = []
    for line in StringIO(read_source(path)):  # `splitlines` would also split at a form feed
        include = _INCLUDE.match(line)
        files = _candidates(path, include[1], include[2], folders) if include else []
        file = next(filter(Path.is_file, files), None)
        if file and file not in inserted:
            inserted.add(file)
            text = flattened(file, folders, inserted)
            lines.append(text if text.endswith("\n") or not text else f"{text}\n")
        elif not file and line.strip() != "#pragma once":
            lines.append(line)
    return "".join(lines)


def whole_source(path: Path, folders: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return a file, and all files that it includes directly or through another file.

    A name in quotes is searched in the folder of the including file, and then in `folders`. A name
    in angle brackets is searched in `folders`. All other names are left to the compiler.
    """
    files: dict[Path, None] = {}
    waiting = [_real(path)]
    while waiting:
        file = waiting.pop(0)
        if file not in files and file.is_file():
            files[file] = None
            for quote, name in includes_of(file):
                waiting += _candidates(file, quote, name, folders)
    return tuple(files)


def _candidates(file: Path, quote: str, name: str, folders: Sequence[Path]) -> list[Path]:
    """Return the files that an include may mean. The compiler includes the first of the files."""
    beside = (file.parent,) if quote == '"' else ()
    paths = (folder / name for folder in (*beside, *folders))
    return [_real(path) for path in paths if path.is_file()]


def _real(path: Path) -> Path:
    """Return a path after its links are followed. Unlike `Path.resolve`, accept a loop of links."""
    return Path(os.path.realpath(path))
