"""Files to describe: a CUDA source with what it includes, a library, or a Python file."""

import os
from pathlib import Path

from gpubench.errors import UsageError, first_line
from gpubench.model.sources import included_names, read_source, whole_source
from gpubench.text import shown

MAX_LISTED = 5  # maximum number of sources that a message lists


def source_text(source: Path) -> str:
    """Return the text of a CUDA source. Raise UsageError if it cannot be read."""
    try:
        return source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--from: {source} cannot be read: {_why_unread(source, error)}"
        ) from error


def _why_unread(source: Path, error: OSError | UnicodeDecodeError) -> str:
    """Return why a file cannot be read, and the sources that its folder has."""
    if not isinstance(error, OSError):
        return first_line(error)
    near = source if source.is_dir() else source.parent
    files = sorted(path for form in ("*.cu*", "*/*.cu*") for path in near.glob(form))
    listed = ", ".join(shown(str(path)) for path in files[:MAX_LISTED] if path.is_file())
    return f"{error.strerror}{'; there are ' * bool(listed)}{listed}"


def needed(source: Path) -> tuple[list[Path], list[Path]]:
    """Return the include folders that a source needs, and the files that must be linked with it.

    A header that is not beside its file is searched in neighbouring folders. A source that has the
    name of an included header, such as `utils.cu` for `utils.hpp`, must be linked.
    """
    source = Path(os.path.realpath(source))
    bases = (source.parent, *list(source.parent.parents)[:2])
    near = [folder for base in bases for folder in (base, *_folders_of(base))]
    folders: dict[Path, None] = {}
    linked: dict[Path, None] = {}
    while True:
        files = whole_source(source, tuple(folders))
        before = len(folders)
        for name in {name for file in files for name in included_names(read_source(file))}:
            homes = [file.parent for file in files]
            if not any((home / name).is_file() for home in (*homes, *folders)):
                folders |= dict.fromkeys([each for each in near if (each / name).is_file()][:1])
        if len(folders) == before:
            break
    included = {file.with_suffix("") for file in files if file.suffix in {".cu", ".cpp", ".cc"}}
    for header in files[1:]:
        paths = [each / header.with_suffix(end).name for each in (header.parent, source.parent)
                 for end in (".cu", ".cpp", ".cc")]  # fmt: skip
        found = [path for path in paths if path.is_file() and path.with_suffix("") not in included]
        linked |= dict.fromkeys(found[:1])
    return list(folders), list(linked)


def _folders_of(base: Path) -> list[Path]:
    """Return the folders in a folder that can be read, without hidden folders."""
    try:
        return sorted(path for path in base.iterdir() if path.is_dir() and path.name[0] != ".")
    except OSError:
        return []
