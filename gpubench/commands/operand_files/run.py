"""`gpubench generate` writes operand files, and `gpubench run` computes from them.

`run` computes one product once and verifies it. The command does not time the product.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gpubench.backends import Backend, backends, open_backend
from gpubench.backends.arrays import on_host
from gpubench.commands.operand_files import files
from gpubench.engine.judge.verdict import why_inaccurate
from gpubench.engine.judge.verify import poison, relative_error
from gpubench.engine.operands.make import make_inputs, make_reference, verifying_bytes
from gpubench.errors import CompileError, DoesNotFitError, LaunchError, UsageError
from gpubench.files import Output
from gpubench.hardware.host import free_memory_bytes
from gpubench.model import DEFAULT_FILE_OP, OPERATIONS, Cache, Point, Problem, Variant
from gpubench.options import read_sweep
from gpubench.plan.ranges import parse_sizes, parse_tiles
from gpubench.plan.registry import variants
from gpubench.plan.sweep import Sweep, plan
from gpubench.text import unknown
from gpubench.view.tables import say

_OPS = [name for name, operation in OPERATIONS.items() if not operation.has_k]


def generate(path: Path, shape: str, seed: int, *, force: bool) -> None:
    """Write a file of random operands, and print a line about the file."""
    shapes = parse_sizes(shape, DEFAULT_FILE_OP, "--sizes")
    if len(shapes) != 1:
        raise UsageError(f"--sizes: name one shape, such as 320x640 (MxN), not {len(shapes)}")
    problem = Problem.of(DEFAULT_FILE_OP, shapes[0], "float32")
    output = Output(path, overwrite=force, flag="FILE")
    free = free_memory_bytes()
    if problem.bytes > free:
        raise UsageError(
            f"--sizes: the operands take {problem.bytes:,} bytes, but only {free:,} are free"
        )
    files.write_operands(output, *make_inputs(problem, seed))
    say(f"{path}: A {problem.m}x{problem.n} and v, float32, seed {seed}")


def run(path: Path, output: Path, options: Mapping[str, str | None], *, force: bool) -> int:
    """Compute from an operand file, and write the result if it is right. Return the exit code.

    `options` are the operation, variant, tile and device.
    """
    op, tile = options["op"] or DEFAULT_FILE_OP, options["tiles"]
    if op not in _OPS:
        raise UsageError(f"--op: {unknown('operation', op, _OPS)}")
    tiles = parse_tiles(tile, "--tiles") if tile else (None,)
    if len(tiles) != 1:
        raise UsageError(f"--tiles: name one tile, not {len(tiles)}")
    claimed = Output(output, overwrite=force)
    if output.exists() and path.exists() and output.samefile(path):
        raise UsageError(f"--output: {output} is the operand file itself")
    problem, *inputs = files.read_operands(path, op)
    files.require_binary(output, problem.dtype)
    backend = open_backend(read_sweep({"device": options["device"]}).device)
    point = choose_point(backend.device.backend, problem, options["variants"], tiles[0])
    name = f"{op} by {point.label} on {backend.device.name}"
    limit = problem.precision.tolerance
    try:
        result, error = compute(backend, point, inputs)
        why = why_inaccurate(error, limit)
        failure = f"the result is wrong, {why}; nothing was written" if why else ""
    except (CompileError, LaunchError, DoesNotFitError) as raised:
        failure = str(raised)
    if failure:
        say(f"gpubench: {name}: {failure}", err=True)
        return 1
    files.write_result(claimed, result)
    say(f"{output}: {name}, relative error {error:.2g} (tolerance {limit:.2g})")
    return 0


def choose_point(backend: str, problem: Problem, name: str | None, tile: str | None) -> Point:
    """Return a point for the problem, with the variant `name` and the tile `tile`.

    By default, the variant is the backend's BLAS, and the tile is the variant's first default tile
    that takes the problem. Raises UsageError if the variant does not exist, or cannot take the tile
    or the problem.
    """
    sweep = Sweep(
        op=problem.op,
        variants=(name or _usual_variant(backend, problem).name,),
        sizes=(problem.numbers,),
        tiles=(tile,) if tile else (),
        dtypes=(problem.dtype,),
        caches=(Cache.HOT,),
        timer=backends()[backend].timers[0],
    )
    return next(point for point, reason in plan(sweep, backend).items() if reason is None)


def compute(
    backend: Backend, point: Point, inputs: Sequence[np.ndarray]
) -> tuple[np.ndarray, float]:
    """Compute a point once.

    Return the result and its error, which a sweep reports as `max_relative_error`. Raises
    CompileError, LaunchError or DoesNotFitError.
    """
    problem = point.problem
    needed = backend.bytes_needed(problem, cold=False) + verifying_bytes(problem)
    free = backend.bytes_free()
    if needed > free:
        raise DoesNotFitError(f"needs {needed:,} bytes of memory, but only {free:,} are free")
    backend.compile([point], lambda _built: None)
    operands = backend.load(problem, tuple(inputs), cold=False)
    kernel = backend.bind(point, operands)
    output = operands.output
    poison(output)
    kernel.run()
    reference = make_reference(backend.xp, problem.op, *operands.inputs)
    error = relative_error(backend.xp, output, reference)
    return on_host(output), error


def _usual_variant(backend: str, problem: Problem) -> Variant:
    """Return the backend's BLAS on all threads, or the first kernel if the BLAS lacks the dtype."""
    candidates = [
        variant
        for variant in variants()
        if (variant.op, variant.backend) == (problem.op, backend)
        and problem.dtype in variant.dtypes
    ]
    return min(candidates, key=lambda v: (v.baseline != v.name, getattr(v, "threads", 0) != 0))
