"""Reads a variant's description, which is a Python file, ours or a user's, with a `VARIANT`."""

import copyreg
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, get_type_hints

import msgspec

from gpubench.backends import backends
from gpubench.errors import UsageError
from gpubench.hardware.occupancy import gpu_of
from gpubench.model import (
    DTYPES,
    LAYOUTS,
    OPERATIONS,
    CallVariant,
    Config,
    CudaVariant,
    Device,
    HostVariant,
    Launch,
    Problem,
    Space,
    Variant,
)
from gpubench.model.launch import PlainLaunch
from gpubench.model.signature import parameters, why_unknown
from gpubench.plan.operations import OPERATION_FILE, add_operation
from gpubench.plan.python_file import NAME_RULE, described_by, is_name, loaded, recursion_kept
from gpubench.rewording import reworded
from gpubench.text import shown

FUNCTIONS = {
    "launch": "tile and problem",
    "reuse": "a tile",
    "build": "tile and dtype",
    "build_strided": "tile and dtype",
    "refuse": "tile and problem",
    "specialize": "launch, tile, problem and GPU",
    "tune": "problem, whether the cache is cold, sample and launches",
    "auto_tiles": "problem and number of multiprocessors",
}
"""Maps each field that contains a function to a text that lists the function's arguments."""

PLAIN = {str, bool, int, tuple[str, ...], tuple[int, int]}
"""Types of the fields that msgspec converts and checks."""

Reader = Callable[[Path, str, tuple[int, ...]], Variant]
"""Takes (file, operation, time and size of the file) and returns the variant. Equal arguments give
the same object."""


def load(path: Path, op: str, read: Reader | None = None) -> Variant:
    """Return the variant of `op` that `path` describes, named after the file.

    The file's code runs in this process, unless `read` is given. While the file does not change,
    the function returns the same object, so a caller may call the function for every point. Raises
    UsageError, which names the file and the fault.
    """
    if op not in OPERATIONS:
        add_operation(path.with_name(OPERATION_FILE))
    if not is_name(path.stem):
        raise UsageError(
            f"{path}: '{shown(path.stem)}' cannot name a kernel: {NAME_RULE}; "
            "the name of a file that is not a kernel starts with _"
        )
    try:
        facts = path.stat()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    variant = (read or _load)(path, op, (facts.st_mtime_ns, facts.st_size, facts.st_ino))
    if not variant.source.is_file():
        raise UsageError(
            f"{path}: its source {variant.file or variant.source.name} is missing beside it"
        )
    return variant


def _by_its_file(variant: Variant) -> tuple[object, tuple[Path, str]]:
    """Pickle a variant as its file and operation, because functions cannot be pickled."""
    return load, (variant.path, variant.op)


copyreg.pickle(CudaVariant, _by_its_file)  # type: ignore[arg-type] # a reduced object, per PEP 307
copyreg.pickle(CallVariant, _by_its_file)  # type: ignore[arg-type]
copyreg.pickle(HostVariant, _by_its_file)  # type: ignore[arg-type]


@cache
def _load(path: Path, op: str, _as_of: tuple[int, ...]) -> Variant:
    # Numba keeps the module's name in its cache on disk, so the name depends on the file alone.
    module = loaded(path, f"gpubench_variants.{path.parent.name}.{path.stem}", "VARIANT")
    with described_by(path), recursion_kept():
        described = getattr(module, "VARIANT", None)
        if isinstance(described, FunctionType):  # operations that share their kernels
            described = described(op)
        described = _checked(described, path)
        # A user's operation has no baseline in the vendor's BLAS, unless the description names one.
        is_default = described.baseline == type(described).baseline
        baseline = "" if is_default and not OPERATIONS.is_ours(op) else described.baseline
        described = replace(described, name=path.stem, op=op, path=path, baseline=baseline)
        _check_arguments(described)
    return described


def _check_arguments(variant: Variant) -> None:
    """Raise UsageError for a matrix, layout or name in a description that the operation lacks."""
    where, operation = f"{variant.path}: VARIANT", OPERATIONS[variant.op]
    size = operation.size_of([1024] * len(operation.extents))
    problem = Problem.of(variant.op, size, variant.dtypes[0])
    if strange := set(variant.column_major) - set(operation.matrices):
        raise UsageError(
            f"{where}: column_major must be a tuple of {', '.join(operation.matrices)}, "
            f"not {min(strange)}"
        )
    if strange := set(variant.layouts) - set(LAYOUTS):
        raise UsageError(
            f"{where}: layouts must be a tuple of {', '.join(LAYOUTS)}, not {min(strange)}"
        )
    if variant.layouts and not operation.has_layouts:
        raise UsageError(f"{where}: layouts: {variant.op} has none")
    if not isinstance(variant, CudaVariant | HostVariant):
        return
    if variant.signature:
        _check_signature(variant, where)
    try:
        _write_out(variant, problem)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error


def _check_signature(variant: CudaVariant | HostVariant, where: str) -> None:
    try:
        signature = parameters(variant.signature)
    except ValueError as error:
        raise UsageError(f"{where}: signature: {error}") from error
    for parameter in signature:
        on_host = isinstance(variant, HostVariant)
        if reason := why_unknown(parameter, variant.op, on_host=on_host):
            raise UsageError(f"{where}: signature: {reason}")
    if isinstance(variant, CudaVariant) and not variant.kernel:
        raise UsageError(f"{where}: signature: also state kernel, the kernel's name in C++")


def _write_out(variant: CudaVariant | HostVariant, problem: Problem) -> None:
    """Evaluate each field that has braces or an expression. Raises ValueError for a bad field."""
    dtype, tile = variant.dtypes[0], variant.tiles.defaults[0] if variant.tiles else Config()
    variant.options(tile, dtype)
    if isinstance(variant, HostVariant):
        variant.function(tile, dtype)
        return
    variant.instance(tile, dtype)
    if isinstance(variant.launch, PlainLaunch):
        variant.launch(tile, problem)


def plain_fields(of_class: type[Variant]) -> dict[str, Any]:
    """Return the type of each plain field of a variant's class, by the field's name."""
    hints = _type_hints(of_class)  # type: ignore[arg-type] # classes are hashable
    return {name: kind for name, kind in hints.items() if kind in PLAIN}


_type_hints = cache(get_type_hints)
"""Returns the type hints of a class from a cache, because parsing takes a millisecond."""


def _checked(described: object, path: Path) -> Variant:
    """Return a description with converted fields. Raises UsageError for the first wrong field."""
    if not isinstance(described, Variant) or type(described) is Variant:
        raise UsageError(
            f"{path}: VARIANT is of type {type(described).__name__}, not a CudaVariant, "
            "a HostVariant or a CallVariant"
        )
    defaults = {field.name: field.default for field in fields(described)}
    values: dict[str, Any] = {}
    for name, kind in plain_fields(type(described)).items():
        try:
            values[name] = msgspec.convert(getattr(described, name), kind)
        except msgspec.ValidationError as error:
            raise UsageError(f"{path}: VARIANT: {name}{reworded(error)}") from error
    described = replace(described, **values)  # this also turns lists of names into tuples
    tiles, names = described.tiles, backends()
    rules: dict[str, object] = {
        "idea must be a line of text": described.idea.strip(),
        f"dtypes must be a tuple of {', '.join(DTYPES)}": described.dtypes
        and set(described.dtypes) <= set(DTYPES),
        f"runs_on must be {' or '.join(names)}": described.backend in names,
        "tiles must be a Space, such as edges(1, 32, because='…')": isinstance(tiles, Space)
        or (tiles is None and defaults["tiles"] is None),
    }
    if isinstance(tiles, Space):
        rules["tiles.default must name legal tiles, such as ('16',)"] = (
            isinstance(tiles.default, tuple)
            and tiles.default
            and not any(map(tiles.why_not, tiles.defaults))
        )
    rules |= {
        f"{name} must be a function of {arguments}": callable(getattr(described, name))
        or getattr(described, name) is defaults[name]
        for name, arguments in FUNCTIONS.items()
        if name in defaults
    }
    if isinstance(described, CudaVariant):
        is_plain = isinstance(described.launch, PlainLaunch)
        rules["a kernel must have either grid and block, or launch"] = (
            described.launch is not defaults["launch"]
            and is_plain == (described.grid != ()) == (described.block != ())
        )
    if isinstance(described, HostVariant):
        rules["entry must be the name of a host function"] = described.entry.strip()
    if isinstance(described, CallVariant):
        rules["threads must be 0 (the fastest number) or more"] = described.threads >= 0
        rules["returns=True is only for a CallVariant that reads no output"] = (
            not described.returns
            or (not described.reads_output and not isinstance(described, HostVariant))
        )
    for rule, holds in rules.items():
        if not holds:
            raise UsageError(f"{path}: VARIANT: {rule}")
    return described


def launch_on(variant: CudaVariant, tile: Config, problem: Problem, device: Device) -> Launch:
    """Return a kernel's launch, fitted to the device if it is a known GPU. Raises UsageError."""
    gpu = gpu_of(device)
    with described_by(variant.path):
        return variant.launch_on(gpu, tile, problem) if gpu else variant.launch(tile, problem)
