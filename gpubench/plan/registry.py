"""Finds the variants: every `kernels/<op>/<name>.py` is one, named after its file."""

from __future__ import annotations

import copyreg
import difflib
import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from gpubench.errors import UsageError
from gpubench.model import OPERATIONS, CallVariant, CudaVariant, Variant
from gpubench.plan.ranges import shown

KERNELS = Path(__file__).parent.parent / "kernels"


@cache
def variants(folder: Path = KERNELS) -> tuple[Variant, ...]:
    """Every variant under `folder/<op>/`, by op and name.

    Raises UsageError for a descriptor without a `VARIANT`, or a CUDA variant without its `.cu`.
    """
    return tuple(
        load(path, op) for op in OPERATIONS for path in sorted((folder / op).glob("[a-z]*.py"))
    )


def choose(op: str, backend: str, names: Sequence[str]) -> tuple[Variant, ...]:
    """The variants named, in that order; without names, the default ones of op and backend.

    Raises UsageError for a name that is unknown, or known for another op or backend.
    """
    of_op = {variant.name: variant for variant in variants() if variant.op == op}
    if not names:
        return tuple(v for v in of_op.values() if v.backend == backend and v.default)
    for name in names:
        if name not in of_op:
            raise UsageError(f"--variants: {unknown('variant', name, of_op)}")
        if of_op[name].backend != backend:
            raise UsageError(
                f"--variants: '{name}' runs on {of_op[name].backend}, and this sweep on {backend}; "
                f"choose it with --device {of_op[name].backend}"
            )
    return tuple(of_op[name] for name in names)


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """`unknown variant 'shard_tile'; did you mean 'shared_tile'?`, or all that are known."""
    known = list(known)
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known: {', '.join(known)}"
    return f"unknown {kind} '{shown(name)}'; {hint}"


@cache
def load(path: Path, op: str) -> Variant:
    """The variant that a descriptor describes.

    Raises UsageError for one without a `VARIANT`, or a CUDA variant without its `.cu`.
    """
    name = path.stem
    spec = importlib.util.spec_from_file_location(f"gpubench.kernels.{op}.{name}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    described = getattr(module, "VARIANT", None)
    if not isinstance(described, Variant):
        raise UsageError(f"{path}: defines no VARIANT")
    variant = replace(described, name=name, op=op, path=path)
    if isinstance(variant, CudaVariant) and not variant.source.is_file():
        raise UsageError(f"{path}: its CUDA source {variant.source.name} is missing beside it")
    return variant


def _by_its_file(variant: Variant) -> tuple[object, tuple[Path, str]]:
    """Descriptors hold functions, which do not pickle: another process loads the file again."""
    return load, (variant.path, variant.op)


copyreg.pickle(CudaVariant, _by_its_file)  # type: ignore[arg-type] # a reduced object, per PEP 307
copyreg.pickle(CallVariant, _by_its_file)  # type: ignore[arg-type]
