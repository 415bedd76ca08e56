"""Makes a problem's inputs and results in the bytes of a launch, and runs solutions."""

import sys
import threading
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from gpubench.errors import LaunchError
from gpubench.foreign import on_host, values
from gpubench.foreign.arrange import arrange
from gpubench.foreign.statement import Facts, Program
from gpubench.foreign.tensors import (
    Leaves,
    inputs_of,
    is_tensor,
    keep,
    nested,
    require_form,
    results_of,
    view,
    write,
)
from gpubench.text import counted

DEFAULT_STREAM = 0
BUSY_CYCLES = 400_000_000
"""Number of cycles for which a GPU is kept busy, about 0.2 s, while a reference enqueues its
work."""

WIDENED = {"float16", "bfloat16", "float32"}


class Bound(NamedTuple):
    """The arguments and the results of a workload. All tensors lie in the bytes of a launch."""

    leaves: Leaves  # tensors and other values of the arguments
    form: Any  # the nest of lists and dicts that `leaves` fill
    results: Leaves  # tensors in the bytes of the results
    updated: list[tuple[Any, Any]]
    """Pairs (input, result) for each input that the reference reads and changes. The solution gets
    the result's memory as input, so the input is copied into this memory before a launch."""

    @property
    def arguments(self) -> Any:
        """The arguments, in the nested lists and dicts that the reference takes."""
        return nested(self.leaves, self.form)


def bind(made: tuple[Leaves, Any], facts: Facts, inputs: Any, outputs: Any) -> Bound:
    """Return a workload's arguments and results, whose tensors lie in two arrays of bytes.

    `made` is the value that `inputs_of` returned. The tensors of `made` are replaced by the tensors
    in the bytes. The function does not wait for a device.
    """
    leaves, form = [*made[0]], made[1]
    results = [view(outputs, part) for part in facts.outputs]
    updated = list[tuple[Any, Any]]()
    for part in facts.inputs:
        leaves[part.leaf] = view(inputs, part)
        if part.output >= 0:
            result = results[part.output].view(part.shape)
            updated += [(leaves[part.leaf], result)] if part.is_read else []
            leaves[part.leaf] = result
    return Bound(leaves, form, results, updated)


def fill(program: Program, facts: Facts, number: int, seed: int) -> memoryview:
    """Return the bytes of a workload's inputs, with random values that depend on the seed."""
    import torch

    leaves, _ = inputs_of(program, number, seed)
    generator = np.random.default_rng([seed, number])
    memory = torch.zeros(facts.input_bytes, dtype=torch.uint8, device=values.device())
    for part in facts.inputs:
        tensor, target = leaves[part.leaf], view(memory, part)
        if tensor.shape != target.shape or tensor.dtype != target.dtype:
            raise LaunchError("the shapes of its inputs depend on the seed")
        write(tensor, target)
        if part.is_arranged:
            is_numpys = memory.device.type == "cpu" and part.dtype != "bfloat16"
            if is_numpys:  # faster: 2¹⁸ values took 0.02 s on two busy CPUs, and 0.5 s by torch
                arrange(target.numpy(), generator)
            else:
                arrange(target, generator, torch)
    return _content(memory)


def _content(tensor: Any) -> memoryview:
    """Return the bytes of a tensor. A tensor on the CPU is not copied."""
    content: memoryview = tensor.cpu().contiguous().numpy().reshape(-1).view(np.uint8).data
    return content


def refer(
    program: Program, facts: Facts, number: int, inputs: memoryview
) -> tuple[memoryview, list[memoryview]]:
    """Run the reference, and return the bytes of its results in its own types and in float64.

    The list of results in float64 is empty if the reference does not run in float64.
    """
    native, in_float64 = refer_on_device(program, facts, number, inputs)
    return _content(native), [*map(_content, in_float64)]


def refer_on_device(
    program: Program, facts: Facts, number: int, inputs: memoryview
) -> tuple[Any, list[Any]]:
    """Run the reference as `refer` does, and return tensors on the device, in new memory."""
    import torch

    bound, native = _on_device(program, facts, number, inputs)
    for source, target in bound.updated:
        write(source, target)
    in_float64 = list[Any]()
    wide = bound._replace(leaves=[_widened(leaf) for leaf in bound.leaves])
    keep(_results(program, bound, facts), bound.results)
    try:
        with values.modes()[1]:
            results = _results(program, wide, facts)
        copied = (x.to(torch.float64, copy=True) for x in results)
        in_float64 += [x.contiguous().reshape(-1) for x in copied]
    except Exception:  # a kernel may not support float64
        in_float64.clear()
    return native, in_float64


def elements_of(facts: Facts) -> ModuleType:
    """Return the module that compares results: `on_device` if the GPU has room, else `on_host`."""
    if values.device().type == "cpu":
        return on_host
    from gpubench.foreign import on_device

    return on_device if on_device.has_room(facts) else on_host


def waits(program: Program, facts: Facts, number: int, inputs: memoryview) -> bool:
    """Return whether the reference waits for the GPU. The GPU is kept busy during the call."""
    import torch

    if values.device().type == "cpu":
        return False
    bound, _ = _on_device(program, facts, number, inputs)
    torch.cuda._sleep(BUSY_CYCLES)  # noqa: SLF001 # nothing public keeps a GPU busy
    busy = torch.cuda.Event()
    busy.record()  # if this event is done after the call, the reference has waited
    _results(program, bound, facts)
    has_waited: bool = busy.query()
    return has_waited


def _on_device(
    program: Program, facts: Facts, number: int, inputs: memoryview
) -> tuple[Bound, Any]:
    """Return a workload whose tensors are on the device, and the memory of its results."""
    import torch

    memory = torch.frombuffer(bytearray(inputs), dtype=torch.uint8).to(values.device())
    native = torch.zeros(facts.output_bytes, dtype=torch.uint8, device=memory.device)
    form = _form(program, number)  # type: ignore[arg-type] # each is a class
    values.seed(0)  # the reference may draw random numbers
    return bind(form, facts, memory, native), native


@cache
def _form(program: Any, number: int) -> tuple[Leaves, Any]:
    """Return a workload's inputs, with None in place of each tensor, and the form of the inputs."""
    leaves, form = inputs_of(program, number, seed=0)
    return [None if is_tensor(leaf) else leaf for leaf in leaves], form


def _widened(leaf: Any) -> Any:
    if not is_tensor(leaf):
        return leaf
    is_wide = str(leaf.dtype).removeprefix("torch.") in WIDENED
    return leaf.double() if is_wide else leaf.clone()


def _results(program: Program, bound: Bound, facts: Facts) -> Leaves:
    """Run the reference, and return its results, which include the inputs that it changes."""
    import torch

    with torch.no_grad():
        returned = results_of(program.reference(bound.arguments))
    changed = {part.output: bound.leaves[part.leaf] for part in facts.inputs}
    pairs = enumerate(facts.outputs)
    return [returned[part.leaf] if part.leaf >= 0 else changed[at] for at, part in pairs]


class Solution:
    """Calls a function with arguments that lie in the bytes of a launch."""

    def __init__(
        self,
        program: Program,
        facts: dict[int, tuple[Facts, int]],
        function: Callable[..., Any],
        *,
        takes_outputs: bool,
        clocks: dict[str, Any],
    ) -> None:
        self._program, self._facts = program, facts
        self._function, self._takes_outputs = function, takes_outputs
        parts = next(iter(facts.values()))[0].outputs
        self._returned = sum(part.leaf >= 0 for part in parts)
        inputs = (part for each, _ in facts.values() for part in each.inputs)
        self._has_memory = any(part.output >= 0 for part in inputs)  # arguments hold results
        self._other_types = program.other_types
        self._made: dict[int, tuple[Leaves, Any]] = {}  # arguments, by the inputs' number of bytes
        self._bounds: dict[tuple[int, ...], tuple[Any, Bound]] = {}
        self._streams = _watched_streams()
        self._clocks = clocks

    def __call__(self, inputs: Any, outputs: Any) -> None:
        """Compute the results of a launch.

        Only the first launch of a workload waits for the device.
        """
        import torch

        size = inputs.numel()
        facts, number = self._facts[size]
        is_first, threads = size not in self._made, set[threading.Thread]()
        if is_first:
            threads = {*threading.enumerate()}
            self._made[size] = inputs_of(self._program, number, seed=0)
        key = inputs.data_ptr(), outputs.data_ptr(), size
        if key not in self._bounds:
            bound = bind(self._made[size], facts, inputs, outputs)
            more = bound.results if self._takes_outputs else []
            self._bounds[key] = [*bound.arguments, *more], bound
        arguments, bound = self._bounds[key]
        with torch.no_grad():
            for source, target in bound.updated:
                target.copy_(source)
            self._keep(self._function(*arguments), bound.results)
        if is_first:
            self._require_fair(threads)

    def _keep(self, returned: Any, results: Leaves) -> None:
        """Copy the tensors that a call returned into the results, unless they lie there already.

        Raises LaunchError if the number, a shape or a type of the returned tensors is wrong.
        """
        made = results_of(returned)
        if not made and (self._takes_outputs or (returned is None and self._has_memory)):
            return
        if len(made) not in {self._returned, len(results)}:
            raise LaunchError(
                f"the function returns {counted(len(made), 'tensor')}, but the reference returns "
                f"{self._returned}"
            )
        for tensor, result in zip(made, results, strict=False):
            require_form(tensor, result, self._other_types)
        keep(made, results)

    def _require_fair(self, threads: set[threading.Thread]) -> None:
        """Raise LaunchError if a call has replaced a clock, or has left work that is not finished.

        The clock of another process detects the wrong time anyway. This check names the cause.
        """
        import torch

        now = clocks()
        for name, each in self._clocks.items():
            if now[name] is not each and not _is_of_library(now[name]):
                raise LaunchError(f"it replaces {name}")
        for thread in {*threading.enumerate()} - threads:
            if not _is_of_library(getattr(thread, "_target", None) or type(thread)):
                raise LaunchError("the function leaves a thread that runs after the call")
        others = self._streams.keys() - {DEFAULT_STREAM}
        if torch.cuda.is_initialized():
            others -= {torch.cuda.current_stream().cuda_stream}
        if others and not torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream().synchronize()
            if not all(self._streams[handle].query() for handle in others):
                raise LaunchError("the function leaves work in a stream that it does not wait for")


def _is_of_library(thing: Any) -> bool:
    """Whether a function or class is part of torch, or of a package that torch's compiler uses."""
    package = str(getattr(thing, "__module__", "")).partition(".")[0]
    return package in {"torch", "triton", "concurrent", "multiprocessing"}


def _watched_streams() -> dict[int, Any]:
    """Return a dictionary of streams by handle, to which later streams of Python code are added."""
    import torch

    streams = dict[int, Any]()

    class Stream(torch.cuda.Stream):  # type: ignore[misc] # torch has no types here
        def __new__(cls, *arguments: Any, **named: Any) -> Any:
            stream = super().__new__(cls, *arguments, **named)
            return streams.setdefault(stream.cuda_stream, stream)

    torch.cuda.Stream = Stream
    return streams


def clocks() -> dict[str, Any]:
    """Return the functions with which torch and Python measure time, by name."""
    import torch

    owners = {"torch.cuda.Event": torch.cuda.Event, "time": sys.modules["time"]}
    functions = {
        f"{owner}.{name}": value
        for owner, holder in owners.items()
        for name, value in vars(holder).items()
        if callable(value) and not name.startswith("__")
    }
    return functions | {"torch.cuda.synchronize": torch.cuda.synchronize}
