"""A problem's code on the bytes of a launch: inputs, the right results, and solutions."""

import sys
import threading
from collections.abc import Callable
from typing import Any

from gpubench.errors import LaunchError
from gpubench.foreign import values
from gpubench.foreign.statement import Facts, Program
from gpubench.foreign.tensors import Leaves, flat, is_tensor, nested, results_of, view, write

WIDENED = {"float16", "bfloat16", "float32"}


def fill(program: Program, facts: Facts, number: int, seed: int) -> bytes:
    """Return the bytes of a workload's inputs, whose random values a seed determines."""
    import torch

    leaves, _ = flat(program.inputs(number, seed))
    memory = torch.zeros(facts.input_bytes, dtype=torch.uint8)
    for part in facts.inputs:
        tensor, target = leaves[part.leaf], view(memory, part)
        if tensor.shape != target.shape or tensor.dtype != target.dtype:
            raise LaunchError("the shapes of its inputs depend on the seed")
        write(tensor.detach(), target)
    return bytes(memory.numpy().tobytes())


class Bound:
    """The arguments of a workload in memory."""

    def __init__(self, program: Program, facts: Facts, number: int) -> None:
        self._facts = facts
        self._leaves, self._form = flat(program.inputs(number, seed=0))

    def leaves(self, inputs: Any, outputs: Any) -> tuple[Leaves, Leaves, list[tuple[Any, Any]]]:
        """Return the arguments' leaves, the results, and (result, input) of what is updated."""
        leaves, updated = list(self._leaves), list[tuple[Any, Any]]()
        results = [view(outputs, part) for part in self._facts.outputs]
        for part in self._facts.inputs:
            leaves[part.leaf] = view(inputs, part)
            if part.output >= 0:
                result = results[part.output].view(part.shape)
                if part.is_read:
                    updated.append((result, leaves[part.leaf]))
                leaves[part.leaf] = result
        return leaves, results, updated

    def arguments(self, leaves: Leaves) -> Any:
        """Return the arguments with these leaves."""
        return nested(leaves, self._form)


def refer(program: Program, facts: Facts, number: int, inputs: bytes) -> tuple[bytes, list[bytes]]:
    """Return the right results in their own types, and those of floats in float64.

    The second list is empty if the reference does not run in float64.
    """
    import torch

    memory = torch.frombuffer(bytearray(inputs), dtype=torch.uint8).to(values.device())
    native = torch.zeros(facts.output_bytes, dtype=torch.uint8, device=memory.device)
    bound = Bound(program, facts, number)
    leaves, targets, updated = bound.leaves(memory, native)
    for target, source in updated:
        write(source, target)
    wide_leaves = [_widened(leaf) for leaf in leaves]
    results = _results(program, bound, leaves, facts, is_wide=False)
    for result, target in zip(results, targets, strict=True):
        if result.data_ptr() != target.data_ptr():
            write(result, target)
    try:
        with values.modes()[1]:
            wide = _results(program, bound, wide_leaves, facts, is_wide=True)
        made = [x.double().cpu().contiguous().numpy().tobytes() for x in wide]
    except Exception:  # a type that has no float64, or a kernel of another library
        made = []
    return native.cpu().numpy().tobytes(), made


def _widened(leaf: Any) -> Any:
    if not is_tensor(leaf):
        return leaf
    is_wide = str(leaf.dtype).removeprefix("torch.") in WIDENED
    return leaf.double() if is_wide else leaf.clone()


def _results(
    program: Program, bound: Bound, leaves: Leaves, facts: Facts, *, is_wide: bool
) -> Leaves:
    """Return the results of the reference: what it returns, and inputs that it changes."""
    import torch

    with torch.no_grad():
        returned = results_of(program.reference(bound.arguments(leaves), is_wide=is_wide))
    changed = {part.output: leaves[part.leaf] for part in facts.inputs if part.output >= 0}
    pairs = enumerate(facts.outputs)
    return [returned[part.leaf] if part.leaf >= 0 else changed[at] for at, part in pairs]


class Solution:
    """A function of a problem's arguments, as a function of the bytes of a launch."""

    def __init__(
        self,
        program: Program,
        facts: dict[int, tuple[int, Facts]],
        function: Callable[..., Any],
        *,
        takes_outputs: bool,
    ) -> None:
        self._program, self._facts = program, facts
        self._function, self._takes_outputs = function, takes_outputs
        self._bounds: dict[tuple[int, ...], tuple[Any, Leaves, list[tuple[Any, Any]]]] = {}
        self._streams = _watched_streams()
        self._replaceable = _replaceable()

    def __call__(self, inputs: Any, outputs: Any) -> None:
        """Compute the results of a launch."""
        import torch

        key = inputs.data_ptr(), outputs.data_ptr(), inputs.numel()
        is_new = key not in self._bounds
        if is_new:
            self._bounds[key] = self._bind(inputs, outputs)
        arguments, results, updated = self._bounds[key]
        for target, source in updated:
            write(source, target)
        threads = threading.active_count()
        with torch.no_grad():
            returned = self._function(*arguments)
            self._keep(returned, results)
        if is_new:
            self._require_fair(threads)

    def _bind(self, inputs: Any, outputs: Any) -> tuple[Any, Leaves, list[tuple[Any, Any]]]:
        number, facts = self._facts[inputs.numel()]
        bound = Bound(self._program, facts, number)
        leaves, results, updated = bound.leaves(inputs, outputs)
        more = results if self._takes_outputs else []
        return [*bound.arguments(leaves), *more], results, updated

    def _keep(self, returned: Any, results: Leaves) -> None:
        """Copy what was returned into the results. What already lies there is not copied."""
        made = results_of(returned)
        if not made and (self._takes_outputs or returned is None):
            return
        if len(made) > len(results):
            raise TypeError(f"it returns {len(made)} tensors, and the reference {len(results)}")
        for tensor, target in zip(made, results, strict=False):
            if tensor.data_ptr() != target.data_ptr() or type(tensor) is not type(target):
                write(tensor, target)

    def _require_fair(self, threads: int) -> None:
        """Raise LaunchError for what a call leaves behind: a change of torch, or work that goes on.

        The clock of another process finds what such work changes. This names the cause.
        """
        import torch

        now = _replaceable()
        if name := next(
            (name for name, each in self._replaceable.items() if now[name] != each), ""
        ):
            raise LaunchError(f"it replaces {name}")
        if threading.active_count() > threads:
            raise LaunchError("it leaves a thread that runs after the call")
        if self._streams and not torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream().synchronize()
            if not all(stream.query() for stream in self._streams):
                raise LaunchError("it leaves work in a stream that it does not wait for")


def _watched_streams() -> list[Any]:
    """Return a list to which each stream that Python code makes from now on is added."""
    import torch

    made = list[Any]()

    class Stream(torch.cuda.Stream):  # type: ignore[misc] # torch has no types here
        def __new__(cls, *given: Any, **named: Any) -> Any:
            stream = super().__new__(cls, *given, **named)
            made.append(stream)
            return stream

    torch.cuda.Stream = Stream
    return made


def _replaceable() -> dict[str, Any]:
    import torch

    owners = {"torch": torch, "torch.cuda": torch.cuda, "time": sys.modules["time"]}
    owners |= {"torch.Tensor": torch.Tensor, "torch.cuda.Event": torch.cuda.Event}
    return {
        f"{owner}.{name}": value
        for owner, holder in owners.items()
        for name, value in vars(holder).items()
        if callable(value) and not name.startswith("__")
    }
