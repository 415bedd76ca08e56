"""Finds the variants. Each file `kernels/<op>/<name>.py` describes the variant `<name>`.

A user's folder (`--kernels DIR`) has the same structure, and may also contain the files of one
operation directly: `DIR/<name>.py`.
"""

import os
import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from gpubench.errors import UsageError
from gpubench.files import files_in
from gpubench.model import DEFAULT_OP, OPERATIONS, BrokenVariant, CudaVariant, Variant
from gpubench.plan import description_process
from gpubench.plan.descriptor import load
from gpubench.plan.operations import OPERATION_FILE
from gpubench.text import unknown

KERNELS = Path(__file__).parent.parent / "kernels"


def descriptors(folder: Path) -> list[Path]:
    """Return the Python files in a folder that describe variants, without reading the files.

    The file `operation.py` is left out, and so are files whose names begin with _ or a dot.
    """
    paths = (path for path in folder.glob("*.py") if path.name[0] not in "._")
    return sorted(path for path in paths if path.name != OPERATION_FILE and not path.is_dir())


def home(op: str, parent: Path = KERNELS) -> Path:
    """Return the folder that contains an operation's kernels and its `operation.py`."""
    return parent / OPERATIONS.files[op].parent.name if op in OPERATIONS else parent / op


def variants() -> tuple[Variant, ...]:
    """Return every variant of gpubench, in the order of operations and names."""
    return tuple(load(path, op) for op in OPERATIONS for path in descriptors(home(op)))


@cache
def baselines() -> frozenset[str]:
    """Return the names of the BLAS variants that kernels are compared with."""
    return frozenset(variant.baseline for variant in variants() if variant.baseline)


@cache
def libraries() -> frozenset[str]:
    """Return the names of the variants that call a library's routine, such as cuBLAS's product."""
    calls = (v for v in variants() if v.backend == "cuda" and not isinstance(v, CudaVariant))
    return baselines() | {variant.name for variant in calls}


def library_of(op: str, backend: str) -> str:
    """Return the library that our kernels of an operation are compared with, or an empty text."""
    if not OPERATIONS.is_ours(op):
        return ""
    ours = of_op(op).values()
    return next((v.baseline for v in ours if v.backend == backend and v.baseline), "")


def of_op(op: str, kernels: Path | None = None, needed: Sequence[str] = ()) -> dict[str, Variant]:
    """Return the variants of an operation by name, first ours and then the user's variants.

    If a file of the user's folder cannot be used, its variant is a `BrokenVariant`. Raises
    UsageError if that variant is `needed` or the folder's only variant, if the folder cannot be
    used or has no variant of the operation, and if a name exists already.
    """
    by_name = {path.stem: load(path, op) for path in descriptors(home(op))}
    if kernels is None:
        return by_name
    own: dict[str, Variant] = {}
    paths, sources = _own_files(kernels.absolute(), op)
    for path in paths:
        if path.stem in by_name:
            raise UsageError(
                f"--kernels: {path}: gpubench has a variant '{path.stem}' already; rename yours"
            )
        if path.stem in own:
            raise UsageError(f"--kernels: {path} and {own[path.stem].path} have the same name")
        own[path.stem] = _own(path, op)
    described = {os.path.realpath(variant.source) for variant in own.values()}
    for source in sources:
        is_kernel = source.name[0] not in "._" and source.stem not in {**by_name, **own}
        if is_kernel and os.path.realpath(source) not in described:
            own[source.stem] = _own(source, op)
    by_name |= own
    for name, variant in own.items():
        if variant.baseline and variant.baseline not in by_name:
            problem = unknown("variant", variant.baseline, by_name)
            by_name[name] = _broken(
                f"{variant.path}: VARIANT: baseline: {problem}", variant.path, op
            )
        if isinstance(by_name[name], BrokenVariant) and (name in needed or len(own) == 1):
            raise UsageError(by_name[name].idea)
    return by_name


def _own(path: Path, op: str) -> Variant:
    if path.suffix == ".cu":
        return _broken(f"{path}: its description {path.stem}.py is missing", path, op)
    try:
        return description_process.load(path, op)
    except UsageError as error:
        return _broken(str(error), path, op)


def _broken(why: str, path: Path, op: str) -> Variant:
    return BrokenVariant(idea=why, name=path.stem, op=op, path=path)


def _own_files(folder: Path, op: str) -> tuple[list[Path], list[Path]]:
    """Return the descriptors and the CUDA sources of an operation in a user's folder."""
    if not os.path.isdir(folder):  # noqa: PTH112 # Path.is_dir raises for a name that is too long
        raise UsageError(f"--kernels: {folder} is not a directory")
    # Kernels of a user's operation lie beside its operation.py. Kernels of one of our operations
    # may also lie in the folder itself.
    is_ours = home(op).is_dir() or (folder / OPERATION_FILE).is_file()
    folders = dict.fromkeys((*([folder] if is_ours else []), home(op, folder), folder / op))
    paths = [path for each in folders for path in descriptors(each)]
    sources = sorted(path for each in folders for path in files_in(each, "*.cu"))
    inside = os.path.realpath(folder)
    for path in (*paths, *sources):
        if not Path(os.path.realpath(path)).is_relative_to(inside):
            raise UsageError(f"--kernels: {path} is a link that leads out of {folder}")
    if not paths:
        name, source = (sources[0].stem, f" --from {sources[0]}") if sources else ("NAME", "")
        undescribed = f": {sources[0].name} has no description {name}.py" if sources else ""
        option = "" if op == DEFAULT_OP else f" --op {op}"
        command = f"new-kernel {name}{source}{option} --dir {folder}' writes one"
        if not (sources or OPERATIONS.is_ours(op)):  # `new-kernel` has no kernel to start from
            command = "new-operation NAME' writes kernels to start from"
        raise UsageError(
            f"--kernels: {folder} holds no {op} kernel{undescribed}; 'gpubench {command}"
        )
    return paths, sources


def choose(
    op: str, backend: str, names: Sequence[str], kernels: Path | None = None
) -> tuple[Variant, ...]:
    """Return the variants in the order of `names`, or the default variants if `names` is empty.

    A name may be a pattern such as `cpu_*`, which means every matching variant of the backend.

    `kernels` is the user's folder, whose variants are added to ours. Raises UsageError for an
    unknown name, for a name of another operation or backend, and for a folder that cannot be used
    or has no variant for the backend.
    """
    by_name = {
        name: replace(variant, runs_on=backend) if isinstance(variant, BrokenVariant) else variant
        for name, variant in of_op(op, kernels, names).items()
    }
    if not names:
        own = [variant for variant in by_name.values() if not is_ours(variant)]
        if kernels is not None and backend not in {variant.backend for variant in own}:
            verb = "run" if own[1:] else "runs"
            raise UsageError(
                f"--kernels: {', '.join(variant.name for variant in own)} {verb} on "
                f"{own[0].backend}, but the device is {backend}; "
                f"choose it with --device {own[0].backend}"
            )
        return tuple(v for v in by_name.values() if v.backend == backend and v.default)
    chosen: dict[str, Variant] = {}
    for name in names:
        if fitting := [v for v in by_name.values() if fnmatchcase(v.name, name)]:
            here = {variant.name: variant for variant in fitting if variant.backend == backend}
            if not here:
                no_gpu = "; without a GPU, use 'gpubench check' and 'gpubench explain'"
                raise UsageError(
                    f"variant '{name}' runs on {fitting[0].backend}, but the device is "
                    f"{backend}: 'gpubench variants --device {backend}' lists what runs there, "
                    f"and --device {fitting[0].backend} chooses the variant's device"
                    f"{no_gpu if fitting[0].backend == 'cuda' else ''}"
                )
            chosen |= here
        else:
            on_backend = [v.name for v in by_name.values() if v.backend == backend]
            raise UsageError(unknown_variant(name, on_backend or by_name, kernels))
    return tuple(chosen.values())


def unknown_variant(name: str, names: Collection[str], kernels: Path | None) -> str:
    """Return a message about an unknown variant.

    If the current folder contains this variant's file, the message states how to use the file.
    """
    path = Path(name)
    stem = path.stem if path.suffix in {".cu", ".py"} or path.is_file() else name
    if kernels is None and stem.isidentifier():
        for pattern in (f"*/{stem}.py", *(f"*/{op}/{stem}.py" for op in OPERATIONS)):
            if own := next(Path().glob(pattern), None):
                named = "" if stem == name else f"name {stem}, and "
                return f"unknown variant '{name}'; to use {own}, {named}add --kernels {own.parent}"
    if kernels is None and name and path.is_dir():
        return f"{name} is a folder: write --kernels {shlex.quote(name)} in place of its name"
    sources = (each for each in (path, path.parent / f"{path.stem}.cu") if each.is_file())
    if kernels is None and (source := next(sources, None)):
        new = stem if stem.isidentifier() else "NAME"
        describe = f"'gpubench new-kernel {new} --from {shlex.quote(str(source))}' describes it"
        return f"unknown variant '{name}'; {describe}; then name {new}, and add --kernels own"
    if path.suffix in {".cu", ".py"} and not path.exists():
        return f"{name}: no such file; write the kernel's name, such as {stem}, and --kernels DIR"
    return unknown("variant", name, sorted(names))


def is_ours(variant: Variant) -> bool:
    """Whether a variant is part of gpubench itself, and not of a user's folder."""
    return variant.path.is_relative_to(KERNELS)
