"""Calls a user's function in a process of its own, with limits, and returns what it left.

Both ends are here: `call_cases` starts the process and judges how it ended, `serve` runs there.
Answers are plain data, so that nothing that the function does can change a verdict or reach the
terminal.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gpubench.backends.calls import as_tensors
from gpubench.cache import environment_with_caches
from gpubench.engine.judge.verify import poison
from gpubench.errors import with_place
from gpubench.model import CallVariant, Config, Problem
from gpubench.on_cpu.limits import limit_process
from gpubench.on_cpu.run import operands
from gpubench.plan.descriptor import load
from gpubench.process.channel import Channel
from gpubench.process.child import Child, open_channel, start
from gpubench.text import clean

CALL_LIMIT_S = 60.0
"""Time limit of a call, which may compile first."""

START_LIMIT_S = 120.0
"""Time limit to start the process and to load the description."""

LONGEST = 4096
"""Maximum number of characters of an error, and of what is shown of a function's output."""

MAX_ANSWER_BYTES = 2**24

_Request = tuple[str, str, list[tuple[str | None, Problem]]]
"""The path of the description, the operation, and the tile and problem of each call."""

RESULTS = ("first", "moved", "rewritten")
"""Results of a case: of the first call; of the same operands at other addresses, unless these are
fixed; and of a second operand of the other sign at these addresses."""

PRINTED_LINES = 5
"""Maximum number of lines printed by a function that are shown after a fault."""


class FunctionFaultError(Exception):
    """A call failed. The message says which call, and how."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a function at one tile and problem."""

    tile: Config | None
    problem: Problem
    label: str


def call_cases(
    variant: CallVariant, calls: Sequence[Call]
) -> Iterator[tuple[Call, list[np.ndarray]]]:
    """Yield each case with its operands as they are afterwards, and the `RESULTS` of its calls.

    Raises FunctionFaultError for the first call that raises, hangs or ends the process.
    """
    with tempfile.TemporaryFile() as printed:
        environment = environment_with_caches()[0]
        child = start(__name__, "serve", environment=environment, printed=printed)
        try:
            asked = [(str(call.tile) if call.tile else None, call.problem) for call in calls]
            with suppress(OSError):
                request = msgspec.msgpack.encode((str(variant.path), variant.op, asked))
                Channel(child.socket).send(request)
            _received(child, variant.name, START_LIMIT_S)
            for call in calls:
                answer = _received(child, call.label, CALL_LIMIT_S)
                try:
                    yield call, _arrays(answer, call.problem)
                except ValueError:
                    raise FunctionFaultError(f"{call.label}: its result is missing") from None
        except FunctionFaultError as fault:
            start_at = max(0, os.fstat(printed.fileno()).st_size - LONGEST)
            text = os.pread(printed.fileno(), LONGEST, start_at).decode(errors="replace")
            lines = [f"  it printed: {clean(line)}" for line in text.splitlines()]
            raise FunctionFaultError("\n".join((str(fault), *lines[-PRINTED_LINES:]))) from None
        finally:
            child.kill()


def _received(child: Child, label: str, limit_s: float) -> list[bytes]:
    """Return the arrays of an answer. Raises FunctionFaultError, which names the case."""
    try:
        answer = msgspec.msgpack.decode(
            Channel(child.socket).receive(limit_s, MAX_ANSWER_BYTES), type=list[bytes] | str
        )
    except TimeoutError:
        raise FunctionFaultError(f"{label}: hung: no end within {limit_s:g} s") from None
    except (EOFError, OSError):
        raise FunctionFaultError(f"{label}: {child.how_it_ended('ended its process')}") from None
    except ValueError as error:  # the function wrote into the channel
        raise FunctionFaultError(f"{label}: what it sent is no answer: {error}") from None
    if isinstance(answer, str):
        raise FunctionFaultError(f"{label}: {clean(answer)}")
    return answer


def _arrays(contents: Sequence[bytes], problem: Problem) -> list[np.ndarray]:
    """Return the operands and the results. Raises ValueError for contents of another size."""
    shapes = (*problem.input_shapes, *[problem.output_shape] * len(RESULTS))
    dtypes = [problem.dtype] * len(problem.input_shapes) + [problem.precision.result] * len(RESULTS)
    return [
        np.frombuffer(content, dtype).reshape(shape)
        for content, dtype, shape in zip(contents, dtypes, shapes, strict=True)
    ]


# ---- the process


def serve(descriptor: int) -> None:
    """Call the function for each case of the request, and answer each with its arrays."""
    channel = open_channel(descriptor)
    name, op, calls = msgspec.msgpack.decode(channel.receive(), type=_Request)
    limit_process()
    path = Path(name)

    def answer(content: list[bytes] | str) -> None:
        channel.send(msgspec.msgpack.encode(content))

    try:
        variant = load(path, op)
        answer([])
        built: dict[tuple[str | None, str], Callable[..., None]] = {}
        for tile, problem in calls:
            if (tile, problem.dtype) not in built:
                config = None if tile is None or not variant.tiles else variant.tiles.read(tile)
                built[tile, problem.dtype] = variant.build(config, problem.dtype)  # type: ignore[attr-defined]
            arrays = _call(built[tile, problem.dtype], variant, problem)
            answer([array.tobytes() for array in arrays])
    except BaseException as error:  # a function may raise anything
        answer(f"raised {with_place(error, path)}"[:LONGEST])  # type: ignore[arg-type]


def _call(function: Callable[..., None], variant: Any, problem: Problem) -> list[np.ndarray]:
    """Call a function on operands of small integers: return operands and `RESULTS`."""
    output = np.empty(problem.output_shape, problem.precision.result)
    first = [
        np.asfortranarray(array) if by_columns else array
        for array, by_columns in zip((*operands(problem), output), problem.by_columns, strict=True)
    ]
    results, moved = [], first if variant.fixed_addresses else [x.copy(order="K") for x in first]
    for arrays, sign in ((first, 1), (moved, 1), (moved, -1)):
        arrays[1] *= sign
        poison(arrays[-1], reads_output=variant.reads_output)
        function(*as_tensors(variant.tensors, arrays))
        results.append(arrays[-1].copy())
    if moved is first:
        first[1] *= -1
    return [*first[:-1], *results]
