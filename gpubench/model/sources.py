"""A CUDA C++ file and the files it includes."""

from __future__ import annotations

import re
from pathlib import Path

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def whole_source(path: Path) -> tuple[Path, ...]:
    """The file, then every file that it includes in quotes, directly or through another, once.

    A name is looked for beside the file that includes it; what is not there is left to the
    compiler.
    """
    found: dict[Path, None] = {}
    waiting = [path.resolve()]
    while waiting:
        file = waiting.pop(0)
        if file not in found and file.is_file():
            found[file] = None
            names = _INCLUDE.findall(file.read_text(encoding="utf-8"))
            waiting += [(file.parent / name).resolve() for name in names]
    return tuple(found)
