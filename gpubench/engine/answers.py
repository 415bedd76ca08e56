"""What a function reports of itself: it may have written anything."""

from __future__ import annotations

import re

from gpubench.backends import Kernel
from gpubench.errors import LaunchError
from gpubench.model import CallVariant, Measurement, Resources

MAX_RESOURCE, MAX_NAME = 2**31, 1000
"""Limits of what a function reports: of its registers and bytes, and of its algorithm's name."""


LIBRARY_KERNELS = re.compile(
    r"nvjet|cutlass|cublas|cudnn|xmma|splitKreduce|gemmSN|gemmk1|gemv2|gemvNSP"
    r"|^(maxwell|volta|turing|ampere|hopper|sm\d+)_",
    re.IGNORECASE,  # CuPy names cuBLAS where it refuses to be captured
)
"""Names of kernels of cuBLAS and cuDNN, and of templates of CUTLASS."""


def answers(kernel: Kernel) -> tuple[Resources | None, str]:
    """Return what a kernel reports of itself, which a function may have written.

    Raises LaunchError for values that no row can hold.
    """
    resources, algorithm = kernel.resources, kernel.algorithm
    if resources is not None:
        if type(resources) is not Resources:
            raise LaunchError("resources: it is no Resources(…)")
        for name, value in vars(resources).items():
            if type(value) is not int or not 0 <= value < MAX_RESOURCE:
                raise LaunchError(f"resources: {name} is no number from 0 to {MAX_RESOURCE - 1:,}")
    if not isinstance(algorithm, str) or not algorithm.isprintable() or len(algorithm) > MAX_NAME:
        raise LaunchError(f"algorithm: it is no printable text of at most {MAX_NAME} characters")
    return resources, algorithm


def library_note(result: Measurement) -> str:
    """Return a note on kernels of a library that a function runs, and does not state."""
    variant = result.point.variant
    if not isinstance(variant, CallVariant) or variant.libraries:
        return ""
    names = [name for name in result.kernels_run.split("; ") if LIBRARY_KERNELS.search(name)]
    return f"it runs kernels of a library: {', '.join(names)}" if names else ""
