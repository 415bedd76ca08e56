"""Decides which checks a variant's code needs, by who wrote the code and where it runs."""

from dataclasses import dataclass, replace

from gpubench.model import CallVariant, Variant
from gpubench.plan.registry import is_ours


@dataclass(frozen=True, kw_only=True)
class Scrutiny:
    """The checks that a variant's code needs."""

    probes_sums: bool = False
    """Whether a probe finds how many bits the kernel's sums keep. A sweep does not probe our own
    sources. The script `research/verify_kernels.py --widths` probes our sources."""

    probes_own_sizes: bool = False
    """Whether a probe sums as many products as the measured problem. Each extent of the probe then
    also has the same remainder modulo the tile's extent. The result of a kernel may depend on both
    numbers."""

    is_compared_later: bool = False
    """Whether the reference is made, and outputs are compared, only after the timed launches. The
    errors are then also compared with the errors of rounded operands."""

    tries_other_operands: bool = False
    """Whether the kernel is also launched with other operands and outputs, because its time may
    depend on the operands and the outputs."""

    has_own_operands: bool = False  # whether the kernel's process makes the operands, not the job
    is_examined: bool = False  # whether another process examines the kernel's measurements

    has_own_process: bool = False
    """Whether the function has a process of its own, gets new operands in each measurement, and is
    examined in each measurement. A function can change anything in its process, including the
    checks of other functions."""


_OURS = Scrutiny()
_OUR_CALL = Scrutiny(probes_sums=True)
_USERS_SOURCE = Scrutiny(
    probes_sums=True,
    probes_own_sizes=True,
    is_compared_later=True,
    tries_other_operands=True,
    has_own_operands=True,
    is_examined=True,
)
_USERS_FUNCTION = replace(_USERS_SOURCE, has_own_process=True)


def scrutiny_of(variant: Variant) -> Scrutiny:
    """Return the checks that a variant's code needs."""
    is_call = isinstance(variant, CallVariant)
    if is_ours(variant):
        return _OUR_CALL if is_call else _OURS
    return _USERS_FUNCTION if is_call else _USERS_SOURCE


def owner_of(variant: Variant) -> str:
    """Return the variant's name with its operation if it has a process of its own.

    Otherwise return an empty text. Two operations may have functions with the same name.
    """
    is_owner = scrutiny_of(variant).has_own_process
    return function_name(variant.op, variant.name) if is_owner else ""


def function_name(op: str, variant: str) -> str:
    """Return the name of a user's function among the functions in a folder of kernels."""
    return f"{op}.{variant}"
