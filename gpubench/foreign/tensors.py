"""Gives tensors their places in the bytes of a launch, and collects facts by running references."""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from gpubench.errors import LaunchError, UsageError
from gpubench.foreign import values
from gpubench.foreign.arrange import is_arrangeable, is_independent
from gpubench.foreign.statement import ALIGNMENT, Facts, Part, Program, Tolerance

MAX_TENSOR_BYTES = 2**31
"""Maximum number of bytes of all inputs together, and also of all results together. Memory must
also have room for the right results of several launches in float64."""

ARRANGED_SEEDS = (1, 2, 3)  # seeds of inputs that show whether values depend on each other

NOISE = {True: 0xFF, False: 0x55}
"""The byte that fills unwritten memory, for floats (True) and for other elements (False). The byte
0xFF makes floats NaN."""

PLAIN = (int, float, str, bool, type(None))

Leaves = list[Any]


class Ran(NamedTuple):
    """The outcome of a run of the reference."""

    outputs: Leaves
    """The results that the reference returned, followed by the inputs that the reference
    changed."""

    leaf_of: list[int]
    """Index of the input that has the same memory, for each output. The index is -1 if there is
    none."""

    returned: int  # number of outputs that the reference returned
    changed: set[int]  # indices of the inputs that the reference changed


def flat(value: Any) -> tuple[Leaves, Any]:
    """Return the values in nested lists and dicts as a flat list, and the form of the nesting."""
    from torch.utils import _pytree

    leaves, form = _pytree.tree_flatten(value)
    return leaves, form


def nested(leaves: Leaves, form: Any) -> Any:
    """Arrange flat values in the nested lists and dicts of a form, and return the nest."""
    from torch.utils import _pytree

    return _pytree.tree_unflatten(leaves, form)


def inputs_of(program: Program, number: int, seed: int) -> tuple[Leaves, Any]:
    """Return a workload's inputs on the device of the reference, and their form."""
    leaves, form = flat(program.inputs(number, seed))
    device = values.device()
    return [leaf.detach().to(device) if is_tensor(leaf) else leaf for leaf in leaves], form


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    import torch

    return isinstance(value, torch.Tensor)


def results_of(value: Any) -> Leaves:
    """Return the tensors in a function's result. A number in the result becomes a tensor."""
    import torch

    made = (torch.tensor(x) if isinstance(x, int | float) else x for x in flat(value)[0])
    return [each for each in made if is_tensor(each)]


def view(memory: Any, part: Part) -> Any:
    """Return the tensor at the place of `part` in `memory`."""
    import torch

    kind = getattr(torch, part.dtype)
    block = memory[part.offset : part.offset + math.prod(part.shape) * kind.itemsize].view(kind)
    return block.as_strided(part.shape, part.strides)


def write(tensor: Any, target: Any) -> None:
    """Copy a result into `target`. Raises LaunchError for a wrong shape or kind of tensor."""
    import torch

    if type(tensor) not in {torch.Tensor, torch.nn.Parameter}:
        kind = type(tensor).__name__
        raise LaunchError(
            f"the function returns a {kind}, which may be computed only when it is read"
        )
    if tensor.numel() != target.numel():
        raise LaunchError(
            f"the function returns the shape {(*tensor.shape,)}, not {(*target.shape,)}"
        )
    tensor = tensor.detach().reshape(target.shape)
    if tensor.dtype == target.dtype and tensor.element_size() == 1:  # some such types have no copy_
        tensor, target = tensor.view(torch.uint8), target.view(torch.uint8)
    target.copy_(tensor)


def require_form(tensor: Any, target: Any, other_types: Collection[str] | None) -> None:
    """Raise LaunchError if a result has a wrong shape, or neither the target's nor another type.

    Numbers, and tensors of one element, may have any shape and type.
    """
    if tensor.numel() == target.numel() == 1:
        return
    if tensor.shape != target.shape:
        raise LaunchError(
            f"the function returns the shape {(*tensor.shape,)}, not {(*target.shape,)}"
        )
    dtype, right = (str(each.dtype).removeprefix("torch.") for each in (tensor, target))
    if dtype != right and other_types is not None and dtype not in other_types:
        raise LaunchError(f"the function returns {dtype}, not {right}")


def keep(made: Leaves, targets: Leaves) -> None:
    """Copy results into `targets`, unless they lie there already. Raises LaunchError as `write`.

    A result in the memory of another target, or in another order, is copied before any is written.
    """
    pairs = zip(made, targets, strict=False)
    moved = [(x, y) for x, y in pairs if type(x) is not type(y) or not _lies_at(x, y)]
    copied = [(x.clone() if _shares_memory(x, y) else x, y) for x, y in moved]
    for tensor, target in copied:
        write(tensor, target)


def _lies_at(tensor: Any, target: Any) -> bool:
    are_flat = tensor.is_contiguous() and target.is_contiguous()
    is_alike = tensor.dtype == target.dtype and tensor.numel() == target.numel() and are_flat
    starts_there = tensor.data_ptr() == target.data_ptr()
    return starts_there and (is_alike or _memory(tensor) == _memory(target))


def _shares_memory(tensor: Any, target: Any) -> bool:
    if type(tensor) is not type(target):
        return False
    return bool(tensor.untyped_storage().data_ptr() == target.untyped_storage().data_ptr())


def parts_of(tensors: Iterable[tuple[int, Any]]) -> tuple[list[Part], int]:
    """Return the places of tensors that lie one after the other, and the total number of bytes."""
    import torch

    parts, offset = list[Part](), 0
    for leaf, tensor in tensors:
        strides = tuple(torch.empty_like(tensor, device="meta").stride())
        dtype = str(tensor.dtype).removeprefix("torch.")
        parts.append(Part(tuple(tensor.shape), strides, dtype, offset, leaf))
        offset += -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT
        if offset > MAX_TENSOR_BYTES:
            raise UsageError(
                f"inputs or results have more than {MAX_TENSOR_BYTES // 2**30} GiB: lower the "
                "extents in a copy of the problem"
            )
    return parts, max(offset, ALIGNMENT)


def run(program: Program, leaves: Leaves, form: Any) -> Ran:
    """Run the reference on inputs, which it may change, and return the outcome."""
    import torch

    before = copies(leaves)
    with torch.no_grad():
        results = results_of(program.reference(nested(leaves, form)))
    places = {_memory(leaf): at for at, leaf in enumerate(leaves) if is_tensor(leaf)}
    changed = {at for at, leaf in enumerate(leaves) if not _same(leaf, before[at])}
    leaf_of = [places.get(_memory(each), -1) for each in results]
    more = sorted(changed - {*leaf_of})
    outputs = [*results, *(leaves[at] for at in more)]
    if not outputs:
        raise UsageError("the reference returns no tensor, and changes none")
    if any(each.is_complex() for each in outputs):
        raise UsageError("a result of the reference is complex, and only real results are compared")
    return Ran(outputs, [*leaf_of, *more], len(results), changed)


def examine(program: Program, number: int, stated: Tolerance | None) -> Facts:
    """Return the facts about a workload from runs of the reference.

    `stated` is the tolerance of the workload, or None if only the problem's check has a tolerance.
    """
    from torch.utils.flop_counter import FlopCounterMode

    leaves, form = inputs_of(program, number, seed=1)
    for leaf in leaves:
        if not is_tensor(leaf) and not isinstance(leaf, PLAIN):
            kind = type(leaf).__name__
            raise UsageError(f"an input is of type {kind}, which is neither a tensor nor a number")
    inputs, input_bytes = parts_of((at, x) for at, x in enumerate(leaves) if is_tensor(x))
    before = copies(leaves)
    with FlopCounterMode(display=False) as counter:
        ran = run(program, leaves, form)
    listed = enumerate(ran.outputs)
    outputs, output_bytes = parts_of((at if at < ran.returned else -1, x) for at, x in listed)
    place_of, empty = dict[int, tuple[int, bool]](), _without_content(program, number)
    for output, tensor in enumerate(ran.outputs):
        own, size = ran.leaf_of[output], tensor.numel()
        free = [(x, before[x]) for x in sorted(empty - {*place_of, *ran.leaf_of})]
        alike = (x for x, y in free if y.dtype == tensor.dtype and y.numel() == size)
        at = own if own >= 0 else next(alike, -1)
        if at in empty:
            place_of[at] = output, False
        elif at in ran.changed:
            place_of[at] = output, not _is_ignored(program, number, at, ran)
    bound, arranged = list[Part](), _arranged(program, number, inputs)
    for part in inputs:
        output, is_read = place_of.get(part.leaf, (-1, True))
        is_arranged = part.leaf in arranged
        bound.append(
            msgspec.structs.replace(part, output=output, is_read=is_read, is_arranged=is_arranged)
        )
    arguments = nested(copies(before), form)
    tolerances = [stated] * len(outputs) if stated else _tolerances(program, arguments, ran)
    elements = sum(each.numel() for each in ran.outputs)
    return Facts(
        inputs=tuple(bound),
        outputs=tuple(outputs),
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        flops=max(counter.get_total_flops(), elements, 1),
        tolerances=tuple(tolerances),
    )


def _tolerances(program: Program, arguments: Any, ran: Ran) -> list[Tolerance]:
    """Return the tolerances of the problem's check, which takes only the returned results.

    The strictest of these tolerances is returned for each input that the reference changes.
    """
    returned = ran.outputs[: ran.returned] or ran.outputs
    tolerances = [*program.tolerances(arguments, returned)]
    strictest = min(tolerances, key=lambda each: (each.relative, each.absolute))
    return [*tolerances, *[strictest] * (len(ran.outputs) - len(returned))]


def _arranged(program: Program, number: int, parts: Sequence[Part]) -> set[int]:
    """Return the inputs whose values look independent for at least one seed, and may be moved."""
    can_be = {
        part.leaf
        for part in parts
        if is_arrangeable(part.shape, part.dtype) and _is_contiguous(part)
    }
    independent = set[int]()
    for seed in ARRANGED_SEEDS:
        leaves = inputs_of(program, number, seed)[0] if can_be - independent else []
        independent |= {
            leaf for leaf in can_be - independent if _is_independent(leaves[leaf].double())
        }
    return independent


def _is_independent(values: Any) -> bool:
    import torch

    is_on_cpu = values.device.type == "cpu"
    return is_independent(values.numpy()) if is_on_cpu else is_independent(values, torch)


def _is_contiguous(part: Part) -> bool:
    import torch

    return bool(torch.empty_strided(part.shape, part.strides, device="meta").is_contiguous())


def copies(leaves: Leaves) -> Leaves:
    """Return the values, with a copy in place of each tensor."""
    return [leaf.clone() if is_tensor(leaf) else leaf for leaf in leaves]


def _memory(tensor: Any) -> object:
    steps = [step for step, extent in zip(tensor.stride(), tensor.shape, strict=True) if extent > 1]
    return tensor.data_ptr(), tuple(tensor.shape), tuple(steps), tensor.dtype


def _same(left: Any, right: Any) -> bool:
    """Whether two tensors have the same bits."""
    import torch

    if not is_tensor(left):
        return True
    return bool(torch.equal(*(x.reshape(-1).contiguous().view(torch.uint8) for x in (left, right))))


def _without_content(program: Program, number: int) -> set[int]:
    """Return the inputs that the problem leaves unwritten, because they are memory for results."""
    leaves = []
    for noise in NOISE.values():
        with values.filled_with(noise):
            leaves.append(inputs_of(program, number, seed=1)[0])
    return {at for at, pair in enumerate(zip(*leaves, strict=True)) if not _same(*pair)}


def _is_ignored(program: Program, number: int, at: int, expected: Ran) -> bool:
    """Whether the reference ignores the content of an input, which is only memory for a result."""
    right = copies(expected.outputs)
    leaves, form = inputs_of(program, number, seed=1)
    is_float = leaves[at].is_floating_point()
    leaves[at].untyped_storage().fill_(NOISE[is_float])
    try:
        ran = run(program, leaves, form)
    except Exception:  # the noise may be an index that is out of range, for example
        return False
    pairs = zip(ran.outputs, right, strict=False)
    return len(ran.outputs) == len(right) and all(_same(x, y) for x, y in pairs)
