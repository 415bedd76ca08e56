"""`gpubench check`: a kernel compiled for a GPU that need not be there, and run on the CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from rich.text import Text

from gpubench.backends.calls import as_tensors
from gpubench.backends.cuda.compile import compile_instance, nvrtc_version
from gpubench.commands.check.cases import (
    all_cases,
    evenly,
    expected,
    race_cases,
    tiles_to_run,
)
from gpubench.commands.check.on_cpu import KernelFaultError, Sanitizer, operands, run_on_cpu
from gpubench.engine.verify import poison
from gpubench.errors import CompileError, UsageError
from gpubench.hardware.architectures import DEFAULT, example
from gpubench.hardware.occupancy import occupancy
from gpubench.model import OPERATIONS, CallVariant, Config, CudaVariant, Problem, Variant
from gpubench.plan.descriptor import described_by
from gpubench.plan.ranges import parse_tiles
from gpubench.plan.registry import of_op
from gpubench.plan.sweep import Sweep
from gpubench.text import unknown
from gpubench.view.tables import console, table

FAULTY, NOT_RUN = 1, 3
"""Exit codes: a fault was found; nothing was, as the kernel could not be run here."""

SIZES = ((1, 1, 1), (17, 17, 17), (32, 32, 32), (13, 7, 5), (33, 1, 20), (1, 33, 20))
"""(M, N, K) at which a function on arrays is checked."""

MAX_SHOWN = 5
"""Wrong results that are printed."""

MAX_TILES = 4
"""Of those that nobody named."""


def run_check(
    name: str, kernels: Path | None, op: str | None, tiles: str | None, arch: str | None
) -> int:
    """Check a variant and print what was found; the exit code.

    Raises UsageError for a variant or tiles that there are not, and what its description raises.
    """
    op = op or Sweep().op
    if op not in OPERATIONS:
        raise UsageError(f"--op: {unknown('operation', op, OPERATIONS)}")
    known = of_op(op, kernels, [name])
    if name not in known:
        raise UsageError(unknown("variant", name, known))
    variant = known[name]
    with described_by(variant.path):
        chosen = _tiles(variant, tiles)
        if isinstance(variant, CallVariant):
            return _check_call(variant, chosen)
        if isinstance(variant, CudaVariant):
            of_source = [tile for tile in chosen if tile]
            compiles = _compile(variant, of_source, arch or DEFAULT)
            return _check_source(variant, of_source, asked=bool(tiles)) if compiles else FAULTY
    raise UsageError(f"'{name}' is neither a function nor a CUDA source")


def _tiles(variant: Variant, asked: str | None) -> list[Config | None]:
    """The tiles to check. Raises UsageError for one that the variant refuses."""
    space = variant.tiles
    if space is None:
        return [None]
    if asked is None:
        few = tiles_to_run(variant) if isinstance(variant, CudaVariant) else space.defaults
        return list(evenly(few, MAX_TILES))
    chosen = [space.read(text) for text in parse_tiles(asked)]
    for tile in chosen:
        if reason := space.why_not(tile):
            raise UsageError(f"--tiles: {variant.name} {reason}")
    return list(chosen)


def _compile(variant: CudaVariant, tiles: Sequence[Config], architecture: str) -> bool:
    """Compile the tiles for an architecture and print what they need; whether all compile."""
    screen = console()
    try:
        nvrtc_version()
    except CompileError as error:
        screen.print(Text(f"not compiled for a GPU: {error}"), soft_wrap=True)
        return True
    architecture = variant.architecture(architecture)
    capability = example(architecture).compute_capability
    grid = table(*("tile", "threads", "registers", "local", "shared", "occupancy"), left={"tile"})
    for tile in tiles:
        try:
            compiled = compile_instance(
                variant.source,
                variant.instance(tile, variant.dtypes[0]),
                architecture,
                variant.compile_options,
            )
        except CompileError as error:
            screen.print(Text(f"does not compile for {architecture}: {error}", style="red"))
            return False
        launch = variant.launch(tile, _problem(variant, 1024)).main
        need = compiled.resources
        held = occupancy(capability, need, launch) if capability else None
        grid.add_row(
            str(tile),
            str(launch.threads_per_block),
            str(need.registers),
            f"{need.local_bytes} B",
            f"{need.shared_bytes + launch.shared_bytes} B",
            f"{held.fraction:.0%}" if held else "",
        )
    screen.print(f"compiled for {architecture}, {variant.dtypes[0]}:")
    screen.print(grid)
    return True


def _check_source(variant: CudaVariant, tiles: Sequence[Config], *, asked: bool) -> int:
    """Run a CUDA source on the CPU, under both sanitizers at once; the exit code."""
    of_sanitizer = {
        Sanitizer.ADDRESS: all_cases(variant, tiles),
        Sanitizer.THREAD: race_cases(variant, tiles if asked else ()),
    }
    screen = console()
    with tempfile.TemporaryDirectory(prefix="gpubench-") as folder, ThreadPoolExecutor(2) as pool:
        runs = {
            sanitizer: pool.submit(run_on_cpu, found, sanitizer, Path(folder) / sanitizer.name)
            for sanitizer, found in of_sanitizer.items()
        }
        try:
            wrong = [
                _wrong(case.label, output, expected(case.problem))
                for sanitizer, run in runs.items()
                for case, output in zip(of_sanitizer[sanitizer], run.result(), strict=True)
            ]
        except KernelFaultError as fault:
            lines = ", ".join(f"{file} line {line}" for file, line in dict.fromkeys(fault.lines))
            label = fault.case.label if fault.case else variant.name
            screen.print(
                Text(f"\nfault: {label}: {fault.finding}\n{lines}".rstrip(), style="red"),
                soft_wrap=True,
            )
            return FAULTY
        except CompileError as error:
            screen.print(Text(f"\nnot run on the CPU: {error}", style="yellow"), soft_wrap=True)
            return NOT_RUN
    watched = {Sanitizer.ADDRESS: "AddressSanitizer, UBSan", Sanitizer.THREAD: "ThreadSanitizer"}
    return _conclude(
        variant,
        list(filter(None, wrong)),
        ", ".join(f"{len(found)} cases ({watched[one]})" for one, found in of_sanitizer.items()),
    )


def _check_call(variant: CallVariant, tiles: Sequence[Config | None]) -> int:
    """Call a function on arrays of the CPU at odd sizes; the exit code."""
    if variant.backend != "cpu":
        console().print(
            Text(f"not run: {variant.name} runs on {variant.backend}; sweep it there"),
            soft_wrap=True,
        )
        return NOT_RUN
    wrong, count = [], 0
    for dtype in variant.dtypes:
        for tile in tiles:
            call = variant.build(tile, dtype)
            for m, n, k in SIZES:
                problem = _problem(variant, m, n, k, dtype)
                if variant.why_not(tile, problem):
                    continue
                output = np.empty(problem.output_shape, problem.dtype)
                poison(output)
                if variant.reads_output:
                    output[...] = 0
                call(*as_tensors(variant.tensors, (*operands(problem), output)))
                label = f"{variant.name} {tile or ''} at {problem.size} {dtype}".replace("  ", " ")
                wrong.append(_wrong(label, output, expected(problem)))
                count += 1
    return _conclude(variant, list(filter(None, wrong)), f"{count} calls")


def _wrong(label: str, output: np.ndarray, right: np.ndarray) -> str:
    """What differs, or nothing: operands are whole numbers, so a right result is equal."""
    differing = np.argwhere(output != right)
    if not len(differing):
        return ""
    place = tuple(map(int, differing[0]))
    return (
        f"{label}: {len(differing)} of {right.size} elements are wrong, the first at "
        f"{list(place)}: {output[place]}, not {right[place]}"
    )


def _conclude(variant: Variant, wrong: Sequence[str], what: str) -> int:
    screen = console()
    for line in wrong[:MAX_SHOWN]:
        screen.print(Text(f"wrong: {line}", style="red"), soft_wrap=True)
    if len(wrong) > MAX_SHOWN:
        screen.print(f"and {len(wrong) - MAX_SHOWN} more cases")
    if wrong:
        return FAULTY
    screen.print(f"\n{variant.name} is right and clean on the CPU:\n{what}")
    return 0


def _problem(
    variant: Variant, m: int, n: int | None = None, k: int | None = None, dtype: str = ""
) -> Problem:
    has_k = OPERATIONS[variant.op].has_k
    return Problem(
        op=variant.op,
        m=m,
        n=m if n is None else n,
        k=(m if k is None else k) if has_k else 1,
        dtype=dtype or variant.dtypes[0],
    )
