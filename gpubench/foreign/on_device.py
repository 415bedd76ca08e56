"""Uses torch for arithmetic on the elements of results in the memory of a GPU.

`on_host.py` has the same functions for host memory. A comparison of 2²⁴ elements takes some
milliseconds on a GPU, and most of a second on the host. All functions use deterministic kernels,
because a problem may forbid nondeterministic kernels.
"""

import math
from typing import Any

import msgspec
import torch
from torch.nn.functional import pad

from gpubench.foreign.on_host import CHUNK, EXACT_BELOW, NAMES, VARIES
from gpubench.foreign.statement import Facts, Part
from gpubench.foreign.tensors import view

Values = Any  # a tensor of float64 in one dimension

BYTES_OF_ELEMENT = 200
"""Number of bytes of GPU memory that a comparison needs for each element of a result. The memory
holds right values of several launches, and errors."""


def has_room(facts: Facts) -> bool:
    """Whether results, right results of several launches, and errors fit into the GPU's memory."""
    elements = sum(math.prod(part.shape) for part in facts.outputs)
    free_bytes, _ = torch.cuda.mem_get_info()
    return 2 * BYTES_OF_ELEMENT * elements < int(free_bytes)


def tensor_of(output: Any) -> Any:
    """Return a tensor in the memory of a CuPy array. torch's current stream waits for the array."""
    return torch.from_dlpack(output)


def values_of(content: Any, part: Part) -> Any:
    """Return the elements of a result that lies in a tensor of bytes."""
    kind = NAMES.get(part.dtype, part.dtype)
    return view(content, msgspec.structs.replace(part, dtype=kind)).reshape(-1)


def right_values(content: Any) -> Values:
    """Return the elements of a right result, which are float64, in one dimension."""
    return content.reshape(-1)


def widened(values: Any) -> Values:
    """Convert values to float64."""
    return values.double()


def errors(
    result: Any, right: Values, absolute: float, relative: float, own: Any = None
) -> tuple[Values, Values]:
    """Return each element's error divided by the allowed error, and each element's error.

    The ratio is infinite if only one of the two values is a finite number. `own` has the
    reference's results in the result's type. With `own`, errors of integers are exact.
    """
    values = result.double()
    error = values - right
    if own is not None and not result.is_floating_point():  # float64 rounds integers above 2⁵³
        exact = (result.long() - own.long()) + (own.double() - right)
        error = exact.where(error.abs() < EXACT_BELOW, error)
    error = error.abs()
    ratio = error / (right.abs() * relative + absolute)
    same = ((values == right) & ~(error > 0)) | (values.isnan() & right.isnan())
    ratio = ratio.where(ratio.isfinite(), math.inf).where(~same, 0.0)
    return ratio, error.where(~(same | error.isnan()), 0.0)


def ranked(values: Values, rank: int) -> float:
    """Return the value at position `rank`, counted from 0, of the values in ascending order."""
    return float(values.sort().values[rank])


def largest(values: Values) -> float:
    """Return the largest value, or 0 if all values are negative."""
    return max(float(values.max()), 0.0) if len(values) else 0.0


def magnitude(values: Values) -> float:
    """Return the largest magnitude of the finite values, or 0 if there are none."""
    sizes = values.abs()
    return float(sizes.where(sizes.isfinite(), 0.0).max()) if len(values) else 0.0


def root(values: Values) -> float:
    """Return the root of the mean square of the finite values."""
    if math.isfinite(total := float(values.square().sum())):
        return math.sqrt(total / len(values)) if len(values) else 0.0
    finite = values[values.isfinite()]
    return math.sqrt(float(finite.square().mean())) if len(finite) else 0.0


def has_any(values: Any) -> bool:
    """Whether any value differs from 0."""
    return bool((values.double() != 0).any())


def has_nan(values: Values) -> bool:
    """Whether any value is NaN."""
    return bool(values.isnan().any())


def share_within(ratios: Values) -> float:
    """Return the fraction of the ratios that are at most 1."""
    return int((ratios <= 1).sum()) / len(ratios)


def span(is_chosen: Any) -> tuple[int, int, int]:
    """Return the number of chosen elements, and the indices of the first and the last element."""
    chosen = is_chosen.nonzero().reshape(-1)
    return (len(chosen), int(chosen[0]), int(chosen[-1])) if len(chosen) else (0, 0, 0)


def missed(
    off: Values,
    right: Values,
    own: Any,
    varies: Values,
    own_errors: float,
    roundoff: float,
) -> tuple[int, int, int]:
    """Return the `span` of elements whose errors are as large as the right values' variation."""
    size = right.abs()
    usual = torch.maximum(own_errors * (own.double() - right).abs(), 4 * roundoff * size)
    limit = torch.maximum(VARIES**2 * varies, chunk_means(usual.square()))
    in_chunk = (chunk_means(off.square()) > limit).repeat_interleave(CHUNK)[: len(off)]
    typical = varies.sqrt().repeat_interleave(CHUNK)[: len(off)]
    alone = off > torch.maximum(VARIES * torch.maximum(typical, size), usual)
    return span((in_chunk | alone) & (typical > 0))


def chunk_means(squares: Values) -> Values:
    """Return the mean of each chunk. Values that are not finite count as 0."""
    count = len(squares)
    finite = pad(squares.where(squares.isfinite(), 0.0), (0, -count % CHUNK if count else CHUNK))
    sums = finite.view(-1, CHUNK).sum(1)
    sums[:-1] /= CHUNK
    sums[-1] /= (count - 1) % CHUNK + 1 if count else 1
    return sums


def squares_of_differences(right: Values, last: Values) -> Values:
    """Return half the mean squared difference between two launches' values, for each chunk."""
    return chunk_means((right - last).square() / 2)
