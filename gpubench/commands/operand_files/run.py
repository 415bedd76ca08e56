"""`gpubench generate` and `gpubench run`: operand files, written and computed from."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from gpubench.backends.cpu import CpuBackend
from gpubench.commands.operand_files.files import (
    read_operands,
    require_binary,
    write_operands,
    write_result,
)
from gpubench.commands.operand_files.single import choose_point, compute
from gpubench.errors import CompileError, DoesNotFitError, LaunchError, UsageError
from gpubench.measure.executor import open_backend
from gpubench.measure.operands import make_inputs
from gpubench.measure.verify import tolerance
from gpubench.model import OPERATIONS, Problem
from gpubench.output import require_free
from gpubench.plan.ranges import parse_sizes, parse_tiles
from gpubench.plan.registry import unknown
from gpubench.view.tables import console

OPS = tuple(name for name, operation in OPERATIONS.items() if not operation.has_k)
"""Of a matrix and a vector."""


def generate(path: Path, shape: str, seed: int, *, force: bool) -> None:
    """`gpubench generate`."""
    shapes = parse_sizes(shape, "atax", "--shape")
    if len(shapes) != 1:
        raise UsageError(f"--shape: one shape such as 320x640 (MxN), not {len(shapes)}")
    m, n, _ = shapes[0]
    problem = Problem(op="atax", m=m, n=n, dtype="float32")
    require_free(path, overwrite=force)
    free = CpuBackend().bytes_free()
    if problem.bytes > free:
        raise UsageError(f"--shape: {problem.bytes:,} bytes of operands, {free:,} are free")
    write_operands(path, *make_inputs(problem, seed), overwrite=force)
    console().print(Text(f"{path}: A {m}x{n} and v, float32, seed {seed}"), soft_wrap=True)


def run(
    path: Path,
    op: str,
    output: Path,
    variant: str | None,
    tile: str | None,
    device: str,
    *,
    force: bool,
) -> int:
    """`gpubench run`: the exit code."""
    if op not in OPS:
        raise UsageError(f"--op: {unknown('operation', op, OPS)}")
    tiles = parse_tiles(tile, "--tile") if tile else (None,)
    if len(tiles) != 1:
        raise UsageError(f"--tile: one tile, not {len(tiles)}")
    require_free(output, overwrite=force)
    if output.exists() and path.exists() and output.samefile(path):
        raise UsageError(f"--output: {output} is the operand file itself")
    a, v = read_operands(path)
    problem = Problem(op=op, m=a.shape[0], n=a.shape[1], dtype=str(a.dtype))
    if v.shape != problem.input_shapes[1]:
        (wanted,) = problem.input_shapes[1]
        raise UsageError(
            f"{path}: v has {v.size} elements, and {op} of {problem.m}x{problem.n} takes {wanted}"
        )
    require_binary(output, problem.dtype)
    backend = open_backend(device)
    point = choose_point(backend.device.backend, problem, variant, tiles[0])
    name = f"{op} by {point.label} on {backend.device.name}"
    try:
        computed = compute(backend, point, (a, v))
    except (CompileError, LaunchError, DoesNotFitError) as error:
        console(stderr=True).print(Text(f"gpubench: {name}: {error}"), soft_wrap=True)
        return 1
    if computed.wrong:
        message = f"gpubench: {name}: wrong, {computed.wrong}; nothing was written"
        console(stderr=True).print(Text(message), soft_wrap=True)
        return 1
    write_result(output, computed.result, overwrite=force)
    limit = tolerance(problem.dtype)
    console().print(
        Text(f"{output}: {name}, relative error {computed.error:.2g} (tolerance {limit:.2g})"),
        soft_wrap=True,
    )
    return 0
