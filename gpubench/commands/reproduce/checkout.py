"""Verifies and copies the checkout of another project whose claim an experiment checks."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from gpubench.cache import keep, user_cache
from gpubench.errors import UsageError
from gpubench.plan.toml_file import lies_below
from gpubench.rewording import NOT_BLANK


class Checkout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[checkout]`: a repository, a commit, and the SHA-256 of each file that kernels need.

    A name that ends in `/` is a folder. The digest of a folder is the digest of the lines that
    `sha256sum` prints for its files.
    """

    repository: Annotated[str, Meta(pattern=NOT_BLANK)]
    commit: Annotated[str, Meta(pattern="^[0-9a-f]{40}$")]
    files: Annotated[dict[str, Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]], Meta(min_length=1)]

    @property
    def title(self) -> str:
        """The repository and commit, such as `https://github.com/owner/name at 0123456789ab`."""
        return f"{self.repository} at {self.commit[:12]}"

    def kernels(self, experiment: Path, folder: Path | None) -> Path:
        """Return a folder with the experiment's descriptions, and with the files below `checkout`.

        The descriptions, and their own sources, are in a folder beside the experiment, with the
        experiment's name. All files are copied into the user's cache, so that only files that were
        compared with the digests are run. Raises UsageError if `folder` is not a checkout of the
        commit.
        """
        repository = self.title
        if folder is None:
            raise UsageError(
                f"{experiment.stem}: --checkout DIR must name a checkout of {repository}"
            )
        contents: dict[str, bytes] = {}
        for name, digest in self.files.items():
            path = folder / name
            within = path.rglob("*") if name.endswith("/") else (path,)
            files = sorted(each.relative_to(folder).as_posix() for each in within)
            if not all(lies_below(each, folder) for each in (name, *files)):
                raise UsageError(f"{experiment}: checkout: '{name}' leads out of the checkout")
            try:
                read = {e: (folder / e).read_bytes() for e in files if not (folder / e).is_dir()}
            except OSError as error:
                missing = f"--checkout: {path}: {error.strerror}"
                raise UsageError(f"{missing}; it must be a checkout of {repository}") from error
            if _digest(name, read) != digest:
                kind = "folder" if name.endswith("/") else "file"
                raise UsageError(f"--checkout: {path} is not the {kind} of {repository}")
            contents |= {f"checkout/{each}": content for each, content in read.items()}
        own = descriptions(experiment)
        for path in own.rglob("*.*"):
            if path.suffix != ".pyc" and path.is_file():
                contents[path.relative_to(own).as_posix()] = path.read_bytes()
        key = hashlib.sha256(msgspec.json.encode(sorted(contents.items()))).hexdigest()
        target = user_cache("checkouts", key[:32])
        for name, content in contents.items():
            path = target / name
            is_there = path.is_file() and path.read_bytes() == content
            if not is_there and not keep(path, content):  # a compiler may read the file
                raise UsageError(f"--checkout: {path} cannot be written")
        return target


def descriptions(experiment: Path) -> Path:
    """Return the folder beside an experiment that describes the kernels of its checkout."""
    return experiment.parent / experiment.stem


def _digest(name: str, files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of a file, or of the lines that `sha256sum` prints in a folder."""
    lines = [
        f"{hashlib.sha256(content).hexdigest()}  ./{each.removeprefix(name)}\n"
        for each, content in files.items()
    ]
    text = "".join(lines).encode() if name.endswith("/") else files[name]
    return hashlib.sha256(text).hexdigest()
