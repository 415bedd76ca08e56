"""A CUDA C++ file with all that it includes from beside it."""

from __future__ import annotations

import re
from pathlib import Path

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def whole_source(path: Path) -> tuple[Path, ...]:
    """The file, then every file that it includes in quotes, directly or through another, once.

    A name is looked for beside the file that includes it; what is not there is the compiler's to
    find, or to miss.
    """
    found: dict[Path, None] = {}
    waiting = [path.resolve()]
    while waiting:
        one = waiting.pop(0)
        if one not in found and one.is_file():
            found[one] = None
            names = _INCLUDE.findall(one.read_text(encoding="utf-8"))
            waiting += [(one.parent / name).resolve() for name in names]
    return tuple(found)
