"""Computes hashes of the measured code, and finds the commit of this package."""

import hashlib
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path
from subprocess import TimeoutExpired

import gpubench
from gpubench.model import Variant
from gpubench.process.child import run_program

GIT_LIMIT_S = 10
"""Time limit of a git command in seconds. A repository on a slow disk must not delay a sweep."""


@cache
def package_version() -> tuple[str, str | None]:
    """Return a hash (12 digits) of this package's files, and the package's commit.

    The commit is None outside a checkout, and if git fails.

    The commit ends with `+` if files of the package differ from the commit.
    """
    folder = Path(gpubench.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    if not (folder.parent / ".git").exists():
        return digest.hexdigest()[:12], None
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--", ".")
    is_known = commit and changed is not None
    return digest.hexdigest()[:12], f"{commit}{'+' if changed else ''}" if is_known else None


def _git(folder: Path, *arguments: str) -> str | None:
    """Run git without changing its index. Return the output, or None if git fails."""
    command = ("git", "--no-optional-locks", "-C", str(folder), *arguments)
    try:
        ended = run_program(command, limit_s=GIT_LIMIT_S)
    except TimeoutExpired:
        return None
    return None if ended.returncode else ended.stdout.decode(errors="replace").strip()


def source_hash(variant: Variant) -> str:
    """Return a hash (12 digits) of the variant's files and of the versions of its libraries."""
    digest = hashlib.sha256()
    for source in variant.sources:
        digest.update(source.read_bytes())
    distributions = packages_distributions() if variant.libraries else {}
    for library in variant.libraries:
        versions = [version(name) for name in sorted(distributions.get(library, ()))]
        digest.update(f"{library} {versions}".encode())
    return digest.hexdigest()[:12]


def hash_of(*contents: bytes) -> str:
    """Return a hash (12 digits) of compiled code."""
    return hashlib.sha256(b"".join(contents)).hexdigest()[:12]
