"""Calls a user's function in a process of its own, with limits, and returns what it left.

Both ends are here: `call_cases` starts the process and judges how it ended, `serve` runs there. The
process writes arrays into files of fixed size and a line for each call, so that nothing that the
function does can change a verdict or reach the terminal.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpubench.backends.calls import as_tensors
from gpubench.cache import environment_with_caches
from gpubench.engine.judge.verify import poison
from gpubench.errors import with_place
from gpubench.model import CallVariant, Config, Problem
from gpubench.on_cpu.limits import limit_process
from gpubench.on_cpu.run import operands
from gpubench.plan.registry import load
from gpubench.process.child import Child, start
from gpubench.text import clean

CALL_LIMIT_S = 60.0
"""Time limit of a call, which may compile first."""

START_LIMIT_S = 120.0
"""Time limit to start the process and to load the description."""

LONGEST_LINE = 4096
"""Maximum number of bytes of a line from the process."""

RESULTS = ("first", "moved", "rewritten")
"""Results of a case: of the first call; of the same operands at other addresses; and of a second
operand of the other sign at these addresses."""

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
    with tempfile.TemporaryDirectory(prefix="gpubench-") as name:
        folder = Path(name)
        with (folder / "printed").open("wb") as printed:
            child = start(
                "gpubench.commands.check.function",
                "serve",
                environment=environment_with_caches()[0],
                printed=printed,
            )
        try:
            yield from _answers(child, variant, calls, folder)
        except FunctionFaultError as fault:
            text = (folder / "printed").read_bytes()[-LONGEST_LINE:].decode(errors="replace")
            lines = [f"  it printed: {clean(line)}" for line in text.splitlines()]
            raise FunctionFaultError("\n".join((str(fault), *lines[-PRINTED_LINES:]))) from None
        finally:
            child.kill()


def _answers(
    child: Child, variant: CallVariant, calls: Sequence[Call], folder: Path
) -> Iterator[tuple[Call, list[np.ndarray]]]:
    request = {
        "path": str(variant.path),
        "op": variant.op,
        "folder": str(folder),
        "calls": [
            (None if call.tile is None else str(call.tile), *_facts(call.problem)) for call in calls
        ],
    }
    with suppress(ConnectionError):
        child.socket.sendall(json.dumps(request).encode() + b"\n")
    lines = child.socket.makefile("rb")
    for number, call in enumerate((None, *calls)):
        limit_s = CALL_LIMIT_S if call else START_LIMIT_S
        child.socket.settimeout(limit_s)
        label = call.label if call else variant.name
        try:
            line = lines.readline(LONGEST_LINE)
        except TimeoutError:
            raise FunctionFaultError(f"{label}: hung: no end within {limit_s:g} s") from None
        if not line.endswith(b"\n"):
            raise FunctionFaultError(f"{label}: {child.how_it_ended('ended its process')}")
        if line != b"%d\n" % number:
            raise FunctionFaultError(f"{label}: {clean(line.decode(errors='replace').strip())}")
        if call:
            yield call, _arrays(folder / str(number), call)


def _facts(problem: Problem) -> tuple[int, int, int, str, tuple[str, ...]]:
    return problem.m, problem.n, problem.k, problem.dtype, problem.column_major


def _arrays(path: Path, call: Call) -> list[np.ndarray]:
    """Return the operands and the results that the process wrote."""
    problem = call.problem
    arrays = []
    outputs = [problem.output_shape] * len(RESULTS)
    try:
        with path.open("rb") as file:
            for index, shape in enumerate((*problem.input_shapes, *outputs)):
                is_result = index >= len(problem.input_shapes)
                dtype = np.dtype(problem.precision.result if is_result else problem.dtype)
                count = int(np.prod(shape))
                data = file.read(count * dtype.itemsize)
                arrays.append(np.frombuffer(data, dtype, count).reshape(shape))
    except (OSError, ValueError):
        raise FunctionFaultError(f"{call.label}: its result is missing") from None
    return arrays


# ---- the process


def serve(descriptor: int) -> None:
    """Call the function for each case of the request, and answer each with a line."""
    os.set_inheritable(descriptor, False)
    with open(descriptor, "rb", closefd=False) as stream:
        request = json.loads(stream.readline())

    def answer(text: object) -> None:
        line = str(text).replace("\n", " ").encode(errors="replace")
        os.write(descriptor, line[: LONGEST_LINE - 1] + b"\n")

    limit_process()
    path = Path(request["path"])
    try:
        variant = load(path, request["op"])
        answer(0)
        built: dict[tuple[str | None, str], Callable[..., None]] = {}
        for number, (tile, m, n, k, dtype, columns) in enumerate(request["calls"], 1):
            problem = Problem(
                op=request["op"], m=m, n=n, k=k, dtype=dtype, column_major=tuple(columns)
            )
            if (tile, dtype) not in built:
                config = None if tile is None or not variant.tiles else variant.tiles.read(tile)
                built[tile, dtype] = variant.build(config, dtype)  # type: ignore[attr-defined]
            arrays = _call(built[tile, dtype], variant, problem)
            Path(request["folder"], str(number)).write_bytes(
                b"".join(array.tobytes() for array in arrays)
            )
            answer(number)
    except BaseException as error:  # a function may raise anything
        answer(f"raised {with_place(error, path)}")  # type: ignore[arg-type]


def _call(function: Callable[..., None], variant: Any, problem: Problem) -> list[np.ndarray]:
    """Call a function on operands of small integers: return operands and `RESULTS`."""
    output = np.empty(problem.output_shape, problem.precision.result)
    first = [
        np.asfortranarray(array) if by_columns else array
        for array, by_columns in zip((*operands(problem), output), problem.by_columns, strict=True)
    ]
    moved, results = [array.copy(order="K") for array in first], []
    for arrays, sign in ((first, 1), (moved, 1), (moved, -1)):
        arrays[1] *= sign
        poison(arrays[-1], reads_output=variant.reads_output)
        function(*as_tensors(variant.tensors, arrays))
        results.append(arrays[-1].copy())
    return [*first[:-1], *results]
