"""Helpers to call a variant's function, to convert its arrays, and to read its reports."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import Any

from gpubench.backends import Kernel
from gpubench.errors import LaunchError
from gpubench.model import CallVariant, Resources

MAX_RESOURCE = 2**31  # largest number of registers or bytes that a function may report
MAX_NAME = 1000  # maximum length of the name of a function's algorithm


@dataclass(frozen=True)
class Prepared:
    """A function that takes arrays, and whose call is prepared before the launch.

    If the host waits for each launch, the measured time includes the host's call. So `bind`
    computes the arguments, and the call only passes them.
    """

    bind: Callable[..., Callable[[], None]]
    """Function that takes the arrays, and returns a function that makes the call in the current
    stream."""

    def __call__(self, *arrays: Any) -> None:
        """Prepare the call for the arrays, and make it."""
        self.bind(*arrays)()


@dataclass(frozen=True)
class Returning:
    """Calls a function that returns its result, and writes the result into the last argument."""

    function: Callable[..., Any]

    def __call__(self, *arrays: Any) -> None:
        """Call the function on all arrays but the last one, and copy the result into the last one.

        Raises TypeError unless the result is an array of the output's shape. Without this check,
        NumPy would repeat a smaller array.
        """
        *inputs, output = arrays
        result = self.function(*inputs)
        if getattr(result, "shape", None) != output.shape:
            what = getattr(result, "shape", type(result).__name__)
            raise TypeError(
                f"the function returns {what}, not an array of shape {(*output.shape,)}"
            )
        if not type(output).__module__.startswith("cupy") or isinstance(result, type(output)):
            output[...] = result
            return
        cupy = import_module("cupy")
        output[...] = cupy.from_dlpack(result)  # the stream waits for the result
        if is_jax(result):  # JAX's next launch may get the memory of this result
            cupy.cuda.get_current_stream().synchronize()


def writing(function: Callable[..., Any], variant: CallVariant) -> Callable[..., None]:
    """Return a variant's function in the form that takes the output too, and writes into it."""
    return Returning(function) if variant.returns else function


def why_not_called(function: Callable[..., None], arrays: Sequence[Any]) -> str:
    """Return advice if a function takes only the inputs, or else an empty text."""
    try:
        takes = signature(function)
        takes.bind(*arrays[:-1])
    except (TypeError, ValueError):  # the arguments differ, or a builtin has no signature
        return ""
    with suppress(TypeError):
        takes.bind(*arrays)
        return ""
    return "; for a function that returns its result, write returns=True"


def as_tensors(package: str, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Return arrays as tensors of a package, in the same memory.

    If `package` is empty, return the arrays unchanged. The output stays an array if the package's
    tensors cannot be written, such as JAX's tensors.
    """
    if not package:
        return (*arrays,)
    *inputs, output = (_tensor(import_module(package), array) for array in arrays)
    return (*inputs, arrays[-1] if is_jax(output) else output)


def is_jax(array: Any) -> bool:
    """Return whether an array is JAX's, which JAX computes in a stream of its own."""
    return type(array).__module__.startswith("jax")


def _tensor(module: Any, array: Any) -> Any:
    if array.dtype.name == "bfloat16":  # a type of ml_dtypes, which DLPack does not transfer
        return module.from_dlpack(array.view("int16")).view(module.bfloat16)
    return module.from_dlpack(array)


def use_stream(stream: int) -> None:
    """Let torch, if it was imported, compute in a CUDA stream."""
    if torch() and torch().cuda.is_available():
        torch().cuda.set_stream(torch().cuda.ExternalStream(stream))


def allocating(count_bytes: int) -> str:
    """Return a row's note that each call allocates memory. The note is empty for 0 bytes."""
    return f"each call allocates memory ({count_bytes:,} bytes seen)" if count_bytes else ""


def torch() -> Any:
    """Return the package torch if it was imported, or else None."""
    return sys.modules.get("torch")


def answers(kernel: Kernel) -> tuple[Resources | None, str]:
    """Return what a function reports. Raises LaunchError if a row cannot have these values."""
    resources, algorithm = kernel.routine.resources, kernel.routine.algorithm
    if resources is not None:
        if type(resources) is not Resources:
            raise LaunchError("resources is not a Resources(…)")
        for name, value in vars(resources).items():
            if type(value) is not int or not 0 <= value < MAX_RESOURCE:
                raise LaunchError(
                    f"resources: {name} is not a number from 0 to {MAX_RESOURCE - 1:,}"
                )
    if not isinstance(algorithm, str) or not algorithm.isprintable() or len(algorithm) > MAX_NAME:
        raise LaunchError(f"algorithm is not a printable text of at most {MAX_NAME} characters")
    return resources, algorithm
